"""Start position of a partition (step 4 of the order in `ureplicator_common.kafka.positions`).

| the store has   | and                             | copying begins                                   |
|-----------------|---------------------------------|--------------------------------------------------|
| a position      | it belongs to these topics      | there                                            |
| a position      | a topic was recreated           | nowhere, or where the route's policy says        |
| a position      | of another source cluster       | nowhere                                          |
| a position      | a topic was recreated, and the  | as if there were none                            |
|                 | operator restarted copying      |                                                  |
| none            | there was one once              | nowhere: it was lost                             |
| none            | partition known when whitelisted| at the route's `start`                           |
| none            | partition appeared later        | at its first record                              |

The source topic must be the one that the leader has recorded: nothing of a recreated topic is copied
before the leader has decided how to go on.

"Nowhere" is an ERROR that operators see. Jumping to the end would lose records, and restarting would
repeat all of them: neither is ever done without the operator's policy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    topic_id_text,
)
from ureplicator_common.kafka.client import EARLIEST, LATEST, ClusterClient, ClusterView
from ureplicator_common.kafka.positions import Provenance
from ureplicator_common.model import GapPolicy, Partition
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import Grant

NO_POSITION = Position(offset=-1)


class CannotStart(OperatingError):
    """The partition cannot be copied now; `temporary` if it may become possible without an operator."""

    def __init__(self, reason: str, *, temporary: bool) -> None:
        super().__init__(reason)
        self.temporary = temporary


@dataclass(frozen=True, slots=True)
class ClusterViews:
    """Both clusters as they are when the partition starts."""

    source: ClusterView
    target: ClusterView


@contextmanager
def cluster_errors_named(end: str) -> Iterator[None]:
    """Name the end, `source` or `target`, in the error of an unavailable cluster."""
    try:
        yield
    except ClusterUnavailable as error:
        raise type(error)(f"{end}: {error}", delay_s=error.delay_s) from error


def view_clusters(
    grants: Mapping[Partition, Grant], *, source: ClusterClient, target: ClusterClient
) -> ClusterViews:
    """Metadata of the topics of these partitions. Raises ClusterUnavailable."""
    with cluster_errors_named("source"):
        source_view = source.view(sorted({partition.topic for partition in grants}))
    with cluster_errors_named("target"):
        target_view = target.view(sorted({grant.target_topic for grant in grants.values()}))
    return ClusterViews(source_view, target_view)


def begin_all(
    grants: Mapping[Partition, Grant],
    stored: Mapping[tuple[str, int], Position],
    *,
    source: ClusterClient,
    target: ClusterClient,
) -> dict[Partition, StartPosition | CannotStart]:
    """For each partition where it begins, or why it cannot. Raises ClusterUnavailable.

    A partition without a leader fails alone: the others need not wait for it.
    """
    views = view_clusters(grants, source=source, target=target)
    found: dict[Partition, StartPosition | CannotStart] = {}
    for partition, grant in grants.items():
        position = stored[(grant.target_topic, partition.number)]
        try:
            found[partition] = begin(partition, grant, position, views=views, source=source)
        except CannotStart as error:
            found[partition] = error
        except PartitionUnavailable as error:
            found[partition] = CannotStart(str(error), temporary=True)
    return found


def begin(
    partition: Partition,
    grant: Grant,
    stored: Position,
    *,
    views: ClusterViews,
    source: ClusterClient,
) -> StartPosition:
    """See the table above. Raises CannotStart, ClusterUnavailable."""
    source_id, target_id = _topics(partition, grant, stored, views)
    gap = _provenance_mismatch(stored, views.source.cluster_id, source_id, target_id)
    if gap and grant.restarted:
        gap, stored = "", NO_POSITION
    if stored.offset >= 0 and not gap:
        position, epoch = stored.offset, stored.leader_epoch
    else:
        position, epoch = source_offset(partition, source, _time(grant, stored, gap)), -1
    return StartPosition(
        position=position,
        leader_epoch=epoch,
        committed=stored.offset if not gap else -1,
        source_cluster=views.source.cluster_id,
        source_topic_id=source_id,
        target_topic_id=target_id,
        gap=gap,
    )


def source_offset(partition: Partition, source: ClusterClient, timestamp_ms: int) -> int:
    """Raises ClusterUnavailable."""
    with cluster_errors_named("source"):
        return source.offset_at(partition.topic, partition.number, timestamp_ms=timestamp_ms)


def policy_time(policy: GapPolicy) -> int:
    """Time at which a policy other than `stop` continues."""
    assert policy is not GapPolicy.STOP
    return EARLIEST if policy is GapPolicy.EARLIEST else LATEST


def _topics(
    partition: Partition, grant: Grant, stored: Position, views: ClusterViews
) -> tuple[str, str]:
    """Ids of both topics. Raises CannotStart if one is missing, or its partition is."""
    ends = (
        ("source", views.source, partition.topic),
        ("target", views.target, grant.target_topic),
    )
    for end, view, topic in ends:
        if topic in view.missing and stored.offset >= 0:
            raise CannotStart(f"{end} topic {topic} was deleted", temporary=True)
        if topic not in view.topic_ids:
            raise CannotStart(f"topic {topic} does not exist on the {end}", temporary=True)
        if (topic, partition.number) not in view.leaders:
            raise CannotStart(
                f"topic {topic} has no partition {partition.number} on the {end}", temporary=True
            )
    source_id = views.source.topic_ids[partition.topic]
    if grant.source_topic_id:
        shown = topic_id_text(uuid.UUID(source_id))
        if shown != grant.source_topic_id:
            raise CannotStart(
                f"source topic was recreated (was {grant.source_topic_id}, is {shown})",
                temporary=True,
            )
    return source_id, views.target.topic_ids[grant.target_topic]


def _provenance_mismatch(stored: Position, cluster: str, source_id: str, target_id: str) -> str:
    """Reason if a stored position does not belong to these topics; "" if it does, or none is stored."""
    provenance = Provenance.decode(stored.metadata)
    if stored.offset < 0 or provenance is None:
        return ""
    if provenance.source_cluster != cluster:
        raise CannotStart(
            f"position belongs to source cluster {provenance.source_cluster}, this is {cluster}",
            temporary=False,
        )
    if provenance.source_topic != source_id:
        return _recreated("source", provenance.source_topic, source_id)
    if provenance.target_topic != target_id:
        return _recreated("target", provenance.target_topic, target_id)
    return ""


def _recreated(end: str, former_id: str, id: str) -> str:
    what = f"{end} topic was recreated since the position was committed"
    return f"{what}: its id was {former_id}, now it is {id}"


def _time(grant: Grant, stored: Position, gap: str) -> int:
    """Timestamp of the first record to copy. Raises CannotStart."""
    policy = grant.settings.on_gap
    if gap:
        if policy is GapPolicy.STOP:
            raise CannotStart(f"{gap} (on_gap: stop)", temporary=False)
        return policy_time(policy)
    if grant.had_position:
        raise CannotStart("position lost: one was committed once", temporary=False)
    if not grant.initial:
        return EARLIEST
    named = {"earliest": EARLIEST, "latest": LATEST}
    start = grant.settings.start
    return named[start] if start in named else int(start)
