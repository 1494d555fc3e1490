"""A fleet without threads, clocks or Kafka: the real plan and the workers' real state machine
over the store in memory.

Everything happens when it is called, so a test is a history, and a random one can be repeated. The
workers (`worker_process`) follow the protocol of ownership in steps that may be taken in any order and
as late as a test likes: read the assignment, start (own ids, proof, fence, position), commit, release,
publish. They die, freeze and thaw; their sessions expire when the test says so. Checked all the time, raising
`InvariantViolated`:
* the invariants of `planning.invariants`, after every step of the leader;
* take before give: a partition is given only while no live session copies it that could still commit;
* one owner: no commit is accepted after an owner of a later epoch has read the position;
* a plan that keeps what it found of former states is the same as one that does not.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ureplicator_common.coordination import (
    Check,
    Conflict,
    Create,
    Operation,
    Set,
    with_ancestors,
)
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    TopicKey,
    TopicState,
    WorkerId,
    WorkerSelection,
    transactional_ids,
)
from ureplicator_common.znode_contents import IdealEntry, Switches, TopicIntent
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_controller.core.planning.invariants import InvariantChecker, check_invariants
from ureplicator_controller.core.planning.membership import track_membership
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.planning.steps import Evict, Step, WriteAssignment, operations
from ureplicator_controller.core.state.decoding import DecodeCache
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import BalanceLimits, Delays, Snapshot, parse
from ureplicator_testkit.control.memory_coordination import MemoryStore
from ureplicator_testkit.control.worker_process import InvariantViolated, Process
from ureplicator_testkit.kafka.ledger import Ledger

ROUTE = Route("source", "target")
W = TypeVar("W")
Planner = Callable[[Snapshot, float], Plan]


class ControlFleet:
    """Store, Kafka, processes and the leader that is being tested."""

    def __init__(self, *, delays: Delays | None = None, planner: Planner = plan) -> None:
        self.name = "test"
        self.paths = Paths(self.name)
        self.store = MemoryStore()
        self.ledger = self._make_ledger()
        self.readers: dict[Partition, OwnerEpoch] = {}
        """Highest owner epoch under which a position was read."""
        self.commits: dict[Partition, list[str]] = {}
        """Workers whose commits were accepted, in order."""
        self.now_s = 1_000.0
        self.processes: list[Process] = []
        self.delays = delays or Delays(rebalance_s=120.0, join_s=10.0)
        self.limits = BalanceLimits()
        self.planner = planner
        self._indexer = FleetIndexer()
        self._decode_cache, self._contents = DecodeCache(), DecodeCache()
        self.between: Callable[[], None] = lambda: None
        """Called after each step of the leader, for histories that happen in between."""
        self.writes = 0
        self._session = self.store.open_session()
        self._before = Snapshot(fleet=self.name, epoch=0)
        for path in self.paths.skeleton:
            self._make(path)
        self.elect()

    def _make_ledger(self) -> Ledger:
        return Ledger()

    def _make(self, path: str) -> None:
        for ancestor in with_ancestors(path):
            if self.store.node(ancestor) is None:
                self.store.apply(self._session, [Create(ancestor, b"")])

    # Operators and faults.

    def worker(
        self, id: str, *, slots: int = 2, tags: tuple[str, ...] = (), zone: str = ""
    ) -> Process:
        """Start a process; no live session may have the id."""
        process = Process(self, id, slots, tags=tags, zone=zone)
        self.processes.append(process)
        return process

    def select_workers(self, selection: WorkerSelection, route: Route = ROUTE) -> None:
        """Publish the workers that the route asks for."""
        path, data = self.paths.route(route), encode_route(RouteSettings(workers=selection))
        node = self.store.node(path)
        write: Operation = Create(path, data) if node is None else Set(path, data, -1)
        self.store.apply(self._session, [write])

    def topic(
        self, name: str, partitions: int = 1, *, route: Route = ROUTE, **changes: Any
    ) -> None:
        """Whitelist a topic, or change its intent."""
        path = self.paths.topic(TopicKey(route, name))
        node = self.store.node(path)
        if node is None:
            intent = TopicIntent(
                partitions=partitions, initial_partitions=partitions, target_topic=name
            )
            data = encode_intent(replace(intent, **changes))
            for parent in (self.paths.topics, self.paths.ideal):
                self._make(f"{parent}/{route}")
            self.store.apply(self._session, [Create(path, data)])
        else:
            stored = self.contents().topics[TopicKey(route, name)].value
            changed = replace(stored, **{"partitions": partitions, **changes})
            self.store.apply(self._session, [Set(path, encode_intent(changed), -1)])

    def delete(self, name: str) -> None:
        intent = self.contents().topics[TopicKey(ROUTE, name)].value
        self.topic(name, intent.partitions, state=TopicState.DELETING)

    def tag(self, id: str, **tags: bool) -> None:
        """Blacklist, drain or forget a worker, or take it back."""
        known = self.contents().known[WorkerId(id)].value
        changed = replace(
            known,
            blacklisted=tags.get("blacklisted", False),
            draining=tags.get("draining", False),
            forgotten=tags.get("forgotten", False),
        )
        path = self.paths.worker_known(WorkerId(id))
        self.store.apply(self._session, [Set(path, encode_known_worker(changed), -1)])

    def switches(self) -> Switches:
        return self.contents().switches

    def switch(self, switches: Switches) -> None:
        """Operators write the live switches."""
        self.switch_to(encode_switches(switches))

    def switch_to(self, data: bytes) -> None:
        self._make(self.paths.settings)
        self.store.apply(self._session, [Set(self.paths.settings, data, -1)])

    def request_rebalance(self, request_id: str) -> None:
        self.switch(replace(self.switches(), rebalance_requested=request_id))

    def kill(self, process: Process) -> None:
        """The process and its session are gone."""
        process.dead = True
        self.expire(process)

    def freeze(self, process: Process) -> None:
        """Freeze the process for longer than its session timeout."""
        process.frozen = True
        self.expire(process)

    def hang(self, process: Process) -> None:
        """Its main loop hangs; its session and its copiers continue."""
        process.hung = True

    def recover(self, process: Process) -> None:
        process.hung = False

    def register_again(self, process: Process) -> None:
        """The thread that maintains the live node does so even if the main loop hangs."""
        if self.store.node(self.paths.worker_live(process.id)) is None:
            process.register()

    def expire(self, process: Process) -> None:
        self.store.expire(process.session)

    def thaw(self, process: Process) -> None:
        process.frozen = False

    # The leader.

    def elect(self) -> None:
        """Elect another leader: a new epoch, and no memory."""
        node = self.store.node(self.paths.epoch)
        assert node is not None
        self.store.apply(self._session, [Set(self.paths.epoch, b"", node.stat.version)])
        self._before = Snapshot(fleet=self.name, epoch=0)

    def snapshot(self) -> Snapshot:
        """The tree as it is."""
        return self._parsed(None)

    def contents(self) -> Snapshot:
        """The tree as it is, but for loads, which may be of an earlier write: values that have not changed
        are not decoded again."""
        return self._parsed(self._contents)

    def _parsed(self, cache: DecodeCache | None) -> Snapshot:
        nodes, wall_ms = self.store.subtree(self.paths.root), int(self.now_s * 1_000)
        seen = parse(nodes, self.paths, fleet=self.name, wall_ms=wall_ms, cache=cache)
        return replace(seen, delays=self.delays, limits=self.limits)

    def observe(self) -> Snapshot:
        """A snapshot for the plan, with joined and lost workers tracked."""
        seen = self._parsed(self._decode_cache)
        self._before = track_membership(self._before, seen, self.now_s)
        return self._before

    def cycle(self, *, die_after: int | None = None) -> Plan:
        """One cycle; with `die_after` the leader dies after that many steps, and another is elected."""
        seen = self.observe()
        decided = self.planner(seen, self.now_s)
        if self.planner is plan:
            assert plan(seen, self.now_s, self._indexer) == decided, "depends on former plans"
        pending, load_review_at_s = decided.pending_releases, decided.load_review_at_s
        self._before = replace(
            self._before, pending_releases=pending, load_review_at_s=load_review_at_s
        )
        evicted = {step.worker for step in decided.steps if isinstance(step, Evict)}
        alive = {id: session for id, session in seen.sessions.items() if id not in evicted}
        seen = replace(seen, sessions=alive)
        checker = InvariantChecker(seen)
        for done, step in enumerate(decided.steps):
            if done == die_after:
                break
            broken = checker.admit(step)
            if broken:
                raise InvariantViolated(f"{step}: {broken[0]}")
            if not self._apply(step, seen):
                break
            self.between()
        if die_after is not None:
            self.elect()
        return decided

    def _apply(self, step: Step, seen: Snapshot) -> bool:
        if isinstance(step, WriteAssignment):
            self._check_give(step, seen)
        epoch = Check(self.paths.epoch, seen.epoch)
        try:
            self.store.apply(self._session, [epoch, *operations(step, self.paths)])
        except Conflict:
            return False
        self.writes += 1
        if broken := check_invariants(self.contents()):
            raise InvariantViolated(f"after {step}: {broken[0]}")
        return True

    def _check_give(self, step: WriteAssignment, seen: Snapshot) -> None:
        stored = seen.assignments.get(step.worker)
        before = stored.value.entries if stored else {}
        for partition in step.assignment.entries.keys() - before.keys():
            for process in self.processes:
                copies = partition in process.copies and process.can_commit(partition)
                if copies and seen.sessions.get(process.id) == process.session:
                    raise InvariantViolated(
                        f"{partition} given to {step.worker} while {process!r} copies it"
                    )

    # Time and results.

    def settle(self, *, rounds: int = 30) -> None:
        """Run leader and workers in turn until nothing changes any more."""
        for _ in range(rounds):
            before = self.store.subtree(self.paths.root)
            self.cycle()
            for process in self.running():
                process.catch_up()
            if self.store.subtree(self.paths.root) == before:
                return
        raise InvariantViolated(f"still not quiet after {rounds} rounds: {self.observe()}")

    def running(self) -> Iterator[Process]:
        """Processes that can act; one whose id belongs to another session ends."""
        for process in self.processes:
            if process.runs:
                live = self.store.node(self.paths.worker_live(process.id))
                process.dead = live is not None and live.stat.owner != process.session
            if process.runs:
                yield process

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def entry(self, name: str, number: int = 0) -> IdealEntry:
        return self.contents().ideal[TopicKey(ROUTE, name)].value.entries[number]

    def owners(self, name: str) -> dict[int, str | None]:
        entries = self.contents().ideal[TopicKey(ROUTE, name)].value.entries
        return {number: entries[number].worker for number in sorted(entries)}

    def process(self, id: str) -> Process:
        """The process of that id that is not dead."""
        return next(process for process in self.processes if process.id == id and not process.dead)

    def fences(self, id: str, name: str = "t", number: int = 0) -> set[str]:
        """Transactional ids that a worker must fence."""
        entry = self.contents().assignments[WorkerId(id)].value.entries
        return set(entry[partition(name, number)].fence)

    def counts(self) -> dict[str, int]:
        """Partitions per worker in the ideal states."""
        counts: dict[str, int] = {}
        for stored in self.contents().ideal.values():
            for entry in stored.value.entries.values():
                if entry.worker is not None:
                    counts[entry.worker] = counts.get(entry.worker, 0) + 1
        return counts


def partition(name: str, number: int = 0) -> Partition:
    return Partition(ROUTE, name, number)


def two_workers(partitions: int = 4, *, delays: Delays | None = None) -> ControlFleet:
    """a and b, with a topic t that settled a while ago."""
    fleet = ControlFleet(delays=delays)
    fleet.worker("a")
    fleet.worker("b")
    fleet.topic("t", partitions)
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    return fleet


def ids_of(worker: str, slots: int = 2) -> set[str]:
    """Transactional ids of a worker."""
    ids = transactional_ids(fleet="test", route=ROUTE, worker=WorkerId(worker), slots=slots)
    return set(ids)


def uneven_workers(counts: Mapping[W, int], slots: Mapping[W, int]) -> dict[W, int]:
    """Workers that are not within a partition of their exact share, with their counts.

    Where slots differ, a worker may keep exactly one above its share: a move would be needed to take it.
    """
    total, width = sum(counts.values()), sum(slots[worker] for worker in counts)
    most = width if len({slots[worker] for worker in counts}) > 1 else width - 1
    return {
        worker: count
        for worker, count in counts.items()
        if not -width < count * width - total * slots[worker] <= most
    }


SHAKEN_TOPICS = ("t", "u", "v")


def settled_fleet() -> ControlFleet:
    """Two workers, `a` and `b`, that copy two partitions of each of `SHAKEN_TOPICS`."""
    fleet = ControlFleet()
    fleet.worker("a")
    fleet.worker("b")
    for topic in SHAKEN_TOPICS:
        fleet.topic(topic, 2)
    fleet.settle()
    return fleet


@functools.cache
def shaken(seed: int) -> Sequence[Snapshot]:
    """Snapshots of a settled fleet after each of 60 things that happen to it."""
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    fleet = settled_fleet()
    seen = []
    for _ in range(60):
        shake(fleet, chance)
        seen.append(fleet.contents())
    return seen


def shake(fleet: ControlFleet, chance: random.Random) -> None:
    """One thing that happens to a fleet; it may or may not settle afterwards."""
    topic = chance.choice(SHAKEN_TOPICS)
    match chance.randrange(7):
        case 0:
            blacklisted = frozenset({0} if chance.random() < 0.5 else ())
            fleet.topic(topic, chance.randint(1, 4), blacklisted=blacklisted)
        case 1:
            fleet.topic(
                topic, chance.randint(1, 4), stopped="" if chance.random() < 0.5 else "gone"
            )
        case 2:
            paused = frozenset({ROUTE}) if chance.random() < 0.5 else frozenset()
            fleet.switch(Switches(paused_routes=paused))
        case 3 if len(list(fleet.running())) > 1:
            fleet.kill(chance.choice(list(fleet.running())))
        case 4:
            dead = {"a", "b", "c"} - {str(alive.id) for alive in fleet.running()}
            for id in sorted(dead)[:1]:
                fleet.worker(id)
        case 5:
            fleet.wait(60)
        case _:
            pass
    fleet.cycle()
    for process in list(fleet.running()):
        if chance.random() < 0.7:
            process.catch_up()
