"""The first part of a pass over a topic: what is equal by the checksums of its batches, and records only
around the places where that cannot be said.

`matched` goes on from where the topic is known to be aligned. Where a pair of batches is not provably equal,
the records of the larger one are compared, and what follows until each difference is explained; then it
goes on behind them. After `GAPS` such places, or when it is late, the rest is for the next pass, which begins
there. After two such places next to each other it is for the comparison of records within the route's byte
rate: batches were merged, say, or the target compresses them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ureplicator_common.audits import Finding, TopicAudit, VerifiedRange
from ureplicator_common.audits.ranges import with_compared
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.core.batches import Matched, Place
from ureplicator_worker.audit.result import AuditResult
from ureplicator_worker.auditor.outcome import compared_ranges, stored_findings
from ureplicator_worker.auditor.sampling import Sample

GAPS = 16
ENDED_RECORDS = 1_000
"""Records that are compared at a time where one side has ended."""

Scan = Callable[[Mapping[int, Place], Mapping[int, int]], Mapping[int, Matched]]
"""Places and ends of partitions -> where each stops to be equal."""
CompareRecords = Callable[[Mapping[int, Sample]], tuple[AuditResult | None, str]]
"""The result, and the reason if it is not complete."""


@dataclass(slots=True)
class Progress:
    """`compared`: ranges in the order of their comparison, each with its findings; `failure`: of a
    comparison of records; `unfinished`: partitions for the next pass."""

    places: dict[int, Place]
    compared: list[tuple[Mapping[int, VerifiedRange], Sequence[Finding]]] = field(
        default_factory=list
    )
    failure: str = ""
    unfinished: frozenset[int] = frozenset()

    def passed(self, began: Mapping[int, Place]) -> int:
        return sum(place.source - began[number].source for number, place in self.places.items())

    def add(self, ranges: Mapping[int, VerifiedRange], findings: Sequence[Finding] = ()) -> bool:
        """True if one of them goes on."""
        if ranges:
            self.compared.append((ranges, findings))
        for number, verified in ranges.items():
            self.places[number] = Place(verified.next, verified.target_next)
        return bool(ranges)


def matched(
    began: Mapping[int, Place],
    ends: Mapping[int, int],
    *,
    scan: Scan,
    compare: CompareRecords,
    late: Callable[[], bool],
    at_ms: int,
) -> Progress:
    """Raises what `scan` and `compare` raise."""
    progress = Progress(dict(began))
    for gap in range(GAPS + 1):
        wanted = {n: place for n, place in progress.places.items() if place.source < ends[n]}
        if not wanted:
            break
        found = scan(wanted, ends)
        went_on = progress.add(
            {
                number: VerifiedRange(
                    wanted[number].source, reached.place.source, at_ms, reached.place.target
                )
                for number, reached in found.items()
                if reached.place.source > wanted[number].source
            }
        )
        gaps = {n: _gap(reached, ends[n]) for n, reached in found.items() if reached.differs}
        if late() or (gaps and gap == GAPS):
            left = {n for n, place in progress.places.items() if place.source < ends[n]}
            progress.unfinished = frozenset(left)
            break
        if not gaps or (gap and not went_on):
            break
        result, progress.failure = compare(gaps)
        if result is not None:
            progress.add(compared_ranges(result, at_ms=at_ms), stored_findings(result))
        if progress.failure:
            break
    return progress


def _gap(found: Matched, end: int) -> Sample:
    place = found.place
    next_offset = min(end, place.source + (found.records or ENDED_RECORDS))
    return Sample(place.source, max(next_offset, place.source + 1), place.target, 0)


def matched_state(
    before: TopicAudit | None, *, progress: Progress, intent: TopicIntent, passed: int
) -> TopicAudit:
    """The state after each range of a pass in turn."""
    audit = before
    for number, (compared, findings) in enumerate(progress.compared or [({}, ())]):
        audit = with_compared(
            audit,
            compared,
            findings,
            source_topic_id=intent.source_topic_id,
            target_topic_id=intent.target_topic_id,
            passed=0 if number else passed,
            failure=progress.failure,
        )
    assert audit is not None
    return audit
