"""Faults of a history, by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.model import WorkerId
from ureplicator_testkit.kafka.memory_groups import MemoryGroup

if TYPE_CHECKING:
    from ureplicator_testkit.cutover_histories.history import History


class Faults:
    """None before they are drawn."""

    def __init__(self, world: History) -> None:
        self._world = world
        self._likely: dict[Callable[[], None], float] = {}

    def draw(self) -> None:
        """Draw what is likely in this history."""
        dice = self._world.dice
        self._world.chances.kill = dice.choice((0.0, 0.0, 0.01, 0.05))
        self._world.chances.freeze = dice.choice((0.0, 0.0, 0.01, 0.04))
        self._world.chances.fail = dice.choice((0.0, 0.0, 0.02, 0.1))
        self._world.chances.lose = dice.choice((0.0, 0.0, 0.05, 0.2))
        for cluster in self._world.clusters.values():
            cluster.acls.lag = dice.choice((0.0, 0.5))
        self._likely = {
            self._cut_off: dice.choice((0.0, 0.0, 0.03)),
            self._lose_worker: dice.choice((0.0, 0.02, 0.05)),
            self._world.operator.tamper: dice.choice((0.0, 0.0, 0.0, 0.03)),
            self._world.operator.trouble: dice.choice((0.0, 0.0, 0.0, 0.0, 0.01)),
            self._stray_member: dice.choice((0.0, 0.0, 0.05)),
            self._lose_coordinator: dice.choice((0.0, 0.0, 0.05)),
        }
        self._world.fleet.pace = dice.choice((0.3, 0.9))
        for reader in self._world.readers:
            if dice.random() < 0.5:
                group = MemoryGroup({("t", 0): CommittedOffset(dice.randrange(3), "m")})
                self._world.clusters["b"].groups.groups[reader.id] = group

    def turn(self) -> None:
        """Each fault, if it comes now."""
        for fault, likely in self._likely.items():
            if self._world.dice.random() < likely:
                fault()

    def _cut_off(self) -> None:
        """ZooKeeper is there for the leader, or is not."""
        if self._world.leader is None:
            return
        client = self._world.leader.client
        if client.session() is None:
            client.restore()
        else:
            client.suspend()

    def _lose_worker(self) -> None:
        """Freeze one, thaw one, or cut one off while its copiers go on."""
        fleet, dice = self._world.fleet, self._world.dice
        frozen = [worker for worker in fleet.copiers if worker.frozen and not worker.dead]
        running = [worker for worker in fleet.copiers if worker.runs]
        if frozen and dice.random() < 0.5:
            thawed = dice.choice(frozen)
            thawed.deaf = dice.randrange(6)
            fleet.thaw(thawed)
        elif running:
            worker = dice.choice(running)
            if dice.random() < 0.3:
                fleet.expire(worker)
                worker.deaf = dice.randrange(1, 20)
            else:
                fleet.freeze(worker)
        self._start_missing()

    def _start_missing(self) -> None:
        """A supervisor starts another process of an id, later."""
        for id in ("a", "b"):
            alive = any(each.id == id and each.runs for each in self._world.fleet.copiers)
            live = self._world.fleet.store.node(self._world.fleet.paths.worker_live(WorkerId(id)))
            if not alive and live is None and self._world.dice.random() < 0.5:
                self._world.fleet.start_worker(id)

    def _stray_member(self) -> None:
        """A consumer joins a group at the cluster that is not open, or leaves it."""
        reader = self._world.dice.choice(self._world.readers)
        if reader.home == self._world.open:
            group = self._world.other.groups.groups.setdefault(reader.id, MemoryGroup())
            group.state = "Empty" if group.state == "Stable" else "Stable"
            reader.has_strayed = True

    def _lose_coordinator(self) -> None:
        """The coordinator of a group does not respond, or does again."""
        cluster = self._world.clusters[self._world.dice.choice(sorted(self._world.clusters))]
        cluster.groups.failing ^= {self._world.dice.choice(self._world.readers).id}

    def heal(self) -> None:
        """Everything works again."""
        self._world.chances.stop()
        if self._world.leader is not None:
            self._world.leader.client.restore()
        for worker in self._world.fleet.copiers:
            if worker.frozen:
                self._world.fleet.thaw(worker)
        for _ in range(16):
            self._start_missing()
        for reader in self._world.readers:
            group = self._world.clusters[self._world.beside(reader.home)].groups.groups.get(
                reader.id
            )
            if group is not None:
                group.state = "Empty"
        for cluster in self._world.clusters.values():
            cluster.acls.lag = 0.0
            cluster.groups.failing.clear()
