"""A query: its columns, and the reasons to refuse it. Pure.

Its result must be row by row: each row of it comes from one record, in the order of the records. So its
analysed plan has nothing but projections, filters and generators (`explode`) over the view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VIEW = "records"
ROW = "__ureplicator_row"
"""Column with the number of the record in its round."""

COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Columns of the view and their types: those of Spark's source for Kafka, with headers."""

PARSED_NODES = ("Project", "Filter", "SubqueryAlias", "Generate", "UnresolvedRelation")
ANALYSED_NODES = (
    "Project",
    "Filter",
    "SubqueryAlias",
    "Generate",
    "View",
    "LocalRelation",
    "LogicalRDD",
)
_FOR_A_RECORD: Mapping[str, tuple[tuple[str, ...], str]] = {
    "key": (("binary", "string"), "BINARY"),
    "value": (("binary", "string"), "BINARY"),
    "headers": ((COLUMNS["headers"],), COLUMNS["headers"]),
    "timestamp": (("timestamp",), "TIMESTAMP"),
    "partition": (("tinyint", "smallint", "int", "bigint"), "BIGINT"),
    "topic": (("string",), "STRING"),
}
"""Columns of a result that a record is made of: the types that they may have, and what they are cast to."""
_IGNORED = ("offset", "timestampType")
_AS_IT_IS = ("key", "value", "headers")


class QueryRefused(Exception):
    """The query cannot be used, with the reason on one line."""


class QueryFailed(Exception):
    """Spark cannot evaluate the query over the rows of a round; the reason on one line."""


class SessionLost(Exception):
    """The JVM is gone."""


@dataclass(frozen=True, slots=True)
class Column:
    """`passes`: it is the column of the view with the same name, unchanged."""

    name: str
    type: str
    passes: bool


@dataclass(frozen=True, slots=True)
class Query:
    """`plan`: of Spark; its result has the columns ROW and `computed`. `passed`: columns that are those of
    the record. `inputs`: columns of the view that it computes with. Other columns of a record are missing.
    """

    plan: Any
    inputs: frozenset[str]
    passed: frozenset[str]
    computed: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Records are left out at most, and none is changed."""
        return not self.computed and self.passed.issuperset(_AS_IT_IS)


def check_nodes(nodes: Iterable[str], allowed: Sequence[str]) -> None:
    """Raises QueryRefused for a plan that is not row by row."""
    for node in nodes:
        if node not in allowed:
            name = node.removeprefix("Unresolved")
            raise QueryRefused(f"the query is not row by row: {name} is not supported")


def check_columns(columns: Sequence[Column]) -> None:
    """Raises QueryRefused unless records can be made of the result."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise QueryRefused(f"column {column.name} is selected twice")
        seen.add(column.name)
        if column.name in _IGNORED:
            continue
        known = _FOR_A_RECORD.get(column.name)
        if known is None:
            fields = ", ".join(_FOR_A_RECORD)
            raise QueryRefused(f"column {column.name} is no field of a record ({fields})")
        if column.type not in known[0]:
            expected = " or ".join(known[0])
            raise QueryRefused(f"column {column.name} is {column.type}, not {expected}")
    if "value" not in seen:
        raise QueryRefused("no column value is selected")


def passed_of(columns: Sequence[Column]) -> frozenset[str]:
    return frozenset(
        column.name for column in columns if column.passes and column.name not in _IGNORED
    )


def computed_of(columns: Sequence[Column]) -> tuple[str, ...]:
    names = (column.name for column in columns if not column.passes)
    return tuple(name for name in names if name not in _IGNORED)


def casts(computed: Sequence[str]) -> list[str]:
    """Expressions that select the computed columns in the types that `rounds` reads."""
    return [f"CAST(`{name}` AS {_FOR_A_RECORD[name][1]}) AS `{name}`" for name in computed]
