"""One seed: a fleet starts, suffers faults, is healed, and must settle.

settle   no faults: topics are whitelisted, everything is copied
trouble  faults and operators, for FAULTS_S
heal     everything is thawed and connected; ids that were running run again (or stay lost)
rest     within SETTLE_TIMEOUT_S: external view = ideal state, counts even, nothing to fence, all copied
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ureplicator_common.model import Partition, TopicState, WorkerId
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.state.exclusions import partition_exclusion
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mass_loss import mass_loss
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_testkit.control.fleet import uneven_workers
from ureplicator_testkit.simulation.faults import FaultInjector
from ureplicator_testkit.simulation.fleet import (
    DELAYS,
    IDS,
    TAGGED_IDS,
    TOPICS,
    SimulatedFleet,
)
from ureplicator_testkit.simulation.judge import TAGGED
from ureplicator_testkit.simulation.kernel import START_S, SimulationFailure, World
from ureplicator_testkit.simulation.sessions import EXPIRES_S, SessionProcess
from ureplicator_testkit.simulation.workers import CAPACITY_TIMEOUT_S, Worker

SETTLE_S = 12.0
FAULTS_S = 60.0
SETTLE_TIMEOUT_S = 150.0
POLL_S = 4.0
SCENARIO_PERIOD = 6
BACK_AFTER = 0.75
"""Share of the delay after which a worker that is late is back: above that of a mutant with less delay."""
NEWCOMER = "d"


@dataclass(frozen=True, slots=True)
class Result:
    """Counters of one run, to see that something happened."""

    seed: int
    turns: int
    faults: int
    commits: int
    moves: int
    epochs: int
    repeats: int
    virtual_s: float


class Simulation:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.fleet = SimulatedFleet(self.world)

    def run(self) -> Result:
        """Raises SimulationFailure."""
        world, fleet = self.world, self.fleet
        with _logged_errors_raised():
            self._settle()
            FaultInjector(self.fleet).run(FAULTS_S)
            self._heal()
            self._wait_settled()
            fleet.settled = True
            if world.seed % SCENARIO_PERIOD == 0:
                self._restart_one()
            elif TAGGED in fleet.topics:
                self._move_the_tagged()
            elif world.seed % SCENARIO_PERIOD == 1:
                self._join()
            elif world.seed % SCENARIO_PERIOD == 2:
                self._lose_capacity()
            elif world.seed % SCENARIO_PERIOD == 3:
                self._lose_most()
            elif world.seed % SCENARIO_PERIOD == 4:
                self._leave_one()
        return Result(
            seed=world.seed,
            turns=world.turns,
            faults=world.faults,
            commits=fleet.commits,
            moves=fleet.store.moves,
            epochs=fleet.store.epochs,
            repeats=fleet.repeats,
            virtual_s=world.now_s - START_S,
        )

    def _settle(self) -> None:
        rests = list(self.fleet.rests.values())
        wanted = self.world.chance.randint(1, TOPICS["u"])
        self.world.later(0.5, lambda: rests[0].add("t", TOPICS["t"]))
        self.world.later(0.5, lambda: rests[1].add("u", wanted))
        for topic, number in self.fleet.topics.get(TAGGED, {}).items():
            self.world.later(1.5, partial(rests[0].add, topic, number))
        self.world.run_until(self.world.now_s + SETTLE_S)

    def _heal(self) -> None:
        self.world.note("world", "healed")
        fleet = self.fleet
        for member in list(fleet.members()):
            self._heal_process(member)
        for copier in list(fleet.copiers()):
            while copier.frozen:
                copier.thaw()
        for name in [name for name, rest in fleet.rests.items() if not rest.alive]:
            fleet.start_rest(name)
        fleet.restart_controllers()
        alive = {worker.id for worker in fleet.workers if worker.alive}
        for id in IDS:
            if id not in alive and (self.world.chance.random() < 0.5 or not alive):
                fleet.start_worker(id)
                alive.add(WorkerId(id))

    def _heal_process(self, member: SessionProcess) -> None:
        while member.frozen:
            member.thaw()
        if member.alive:
            member.release_watches()
            member.reconnect()
        if isinstance(member, Worker):
            member.hung = False

    def _wait_settled(self) -> None:
        """Wait until the fleet has settled, at most SETTLE_TIMEOUT_S."""
        world, until_s = self.world, self.world.now_s + SETTLE_TIMEOUT_S
        self._free_everything()
        self.fleet.source.alive = False
        while world.now_s < until_s:
            world.run_until(world.now_s + POLL_S)
            self.fleet.restart_controllers()
            self._keep_one_alive()
            if not self._unsettled_reason():
                return
            if mass_loss(self.fleet.store.parse()):
                next(iter(self.fleet.rests.values())).unfreeze()
        raise SimulationFailure(
            "C", f"not at rest after {SETTLE_TIMEOUT_S:.0f} s: {self._unsettled_reason()}"
        )

    def _keep_one_alive(self) -> None:
        """Keep a worker alive, also one with the tag, if a route asks for it: the last one may leave
        after the faults."""
        needed = TAGGED_IDS if TAGGED in self.fleet.topics else (*IDS, NEWCOMER)
        if not any(worker.alive and worker.id in needed for worker in self.fleet.workers):
            self.fleet.start_worker(needed[0])

    def _restart_one(self) -> None:
        """Kill a worker, and start it at once or late: it gets its id back when the former session has
        expired, and is back before the delay ends."""
        fleet, before = self.fleet, self.fleet.store.moves
        worker = self.world.chance.choice([w for w in fleet.workers if w.alive])
        for copier in list(worker.copiers.values()):
            copier.kill("killed with its worker")
        worker.kill("killed, to be back within the delay")
        if self.world.chance.random() < 0.5:
            self.world.run_until(self.world.now_s + EXPIRES_S + BACK_AFTER * DELAYS.rebalance_s)
        fleet.start_worker(worker.id, worker.slots)
        self.world.run_until(self.world.now_s + 2 * DELAYS.rebalance_s)
        if fleet.store.moves != before:
            moved = fleet.store.moves - before
            raise SimulationFailure(
                "M", f"{worker.id} was back in time, but {moved} partitions moved"
            )

    def _move_the_tagged(self) -> None:
        """A tagged worker is lost for good: its share of the tagged route goes to the other tagged one."""
        fleet, world = self.fleet, self.world
        for id in TAGGED_IDS:
            if not any(worker.alive and worker.id == id for worker in fleet.workers):
                fleet.start_worker(id)
        self._wait_settled()
        lost = next(worker for worker in fleet.workers if worker.alive and worker.id in TAGGED_IDS)
        for copier in list(lost.copiers.values()):
            copier.kill("killed with its worker")
        lost.kill("killed for good")
        world.run_until(world.now_s + DELAYS.rebalance_s)
        self._wait_settled()

    def _join(self) -> None:
        """Check a join: only what is above a worker's share moves, and each partition once. Where slots
        are equal all of it goes to the newcomer."""
        fleet, before, moves = self.fleet, self._counts(), self.fleet.store.moves
        fleet.start_worker(NEWCOMER)
        self.world.run_until(self.world.now_s + 2 * DELAYS.join_s + POLL_S)
        after, moved = self._counts(), fleet.store.moves - moves
        share = after.get(WorkerId(NEWCOMER), 0)
        live = fleet.store.parse().live
        slots = {worker: live[worker].value.slots for worker in after if worker in live}
        given = {w: n - after.get(w, 0) for w, n in before.items() if n > after.get(w, 0)}
        if moved != sum(given.values()) or (len({*slots.values()}) == 1 and moved != share):
            raise SimulationFailure(
                "M", f"{NEWCOMER} joined for {share} partitions, but {moved} moved"
            )
        total, width = sum(after.values()), sum(slots.values())
        needless = [w for w in given if before[w] * width <= total * slots.get(w, 0)]
        if needless:
            raise SimulationFailure(
                "M", f"{needless} gave partitions, and had no more than a share"
            )

    def _counts(self) -> dict[WorkerId, int]:
        """Assigned partitions of each live worker."""
        seen = self.fleet.store.parse()
        counts = dict.fromkeys(seen.sessions, 0)
        for worker, stored in seen.assignments.items():
            if worker in counts:
                counts[worker] = len(stored.value.entries)
        return counts

    def _lose_capacity(self) -> None:
        """One worker loses its capacity for a while: its share goes to the others, and comes back."""
        fleet, world = self.fleet, self.world
        seen = fleet.store.parse()
        live = [w for w in fleet.workers if w.alive and w.client.session() == seen.sessions[w.id]]
        worker = world.chance.choice(live)
        for_s = 4 * CAPACITY_TIMEOUT_S
        worker.lose_capacity(for_s)
        world.run_until(world.now_s + for_s - POLL_S)
        stored = fleet.store.parse().assignments.get(worker.id)
        if len(live) > 1 and stored is not None and stored.value.entries:
            raise SimulationFailure("C", f"{worker.id} has no capacity, and keeps partitions")
        world.run_until(world.now_s + 2 * POLL_S)
        self._wait_settled()

    def _leave_one(self) -> None:
        """A worker leaves: its share moves at once, nothing else does, and it ends by itself."""
        fleet, world = self.fleet, self.world
        seen, before = fleet.store.parse(), fleet.store.moves
        live = [w for w in fleet.workers if w.alive and w.client.session() == seen.sessions[w.id]]
        worker = world.chance.choice(live)
        stored = seen.assignments.get(worker.id)
        share = len(stored.value.entries) if stored else 0
        repeats = fleet.repeats
        worker.leave()
        world.run_until(world.now_s + DELAYS.rebalance_s - POLL_S)
        if worker.alive:
            raise SimulationFailure("C", f"{worker.name} leaves, and does not end")
        if fleet.store.moves - before != share:
            moved = fleet.store.moves - before
            raise SimulationFailure("M", f"{worker.id} left {share} partitions, but {moved} moved")
        if fleet.repeats != repeats:
            raise SimulationFailure("D", f"{worker.id} left, and records were repeated")
        if not any(other.alive for other in fleet.workers):
            fleet.start_worker(worker.id)
        self._wait_settled()

    def _lose_most(self) -> None:
        """All workers but one are lost: nothing moves until operators confirm it, or they are back."""
        fleet, world = self.fleet, self.world
        for id in IDS:
            if not any(worker.alive and worker.id == id for worker in fleet.workers):
                fleet.start_worker(id)
        self._wait_settled()
        before, seen = fleet.store.moves, fleet.store.parse()
        if sum(bool(stored.value.entries) for stored in seen.assignments.values()) < len(IDS):
            return
        lost = [worker for worker in fleet.workers if worker.alive and worker.id != IDS[0]]
        for worker in lost:
            for copier in list(worker.copiers.values()):
                copier.kill("killed with its worker")
            worker.kill("killed with most others")
        world.run_until(world.now_s + 3 * DELAYS.rebalance_s)
        if fleet.store.moves != before:
            moved = fleet.store.moves - before
            raise SimulationFailure(
                "M", f"{len(lost)} workers were lost, and {moved} partitions moved"
            )
        if world.chance.random() < 0.5:
            for worker in lost:
                fleet.start_worker(worker.id, worker.slots)
            world.run_until(world.now_s + DELAYS.rebalance_s)
            if fleet.store.moves != before:
                raise SimulationFailure("M", "all lost workers are back, but partitions moved")
        self._wait_settled()

    def _free_everything(self) -> None:
        """Operators undo what keeps the fleet from being even; returns when all of it is done."""
        rest = next(iter(self.fleet.rests.values()))
        requests: list[Callable[[], None]] = [
            lambda: rest.switch(auto_balancing=True, frozen=False),
            lambda: rest.pause_route(paused=False),
        ]
        for id in self.fleet.store.parse().known:
            requests.append(lambda id=id: rest.leave(id, leaving=False))  # type: ignore[misc]
        for number, request in enumerate(requests):
            self.world.later(1.0 + number, request)
        self.world.run_until(self.world.now_s + 1.0 + len(requests))

    def _unsettled_reason(self) -> str:
        seen = self.fleet.store.parse()
        if is_rebalance_due(seen):
            return "a rebalance is requested"
        wrong_session = self._unnoticed_worker(seen)
        if wrong_session:
            return f"{wrong_session} is not registered yet, or not missed yet"
        wrong = mismatches(seen, external_view(seen))
        if wrong:
            return str(wrong[0])
        for key, stored in seen.topics.items():
            if stored.value.state is TopicState.DELETING:
                return f"{key} is being deleted"
            for number, entry in seen.ideal[key].value.entries.items():
                excluded = partition_exclusion(seen, Partition(key.route, key.topic, number))
                if entry.worker is not None and excluded:
                    return f"{key}/{number} is excluded ({excluded}), and still assigned"
                if entry.worker is not None and entry.holders.keys() != {entry.worker}:
                    return f"{key}/{number} is held by {sorted(entry.holders)}"
        return (
            self._uneven_reason(seen)
            or self._not_divided_reason(seen)
            or self._not_copied_reason(seen)
        )

    def _not_divided_reason(self, seen: Snapshot) -> str:
        """A byte limit of which the live slots have more than the whole, or hardly any of it."""
        for limited, limit in seen.switches.limits.items():
            shares = sum(
                slot.get(limited, 0)
                for worker, stored in seen.shares.items()
                if worker in seen.sessions
                for slot in stored.value.values()
            )
            if seen.sessions and not limit / 2 <= shares <= limit:
                return f"{shares} of {limit} bytes/s are divided"
        return ""

    def _unnoticed_worker(self, seen: Snapshot) -> str:
        """A worker that started or died, not yet noticed by the leader."""
        alive = {
            worker.id: worker.client.session() for worker in self.fleet.workers if worker.alive
        }
        ids = sorted({*alive, *seen.sessions})
        return next((id for id in ids if alive.get(id) != seen.sessions.get(id)), "")

    def _uneven_reason(self, seen: Snapshot) -> str:
        counts = dict.fromkeys(seen.sessions, 0)
        for worker, assigned in seen.assignments.items():
            if any(entry.fence for entry in assigned.value.entries.values()):
                return f"{worker} has yet to fence"
            if assigned.value.entries:
                counts[worker] = len(assigned.value.entries)
        if TAGGED in self.fleet.topics:
            return self._misplaced_reason(seen)
        slots = {worker: seen.live[worker].value.slots for worker in counts}
        return f"uneven: {counts}" if uneven_workers(counts, slots) else ""

    def _misplaced_reason(self, seen: Snapshot) -> str:
        """A partition of the tagged route that a worker without the tag owns."""
        owners = {
            entry.worker
            for key, stored in seen.ideal.items()
            if key.route == TAGGED
            for entry in stored.value.entries.values()
        }
        wrong = sorted(str(owner) for owner in owners - {None, *TAGGED_IDS})
        return f"{wrong} have no tag, and partitions of {TAGGED}" if wrong else ""

    def _not_copied_reason(self, seen: Snapshot) -> str:
        for key, stored in seen.topics.items():
            intent = stored.value
            if intent.state is not TopicState.ACTIVE:
                continue
            for number in set(range(intent.partitions)) - intent.blacklisted:
                kafka, at = self.fleet.kafkas[key.route], (key.topic, number)
                end, copied = kafka.source.logs[at].end, kafka.target.logs[at].end
                committed = kafka.ledger.read(at).offset
                if min(copied, committed) < end:
                    return f"{key}/{number}: copied {copied}, committed {committed} of {end}"
        return ""


class _ErrorHandler(logging.Handler):
    """An error in the log is a violation."""

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        raise SimulationFailure("I", record.getMessage()) from cause


@contextmanager
def _logged_errors_raised() -> Iterator[None]:
    root, listener = logging.getLogger(), _ErrorHandler(logging.ERROR)
    before = root.level
    root.addHandler(listener)
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.removeHandler(listener)
        root.setLevel(before)
