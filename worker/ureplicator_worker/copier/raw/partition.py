"""One partition on its way: where it is fetched, what waits to be sent, how it is doing.

COPYING --drain--> DRAINING --(empty, committed)--> GONE
   |                  |
   +--fail: drain-----+--(refused, or not in time)--> GONE, with a reason

It exists once copying may begin; what comes before is the ownership's (`copier.ownership`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ureplicator_common.model import Partition
from ureplicator_worker.copier.beginning import Beginning
from ureplicator_worker.copier.raw.batches.send_window import SendWindow
from ureplicator_worker.copier.raw.net.fetch_api import IDS, NAMES, TopicKey, by_id, by_name
from ureplicator_worker.lifeline.messages import Grant

TopicPartition = tuple[str, int]


class Phase(Enum):
    COPYING = "copying"
    DRAINING = "draining"
    GONE = "gone"


@dataclass(slots=True)
class Counters:
    """Since the copier began with the partition."""

    records: int = 0
    bytes: int = 0
    skipped: int = 0
    gaps: int = 0


@dataclass(slots=True, eq=False)
class PartitionCopy:
    """`fetch_offset` runs ahead of `window.position`; `committed` trails behind it.

    `suspended`: our transactional id was fenced, and the proof that we are still the owner is due.
    `moved_at_s`: when the target last took something of it, or it began to wait.
    `failure`: why the partition is given up once what was acknowledged is committed.
    `keys`: the source topic as each version of Fetch names it. The id is the one that the position was
    proven against, so a recreated topic is never read on under it. `read_by_name`: something was
    fetched without that guard.
    `target_offset`: where the target's log put the last batch that it took.
    """

    partition: Partition
    grant: Grant
    beginning: Beginning
    window: SendWindow
    fetch_offset: int
    fetched_epoch: int
    committed: int
    keys: Mapping[int, TopicKey]
    phase: Phase = Phase.COPYING
    answered: bool = False
    high_watermark: int = -1
    source_trouble: str = ""
    target_trouble: str = ""
    suspended: bool = False
    failure: tuple[str, bool] | None = None
    fetch_after_s: float = 0.0
    send_after_s: float = 0.0
    drain_until_s: float = 0.0
    moved_at_s: float = 0.0
    committed_at_s: float = 0.0
    sent_via: int = -1
    target_offset: int = -1
    read_by_name: bool = False
    needs_producer: bool = True
    suspicious: int = 0
    counters: Counters = field(default_factory=Counters)

    @classmethod
    def begin(cls, partition: Partition, grant: Grant, beginning: Beginning) -> PartitionCopy:
        return cls(
            partition=partition,
            grant=grant,
            beginning=beginning,
            window=SendWindow(position=beginning.position, leader_epoch=beginning.leader_epoch),
            fetch_offset=beginning.position,
            fetched_epoch=beginning.leader_epoch,
            committed=beginning.position,
            keys={
                NAMES: (by_name(partition.topic), partition.number),
                IDS: (by_id(beginning.source_topic_id), partition.number),
            },
            counters=Counters(gaps=1 if beginning.gap else 0),
        )

    @property
    def has_id(self) -> bool:
        return bool(self.keys[IDS][0])

    @property
    def source(self) -> TopicPartition:
        return (self.partition.topic, self.partition.number)

    @property
    def target(self) -> TopicPartition:
        return (self.grant.target_topic, self.partition.number)

    @property
    def lag(self) -> int:
        """Records (offsets, rather) behind the end of the source; -1 while the end is not known."""
        if self.high_watermark < 0:
            return -1
        return max(0, self.high_watermark - self.window.position)

    def jump(self, offset: int) -> None:
        """Go on at another offset, over a hole that the operator's policy allows."""
        self.window.pass_over(offset, -1)
        self.fetch_offset = offset
        self.fetched_epoch = -1
        self.counters.gaps += 1
