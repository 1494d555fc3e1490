"""Comparison of a copy with its original: records missing, extra, duplicated, out of order or changed.

Records carry no identity that a replicator keeps: offsets differ, and two records may be equal. So the
n-th occurrence of a content in the source is matched with the n-th occurrence of the same content
in the target. A record without a match is missing or extra; occurrences beyond those of the source
are duplicates. Order is judged by first occurrences only, so that a replay (1 2 3 2 3 4) counts as
duplicates and not as disorder. A missing and an extra record that agree in most of their parts are
reported as one changed record.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """One record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: int
    timestamp: int


Log = Mapping[int, Sequence[ConsumedRecord]]


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    """Differences of one partition; equal when every list is empty."""

    partition: int
    source_count: int
    target_count: int
    missing: tuple[ConsumedRecord, ...]
    extra: tuple[ConsumedRecord, ...]
    duplicates: tuple[ConsumedRecord, ...]
    reordered: tuple[ConsumedRecord, ...]
    different: tuple[tuple[ConsumedRecord, ConsumedRecord], ...]

    @property
    def clean(self) -> bool:
        return self.faultless and not self.duplicates

    @property
    def faultless(self) -> bool:
        return not (self.missing or self.extra or self.reordered or self.different)

    def __str__(self) -> str:
        parts = []
        for name in ("missing", "extra", "duplicates", "reordered", "different"):
            found = getattr(self, name)
            if found:
                parts.append(f"{len(found)} {name} (first: {found[0]})")
        wrong = "; ".join(parts) or "equal"
        counts = f"{self.source_count} records at the source, {self.target_count} at the target"
        return f"partition {self.partition}: {counts}: {wrong}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All partitions of one topic."""

    partitions: tuple[PartitionDifference, ...]

    @property
    def clean(self) -> bool:
        """Every record is present once, unchanged and in order."""
        return all(report.clean for report in self.partitions)

    @property
    def faultless(self) -> bool:
        """True as for `clean`, with duplicates allowed."""
        return all(report.faultless for report in self.partitions)

    @property
    def duplicates(self) -> int:
        return sum(len(report.duplicates) for report in self.partitions)

    @property
    def records(self) -> int:
        """Records of the source that were compared."""
        return sum(report.source_count for report in self.partitions)

    def assert_clean(self) -> None:
        assert self.records, "nothing was compared"
        assert self.clean, str(self)

    def assert_faultless(self) -> None:
        """Assert at least once: nothing lost, changed or out of order. For its repeats see `repeats`."""
        assert self.records, "nothing was compared"
        assert self.faultless, str(self)

    def __str__(self) -> str:
        wrong = [str(report) for report in self.partitions if not report.clean]
        return "\n".join(wrong) or f"{len(self.partitions)} partitions are equal"


def compare(source: Log, target: Log, *, timestamps: bool = True) -> Comparison:
    """Compare partition by partition; without `timestamps`, times of records may differ."""
    partitions = sorted({*source, *target})
    return Comparison(
        tuple(
            _compare_partition(p, source.get(p, ()), target.get(p, ()), timestamps)
            for p in partitions
        )
    )


Content = tuple[Hashable, ...]
Identity = tuple[Content, int]  # a content, and the number of the occurrence


def _compare_partition(
    partition: int,
    source: Sequence[ConsumedRecord],
    target: Sequence[ConsumedRecord],
    timestamps: bool,
) -> PartitionDifference:
    def content(record: ConsumedRecord) -> Content:
        times = (record.timestamp_type, record.timestamp) if timestamps else ()
        return (record.key, record.value, record.headers, *times)

    wanted = _identify(source, content)
    found = _identify(target, content)
    contents = {identity[0] for identity in wanted}
    missing = [record for identity, record in wanted.items() if identity not in found]
    surplus = [(identity, record) for identity, record in found.items() if identity not in wanted]
    duplicates = [record for identity, record in surplus if identity[0] in contents]
    extra = [record for identity, record in surplus if identity[0] not in contents]
    return PartitionDifference(
        partition=partition,
        source_count=len(source),
        target_count=len(target),
        different=tuple(_pair_changed(missing, extra)),  # removes its pairs from both lists
        missing=tuple(missing),
        extra=tuple(extra),
        duplicates=tuple(duplicates),
        reordered=tuple(_out_of_order(wanted, found)),
    )


def _identify(
    records: Sequence[ConsumedRecord], content: Callable[[ConsumedRecord], Content]
) -> dict[Identity, ConsumedRecord]:
    seen: Counter[Content] = Counter()
    identified = {}
    for record in records:
        what = content(record)
        identified[what, seen[what]] = record
        seen[what] += 1
    return identified


def _out_of_order(
    wanted: Mapping[Identity, ConsumedRecord], found: Mapping[Identity, ConsumedRecord]
) -> list[ConsumedRecord]:
    place = {identity: index for index, identity in enumerate(wanted)}
    late, highest = [], -1
    for identity, record in found.items():
        if identity in place:
            if place[identity] < highest:
                late.append(record)
            highest = max(highest, place[identity])
    return late


def _pair_changed(
    missing: list[ConsumedRecord], extra: list[ConsumedRecord]
) -> list[tuple[ConsumedRecord, ConsumedRecord]]:
    likenesses: tuple[Callable[[ConsumedRecord], Hashable], ...] = (
        lambda r: (r.key, r.value),
        lambda r: (r.value, r.headers, r.timestamp),
        lambda r: (r.key, r.headers, r.timestamp),
    )
    pairs = []
    for likeness in likenesses:
        candidates: dict[Hashable, list[ConsumedRecord]] = defaultdict(list)
        for record in extra:
            candidates[likeness(record)].append(record)
        for record in list(missing):
            if candidates[likeness(record)]:
                partner = candidates[likeness(record)].pop(0)
                missing.remove(record)
                extra.remove(partner)
                pairs.append((record, partner))
    return pairs
