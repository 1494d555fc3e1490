"""Clients: writers of the topics, and a group that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from ureplicator_common.cutovers import FenceKind
from ureplicator_common.kafka.groups import CommittedOffset, TopicPartition
from ureplicator_testkit.cutover_histories.clusters import BOB, CAROL, DAVE, Cluster
from ureplicator_testkit.kafka.memory_groups import MemoryGroup

LONGEST_S = 10.0
"""Time after which brokers abort a transaction."""


class Records(Protocol):
    """The history, as writers tell it what became of their records."""

    dice: Random

    @property
    def now_s(self) -> float: ...

    def time(self) -> int: ...

    def new_record(self, cluster: str, key: TopicPartition) -> int:
        """Number of a record that is being appended there."""
        ...

    def acknowledge(self, key: TopicPartition, records: Sequence[int]) -> None: ...


@dataclass
class Writer:
    """`home`: cluster that it writes to; "": it stands still. `obeys`: it stops when it is told to. Requests
    that a broker has let in are appended a turn later (`let_in`)."""

    principal: str
    home: str
    transactional: bool = False
    obeys: bool = True
    let_in: list[tuple[Cluster, TopicPartition]] = field(default_factory=list)
    open: list[tuple[TopicPartition, int]] = field(default_factory=list)
    opened_s: float = 0.0
    opened_at: Cluster | None = None

    def turn(self, clusters: dict[str, Cluster], records: Records) -> None:
        self._arrive(records)
        dice = records.dice
        if self.opened_at is not None and self.principal not in self.opened_at.transactions:
            self.open, self.opened_at = [], None  # it was aborted
        if self.opened_at is not None and (
            dice.random() < 0.3 or records.now_s - self.opened_s > LONGEST_S
        ):
            self._end(records)
        if not self.home or dice.random() < 0.3:
            return
        cluster = clusters[self.home]
        if self.opened_at not in (None, cluster):
            return
        for key in sorted(cluster.logs):
            if dice.random() < 0.3 and cluster.lets_write(self.principal, key):
                self._send(cluster, key, records)

    def _arrive(self, records: Records) -> None:
        for cluster, key in self.let_in:
            if key in cluster.logs:
                record = records.new_record(cluster.name, key)
                cluster.logs[key].append(record, records.time())
                records.acknowledge(key, [record])
        self.let_in = []

    def _send(self, cluster: Cluster, key: TopicPartition, records: Records) -> None:
        if not self.transactional:
            self.let_in.append((cluster, key))
            return
        if self.opened_at is None:
            self.opened_at, self.opened_s = cluster, records.now_s
        record = records.new_record(cluster.name, key)
        cluster.logs[key].append(record, records.time(), transaction=self.principal)
        self.open.append((key, record))

    def _end(self, records: Records) -> None:
        """Commit, or abort; a fence does not keep it from either."""
        assert self.opened_at is not None
        commits = records.now_s - self.opened_s <= LONGEST_S and records.dice.random() < 0.7
        for key in sorted({key for key, _ in self.open}):
            self.opened_at.logs[key].finish(self.principal, records.time(), commits=commits)
        for key, record in self.open if commits else ():
            records.acknowledge(key, [record])
        self.open, self.opened_at = [], None


def first_writers(dice: Random, kind: FenceKind) -> list[Writer]:
    """Two that are to stop, and one that does what it may."""
    writers = [Writer(BOB, "a"), Writer(CAROL, "a", transactional=True)]
    if kind is FenceKind.NONE and dice.random() < 0.5:
        writers[0].obeys = False
    return [*writers, Writer(DAVE, "a", obeys=False)]


@dataclass
class Reader:
    """A consumer group. `home`: where its consumers are; `committed_at`: number of the event;
    `has_strayed`: it has, or had, a member at the other cluster, so it may count as gone over."""

    id: str
    home: str
    goes_on: bool = True
    committed_at: int = 0
    has_strayed: bool = False

    def turn(self, clusters: dict[str, Cluster], dice: Random, time: int) -> None:
        """Read on, and commit."""
        cluster = clusters[self.home]
        group = cluster.groups.groups.setdefault(self.id, MemoryGroup())
        group.state = "Stable" if self.goes_on else "Empty"
        if not self.goes_on or dice.random() < 0.3:
            return
        for key, log in sorted(cluster.logs.items()):
            before = group.offsets.get(key, CommittedOffset(0)).offset
            end = log.stable_end
            offset = end if dice.random() < 0.3 else min(end, before + dice.randrange(6))
            if dice.random() < 0.5 and offset >= before:
                group.offsets[key] = CommittedOffset(offset, "")
                self.committed_at = time

    def offsets(self, cluster: Cluster) -> dict[TopicPartition, CommittedOffset]:
        group = cluster.groups.groups.get(self.id)
        return dict(group.offsets) if group else {}
