"""Offset ranges of tasks and micro-batches. Pure.

Offsets of a stream stand in its checkpoint, in the form of the option `startingOffsets`. Spark reads a
batch again from there after a failure, so what a batch holds must follow from the two offsets alone. For a
partition that only the second one names there is no such range: it has none, and that offset is where its
reading begins. So the first batch of a stream is empty, and writes down where it begins; a partition
that was added later begins in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ureplicator_worker.kafka_batches.bounds import Offsets, TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """`start` <= offset < `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(start: Mapping[TopicPartition, int], end: Offsets) -> list[OffsetRange]:
    """Ranges that hold something, sorted."""
    return [
        OffsetRange(*key, start[key], end[key])
        for key in sorted(end)
        if key in start and start[key] < end[key]
    ]


def next_offsets(
    start: Offsets, first: Mapping[TopicPartition, int], last: Offsets, *, limit: int
) -> Offsets:
    """End of the micro-batch that begins at `start`.

    `first`: beginnings of partitions that `start` does not name. `last`: ends of all logs. At most `limit`
    offsets, 0 for any number, shared by what each partition has left, so that none falls behind.
    """
    left = {key: max(0, end - start[key]) for key, end in last.items() if key in start}
    total = sum(left.values())
    share = min(1.0, limit / total) if limit and total else 1.0
    found = {key: start[key] + _part(size, share) for key, size in left.items()}
    if limit:
        found = _within(found, start, limit, in_turn=sorted(left, key=lambda key: -left[key]))
    backwards = {key: end for key, end in last.items() if key in start and end < start[key]}
    return found | backwards | {key: first[key] for key in last if key not in start}


def _part(size: int, share: float) -> int:
    """One at least, so that a small partition beside large ones moves too."""
    return min(size, max(1, int(size * share)))


def _within(
    found: Offsets, start: Offsets, limit: int, *, in_turn: Iterable[TopicPartition]
) -> Offsets:
    """Offsets, not more than the limit, where many partitions have one each: those with most left go
    first."""
    kept: Offsets = {}
    for key in in_turn:
        kept[key] = min(found[key], start[key] + limit)
        limit -= kept[key] - start[key]
    return kept


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int, max_records: int
) -> list[OffsetRange]:
    """Ranges of tasks: large ones in several parts; 0: no limit."""
    whole = list(ranges)
    total = sum(range_.size for range_ in whole)
    found: list[OffsetRange] = []
    for range_ in whole:
        parts = 1
        if max_records:
            parts = -(-range_.size // max_records)
        if len(whole) < min_partitions:
            parts = max(parts, -(-range_.size * min_partitions // total))
        found += _parts(range_, min(parts, range_.size))
    return found


def _parts(whole: OffsetRange, count: int) -> Iterator[OffsetRange]:
    """Parts of equal sizes, as far as they go."""
    for number in range(count):
        start = whole.start + whole.size * number // count
        end = whole.start + whole.size * (number + 1) // count
        yield replace(whole, start=start, end=end)


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The form of checkpoints. Spark compares offsets as texts, so the order is always the same."""
    found: dict[str, dict[str, int]] = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, {})[str(number)] = offsets[topic, number]
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(number)): offset
        for topic, rows in found.items()
        for number, offset in rows.items()
    }
