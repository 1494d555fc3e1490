"""A process that leads, or believes that it does: the real `CutoverThread`, called turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from prometheus_client import CollectorRegistry

from ureplicator_common.coordination import Check, Operation, OutcomeUnknown, SessionState
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.cutover.thread import CutoverNeeds, CutoverThread
from ureplicator_controller.engines.fenced_writer import FencedWriter
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.cutover_histories.clusters import Cluster
from ureplicator_testkit.cutover_histories.copying import CopyingFleet
from ureplicator_testkit.cutover_histories.twins import Gateway, Guarded, guarded_clusters

METRICS = ControlMetrics(CollectorRegistry())
CHANGE = "a change at a cluster"


class ProcessEnded(BaseException):
    """The process is killed: it sends no more requests."""


@dataclass
class Chances:
    """Likelihoods at each request."""

    kill: float = 0.0
    freeze: float = 0.0
    fail: float = 0.0
    lose: float = 0.0
    """Of the response to a write to ZooKeeper."""

    def stop(self) -> None:
        self.kill = self.freeze = self.fail = self.lose = 0.0


class Surroundings(Protocol):
    """What a leader needs of its history."""

    dice: Random
    chances: Chances
    fleet: CopyingFleet
    clusters: dict[str, Cluster]

    def time(self) -> int:
        """Number of the next event."""
        ...

    def go_on_without(self, leader: Leader) -> None:
        """The leader is frozen; everything else goes on for a while."""
        ...

    def written(self, leader: Leader) -> None:
        """A leader may have written to ZooKeeper."""
        ...


class Client(MemoryCoordination):
    """ZooKeeper as one leader sees it."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        super().__init__(leader.world.fleet.store)

    def _request(self, path: str) -> None:
        self._leader.point(f"read {path}", False)
        super()._request(path)

    def transact(self, operations: Sequence[Operation]) -> None:
        done = self._leader.point(f"write {operations[0].path}", False)
        if self._leader.world.dice.random() < self._leader.world.chances.lose:
            self.lose_next_response(applied=self._leader.world.dice.random() < 0.5)
        try:
            super().transact(operations)
        except OutcomeUnknown:
            self._leader.world.written(self._leader)
            raise
        self._leader.world.written(self._leader)
        if not all(isinstance(operation, Check) for operation in operations):
            done()


class Leader:
    """`knows`: it has found out that it does not lead any more. `proves_s`: time of the last proof."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        world.fleet.elect()
        self.epoch = world.fleet.contents().epoch
        self.knows = False
        self.is_busy = False
        self.due_s = 0.0
        self._latest: Snapshot | None = None
        self._is_proven = False
        self.client = Client(self)
        fleet = world.fleet
        self.thread = CutoverThread(
            CutoverNeeds(
                fleet=fleet.name,
                coordination=self.client,
                paths=fleet.paths,
                writer=FencedWriter(self.client, paths=fleet.paths, metrics=METRICS),
                open_clusters=lambda route: guarded_clusters(
                    route, world.clusters, fleet, point=self.point, time=world.time
                ),
                program=Guarded(Gateway(world.clusters, self._fails), self.point),
                seen=self._seen,
                proven=self._proven,
                clock=fleet,
            )
        )

    def turn(self) -> None:
        """One round, if it is due. Raises ProcessEnded."""
        fleet = self.world.fleet
        if self.is_busy or fleet.now_s < self.due_s:
            return
        if self._latest is None or self.world.dice.random() < 0.9:
            self._observe()
        self.is_busy = True
        try:
            self.due_s = fleet.now_s + self.thread.run_once()
        finally:
            self.is_busy = False

    def point(self, name: str, changes: bool) -> Callable[[], None]:
        """Before a request; the result is called after it."""
        chances, dice = self.world.chances, self.world.dice
        if dice.random() < chances.kill / 2:
            raise ProcessEnded(name)
        if not changes and dice.random() < chances.freeze:
            self.world.go_on_without(self)
        is_write = name.startswith(("read", "write"))
        if not is_write and dice.random() < chances.fail:
            raise ClusterUnavailable(f"{name}: no broker responds")

        def done() -> None:
            if dice.random() < chances.kill / 2:
                raise ProcessEnded(name)
            if (changes or name.startswith("write")) and dice.random() < chances.freeze:
                self.world.go_on_without(self)
            if not is_write and dice.random() < chances.fail:
                raise ClusterUnavailable(f"{name}: no response")

        return done

    def _fails(self) -> bool:
        return self.world.dice.random() < self.world.chances.fail

    def _is_connected(self) -> bool:
        return self.client.state() is SessionState.CONNECTED

    def _observe(self) -> None:
        """The control loop's last snapshot; that of a former leader stays what it was."""
        if not self._is_connected():
            return
        seen = self.world.fleet.contents()
        if seen.epoch == self.epoch:
            self._latest = seen
        elif self.world.dice.random() < 0.7:
            self.knows = True

    def _seen(self) -> tuple[int, Snapshot] | None:
        return None if self.knows or self._latest is None else (self.epoch, self._latest)

    def _proven(self) -> Snapshot | None:
        self.client.sync("/")
        seen = self.world.fleet.contents()
        self.knows = self.knows or seen.epoch != self.epoch
        return None if self.knows else seen
