"""Partitions whose position the target refused: none of their data is sent before it takes the position.

In one transaction are the data and the positions of many partitions, so a position that is refused then
aborts the transaction for all. A coordinator refuses each partition by itself (TxnOffsetCommit has an error
for each) and keeps the others. So the position is offered first while nothing of the partition is in the
transaction: refused, it fails the partition alone. Exactly once, it goes with the next commit of the others,
and the lane holds the partition back until then. So it does with the first position of a partition whose
data is in no transaction, if one with data of others may be open. Else it is committed before the partition
begins.

What is offered is the position that is stored, with as many bytes of metadata as the one that was refused: a
coordinator takes no more than `offset.metadata.max.bytes` of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.copier.ownership.position_records import (
    Records,
    is_transactional,
    refusal,
    target_key,
)

FIRST = "its first position is committed with the next transaction"


class _Refusal(NamedTuple):
    """Reason in words, and length of the metadata."""

    reason: str
    length: int


class Trials:
    """`offered`: begun, and nothing of theirs is sent; with the records that are to be taken. A refusal is
    remembered until a position of the partition is taken here, also while others own it."""

    def __init__(self) -> None:
        self.offered: dict[Partition, tuple[TargetPartition, Position]] = {}
        self._refused: dict[TargetPartition, _Refusal] = {}

    def reason(self, key: TargetPartition) -> str:
        """Reason of the last refusal; "" if the position need not be offered."""
        return self._refused[key].reason if key in self._refused else ""

    def first(
        self,
        begun: Mapping[Partition, Begun],
        stored: Mapping[TargetPartition, Position],
        *,
        fresh: Records,
    ) -> Records:
        """Records to commit before data is sent: first positions, and those stored that were refused."""
        keys = {part: target_key(event) for part, event in begun.items() if part not in fresh}
        found = {
            part: (key, self._as_long(key, stored[key]))
            for part, key in keys.items()
            if self.reason(key)
        }
        return {**fresh, **found}

    def _as_long(self, key: TargetPartition, position: Position) -> Position:
        """The position with metadata as long as those that were refused: blanks behind JSON say nothing."""
        return replace(position, metadata=position.metadata.ljust(self._refused[key].length))

    def offer(self, begun: Mapping[Partition, Begun], first: Records) -> dict[Partition, Begun]:
        """The same, with the positions that the next commit must take before anything is sent: those that
        were refused, and first ones where the data is in no transaction."""
        trials = {part: self._reason_of(event, first) for part, event in begun.items()}
        self.offered.update({part: first[part] for part, why in trials.items() if why})
        return {part: replace(event, trial=trials[part]) for part, event in begun.items()}

    def _reason_of(self, begun: Begun, first: Records) -> str:
        alone = not is_transactional(begun.partition, begun.grant)
        return self.reason(target_key(begun)) or (
            FIRST if alone and begun.partition in first else ""
        )

    def refuse(
        self, records: Records, refused: Mapping[TargetPartition, str]
    ) -> dict[Partition, str]:
        """The partitions whose positions were refused, with the reasons in words."""
        reasons: dict[Partition, str] = {}
        for partition, (key, position) in records.items():
            if key in refused:
                self.offered.pop(partition, None)
                reason = reasons[partition] = refusal(key[0], refused[key])
                self._refused[key] = _Refusal(reason, len(position.metadata))
        return reasons

    def taken(self, records: Records) -> None:
        for partition, (key, _) in records.items():
            self.offered.pop(partition, None)
            self._refused.pop(key, None)

    def forget(self, partition: Partition) -> None:
        self.offered.pop(partition, None)

    def records(self, partitions: Iterable[Partition]) -> Records:
        """Records that are offered, of these partitions."""
        return {part: self.offered[part] for part in partitions if part in self.offered}
