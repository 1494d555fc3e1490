"""Partitions that are to take part in a transaction, and the ends of their logs before it appends to them.

Sequences show a hole in the log while the leader knows the producer. Each transaction may have a producer of
its own, which a leader accepts wherever its log ends. What was appended so behind a hole is aborted, but the
log is then longer than what it had acknowledged, and no later comparison finds the hole. So a leader that a
partition was not sent to before must show that its log is long enough, before anything is appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import LATEST, READ_UNCOMMITTED, ClusterClient
from ureplicator_common.kafka.list_offsets import offsets_at
from ureplicator_common.kafka.positions import COMMAND_S, PositionStore, TargetPartition
from ureplicator_worker.copier.messages import Join, Joined
from ureplicator_worker.copier.ownership.missing_markers import MissingMarkers
from ureplicator_worker.copier.position_values import AcknowledgedEnd
from ureplicator_worker.copier.start_position import marker_missing


@dataclass(frozen=True, slots=True)
class CheckedEnds:
    """`unknown`: partitions whose end cannot be read now, with the reasons."""

    gone: dict[TargetPartition, range] = field(default_factory=dict)
    unknown: dict[TargetPartition, str] = field(default_factory=dict)


def join(
    job: Join,
    *,
    store: PositionStore,
    target: ClusterClient,
    markers: MissingMarkers,
    now_s: float,
) -> Joined:
    """Have those take part whose logs are long enough. Raises Fenced, ClusterUnavailable."""
    checked = check_ends(target, job.ends, markers, now_s)
    targets = job.targets - checked.unknown.keys() - checked.gone.keys()
    refused = store.add_partitions(targets)
    return Joined(
        job.transaction, targets - refused.keys(), {**checked.unknown, **refused}, checked.gone
    )


def check_ends(
    target: ClusterClient,
    ends: Mapping[TargetPartition, AcknowledgedEnd],
    markers: MissingMarkers,
    now_s: float,
) -> CheckedEnds:
    """Compare the ends of logs with those that they must have. A marker may still be on its way, so where no
    more than that is missing the log is looked at again, for a while."""
    checked = CheckedEnds()
    if not ends:
        return checked
    try:
        with target.within(COMMAND_S):
            view = target.view(sorted({topic for topic, _ in ends}))
            portions = list(
                offsets_at(target, view, dict.fromkeys(ends, LATEST), isolation=READ_UNCOMMITTED)
            )
    except ClusterUnavailable as error:
        checked.unknown.update(dict.fromkeys(ends, str(error)))
        return checked
    for portion in portions:
        for key, end in portion.items():
            if isinstance(end, PartitionUnavailable):
                markers.forget(key)
                checked.unknown[key] = str(end)
                continue
            offset, acknowledged = ends[key].offset, sum(ends[key])
            if end >= acknowledged:
                markers.forget(key)
            elif end < offset or markers.are_lost(key, acknowledged=acknowledged, now_s=now_s):
                checked.gone[key] = range(end, acknowledged)
            else:
                checked.unknown[key] = marker_missing(end)
    return checked
