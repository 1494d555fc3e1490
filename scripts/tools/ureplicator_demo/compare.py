"""Comparison of both sides, record by record and partition by partition, so that memory stays small."""

from __future__ import annotations

from ureplicator_testkit.records.comparison import (
    Comparison,
    ConsumedRecord,
    PartitionDifference,
    compare,
)
from ureplicator_testkit.records.topics import read_all


def compare_clusters(source: str, target: str, topic: str, partitions: int) -> Comparison:
    """Compare key, value, headers, timestamp and order of every record."""
    reports: list[PartitionDifference] = []
    for number in range(partitions):
        original = read_all(source, topic, only=[number])[number]
        copy = read_all(target, topic, only=[number])[number]
        reports += _judged(number, original, copy)
    return Comparison(tuple(reports))


def _judged(
    number: int, original: tuple[ConsumedRecord, ...], copy: tuple[ConsumedRecord, ...]
) -> tuple[PartitionDifference, ...]:
    """The full comparison is slow; equal logs, the usual case, do not need it."""
    if list(map(_content, original)) == list(map(_content, copy)):
        count = len(original)
        return (PartitionDifference(number, count, count, (), (), (), (), ()),)
    return compare({number: original}, {number: copy}).partitions


def _content(record: ConsumedRecord) -> tuple[object, ...]:
    return (record.key, record.value, record.headers, record.timestamp_type, record.timestamp)
