"""Values of an audit: what to compare, and what was found.

Source offsets name records everywhere: a partition is verified from one source offset to before another.
The state of a result:

    equal            nothing differs; repeats that at_least_once allows are counted, and allowed
    different        records are missing, altered, reordered or foreign, or repeated in exactly_once
    incomplete       ended before all partitions were verified; it can be resumed
    not verified     nothing differs, but a partition, or the whole topic, had nothing to compare
    not comparable   the copy is not meant to be equal (`not_comparable` is the reason)

Counts are exact. Findings name single records, and each partition keeps only the first
`max_findings` of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from ureplicator_common.audits import EMPTY_RANGE
from ureplicator_common.model import Delivery, camel
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim

T = TypeVar("T")

NO_OFFSET = -1


class FindingKind(StrEnum):
    """Kind of a difference."""

    MISSING = "missing"
    REPEATED = "repeated"
    ALTERED = "altered"
    REORDERED = "reordered"
    FOREIGN = "foreign"
    SHIFTED = "shifted"


class AuditState(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"
    NOT_VERIFIED = "not verified"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Finding:
    """One record that differs; -1 for the offset on a side that does not have it, or where it is not
    known. `detail`: the altered parts, separated by commas. A shifted one stands for those behind it that are
    shifted by as much, too."""

    partition: int
    kind: FindingKind
    source_offset: int
    target_offset: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Source offsets of one partition: from `first` (-1: from the start of the log) to before `end`.

    `end` is the committed position of the route. `target_first` is where the copy of `first` is expected:
    a former audit ended there. -1: it is found by times and contents, and records of the target before
    the first match are not compared. `log_start`: where the source's log begins; for progress. `claim`:
    what the position says about offsets.
    """

    partition: int
    end: int
    first: int = NO_OFFSET
    target_first: int = NO_OFFSET
    uncompared: str = ""
    log_start: int = 0
    claim: Claim = UNCLAIMED


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`delivery`: in at_least_once repeats are within the promise. `start`: the route's start, since with
    any but `earliest` the first records are not on the target. `timestamps`: false where the target
    stamps records itself. `rate_bytes_per_s`: limit for each side, 0 none. `round_s`: time after which
    progress is reported. `stop_at_end`: do not go on behind the range once all differences are explained.
    `segments`: those of an offset map are wanted, too. `same_offsets`: each record is to have its offset at
    the target, too, whatever the positions claim, and all records of the target are read."""

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    start: str = "earliest"
    source_compacted: bool = False
    target_compacted: bool = False
    timestamps: bool = True
    rate_bytes_per_s: int = 0
    max_findings: int = 10_000
    round_s: float = 15.0
    stop_at_end: bool = False
    segments: bool = False
    same_offsets: bool = False


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """`route` is written `source.target`. `not_comparable`: the reason, if nothing is to be compared.
    Topic ids are "" where they are not known. `notes`: what is not seen."""

    route: str
    topic: str
    target_topic: str
    partitions: tuple[PartitionRange, ...]
    options: AuditOptions = AuditOptions()
    not_comparable: str = ""
    source_topic_id: str = ""
    target_topic_id: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Source offsets from `verified_from` to before `verified_to` were compared; `end` is the aim.

    `target_to`: target offset to go on at. `compared`: records that are equal on both sides. `compacted`:
    records that are on one side only because compaction or retention removed them on the other.
    `uncompared`: the reason why nothing could be compared, up to the end. `shifted`: equal records at another
    offset than the position claims.
    """

    partition: int
    verified_from: int
    verified_to: int
    target_to: int = NO_OFFSET
    end: int = 0
    compared: int = 0
    compared_bytes: int = 0
    missing: int = 0
    repeated: int = 0
    altered: int = 0
    reordered: int = 0
    foreign: int = 0
    compacted: int = 0
    notes: tuple[str, ...] = ()
    findings_kept: int = 0
    uncompared: str = ""
    shifted: int = 0

    @property
    def complete(self) -> bool:
        return self.verified_to >= self.end

    @property
    def differences(self) -> int:
        """Differences without repeats."""
        return self.missing + self.altered + self.reordered + self.foreign + self.shifted


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Times are wall clock in milliseconds, for display; `ended_ms` is 0 while the audit runs.

    `segments`: of an offset map, by partition, if they were wanted. They are not in the JSON.
    """

    route: str
    topic: str
    target_topic: str
    partitions: tuple[PartitionResult, ...]
    findings: tuple[Finding, ...] = ()
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    not_comparable: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    notes: tuple[str, ...] = field(default=())
    source_topic_id: str = ""
    target_topic_id: str = ""
    segments: Mapping[int, tuple[MapSegment, ...]] = field(default_factory=dict)

    @property
    def state(self) -> AuditState:
        if self.not_comparable:
            return AuditState.NOT_COMPARABLE
        repeats = self.total("repeated") if self.delivery is Delivery.EXACTLY_ONCE else 0
        if repeats or any(partition.differences for partition in self.partitions):
            return AuditState.DIFFERENT
        if not all(partition.complete for partition in self.partitions):
            return AuditState.INCOMPLETE
        return AuditState.NOT_VERIFIED if self.unverified else AuditState.EQUAL

    @property
    def unverified(self) -> str:
        """Reason why an audit without differences proves nothing; "" if it does."""
        reasons = [
            f"{part.partition}: {part.uncompared}" for part in self.partitions if part.uncompared
        ]
        if reasons:
            more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
            return f"partition {reasons[0]}{more}"
        nothing = not self.total("compared") and not self.total("compacted")
        return EMPTY_RANGE if nothing else ""

    @property
    def reason(self) -> str:
        """One line for an audit that could not be done, or not to the end; "" for the others."""
        incomplete = [partition for partition in self.partitions if not partition.complete]
        why = incomplete[0].notes[-1:] if incomplete else ()
        reasons = {
            AuditState.NOT_COMPARABLE: self.not_comparable,
            AuditState.NOT_VERIFIED: self.unverified,
            AuditState.INCOMPLETE: "".join(why) or "its end was not reached",
        }
        return reasons.get(self.state, "")

    def total(self, count: str) -> int:
        """Sum of one count over the partitions."""
        return sum(getattr(partition, count) for partition in self.partitions)

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Advice for each kind that was found, the most serious first."""
        steps = []
        if self.not_comparable:
            steps.append(f"nothing to do: {self.not_comparable}")
        steps += [text for kind, text in _STEPS.items() if self.total(kind)]
        if self.total("repeated") and self.delivery is Delivery.EXACTLY_ONCE:
            steps.append(_REPEATED_IN_EXACTLY_ONCE)
        if not self.not_comparable and not all(partition.complete for partition in self.partitions):
            steps.append("the audit did not reach the end: run it again with --resume")
        if self.state is AuditState.NOT_VERIFIED:
            steps.append(f"nothing is proved: {self.unverified}")
        return tuple(steps)

    def to_json(self) -> dict[str, Any]:
        counts = ("compared", *(kind.value for kind in FindingKind), "compacted")
        return {
            **_to_json(self, leave_out=("partitions", "findings", "segments")),
            "state": self.state.value,
            "totals": {name: self.total(name) for name in counts},
            "nextSteps": list(self.next_steps),
            "partitions": [_to_json(row) for row in self.partitions],
            "findings": [_to_json(row) for row in self.findings],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> AuditResult:
        """Unknown fields are ignored. Raises KeyError, TypeError, ValueError."""
        result = _from_json(cls, {**raw, "partitions": (), "findings": ()})
        return replace(
            result,
            delivery=Delivery(result.delivery),
            partitions=tuple(_from_json(PartitionResult, row) for row in raw["partitions"]),
            findings=tuple(_finding(row) for row in raw["findings"]),
        )


_STEPS: Mapping[str, str] = {
    "missing": "records are missing: if they are at the end of the partition or their order does not"
    " matter, copy them with ureplicator audit --repair; else copy again from before the"
    " first one with ureplicator positions set, which repeats what follows",
    "altered": "records are altered: no copier changes records; find out who else writes to the target"
    " topic, then copy it again into a new topic",
    "reordered": "records are reordered: check that only one route and no other producer writes to the"
    " target topic",
    "foreign": "the target has records that the source does not have: find out who else writes to the"
    " target topic, and take the permission away",
    "shifted": "records have other offsets than they should: ureplicator topics show says which are known"
    " to be shifted, since when and why; if others are, find out who else writes to the target topic",
}
_REPEATED_IN_EXACTLY_ONCE = (
    "records are repeated though the route delivers exactly once: check whether positions were set back,"
    " or the route delivered at least once when they were copied"
)


def _finding(raw: Mapping[str, Any]) -> Finding:
    return replace(_from_json(Finding, raw), kind=FindingKind(raw["kind"]))


def _to_json(value: Any, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    names = [attribute.name for attribute in fields(value) if attribute.name not in leave_out]
    found = {camel(name): getattr(value, name) for name in names}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in found.items()}


def _from_json(kind: type[T], raw: Mapping[str, Any]) -> T:
    known: dict[str, Any] = {}
    for attribute in fields(kind):  # type: ignore[arg-type]
        if camel(attribute.name) in raw:
            value = raw[camel(attribute.name)]
            known[attribute.name] = tuple(value) if isinstance(value, list) else value
    return kind(**known)
