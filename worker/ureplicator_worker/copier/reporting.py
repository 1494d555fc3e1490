"""Reports to the driver: the state of each partition as the fleet sees it, and the copier's latency.

A report holds what has changed: a worker may have 10,000 partitions, and most are idle. Partitions that
are not ONLINE are compared at each report, so that a start shows at once; those that are ONLINE in turn,
each once in `ONLINE_EVERY` reports. Segments (`Lane.segments`) change all the time, and are many: those of
`SEGMENTS_EACH` partitions are compared at each report.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ureplicator_common.model import Partition, PartitionState, Route
from ureplicator_common.process_use import ProcessUse, use_of_tree
from ureplicator_worker.copier.lane import Lane
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.lifecycle import DRAINED, IN_LANE, CopyState, OwnedPartition
from ureplicator_worker.lifeline.measures import Measures, Segment, TransactionCounts
from ureplicator_worker.lifeline.messages import PartitionReport

USE_EVERY_S = 5.0
"""Reading `/proc` takes a tenth of a millisecond, of the copier's loop."""

ONLINE_EVERY = 5
FULL_EVERY = 150
"""Reports after which everything is sent again: no state of the driver rests on one message for long."""
SEGMENTS_EACH = 20
"""A hundred partitions a second, each with some kilobytes at most."""


class ReportDelta:
    """Reports that the driver has, and which others it needs."""

    def __init__(self) -> None:
        self._sent: dict[Partition, PartitionReport] = {}
        self._number = 0

    def is_due(self, partition: Partition) -> bool:
        """True if the partition is to be compared now."""
        sent = self._sent.get(partition)
        return (
            sent is None
            or sent.state is not PartitionState.ONLINE
            or partition.number % ONLINE_EVERY == self._number % ONLINE_EVERY
        )

    def changed(
        self, reports: Mapping[Partition, PartitionReport]
    ) -> dict[Partition, PartitionReport]:
        """States that differ from what was sent last; they count as sent."""
        changed = {
            part: report for part, report in reports.items() if self._sent.get(part) != report
        }
        self._sent.update(changed)
        self._number += 1
        if self._number % FULL_EVERY == 0:
            self._sent.clear()
        return changed

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that were released: after the next Add the driver has no report of them."""
        for partition in partitions:
            self._sent.pop(partition, None)


class SegmentDelta:
    """Segments that the driver has; the partitions are compared in turn."""

    def __init__(self) -> None:
        self._sent: dict[Partition, Sequence[Segment]] = {}
        self._turn: deque[Partition] = deque()

    def due(self, partitions: Callable[[], Iterable[Partition]]) -> list[Partition]:
        """Partitions to be compared now. Some may not be held any more."""
        if not self._turn:
            self._turn.extend(partitions())
        return [self._turn.popleft() for _ in range(min(SEGMENTS_EACH, len(self._turn)))]

    def changed(
        self, segments: Mapping[Partition, Sequence[Segment]]
    ) -> dict[Partition, tuple[Segment, ...]]:
        """Segments that differ from what was sent last; they count as sent."""
        changed = {
            part: tuple(current)
            for part, current in segments.items()
            if self._sent.get(part) != current
        }
        self._sent.update(changed)
        return changed

    def forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._sent.pop(partition, None)


FENCED = "fenced: waiting for the proof of ownership"


def every(partition: Partition) -> bool:
    return True


def partition_reports(
    owned: Iterable[OwnedPartition],
    *,
    lane: Lane,
    committed: Callable[[Partition], int],
    cluster_error: str,
    commit_error: str,
) -> dict[Partition, PartitionReport]:
    """A partition that is being released is reported no more.

    `cluster_error`: why the ownership thread of the route gets no further; it names the end. It concerns
    what waits for the thread, not what is copied: that depends on its own brokers, and on commits that
    go through at times (`commit_error`).
    """
    reports: dict[Partition, PartitionReport] = {}
    for held in owned:
        if held.state in IN_LANE:
            fenced = held.state is CopyState.SUSPENDED
            suspended_for = held.trial or cluster_error or FENCED
            error = suspended_for if fenced else commit_error
            report = lane.status(held.partition)._replace(committed=committed(held.partition))
            reports[held.partition] = with_ownership(report, held.state, error)
        elif held.state is CopyState.STARTING:
            state = PartitionState.ERROR if cluster_error else PartitionState.OFFLINE
            reports[held.partition] = PartitionReport(state, cluster_error or "starting")
    return reports


def with_ownership(
    report: PartitionReport, state: CopyState, ownership_error: str
) -> PartitionReport:
    """The lane's report as the fleet sees it; an error of the partition's own brokers comes first."""
    if state not in DRAINED:
        return report._replace(state=PartitionState.OFFLINE, reason="stopping")
    if ownership_error and report.state is not PartitionState.ERROR:
        return report._replace(state=PartitionState.ERROR, reason=ownership_error)
    return report


def total_latency(lanes: Iterable[Lane]) -> Latencies:
    total = Latencies()
    for lane in lanes:
        total.add(lane.latency)
    return total


class OwnUse:
    """Processor time and memory of this process and what it started, read from time to time."""

    def __init__(self) -> None:
        self._use = ProcessUse()
        self._at_s = 0.0

    def at(self, now_s: float) -> ProcessUse:
        if now_s >= self._at_s:
            self._at_s, self._use = now_s + USE_EVERY_S, use_of_tree(os.getpid())
        return self._use


def measures(
    latency: Latencies, transactions: Mapping[Route, TransactionCounts], use: ProcessUse
) -> Measures:
    return Measures(
        fetch_to_ack_ms=tuple(latency.of_fetches.counts),
        fetch_to_ack_sum_ms=int(latency.of_fetches.sum_ms),
        cpu_ms=int(use.cpu_s * 1_000),
        memory_bytes=use.memory_bytes,
        transactions=transactions,
    )
