"""Reports to the driver: the state of each partition as the fleet sees it, and the copier's latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ureplicator_common.model import Partition, PartitionState
from ureplicator_worker.copier.lane import Lane, LaneStatus
from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.copier.lifecycle import DRAINED, IN_LANE, CopyState, OwnedPartition
from ureplicator_worker.lifeline.messages import PartitionReport


def partition_reports(
    owned: Iterable[OwnedPartition],
    *,
    lane: Lane,
    committed: Callable[[Partition], int],
    cluster_error: str,
) -> dict[Partition, PartitionReport]:
    """A partition that is being released is reported no more.

    `cluster_error`: why the ownership thread of the route gets no further; it names the end.
    """
    reports: dict[Partition, PartitionReport] = {}
    for each in owned:
        if each.state in IN_LANE:
            status = lane.status(each.partition)
            reports[each.partition] = _in_lane(
                each.state, status, committed(each.partition), cluster_error
            )
        elif each.state is CopyState.STARTING:
            state = PartitionState.ERROR if cluster_error else PartitionState.OFFLINE
            reports[each.partition] = PartitionReport(state, cluster_error or "starting")
    return reports


def _in_lane(
    copy_state: CopyState, status: LaneStatus, committed: int, cluster_error: str
) -> PartitionReport:
    state, reason = fleet_state_of(copy_state, status, cluster_error)
    return PartitionReport(
        state=state,
        reason=reason,
        position=status.position,
        committed=committed,
        records=status.records,
        bytes=status.bytes,
        lag=status.lag,
        skipped=status.skipped,
        gaps=status.gaps,
    )


def fleet_state_of(
    state: CopyState, status: LaneStatus, cluster_error: str
) -> tuple[PartitionState, str]:
    """State and reason for the fleet; an error of the partition's own brokers comes first."""
    if state not in DRAINED:
        return PartitionState.OFFLINE, "stopping"
    error = status.error or cluster_error
    if not error and state is CopyState.SUSPENDED:
        error = "fenced: waiting for the proof of ownership"
    if error:
        return PartitionState.ERROR, error
    if status.fetching:
        return PartitionState.ONLINE, ""
    return PartitionState.OFFLINE, "starting: waiting for the first response"


def total_latency(lanes: Iterable[Lane]) -> LatencyHistogram:
    total = LatencyHistogram()
    for lane in lanes:
        total.add(lane.latency)
    return total
