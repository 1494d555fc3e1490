"""Random fleets and random events: what `ControlFleet` watches must hold, and it must end well.

`hypothesis` chooses what happens and when: workers take their steps late or not at all, die,
freeze and thaw, sessions expire under running processes, leaders die in the middle of a plan,
operators change their minds. Afterwards all faults are healed, and the fleet must come to rest:
every partition that is wanted copied by its ideal owner alone, counts even, nothing left to fence.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.model import Partition, TopicState
from ureplicator_common.znode_contents import CurrentState, IdealEntry, IdealTopic, Switches
from ureplicator_controller.core.planning import bookkeeping
from ureplicator_controller.core.planning.bookkeeping import needed_workers
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_testkit.control.fleet import (
    ROUTE,
    ControlFleet,
    Planner,
    partition,
    uneven_workers,
)
from ureplicator_testkit.control.worker_process import InvariantViolated, Process

Event = tuple[str, Any]

IDS = ("a", "b", "c", "d")
TOPICS = ("t", "u")
PARTITIONS = 3
DELAYS = Delays(rebalance_s=20.0, join_s=5.0)
SEEDS = 40
FORGETTING_SEEDS = 20
"""Deliberate defects are detected by every second to third seed."""
SWITCHES = (
    Switches(),
    Switches(auto_balancing=False),
    Switches(frozen=True),
    Switches(paused_routes=frozenset({ROUTE})),
    Switches(frozen=True, rebalance_requested="now"),
)

number = st.integers(0, PARTITIONS - 1)
chosen = st.tuples(st.sampled_from(TOPICS), number)
CYCLE = st.tuples(st.just("cycle"), st.one_of(st.none(), st.integers(0, 6)))
WORK = st.tuples(st.sampled_from(["catch_up", "read", "publish"]), st.integers(0, 9))
EVENTS = st.one_of(
    CYCLE,
    CYCLE,
    WORK,
    WORK,
    st.tuples(
        st.sampled_from(["start", "fence", "position", "commit", "release"]),
        st.tuples(st.integers(0, 9), chosen),
    ),
    st.tuples(
        st.sampled_from(["kill", "freeze", "expire", "thaw", "hang", "recover", "register_again"]),
        st.integers(0, 9),
    ),
    st.tuples(st.just("worker"), st.tuples(st.sampled_from(IDS), st.integers(1, 3))),
    st.tuples(st.just("wait"), st.integers(1, 25)),
    st.tuples(st.sampled_from(["pause", "resume", "delete", "blacklist"]), chosen),
    st.tuples(st.sampled_from(["drain", "take_back", "forget"]), st.sampled_from(IDS)),
    st.tuples(st.just("switch"), st.sampled_from(SWITCHES)),
)

HISTORIES = st.lists(EVENTS, min_size=20, max_size=80)


class World:
    """A fleet to which events are applied; events that do not apply at the moment are skipped."""

    def __init__(self, planner: Planner = plan) -> None:
        self.fleet = ControlFleet(delays=DELAYS, planner=planner)
        for name in TOPICS:
            self.fleet.topic(name, PARTITIONS)
        for id in IDS[:2]:
            self.fleet.worker(id)
        self.fleet.planner = plan
        self.fleet.settle()
        self.fleet.planner = planner

    def play(self, events: list[Event]) -> None:
        """Events that follow a cycle at once happen between its steps."""
        waiting = iter(events)
        for event in waiting:
            if event[0] == "cycle":
                self.fleet.between = lambda: self._one(next(waiting, ("wait", 0)))
                self.fleet.cycle(die_after=event[1])
                self.fleet.between = lambda: None
            else:
                self._one(event)

    def _another_leader(self) -> None:
        """Elect a leader while the former one is in the middle of its plan and believes it still leads."""
        between, self.fleet.between = self.fleet.between, lambda: None
        self.fleet.elect()
        self.fleet.cycle()
        self.fleet.between = between

    def _one(self, event: Event) -> None:
        name, about = event
        match name, about:
            case ("cycle", _):
                self._another_leader()
            case ("wait", float() | int() as seconds):
                self.fleet.wait(seconds)
            case ("worker", (id, slots)):
                self._start(id, slots)
            case ("pause" | "resume" | "delete" | "blacklist", (topic, index)):
                self._operate(name, topic, index)
            case ("drain" | "take_back", str() as id):
                if id in self.fleet.contents().known:
                    self.fleet.tag(id, draining=name == "drain")
            case ("forget", str() as id):
                if id in self.fleet.contents().known:
                    self.fleet.tag(id, forgotten=True)
            case ("switch", Switches() as switches):
                self.fleet.switch(switches)
            case ("start" | "fence" | "position" | "commit" | "release", (who, what)):
                self._step(name, who, partition(*what))
            case (_, int() as who):
                self._happen(name, who)

    def _start(self, id: str, slots: int) -> None:
        live = self.fleet.contents().live
        if id not in live and len(self.fleet.processes) < 12:
            self.fleet.worker(id, slots=slots)

    def _operate(self, name: str, topic: str, index: int) -> None:
        known = {key.topic for key in self.fleet.contents().topics}
        if topic not in known:
            if name == "resume":
                self.fleet.topic(topic, PARTITIONS)
        elif name == "pause":
            self.fleet.topic(topic, PARTITIONS, state=TopicState.PAUSED)
        elif name == "delete":
            self.fleet.delete(topic)
        elif name == "blacklist":
            self.fleet.topic(topic, PARTITIONS, blacklisted=frozenset({index}))
        else:
            self.fleet.topic(topic, PARTITIONS, state=TopicState.ACTIVE, blacklisted=frozenset())

    def _step(self, name: str, who: int, what: Partition) -> None:
        process = self._process(who)
        if process is not None and process.runs and (process.connected or name == "commit"):
            getattr(process, name)(what)

    def _happen(self, name: str, who: int) -> None:
        process = self._process(who)
        if process is None or process.dead:
            return
        if name in ("kill", "freeze", "expire", "thaw", "hang", "recover"):
            getattr(self.fleet, name)(process)
        elif name == "register_again":
            if process.runs and process.connected:
                self.fleet.register_again(process)
        elif process in set(self.fleet.running()) and (process.connected or name == "catch_up"):
            getattr(process, name)()

    def _process(self, who: int) -> Process | None:
        processes = self.fleet.processes
        return processes[who % len(processes)] if processes else None

    def heal(self) -> None:
        """End all faults and let every delay pass."""
        for process in self.fleet.processes:
            process.frozen = process.hung = False
        self.fleet.switch(Switches())
        seen = self.fleet.snapshot()
        for worker in seen.known:
            self.fleet.tag(worker, forgotten=worker not in seen.live)
        if not list(self.fleet.running()):
            self.fleet.worker("z")
        for _ in range(4):
            self.fleet.settle()
            self.fleet.wait(DELAYS.rebalance_s + 1)
        self.fleet.settle()

    def check_rest(self) -> None:
        seen = self.fleet.snapshot()
        assert mismatches(seen, external_view(seen)) == []
        counts = {worker: self.fleet.counts().get(worker, 0) for worker in seen.sessions}
        slots = {worker: seen.live[worker].value.slots for worker in counts}
        assert not uneven_workers(counts, slots)
        for key in seen.topics:
            for entry in seen.ideal[key].value.entries.values():
                if entry.worker is not None:
                    assert entry.holders.keys() == {entry.worker}
        assert all(
            not assigned.fence
            for stored in seen.assignments.values()
            for assigned in stored.value.entries.values()
        )
        needed = needed_workers(seen, seen.known)
        assert seen.known.keys() == {*seen.live, *needed}, "all others were forgotten"
        assert self.fleet.cycle() == Plan((), None, ())


def run(events: list[Event], planner: Planner = plan) -> None:
    world = World(planner)
    world.play(events)
    world.heal()
    world.check_rest()


def history(seed: int, length: int = 100) -> list[Event]:
    """Denser than what hypothesis draws: most events apply."""
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    return [_event(chance) for _ in range(length)]


def _event(chance: random.Random) -> Event:
    where = (chance.choice(TOPICS), chance.randrange(PARTITIONS))
    who = chance.randrange(10)
    kinds: tuple[tuple[int, Event], ...] = (
        (22, ("cycle", chance.choice([None, None, chance.randrange(7)]))),
        (26, (chance.choice(["catch_up", "catch_up", "catch_up", "read", "publish"]), who)),
        (14, (chance.choice(["start", "fence", "position", "commit", "release"]), (who, where))),
        (12, (chance.choice(["kill", "freeze", "expire", "thaw", "thaw"]), who)),
        (4, (chance.choice(["hang", "recover", "register_again"]), who)),
        (3, ("switch", chance.choice(SWITCHES))),
        (8, ("worker", (chance.choice(IDS), chance.randint(1, 3)))),
        (6, ("wait", chance.randint(1, 25))),
        (7, (chance.choice(["pause", "resume", "resume", "delete", "blacklist"]), where)),
        (5, (chance.choice(["drain", "take_back"]), chance.choice(IDS))),
    )
    weights, events = zip(*kinds, strict=True)
    event: Event = chance.choices(events, weights)[0]
    return event


def test_worker_that_returns_with_more_slots_is_fenced_on_all() -> None:
    """It copied under an id that no later owner had to fence."""
    run(history(1339))


def test_seeded_histories_keep_the_invariants_and_come_to_rest() -> None:
    """The simulation runs thousands, of whole fleets."""
    for seed in range(SEEDS):
        try:
            run(history(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def with_forgetting(seed: int) -> list[Event]:
    """A history in which operators forget workers all the time, gone or not."""
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    forgets = ([("forget", chance.choice(IDS)), ("cycle", None)] for _ in itertools.count())
    pairs = zip(history(seed), forgets, strict=False)
    return [step for event, forget in pairs for step in (event, *forget)]


def test_workers_are_forgotten_only_when_no_owner_needs_their_slots() -> None:
    for seed in range(FORGETTING_SEEDS):
        try:
            run(with_forgetting(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_forgetting_a_worker_that_is_needed_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliberate defect: the slots of a holder are forgotten."""
    monkeypatch.setattr(bookkeeping, "needed_workers", lambda snapshot, workers: {})

    def search() -> None:
        for seed in range(FORGETTING_SEEDS):
            run(with_forgetting(seed))

    with pytest.raises(AssertionError):
        search()


@settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(HISTORIES)
def test_random_histories_keep_the_invariants_and_come_to_rest(
    events: list[Event],
) -> None:
    run(events)


def assigns_early(seen: Snapshot, now_s: float) -> Plan:
    """Deliberate defect: assigns before the revocation, as if every worker had confirmed."""
    deaf = {
        worker: Stored(CurrentState(seen_zxid=2**62), 0, 0, session)
        for worker, session in seen.sessions.items()
    }
    return plan(replace(seen, current=deaf), now_s)


def drops_holders(seen: Snapshot, now_s: float) -> Plan:
    """Deliberate defect: drops absent holders, so they are not fenced."""
    ideal = {
        key: replace(stored, value=IdealTopic(_without_the_gone(seen, stored.value)))
        for key, stored in seen.ideal.items()
    }
    return plan(replace(seen, ideal=ideal), now_s)


def _without_the_gone(seen: Snapshot, ideal: IdealTopic) -> dict[int, IdealEntry]:
    return {
        number: replace(
            entry,
            holders={
                worker: session
                for worker, session in entry.holders.items()
                if worker in seen.sessions or worker == entry.worker
            },
        )
        for number, entry in ideal.entries.items()
    }


@pytest.mark.parametrize("planner", [assigns_early, drops_holders])
def test_seeded_histories_detect_a_wrong_planner(planner: Planner) -> None:
    """Checks that the histories above detect defects."""

    def search() -> None:
        for seed in range(20):
            World(planner).play(history(seed))

    with pytest.raises(InvariantViolated):
        search()
