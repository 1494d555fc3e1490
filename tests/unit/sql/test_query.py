"""Queries that are refused, and what a result's columns mean."""

from __future__ import annotations

import pytest

from ureplicator_worker.sql.query import (
    ANALYSED_NODES,
    COLUMNS,
    Column,
    Query,
    QueryRefused,
    casts,
    check_columns,
    check_nodes,
    computed_of,
    passed_of,
)

VALUE = Column("value", "binary", passes=True)
HEADERS = COLUMNS["headers"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([Column("key", "binary", passes=True)], "no column value is selected"),
        ([VALUE, VALUE], "column value is selected twice"),
        (
            [VALUE, Column("total", "bigint", passes=False)],
            "column total is no field of a record (key, value, headers, timestamp, partition, topic)",
        ),
        (
            [Column("value", "struct<a:int>", passes=False)],
            "column value is struct<a:int>, not binary or string",
        ),
        (
            [VALUE, Column("headers", "array<string>", passes=False)],
            f"column headers is array<string>, not {HEADERS}",
        ),
        (
            [VALUE, Column("partition", "double", passes=False)],
            "column partition is double, not tinyint or smallint or int or bigint",
        ),
    ],
)
def test_a_result_that_is_no_record_is_refused(columns: list[Column], reason: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        check_columns(columns)
    assert str(refused.value) == reason


@pytest.mark.parametrize("type_", ["binary", "string"])
def test_a_value_alone_is_a_record(type_: str) -> None:
    check_columns([Column("value", type_, passes=False)])


def test_all_columns_of_the_view_are_a_record() -> None:
    columns = [Column(name, type_, passes=True) for name, type_ in COLUMNS.items()]
    check_columns(columns)
    assert computed_of(columns) == ()
    query = Query(None, frozenset(), passed_of(columns), computed_of(columns))
    assert query.whole


@pytest.mark.parametrize("node", ["Aggregate", "Join", "Window", "Sort", "GlobalLimit", "Union"])
def test_a_plan_that_is_not_row_by_row_is_refused(node: str) -> None:
    with pytest.raises(QueryRefused, match=f"not row by row: {node} is not supported"):
        check_nodes(["Project", node, "View"], ANALYSED_NODES)


def test_projections_filters_and_generators_are_row_by_row() -> None:
    check_nodes(["Project", "Generate", "Filter", "SubqueryAlias", "View"], ANALYSED_NODES)


def test_computed_columns_are_cast_to_what_a_record_has() -> None:
    columns = [
        Column("key", "string", passes=False),
        VALUE,
        Column("partition", "tinyint", passes=False),
        Column("offset", "bigint", passes=True),
    ]
    assert computed_of(columns) == ("key", "partition")
    assert passed_of(columns) == {"value"}
    assert casts(computed_of(columns)) == [
        "CAST(`key` AS BINARY) AS `key`",
        "CAST(`partition` AS BIGINT) AS `partition`",
    ]


def test_a_query_that_leaves_a_column_out_does_not_leave_records_whole() -> None:
    assert not Query(None, frozenset(), frozenset({"key", "value"}), ()).whole
