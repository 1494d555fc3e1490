"""Fault injection and operators' requests, drawn from the seed action by action.

Each seed has its own mixture: some kinds of fault are left out altogether, so that the others occur
in every state of the fleet, and not only in a fleet that is broken already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ureplicator_testkit.simulation.fleet import IDS, SimulatedFleet
from ureplicator_testkit.simulation.kernel import Chances, Process
from ureplicator_testkit.simulation.operators import SimulatedRest
from ureplicator_testkit.simulation.sessions import SessionProcess
from ureplicator_testkit.simulation.workers import Worker

PAUSE_S = 2.0
RESTART_S = 40.0
AWAY_S = 16.0
HANG_S = 25.0
LATE_S = 3.0
MAX_WORKERS = 14

ROUTE_PERIOD = 4
"""Operators change the whole route in one of so many seeds: while it is paused, little else goes wrong, and
a removed safeguard stays unseen."""

T = TypeVar("T")


class FaultInjector:
    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet = fleet
        self._world = fleet.world
        self._chance = fleet.chance
        kinds: tuple[tuple[int, Callable[[], None]], ...] = (
            (6, self._kill),
            (5, self._freeze),
            (4, self._expire),
            (4, self._cut),
            (4, self._watches),
            (3, self._lag_behind),
            (3, self._kill_copier),
            (2, self._hang),
            (2, self._stop),
            (2, self._leave),
            (2, self._twin),
            (7, self._operate),
        )
        chosen = [kind for kind in kinds if self._chance.random() < 0.6] or list(kinds)
        self._weights = [weight for weight, _ in chosen]
        self._actions = [action for _, action in chosen]

    def run(self, for_s: float) -> None:
        world, until_s = self._world, self._world.now_s + for_s
        world.chances = self._draw_chances()
        world.note("world", "trouble begins: %s", world.chances)
        while world.now_s < until_s:
            self._chance.choices(self._actions, self._weights)[0]()
            world.run_until(world.now_s + self._chance.random() * 2 * PAUSE_S)
        world.chances = Chances()

    def _draw_chances(self) -> Chances:
        def maybe(likely: float) -> float:
            return likely if self._chance.random() < 0.5 else 0.0

        return Chances(
            crash=maybe(0.003),
            slow=maybe(0.03),
            freeze=maybe(0.004),
            lost_response=maybe(0.05),
            kafka=maybe(0.03),
            slow_s=self._chance.choice((0.3, 2.0)),
            freeze_s=self._chance.choice((15.0, 30.0)),
        )

    # Targets.

    def _any(self, those: Sequence[T]) -> T | None:
        return self._chance.choice(those) if those else None

    def _worker(self) -> Worker | None:
        return self._any([worker for worker in self._fleet.workers if worker.alive])

    def _member(self) -> SessionProcess | None:
        return self._any([member for member in self._fleet.members() if member.alive])

    # Faults.

    def _kill(self) -> None:
        """A whole process; its copiers with it, or left running."""
        member = self._member()
        if member is None:
            return
        self._world.faults += 1
        member.kill("killed")
        if isinstance(member, Worker):
            if self._chance.random() < 0.7:
                for copier in list(member.copiers.values()):
                    copier.kill("killed with its worker")
            self._restart_worker(member.id)
        else:
            delay_s = self._chance.random() * AWAY_S
            self._world.later(delay_s, lambda: self._restart(member))

    def _restart(self, member: SessionProcess) -> None:
        if isinstance(member, SimulatedRest):
            self._fleet.start_rest(member.name)
        else:
            self._fleet.restart_controllers()

    def _restart_worker(self, id: str) -> None:
        """Soon, within the rebalance delay, after it, or never."""
        if self._chance.random() < 0.8:
            self._world.later(self._chance.random() * RESTART_S, lambda: self._start(id))

    def _start(self, id: str) -> None:
        if len(self._fleet.workers) < MAX_WORKERS and not self._fleet.settled:
            self._fleet.start_worker(id)

    def _freeze(self) -> None:
        """Freeze a process: a worker with or without its copiers, or one copier alone."""
        member = self._member()
        if member is None:
            return
        struck: list[Process] = [member]
        if isinstance(member, Worker):
            copiers: list[Process] = list(member.copiers.values())
            struck = self._chance.choice(([member, *copiers], struck, copiers[:1] or struck))
        for_s = self._chance.random() * self._world.chances.freeze_s
        self._world.faults += 1
        self._world.note(member.name, "frozen for %.1f s, %d processes", for_s, len(struck))
        for process in struck:
            process.freeze()
            self._world.later(for_s, process.thaw)

    def _expire(self) -> None:
        member = self._member()
        if member is not None:
            member.expire()

    def _cut(self) -> None:
        member = self._member()
        if member is not None:
            member.cut(self._chance.random() * AWAY_S)

    def _watches(self) -> None:
        member = self._member()
        if member is not None:
            for_s = self._chance.random() * LATE_S
            member.hold_watches(for_s, lost=self._chance.random() < 0.5)

    def _lag_behind(self) -> None:
        member = self._member()
        if member is not None:
            member.fall_behind(self._chance.random() * HANG_S)

    def _kill_copier(self) -> None:
        copier = self._any([copier for copier in self._fleet.copiers() if copier.alive])
        if copier is not None:
            self._world.faults += 1
            copier.kill("killed")

    def _hang(self) -> None:
        """The loop of a worker hangs; its session and its copiers continue."""
        worker = self._worker()
        if worker is not None:
            self._world.faults += 1
            self._world.note(worker.name, "hangs")
            worker.hung = True
            for_s = self._chance.random() * HANG_S
            self._world.later(for_s, lambda: setattr(worker, "hung", False))

    def _stop(self) -> None:
        worker = self._worker()
        if worker is not None:
            self._world.note(worker.name, "drained")
            worker.drain()
            self._restart_worker(worker.id)

    def _leave(self) -> None:
        worker = self._worker()
        if worker is not None:
            self._world.note(worker.name, "leaves")
            worker.leave()
            self._restart_worker(worker.id)

    def _twin(self) -> None:
        """Start a process under an id that may be running already."""
        self._start(self._chance.choice(IDS))

    # Operators.

    def _operate(self) -> None:
        rest = self._any([rest for rest in self._fleet.rests.values() if rest.alive])
        if rest is None:
            return
        topics = {name: n for counts in self._fleet.topics.values() for name, n in counts.items()}
        chance, topic = self._chance, self._chance.choice(list(topics))
        most = topics[topic]
        calls: tuple[Callable[[], None], ...] = (
            lambda: rest.add(topic, chance.randint(1, most)),
            lambda: rest.add(topic, most),
            lambda: rest.expand(topic, most),
            lambda: rest.delete(topic, forget=chance.random() < 0.5),
            lambda: rest.pause(topic, paused=True),
            lambda: rest.pause(topic, paused=False),
            lambda: rest.blacklist(topic, chance.randrange(most), listed=True),
            lambda: rest.blacklist(topic, chance.randrange(most), listed=False),
            lambda: rest.leave(chance.choice(IDS), leaving=True),
            lambda: rest.leave(chance.choice(IDS), leaving=False),
            lambda: rest.switch(auto_balancing=chance.random() < 0.6, frozen=False),
            lambda: rest.switch(auto_balancing=True, frozen=chance.random() < 0.4),
            rest.rebalance,
            rest.unfreeze,
        )
        if self._world.seed % ROUTE_PERIOD == 2:
            calls += (
                lambda: rest.pause_route(paused=chance.random() < 0.5),
                lambda: rest.limit_route(chance.choice((None, 50_000, 80_000))),
            )
        chance.choice(calls)()
