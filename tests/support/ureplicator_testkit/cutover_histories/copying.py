"""A fleet that copies in both directions, exactly once by fences and counts.

The plan and the workers' state machine are real (`control.fleet`). A copier takes a partition over in the
order of the product: its own id, proof, fence of former ids, then fence and count of the data producer that
the stored position names, then the position with a producer of its own, then records. Positions trail the
records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from ureplicator_common.coordination import Create, Set
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.model import (
    Delivery,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    TopicKey,
    TopicState,
)
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.positions.changes import ChangeOutcome, due_changes, with_outcomes
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_testkit.control.fleet import ControlFleet
from ureplicator_testkit.control.worker_process import Process
from ureplicator_testkit.cutover_histories.logs import HOLE, Log

TOPICS = {"t": 2, "u": 1}
THERE = Route("a", "b")
BACK = Route("b", "a")
REPLANNED = 0.15
"""Likelihood of a cycle though nothing has changed: times may have gone by."""
DELAYS = Delays(rebalance_s=2.0, join_s=1.0, handover_s=4.0)


@dataclass(frozen=True)
class Stored:
    """A stored position. `producer`: records may follow under it. `end`: of the target's log behind what was
    copied; None: not known. `counts`: what follows can be counted; not where the position was set."""

    offset: int = -1
    producer: str = ""
    end: int | None = None
    counts: bool = True


@dataclass
class Copies:
    """What was copied of one partition in one direction: offsets at both ends. `sent`: source offset behind
    the last record that each producer has sent. `fenced`: producers."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    stored: Stored = Stored()
    sent: dict[str, int] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    begun_at: list[int] = field(default_factory=list)
    """Positions that owners began at."""

    def end_behind(self, position: int) -> int | None:
        """End of the target's log for the next stored position."""
        if self.sources and self.stored.offset <= self.sources[-1] < position:
            return self.targets[-1] + 1
        return self.stored.end

    def forward(self, offset: int) -> int | None:
        return _translated(self.sources, self.targets, offset)

    def backward(self, offset: int) -> int | None:
        return _translated(self.targets, self.sources, offset)


def _translated(here: list[int], there: list[int], offset: int) -> int | None:
    """As the offset map does: the place of a record that was copied, else behind the one before."""
    if not here:
        return None
    at = max(0, bisect_right(here, offset) - 1)
    return there[at] + (here[at] < offset)


class Copier(Process):
    """A worker that copies. `deaf`: turns in which its copiers go on, and it hears nothing of ZooKeeper;
    `pace`: likelihood of each step of a takeover and of a release in a turn."""

    fleet: CopyingFleet
    deaf = 0
    pace = 0.9

    def __init__(self, fleet: CopyingFleet, id: str) -> None:
        self.fleet = fleet
        self.next: dict[Partition, int] = {}
        self.producers: dict[Partition, str] = {}
        self._named = 0
        super().__init__(fleet, id, 1)

    def position(self, partition: Partition) -> None:
        """Fence and count what the last owner sent."""
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "fenced":
            return
        copies = self.fleet.copies[partition]
        stored = copies.stored
        self.fleet.fence_data(partition)
        counted = copies.sent.get(stored.producer, 0) if stored.counts else 0
        self.next[partition] = max(0, stored.offset, counted)
        copy.stage = "counted"

    def name_producer(self, partition: Partition) -> None:
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "counted":
            return
        if not self.can_commit(partition):
            self.drop(partition, "fenced")
            return
        self._named += 1
        self.producers[partition] = name = f"{self!r}-{self._named}"
        copies = self.fleet.copies[partition]
        copies.begun_at.append(self.next[partition])
        copies.stored = Stored(self.next[partition], name, copies.end_behind(self.next[partition]))
        copy.stage = "copying"
        self._report(partition, PartitionState.ONLINE)

    def send(self, partition: Partition, most: int) -> None:
        """Copy some records."""
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "copying":
            return
        copies, producer = self.fleet.copies[partition], self.producers[partition]
        if producer in copies.fenced:
            self.drop(partition, "fenced")
            return
        source = self.fleet.log(partition.route.source, partition)
        until = min(self.next[partition] + most, source.stable_end)
        for offset in range(self.next[partition], until):
            if source.entries[offset] >= 0:
                self.fleet.append(partition, offset, producer)
        self.next[partition] = copies.sent[producer] = max(self.next[partition], until)

    def commit(self, partition: Partition) -> None:
        self._commit(partition, producer=self.producers.get(partition, ""))

    def _commit(self, partition: Partition, *, producer: str) -> None:
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "copying":
            return
        if not self.can_commit(partition):
            self.drop(partition, "fenced")
            return
        copies, following = self.fleet.copies[partition], self.next[partition]
        copies.stored = Stored(following, producer, copies.end_behind(following))
        self._report(partition, PartitionState.ONLINE, committed=1)

    def release(self, partition: Partition) -> None:
        """A clean end names no producer."""
        copier = self.removed.get(partition)
        if copier is not None:
            self._commit(partition, producer="")
            self._released(partition, copier)

    def turn(self, dice: Random) -> None:
        """Some of what a worker does."""
        if self.deaf:
            self.deaf -= 1
            self._copy_on(dice)
            return
        if not self.connected:
            self.dead = self.fleet.store.node(self.fleet.paths.worker_live(self.id)) is not None
            if self.dead:
                return
            self.connect()
        self.fleet.register_again(self)
        self._tick()
        if dice.random() < self.pace:
            self.read()
        self.fence_former()
        acts = (self.start, self.fence, self.position, self.name_producer)
        for partition in sorted(self.added):
            if dice.random() < self.pace:
                self.release(partition)
            for act in acts:
                if dice.random() < self.pace:
                    act(partition)
        self._copy_on(dice)
        self.publish()

    def _copy_on(self, dice: Random) -> None:
        for partition in sorted(self.copies):
            self.name_producer(partition)
            if partition in self.copies and dice.random() < 0.8:
                self.send(partition, dice.choice((1, 3, 9)))
            if partition in self.copies and dice.random() < 0.6:
                self.commit(partition)


class CopyingFleet(ControlFleet):
    """`logs`: of both clusters. `time`: number of the present event."""

    def __init__(
        self,
        topics: Mapping[str, int],
        logs: Mapping[str, dict[TopicPartition, Log]],
        time: Callable[[], int],
    ) -> None:
        self._logs, self._time = logs, time
        self.copies: dict[Partition, Copies] = {}
        self.copiers: list[Copier] = []
        super().__init__(delays=DELAYS, planner=lambda seen, now_s: plan(seen, now_s))
        self.hand = self._session
        self._planned_at = -1
        self.pace = 0.9
        for route in (THERE, BACK):
            data = encode_route(RouteSettings(delivery=Delivery.EXACTLY_ONCE, offset_map=True))
            self.store.apply(self._session, [Create(self.paths.route(route), data)])
            self._make(f"{self.paths.ideal}/{route}")
        for topic, count in topics.items():
            self.add_partitions(topic, count)
            self.topic(topic, count, route=THERE)

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)

    def add_partitions(self, topic: str, count: int) -> None:
        for route in (THERE, BACK):
            for number in range(count):
                self.copies.setdefault(Partition(route, topic, number), Copies())

    def log(self, cluster: str, partition: Partition) -> Log:
        return self._logs[cluster][partition.topic, partition.number]

    def append(self, partition: Partition, offset: int, producer: str) -> None:
        """The record of the source at an offset, at the target."""
        record = self.log(partition.route.source, partition).entries[offset]
        copies = self.copies[partition]
        copies.sources.append(offset)
        copies.targets.append(
            self.log(partition.route.target, partition).append(record, self._time())
        )
        copies.sent[producer] = offset + 1

    def fence_data(self, partition: Partition) -> None:
        """Fence the producer that the stored position names, by a control record."""
        copies = self.copies[partition]
        if copies.stored.producer:
            copies.fenced.add(copies.stored.producer)
            self.log(partition.route.target, partition).append(HOLE, self._time())

    def is_copied(self, route: Route, topics: Collection[str]) -> bool:
        """True if every partition of the route is copied, as plans ask for."""
        seen = self.contents().topics
        keys = [TopicKey(route, topic) for topic in sorted(topics)]
        if any(key not in seen or seen[key].value.state is not TopicState.ACTIVE for key in keys):
            return False
        copied = {
            partition
            for worker in self.running()
            for partition, copy in worker.copies.items()
            if copy.stage == "copying"
        }
        return copied.issuperset(
            Partition(route, key.topic, number)
            for key in keys
            for number in range(seen[key].value.partitions)
        )

    def start_worker(self, id: str) -> Copier:
        worker = Copier(self, id)
        worker.pace = self.pace
        self.processes.append(worker)
        self.copiers.append(worker)
        return worker

    def plan(self, dice: Random) -> None:
        """A cycle of the leader, if something has changed, or some time later."""
        if self.store._zxid == self._planned_at and dice.random() > REPLANNED:
            return
        self.cycle()
        if dice.random() < 0.7:
            self.change_positions()
            self._planned_at = self.store._zxid

    def change_positions(self) -> None:
        """What the leader's thread does, at once."""
        seen = self.contents()
        for key, due in due_changes(seen).items():
            for id in due.fence:
                self.ledger.initialise(id)
            outcomes: dict[int, ChangeOutcome] = {}
            for number, change in due.changes.items():
                copies = self.copies[Partition(key.route, key.topic, number)]
                outcomes[number] = ChangeOutcome(change, copies.stored.offset)
                producer = copies.stored.producer
                copies.stored = Stored(change.offset, producer, counts=False)
            changed = with_outcomes(due.intent, outcomes)
            node = Set(self.paths.topic(key), encode_intent(changed), seen.topics[key].version)
            self.store.apply(self._session, [node])

    def edit(self, route: Route, topic: str, **changes: object) -> None:
        """Change an intent as operators do."""
        key = TopicKey(route, topic)
        stored = self.contents().topics[key]
        changed = replace(stored.value, **changes)  # type: ignore[arg-type]
        self.store.apply(
            self._session, [Set(self.paths.topic(key), encode_intent(changed), stored.version)]
        )
