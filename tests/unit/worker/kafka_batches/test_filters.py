"""Filters leave out only what they let not pass."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ureplicator_worker.kafka_batches.filters import Wanted, wanted
from ureplicator_worker.kafka_batches.planning import OffsetRange

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], Wanted()),
        ([EqualTo(("topic",), "t")], Wanted(topics=frozenset({"t"}))),
        (
            [In(("partition",), (1, 2)), EqualTo(("partition",), 2)],
            Wanted(partitions=frozenset({2})),
        ),
        ([EqualTo(("offset",), 7)], Wanted(start=7, end=8)),
        ([In(("offset",), (9, 7))], Wanted(start=7, end=10)),
        ([GreaterThan(("offset",), 7), LessThanOrEqual(("offset",), 9)], Wanted(start=8, end=10)),
        ([GreaterThanOrEqual(("offset",), 7), LessThan(("offset",), 9)], Wanted(start=7, end=9)),
        ([GreaterThanOrEqual(("timestamp",), NOON)], Wanted(from_ms=NOON_MS - 1)),
        ([LessThan(("timestamp",), NOON)], Wanted()),
        ([Not(EqualTo(("offset",), 7)), IsNotNull(("key",))], Wanted()),
        ([EqualTo(("key",), b"7"), GreaterThan(("partition",), 3)], Wanted()),
    ],
)
def test_what_filters_want(filters: list[Filter], found: Any) -> None:
    assert wanted(filters) == found


def test_partitions_and_ranges_are_cut() -> None:
    want = Wanted(topics=frozenset("t"), partitions=frozenset({1}), start=5, end=9)
    keys = [("t", 0), ("t", 1), ("u", 1)]
    assert [key for key in keys if want.partition(key)] == [("t", 1)]
    assert want.cut(OffsetRange("t", 1, 0, 20)) == OffsetRange("t", 1, 5, 9)
    assert want.cut(OffsetRange("t", 1, 7, 8)) == OffsetRange("t", 1, 7, 8)
