"""Renewal of positions whose partitions cannot start: in time for the target's retention of offsets.

A running partition is renewed by its commits, one without an owner by the leader. One that has an owner and
cannot start (a missing topic, a gap under `on_gap: stop`) commits nothing, but is tried again every minute at
most. At such a try its owner is proven and has read the position: it commits the same position again, unless
it did so lately. A transaction that holds data is ended for it, since the try ends before the next commit,
and the partition may be another owner's then.
"""

from __future__ import annotations

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.copier.messages import FindStarts
from ureplicator_worker.copier.ownership.position_records import Records


class Renewals:
    def __init__(self) -> None:
        self._at_s: dict[TargetPartition, float] = {}

    def due(self, partitions: list[Partition], job: FindStarts, now_s: float) -> Records:
        """Stored positions to commit again. They count as renewed, whatever becomes of it: a refusal
        must not disturb the commits of others at each try."""
        records: dict[Partition, tuple[TargetPartition, Position]] = {}
        for partition in partitions:
            key = (job.grants[partition].target_topic, partition.number)
            stored = job.stored[key]
            is_there = stored.offset >= 0 and key in job.target.view.leaders
            if is_there and now_s - self._at_s.get(key, now_s - RENEW_S) >= RENEW_S:
                self._at_s[key] = now_s
                records[partition] = (key, stored)
        return records
