"""An audit as rounds of Spark jobs: one task for each partition, as many at a time as Spark has cores.

Each round goes on where the last one ended, and its results are merged and reported. So progress is seen,
an audit that is interrupted can be resumed from what was last reported, and no task keeps much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.model import Route
from ureplicator_common.offset_map import segments as offset_map
from ureplicator_worker.audit.result import (
    NO_OFFSET,
    AuditRequest,
    AuditResult,
    Finding,
    FindingKind,
    PartitionRange,
    PartitionResult,
)
from ureplicator_worker.audit.rounds import Watch, run_round
from ureplicator_worker.audit.signals import DriverSignals
from ureplicator_worker.audit.task import Outcome, Work

COUNTS = (
    "compared",
    "compared_bytes",
    *(kind.value for kind in FindingKind),
    "compacted",
    "findings_kept",
)
MAX_FAILURES = 5
"""Rounds in a row in which a partition cannot be read."""

Clusters = Mapping[str, Mapping[str, str]]
"""Name -> librdkafka properties."""


class Spark(Protocol):
    """A SparkSession."""

    @property
    def sparkContext(self) -> Any: ...


def run_audit(
    spark: Spark,
    request: AuditRequest,
    *,
    clusters: Clusters,
    on_progress: Callable[[AuditResult], None],
    former: AuditResult | None = None,
    parallelism: int = 0,
    watch: Watch | None = None,
) -> AuditResult:
    """Compare all partitions; `on_progress` is called after each round, from this thread.

    `former`: an interrupted audit, which is continued; its other partitions stay as they are.
    `parallelism`: partitions that are compared at a time; 0: as many as Spark has cores.
    Errors of a partition are notes of its result.
    `watch` is called twice a second. What it raises ends the audit within two seconds, and is raised here
    after `on_progress` got what the last round has brought.
    """
    state = _Progress(request, former)
    context = spark.sparkContext
    with DriverSignals() as signals:
        while state.open:
            folder = signals.folder if watch is not None else ""
            works = state.works(clusters, parallelism or context.defaultParallelism, folder)
            outcomes, stop = run_round(context, works, signals=signals, watch=watch)
            state.merge(outcomes, cut=stop is not None)
            on_progress(state.result())
            if stop is not None:
                raise stop
    return state.result(ended=True)


class _Progress:
    """`open` are the partitions that are not done, those that wait longest first."""

    def __init__(
        self, request: AuditRequest, former: AuditResult | None, clock: Clock | None = None
    ) -> None:
        self._request = request
        self._clock = clock or SystemClock()
        self._began_ms = former.began_ms if former else self._now_ms()
        known = {part.partition: part for part in former.partitions} if former else {}
        self._findings: list[Finding] = list(former.findings) if former else []
        self._failures: dict[int, int] = {}
        self._segments: dict[int, tuple[offset_map.MapSegment, ...]] = {}
        self._done: dict[int, PartitionResult] = known | {
            part.partition: _begun(known.get(part.partition), part) for part in request.partitions
        }
        self._ranges = {part.partition: part for part in request.partitions}
        self.open = [] if request.not_comparable else self._unfinished()

    def _unfinished(self) -> list[int]:
        return [number for number in self._ranges if not self._done[number].complete]

    def works(self, clusters: Clusters, parallelism: int, signals: str) -> list[Work]:
        route = Route.parse(self._request.route)
        chosen = self.open[: max(1, parallelism)]
        options = self._request.options
        return [
            Work(
                topic=self._request.topic,
                target_topic=self._request.target_topic,
                source=clusters[route.source],
                target=clusters[route.target],
                range=self._range(number),
                options=options,
                rate_bytes_per_s=options.rate_bytes_per_s / len(chosen),
                max_findings=max(0, options.max_findings - self._done[number].findings_kept),
                signals=signals,
            )
            for number in chosen
        ]

    def _range(self, number: int) -> PartitionRange:
        done = self._done[number]
        if done.verified_to == NO_OFFSET:
            return self._ranges[number]
        place = NO_OFFSET if done.uncompared else done.target_to
        return replace(
            self._ranges[number], end=done.end, first=done.verified_to, target_first=place
        )

    def merge(self, outcomes: Iterable[Outcome], *, cut: bool = False) -> None:
        """`cut`: the round was ended early, so one that came no further says nothing about the log."""
        for outcome in outcomes:
            number = outcome.result.partition
            if outcome.cancelled:
                continue
            self.open.remove(number)
            if outcome.error:
                self._fail(number, outcome.error)
                continue
            self._failures.pop(number, None)
            before = self._done[number]
            self._done[number] = merged(before, outcome.result)
            stuck = _place(before) == _place(outcome.result)
            self._findings += outcome.findings
            known = self._segments.get(number, ())
            self._segments[number] = offset_map.merged(known, outcome.segments)
            if not self._done[number].complete:
                if stuck and not cut:
                    self._note(number, "the source's log ends before the position of the route")
                else:
                    self.open.append(number)

    def _fail(self, number: int, error: str) -> None:
        self._failures[number] = self._failures.get(number, 0) + 1
        if self._failures[number] < MAX_FAILURES:
            self.open.append(number)
        else:
            self._note(number, error)

    def _note(self, number: int, note: str) -> None:
        done = self._done[number]
        self._done[number] = replace(done, notes=(*done.notes, note))

    def result(self, *, ended: bool = False) -> AuditResult:
        request = self._request
        return AuditResult(
            route=request.route,
            topic=request.topic,
            target_topic=request.target_topic,
            partitions=tuple(done for _, done in sorted(self._done.items())),
            findings=tuple(sorted(self._findings, key=_order)),
            delivery=request.options.delivery,
            not_comparable=request.not_comparable,
            began_ms=self._began_ms,
            ended_ms=self._now_ms() if ended else 0,
            notes=tuple(_notes(request)),
            source_topic_id=request.source_topic_id,
            target_topic_id=request.target_topic_id,
            segments=dict(self._segments),
        )

    def _now_ms(self) -> int:
        return self._clock.wall_ms()


def _begun(former: PartitionResult | None, wanted: PartitionRange) -> PartitionResult:
    """Result of a partition before the first round; it has none if nothing can be compared."""
    first = 0 if wanted.uncompared else NO_OFFSET
    known = former or PartitionResult(wanted.partition, first, first)
    return replace(known, end=wanted.end, uncompared=wanted.uncompared or known.uncompared)


def _place(done: PartitionResult) -> tuple[int, int]:
    return done.verified_to, done.target_to


def merged(before: PartitionResult, after: PartitionResult) -> PartitionResult:
    """Results of two rounds that follow each other.

    Where a log lost records meanwhile they lie apart: what is verified begins behind the gap.
    """
    if before.verified_from == NO_OFFSET:
        return after
    apart = before.verified_from >= before.verified_to or after.verified_from > before.verified_to
    first = after.verified_from if apart else before.verified_from
    counts = {name: getattr(before, name) + getattr(after, name) for name in COUNTS}
    notes = tuple(dict.fromkeys((*before.notes, *after.notes)))
    return replace(after, verified_from=first, notes=notes, **counts)


def _order(finding: Finding) -> tuple[int, int, int]:
    return finding.partition, finding.source_offset, finding.target_offset


def _notes(request: AuditRequest) -> Iterable[str]:
    options = request.options
    if not options.timestamps:
        yield "timestamps are not compared: the target stamps records itself (LogAppendTime)"
    for side, compacted in (
        ("source", options.source_compacted),
        ("target", options.target_compacted),
    ):
        if compacted:
            yield f"the {side} topic is compacted: records that it has removed are counted, not compared"
    yield from request.notes
