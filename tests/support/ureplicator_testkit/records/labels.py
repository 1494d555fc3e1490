"""Records that name themselves: their topic, their partition, and their number in it.

With the same records in every partition, a response that was ingested for the wrong partition would
go unnoticed. Each record names the place that it belongs to, and no two are equal. What else it has
varies with its number: key, headers, time, size.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ureplicator_testkit.records.comparison import ConsumedRecord, Headers, Log
from ureplicator_testkit.records.topics import NewRecord

END = b"|"
LABEL = re.compile(rb"([^|/]+)/(\d+)/(\d+)\|")
FILLER = random.Random(9).randbytes(1 << 17)  # noqa: S311
LONG_AGO_MS = 1_600_000_000_000
HEADERS: tuple[Headers, ...] = (
    (),
    (("h", b"1"),),
    (("h", b"1"), ("h", b"2"), ("h", None), ("h", b"2")),
    (("\u00fc", b""), ("bytes", b"\xff\x00")),
    (),
)


class Label(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    number: int

    def encode(self) -> bytes:
        return b"%s/%d/%d" % (self.topic.encode(), self.partition, self.number)


def labelled(topic: str, partition: int, number: int, *, filler_bytes: int = 0) -> NewRecord:
    """One of eleven is a tombstone, with the label in its key."""
    label = Label(topic, partition, number).encode() + END
    key = (None, b"", b"key-%d" % (number % 7), b"key-%d" % number)[number % 4]
    at = number * 31 % (len(FILLER) - filler_bytes)
    tombstone = number % 11 == 3
    return NewRecord(
        value=None if tombstone else label + FILLER[at : at + filler_bytes],
        key=label if tombstone else key,
        partition=partition,
        headers=HEADERS[number % len(HEADERS)],
        timestamp=(None, 1, LONG_AGO_MS + number)[number % 3],
    )


def labelled_records(
    topic: str, *, partitions: int, count: int, first: int = 0, filler_bytes: int = 0
) -> Iterator[NewRecord]:
    """Records, so many for each partition, numbered from `first`, in turn."""
    for number in range(first, first + count):
        for partition in range(partitions):
            yield labelled(topic, partition, number, filler_bytes=filler_bytes)


def label_of(record: ConsumedRecord) -> Label:
    found = find_label(record)
    assert found is not None, f"without a label: {record}"
    return found


def find_label(record: ConsumedRecord) -> Label | None:
    """None if the record names no place."""
    written = record.value if record.value is not None else record.key
    found = LABEL.match(written or b"")
    return Label(found[1].decode(), int(found[2]), int(found[3])) if found else None


def numbers(log: Log, topic: str) -> dict[int, Counter[int]]:
    """Partition -> the numbers that it holds; each record must be in the partition that it names."""
    found: dict[int, Counter[int]] = {}
    for partition, records in log.items():
        labels = [label_of(record) for record in records]
        strangers = [label for label in labels if label[:2] != (topic, partition)]
        assert not strangers, f"{topic}/{partition} holds records of {strangers[:3]}"
        found[partition] = Counter(label.number for label in labels)
    return found


def assert_holds(log: Log, topic: str, acknowledged: Mapping[int, Collection[int]]) -> None:
    """Every acknowledged number is there, once."""
    assert_none_lost(log, topic, acknowledged)
    for partition, times in numbers(log, topic).items():
        twice = [number for number, count in times.items() if count > 1]
        assert not twice, f"{topic}/{partition} holds twice {_first(twice)}"


def assert_none_lost(log: Log, topic: str, acknowledged: Mapping[int, Collection[int]]) -> None:
    """Every acknowledged number is there.

    Once or more often: librdkafka's idempotent producer can repeat a record when the leader of its
    partition is lost (https://github.com/confluentinc/librdkafka/issues/4953).
    """
    found = numbers(log, topic)
    assert any(acknowledged.values()), "nothing was acknowledged"
    for partition, wanted in acknowledged.items():
        missing = sorted(set(wanted) - found[partition].keys())
        assert not missing, f"{topic}/{partition} lost {_first(missing)}"


def _first(found: Iterable[int]) -> str:
    listed = list(found)
    return f"{len(listed)} records, first {listed[:3]}"
