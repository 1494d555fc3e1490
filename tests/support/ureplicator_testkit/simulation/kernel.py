"""Virtual time, randomness and scheduling of the simulated processes.

    actor    a thread: its `turn` runs, and returns the delay until it wants to run again
    process  crashes and freezes as a whole
    point    before each request to a server; there the simulation may continue without the caller

A point runs the rest of the simulation inside the waiting turn, so an interrupted turn is a frame on
Python's own stack: it needs no thread, and it stops exactly before the request. `ProcessEnded` unwinds
the frames of a process that was killed meanwhile.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

NEVER = float("inf")
START_S = 1_000.0
MAX_NESTED = 4
TRACE_LINES = 4_000
WRITES_TIMES = 8.0
MAX_TURNS = 100_000
"""A run takes a few thousand; more means an endless loop."""


class SimulationFailure(BaseException):
    """An invariant is violated. Not an `Exception`: a loop that survives every error must not hide it."""

    def __init__(self, letter: str, what: str) -> None:
        super().__init__(f"{letter}: {what}")
        self.letter = letter


class ProcessEnded(BaseException):
    """The process ended: the pending request is not sent."""


@dataclass(slots=True)
class Chances:
    """Probabilities at each point, drawn per seed: many runs with one kind of fault find more than all
    with some of each.
    """

    crash: float = 0.0
    slow: float = 0.0
    freeze: float = 0.0
    lost_response: float = 0.0
    kafka: float = 0.0
    slow_s: float = 0.5
    freeze_s: float = 20.0


@dataclass(slots=True, eq=False)
class Actor:
    """One thread. `missed`: its turn came while the process was frozen."""

    name: str
    process: Process
    turn: Callable[[], float | None]
    due_s: float = NEVER
    busy: bool = False
    missed: bool = False


class Process:
    """Unit of crash and freeze."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = 0
        self.actors: list[Actor] = []

    def actor(self, name: str, turn: Callable[[], float | None]) -> Actor:
        actor = Actor(f"{self.name}/{name}", self, turn)
        self.actors.append(actor)
        return actor

    def point(self, what: str, *, writes: bool = False) -> None:
        self.world.point(self, what, writes=writes)

    def kill(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.world.note(self.name, "ends: %s", why)
            self.died()

    def freeze(self) -> None:
        self.frozen += 1
        if self.frozen == 1:
            self.stopped()

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen -= 1
        if self.frozen or not self.alive:
            return
        self.world.note(self.name, "thaws")
        self.continued()
        for actor in self.actors:
            if actor.missed:
                actor.missed = False
                self.world.wake(actor)

    def died(self) -> None:
        """Hook: consequences of the end."""

    def stopped(self) -> None:
        """Hook: consequences of the freeze for the servers."""

    def continued(self) -> None:
        """Hook: what the process finds after the freeze."""


@dataclass(order=True, slots=True)
class _Entry:
    due_s: float
    number: int
    act: Actor | Callable[[], None] = field(compare=False)


class World:
    """Clock of all processes, and the queue of events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
        self.now_s = START_S
        self.chances = Chances()
        self.turns = 0
        self.faults = 0
        self.trace: list[tuple[float, str, str, tuple[object, ...]]] = []
        self._queue: list[_Entry] = []
        self._number = 0
        self._depth = 0

    # The clock of all processes.

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)

    def note(self, who: str, what: str, *details: object) -> None:
        if len(self.trace) < TRACE_LINES:
            self.trace.append((self.now_s, who, what, details))

    # Scheduling.

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._push(self.now_s + delay_s, act)

    def wake(self, actor: Actor, delay_s: float = 0.0) -> None:
        """Schedule a turn; one that is due earlier stays."""
        due_s = self.now_s + delay_s
        if due_s < actor.due_s:
            actor.due_s = due_s
            self._push(due_s, actor)

    def soon(self, actor: Actor) -> None:
        """Wake an actor after a short message delay."""
        self.wake(actor, self.chance.random() * 0.05)

    def _push(self, due_s: float, act: Actor | Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, _Entry(due_s, self._number, act))

    def run_until(self, until_s: float) -> None:
        queue = self._queue
        while queue and queue[0].due_s <= until_s:
            entry = heapq.heappop(queue)
            self.now_s = max(self.now_s, entry.due_s)
            if isinstance(entry.act, Actor):
                self._turn(entry.act, entry.due_s)
            else:
                entry.act()
        self.now_s = max(self.now_s, until_s)

    def _turn(self, actor: Actor, due_s: float) -> None:
        if actor.due_s != due_s or not actor.process.alive:
            return
        actor.due_s = NEVER
        if actor.busy or actor.process.frozen:
            actor.missed = True
            return
        actor.busy = True
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise SimulationFailure("C", f"{actor.name} turns in a circle")
        try:
            again_s = actor.turn()
        except ProcessEnded:
            return
        finally:
            actor.busy = False
        if actor.missed:
            actor.missed = False
            again_s = 0.0
        if again_s is not None:
            self.wake(actor, again_s)

    # Faults before a request.

    def point(self, process: Process, what: str, *, writes: bool) -> None:
        self._go_on(process)
        chances, times = self.chances, WRITES_TIMES if writes else 1.0
        roll = self.chance.random() - chances.crash
        if roll < 0:
            self.faults += 1
            process.kill(f"crash before {what}")
        elif self._depth < MAX_NESTED and (roll := roll - chances.slow) < 0:
            self.sleep(process, self.chance.random() * chances.slow_s)
        elif self._depth < MAX_NESTED and roll - chances.freeze * times < 0:
            self._freeze(process, what)
        self._go_on(process)

    def _go_on(self, process: Process) -> None:
        if not process.alive:
            raise ProcessEnded(process.name)

    def _freeze(self, process: Process, what: str) -> None:
        for_s = self.chance.random() * self.chances.freeze_s
        self.faults += 1
        self.note(process.name, "freezes for %.1f s before %s", for_s, what)
        process.freeze()
        self._nested(for_s)
        process.thaw()

    def sleep(self, process: Process, for_s: float) -> None:
        """Continue this turn later; the process's other threads do not wait."""
        self._nested(for_s)
        self._go_on(process)

    def _nested(self, for_s: float) -> None:
        self._depth += 1
        try:
            self.run_until(self.now_s + for_s)
        finally:
            self._depth -= 1
