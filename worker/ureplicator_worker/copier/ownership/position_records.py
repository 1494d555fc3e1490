"""Positions in the form of the store, by partition of the source, and the words for those it refuses."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka import PartitionUnavailable, Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.copier.position_values import Commitment, MapMark
from ureplicator_worker.lifeline.messages import Grant

Records = Mapping[Partition, tuple[TargetPartition, Position]]


def target_key(begun: Begun) -> TargetPartition:
    return begun.grant.target_topic, begun.partition.number


def is_first(begun: Begun) -> bool:
    """True if the position where copying begins is not the stored one, or its producer is not."""
    beginning = begun.beginning
    return beginning.committed != beginning.position or beginning.appends is not None


def first_commitment(begun: Begun) -> Commitment:
    start = begun.beginning
    return Commitment(
        start.position,
        start.leader_epoch,
        begun.grant,
        start,
        start.target_end,
        start.counted.segments() if start.counted and begun.grant.settings.offset_map else (),
        appends=start.appends,
        same=start.same,
    )


def is_transactional(partition: Partition, grant: Grant) -> bool:
    """True if its data is in the transaction of its position."""
    return grant.settings.is_transactional(partition.topic)


def bound_to(positions: Mapping[Partition, Commitment]) -> set[Partition]:
    """Partitions whose data, or rows of the map, are in the transaction."""
    return {
        part
        for part, commitment in positions.items()
        if commitment.grant.settings.offset_map or is_transactional(part, commitment.grant)
    }


def position_records(
    positions: Mapping[Partition, Commitment],
    *,
    worker: str,
    slot: int,
    marks: Mapping[Partition, MapMark],
) -> Records:
    """Positions in the form of the store."""
    return {
        part: (
            (commitment.grant.target_topic, part.number),
            commitment.record(worker=worker, slot=slot, mark=marks.get(part)),
        )
        for part, commitment in positions.items()
    }


def refusal(target_topic: str, code: str) -> str:
    """A coordinator's code that would be read as the source's, in words."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return f"target topic {target_topic} was deleted, or lacks this partition"
    return f"position refused: {code}"


def not_shown(
    granted: Mapping[Partition, Grant], errors: Mapping[TargetPartition, PartitionUnavailable]
) -> dict[Partition, PartitionUnavailable]:
    """Partitions whose positions the target does not show. They end, also if they are held: another owner may
    have moved the position."""
    keys = {part: (grant.target_topic, part.number) for part, grant in granted.items()}
    return {part: errors[key] for part, key in keys.items() if key in errors}
