"""Ranges to compare behind the copy within a byte budget. Pure.

Reading all records of both sides costs more CPU than the copy itself, which never decodes one. So a route
has a byte rate. As long as new records fit the rate, all of them are compared. Beyond it, the newest
part of each partition is compared and the rest skipped and counted: a fault of a copier or of a target that
lasts is found in a sample, a single lost record may not be. What was compared is stated as coverage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ureplicator_common.audits import Finding, TopicAudit, VerifiedRange
from ureplicator_common.audits.ranges import is_of
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.core.batches import Place
from ureplicator_worker.audit.core.claims import Claim, claim_of
from ureplicator_worker.audit.result import NO_OFFSET, FindingKind
from ureplicator_worker.auditor.preparation import next_first

MIN_OFFSETS = 100
"""Least part of a partition that is worth a task: finding the copy of its first record costs as much."""
REFRESH_MS = 600_000
"""A topic without new records shows a time that is not older than this."""
FIRST_OFFSETS = 30
"""Offsets of a topic whose size of records is not known, in its first comparison: with records of 1 MB,
the most that brokers take by default, they are a pass of the default rate."""
GUESSED_BYTES = 1_000.0
"""Size of a record, where none is known."""
LEAD_OFFSETS = 1_000
"""Offsets that are compared before a difference, so that both sides are aligned where it begins."""


@dataclass(frozen=True, slots=True)
class Due:
    """A topic with positions read at `read_ms`, and its state. `unfinished`: partitions for the next pass.
    `stored`: positions as they were read, also of other topics."""

    key: TopicKey
    intent: TopicIntent
    audit: TopicAudit | None
    positions: Mapping[int, int]
    read_ms: int
    unfinished: frozenset[int] = frozenset()
    stored: Mapping[TargetPartition, Position] = field(default_factory=dict)

    def claim(self, number: int) -> Claim:
        return claim_of(self.stored.get((self.target_topic, number)))

    @property
    def places(self) -> dict[int, Place]:
        """Places at which partitions with new records are known to be aligned."""
        known = {
            number: next_first(self.audit, self.intent, number) or (position, NO_OFFSET)
            for number, position in self.positions.items()
        }
        return {
            number: Place(first, copy)
            for number, (first, copy) in known.items()
            if first < self.positions[number] and copy != NO_OFFSET
        }

    @property
    def target_topic(self) -> str:
        return self.intent.target_topic

    def without(self, numbers: Collection[int]) -> Due:
        positions = {n: offset for n, offset in self.positions.items() if n not in numbers}
        return replace(self, positions=positions)

    @property
    def oldest_ms(self) -> int:
        known = self.audit.partitions.values() if self.audit else ()
        return min((verified.at_ms for verified in known), default=0)

    def new(self, sizes: Mapping[TopicKey, float]) -> dict[int, NewRecords]:
        """Records that were copied and not looked at, by partition. `sizes`: of a record, in bytes, of topics
        where it is known."""
        record_bytes = sizes.get(self.key)
        most = max(1, FIRST_OFFSETS // max(1, len(self.positions)))
        found = {}
        for number, position in self.positions.items():
            if number in self.unfinished:
                continue
            first, target_first = next_first(self.audit, self.intent, number) or (position, -1)
            if first < position:
                end = position if record_bytes else min(position, first + most)
                size = record_bytes or GUESSED_BYTES
                found[number] = NewRecords(first, end, target_first, size)
        return found

    @property
    def differs(self) -> bool:
        known = self.audit.partitions.values() if self.audit else ()
        return any(verified.differences for verified in known)

    def findings(self, numbers: Collection[int]) -> Iterator[Finding]:
        """Known differences of these partitions."""
        known = self.audit.findings if self.audit else ()
        return (finding for finding in known if finding.partition in numbers)

    def is_covered(self, number: int, new: VerifiedRange) -> bool:
        """True if all differences of a partition lie in this range."""
        known = self.audit.partitions[number].differences if self.audit else None
        return known is not None and new.first <= known.first and known.last < new.next


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Source offsets of one partition that were copied and not looked at. `target_next`: where the copy of
    the first one lies; -1: not known. `record_bytes`: mean size of its records."""

    first: int
    next: int
    target_next: int
    record_bytes: float

    @property
    def size_bytes(self) -> float:
        return (self.next - self.first) * self.record_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Source offsets to compare, after `skipped` ones that are left out."""

    first: int
    next: int
    target_first: int
    skipped: int


def samples(new: Mapping[int, NewRecords], *, budget_bytes: float) -> dict[int, Sample]:
    """The whole of each partition if that fits the budget, else the same share of each, its newest."""
    total_bytes = sum(records.size_bytes for records in new.values())
    share = min(1.0, budget_bytes / total_bytes) if total_bytes else 1.0
    return {
        number: _sample(records, share)
        for number, records in new.items()
        if records.first < records.next
    }


def _sample(new: NewRecords, share: float) -> Sample:
    offsets = new.next - new.first
    wanted = min(offsets, max(MIN_OFFSETS, int(offsets * share)))
    if wanted == offsets:
        return Sample(new.first, new.next, new.target_next, 0)
    return Sample(new.next - wanted, new.next, -1, offsets - wanted)


def passed_offsets(
    chosen: Mapping[int, Sample], compared: Mapping[int, VerifiedRange]
) -> tuple[int, int]:
    """Offsets that were skipped, and all that were passed, of the partitions that could be compared."""
    skipped = passed = 0
    for number, sample in chosen.items():
        if number in compared:
            skipped += sample.skipped
            passed += sample.skipped + max(0, compared[number].next - sample.first)
    return skipped, passed


def differing(due: Due, *, offsets: int) -> dict[int, Sample]:
    """Ranges of a topic that differ, with what precedes them; no more than so many offsets. Those that differ
    by shifted records only are left out: these stay where they are."""
    found: dict[int, Sample] = {}
    if due.audit is None or not is_of(
        due.audit, due.intent.source_topic_id, due.intent.target_topic_id
    ):
        return found
    for number, verified in due.audit.partitions.items():
        wrong = verified.differences
        if wrong is None or due.positions.get(number, 0) <= wrong.last:
            continue
        if wrong.counts.keys() == {FindingKind.SHIFTED}:
            continue
        sample = Sample(max(0, wrong.first - LEAD_OFFSETS), wrong.last + 1, NO_OFFSET, 0)
        offsets -= sample.next - sample.first
        if offsets < 0:
            break
        found[number] = sample
    return found


def known_positions(
    found: Mapping[TargetPartition, Position], intent: TopicIntent
) -> dict[int, int]:
    """Positions of the partitions that have one."""
    topic = intent.target_topic
    stored = {n: found[topic, n] for n in range(intent.partitions) if (topic, n) in found}
    return {number: position.offset for number, position in stored.items() if position.offset >= 0}


def caught_up(due: Due, number: int, position: int) -> VerifiedRange | None:
    """The range of a partition without new records, if its time is due to be written."""
    known = next_first(due.audit, due.intent, number)
    if known is None:
        return VerifiedRange(position, position, due.read_ms)
    assert due.audit is not None
    verified = due.audit.partitions[number]
    if verified.next != position or due.read_ms - verified.at_ms < REFRESH_MS:
        return None
    return replace(verified, at_ms=due.read_ms)
