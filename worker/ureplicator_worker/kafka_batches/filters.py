"""Ranges made smaller by the filters of a query on topic, partition, offset and timestamp.

They only leave out what no filter lets pass; Spark applies every filter to what is read. Of times, only a
lower bound is of use: the first record not older than a time is known, but older ones may follow it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ureplicator_worker.kafka_batches.bounds import TopicPartition
from ureplicator_worker.kafka_batches.planning import OffsetRange

EVERY = 1 << 62


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bounds of what the filters let pass. None: no filter."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = EVERY
    from_ms: int | None = None

    def partition(self, key: TopicPartition) -> bool:
        topic, number = key
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or number in self.partitions
        )

    def cut(self, whole: OffsetRange) -> OffsetRange:
        return replace(whole, start=max(whole.start, self.start), end=min(whole.end, self.end))


def wanted(filters: Iterable[Filter]) -> Wanted:
    found = Wanted()
    for filter_ in filters:
        if isinstance(filter_, EqualTo | EqualNullSafe):
            found = _equal(found, filter_.attribute, (filter_.value,))
        elif isinstance(filter_, In):
            found = _equal(found, filter_.attribute, filter_.value)
        elif isinstance(filter_, GreaterThan | GreaterThanOrEqual):
            found = _above(
                found, filter_.attribute, filter_.value, more=isinstance(filter_, GreaterThan)
            )
        elif isinstance(filter_, LessThan | LessThanOrEqual) and filter_.attribute == ("offset",):
            end = filter_.value + isinstance(filter_, LessThanOrEqual)
            found = replace(found, end=min(found.end, end))
    return found


def _equal(found: Wanted, column: tuple[str, ...], values: tuple[Any, ...]) -> Wanted:
    values = tuple(value for value in values if value is not None)
    if column == ("topic",):
        topics = frozenset(values)
        return replace(found, topics=topics if found.topics is None else found.topics & topics)
    if column == ("partition",):
        numbers = frozenset(values)
        both = numbers if found.partitions is None else found.partitions & numbers
        return replace(found, partitions=both)
    if column == ("offset",) and values:
        start, end = min(values), max(values) + 1
        return replace(found, start=max(found.start, start), end=min(found.end, end))
    if column == ("timestamp",) and values:
        return _above(found, column, min(values), more=False)
    return found


def _above(found: Wanted, column: tuple[str, ...], value: Any, *, more: bool) -> Wanted:
    if column == ("offset",):
        return replace(found, start=max(found.start, value + more))
    if column == ("partition",):
        return found
    if column == ("timestamp",) and isinstance(value, datetime):
        from_ms = int(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1_000) - 1
        return replace(found, from_ms=max(0, from_ms, found.from_ms or 0))
    return found
