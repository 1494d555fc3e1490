"""Positions in the form of the store, by partition of the source, and the words for those it refuses."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.ownership.protocol import Begun
from ureplicator_worker.copier.position_values import Commitment, MapMark

Records = Mapping[Partition, tuple[TargetPartition, Position]]


def target_key(begun: Begun) -> TargetPartition:
    return begun.grant.target_topic, begun.partition.number


def is_first(begun: Begun) -> bool:
    """The position where copying begins is not the stored one."""
    return begun.beginning.committed != begun.beginning.position


def first_commitment(begun: Begun) -> Commitment:
    start = begun.beginning
    return Commitment(start.position, start.leader_epoch, begun.grant, start, start.target_end)


def bound_to(positions: Mapping[Partition, Commitment], *, data: bool) -> set[Partition]:
    """Those whose data (`data`: all have some), or rows of the map, are in the transaction."""
    return {part for part, item in positions.items() if data or item.grant.settings.offset_map}


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
            (item.grant.target_topic, part.number),
            item.record(worker=worker, slot=slot, mark=marks.get(part)),
        )
        for part, item in positions.items()
    }


def refusal(target_topic: str, code: str) -> str:
    """A coordinator's code that would be read as the source's, in words."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return f"target topic {target_topic} was deleted, or lacks this partition"
    return f"position refused: {code}"
