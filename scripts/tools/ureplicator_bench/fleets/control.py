"""Cost of the control plane as fleets grow: plans, loss of a tenth of the workers, writes to ZooKeeper.

    plan        the pure function on settled fleets: a quiet cycle, a worker lost, nothing placed yet
    large fleet the real engines over the store in memory: cycles, virtual time, moves and writes
    ZooKeeper   the real engines on a real server: how long the leader takes to write a rebalance

    REST        real processes: from a POST to a partition that is ONLINE (`whitelisting`)
    large       real controllers, 10,000 topics, 100,000 partitions, 100 simulated workers (`large`)

Each figure has a limit; the machine should be idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from ureplicator_bench.figures import Figure
from ureplicator_bench.fleets import large, whitelisting
from ureplicator_bench.servers import running
from ureplicator_common.clock import SystemClock
from ureplicator_common.coordination import Create, Operation
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    SessionId,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import encode_live_worker
from ureplicator_controller.core.planning.handover import EPOCH_SHIFT
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_testkit.control.large_fleet import LargeFleet, SettlingCost
from ureplicator_testkit.control.manual_controllers import (
    PATHS,
    REBALANCE_S,
    ROUTE,
    ManualController,
)
from ureplicator_testkit.servers.processes import eventually

SLOTS = 4
PER_TOPIC = 8
EPOCH = OwnerEpoch(1 << EPOCH_SHIFT)
TIMES = 5
OTHERS = 1_000
TIMES_WHITELISTED = 25
_LIMITS_S = {"online": 1.0}
WRITES_PER_MOVE = 6.0
"""A partition that moves changes its topic's ideal state when it is given and when its former holder
is removed, and two assignments as often; the rest is margin.
"""


def figures(folder: Path, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """All of them, as they are measured."""
    progress("plans")
    yield from plans(partitions=10_000, workers=100, limit_s=0.2)
    yield from plans(partitions=100_000, workers=500, limit_s=3.0)
    progress("workers in memory")
    yield from tenth_lost(workers=1_000, partitions=10_000)
    yield from writes((20, 400), (50, 1_000), (100, 2_000))
    with running(folder) as servers:
        progress("a real ZooKeeper")
        yield from written(servers.zookeeper.hosts, partitions=10_000, workers=100)
        progress("REST, with a thousand topics")
        found = whitelisting.measure(servers, folder, others=OTHERS, times=TIMES_WHITELISTED)
    for step in ("responded", "assigned", "online"):
        what = f"whitelist one topic beside {OTHERS:,} others: {step}"
        yield Figure(f"{what}, p50", found.p50(step), "s")
        yield Figure(f"{what}, p99", found.p99(step), "s", _LIMITS_S.get(step))
    yield from large.figures(folder, progress=progress)


# --- The plan


def plans(*, partitions: int, workers: int, limit_s: float) -> Iterator[Figure]:
    """Plans for one size of fleet."""
    size = f"{partitions:,} partitions on {workers} workers"
    fleet = settled(partitions=partitions, workers=workers)
    cases = {
        "quiet cycle": fleet,
        "a worker lost": without_one(fleet),
        "first placement": new(fleet),
    }
    for name, snapshot in cases.items():
        seconds = median(_plan_s(snapshot) for _ in range(TIMES))
        yield Figure(f"plan, {size}: {name}", seconds * 1_000, "ms", limit_s * 1_000)


def _plan_s(snapshot: Snapshot) -> float:
    began_s = time.perf_counter()
    plan(snapshot, 1_000.0)
    return time.perf_counter() - began_s


def settled(*, partitions: int, workers: int) -> Snapshot:
    """A fleet in which every partition is ONLINE at its ideal owner, evenly."""
    names = [WorkerId(f"worker-{number:04d}") for number in range(workers)]
    sessions = {worker: SessionId(number + 1) for number, worker in enumerate(names)}
    owners = dict(_owners(partitions, names))
    assigned: dict[WorkerId, dict[Partition, AssignmentEntry]] = {worker: {} for worker in names}
    ideal: dict[TopicKey, dict[int, IdealEntry]] = {}
    for partition, owner in owners.items():
        assigned[owner][partition] = AssignmentEntry(EPOCH)
        entry = IdealEntry(owner, EPOCH, 0, "new topic", {owner: sessions[owner]})
        ideal.setdefault(partition.key, {})[partition.number] = entry
    had_position = frozenset(range(PER_TOPIC))
    return Snapshot(
        fleet="bench",
        epoch=1,
        topics={key: _stored(_intent(key, had_position)) for key in ideal},
        ideal={key: _stored(IdealTopic(entries)) for key, entries in ideal.items()},
        assignments={worker: _stored(Assignment(entries)) for worker, entries in assigned.items()},
        current={
            worker: _stored(_online(entries), owner=sessions[worker])
            for worker, entries in assigned.items()
        },
        live={worker: _stored(LiveWorker(SLOTS), owner=sessions[worker]) for worker in names},
        known={worker: _stored(KnownWorker(SLOTS)) for worker in names},
        sessions=sessions,
        present_since=dict.fromkeys(names, 0.0),
        delays=Delays(rebalance_s=0.0, join_s=0.0),
    )


def _intent(key: TopicKey, had_position: frozenset[int] = frozenset()) -> TopicIntent:
    return TopicIntent(PER_TOPIC, PER_TOPIC, had_position=had_position, target_topic=key.topic)


def _owners(partitions: int, names: list[WorkerId]) -> Iterator[tuple[Partition, WorkerId]]:
    for number in range(partitions):
        topic = f"topic-{number // PER_TOPIC:06d}"
        yield Partition(ROUTE, topic, number % PER_TOPIC), names[number % len(names)]


T = TypeVar("T")
NO_SESSION = SessionId(0)


def _stored(value: T, *, owner: SessionId = NO_SESSION) -> Stored[T]:
    return Stored(value, 0, 1, owner)


def _online(assigned: Mapping[Partition, AssignmentEntry]) -> CurrentState:
    entry = CurrentEntry(PartitionState.ONLINE, EPOCH, committed=True)
    return CurrentState(1, dict.fromkeys(assigned, entry))


def without_one(fleet: Snapshot) -> Snapshot:
    """One worker is lost, without a rebalance delay."""
    lost = min(fleet.sessions)
    return replace(
        fleet,
        live={worker: stored for worker, stored in fleet.live.items() if worker != lost},
        current={worker: stored for worker, stored in fleet.current.items() if worker != lost},
        sessions={worker: session for worker, session in fleet.sessions.items() if worker != lost},
        absent_since={lost: 0.0},
    )


def new(fleet: Snapshot) -> Snapshot:
    """The same topics and workers, before any placement."""
    return replace(fleet, ideal={}, assignments={}, current={})


# --- A fleet of workers


def tenth_lost(*, workers: int, partitions: int) -> Iterator[Figure]:
    placed, lost, seconds = _lose_a_tenth(workers=workers, partitions=partitions)
    size = f"{workers:,} workers, {partitions:,} partitions, 10 % die"
    yield Figure(f"{size}: first placement, writes for a move", placed.writes / placed.moves, "")
    yield Figure(f"{size}: cycles until all are ONLINE again", lost.cycles, "", 50)
    yield Figure(f"{size}: virtual time after the delay", lost.virtual_s - REBALANCE_S, "s", 5)
    yield Figure(f"{size}: moves", lost.moves, "", partitions * 0.1 + 1)
    yield Figure(f"{size}: wall time, with the workers'", seconds, "s")


def writes(*sizes: tuple[int, int]) -> Iterator[Figure]:
    """Writes for several fleets that lose a tenth: the ratio must not grow with their size."""
    for workers, partitions in sizes:
        _, lost, _ = _lose_a_tenth(workers=workers, partitions=partitions)
        what = f"{workers:,} workers, {lost.moves:,} moves: nodes written for a move"
        yield Figure(what, lost.writes / lost.moves, "", WRITES_PER_MOVE)


def _lose_a_tenth(*, workers: int, partitions: int) -> tuple[SettlingCost, SettlingCost, float]:
    fleet = LargeFleet(topics=partitions // PER_TOPIC, partitions=PER_TOPIC)
    fleet.join(workers)
    placed = fleet.settle()
    began_s = time.perf_counter()
    fleet.die(workers // 10)
    return placed, fleet.settle(), time.perf_counter() - began_s


# --- A real ZooKeeper


def written(hosts: str, *, partitions: int, workers: int) -> Iterator[Figure]:
    """The cycle that places everything, as the leader's thread runs it."""
    client = ZooKeeperCoordination(hosts=hosts, session_timeout_s=30)
    client.connect(30)
    try:
        leader = ManualController(client, "leader", SystemClock())
        eventually(lambda: _leads(leader), 30, "the leader leads")
        _fill(client, partitions=partitions, workers=workers)
        leader.observer.fresh()
        before, began_s = leader.figure("writes_total"), time.perf_counter()
        leader.loop.run_once()
        seconds = time.perf_counter() - began_s
        nodes = leader.figure("writes_total") - before
        assert nodes >= partitions // PER_TOPIC + workers, f"only {nodes:.0f} nodes were written"
        leader.observer.close()
    finally:
        client.close()
    size = f"{partitions:,} partitions on {workers} workers"
    yield Figure(f"real ZooKeeper, {size}: one cycle that places all", seconds, "s", 10)
    yield Figure(f"real ZooKeeper, {size}: nodes written", nodes, "")


def _leads(leader: ManualController[ZooKeeperCoordination]) -> bool:
    leader.loop.run_once()
    return leader.leads


def _fill(client: ZooKeeperCoordination, *, partitions: int, workers: int) -> None:
    client.ensure(f"{PATHS.topics}/{ROUTE}")
    live = encode_live_worker(LiveWorker(SLOTS))
    keys = (TopicKey(ROUTE, f"topic-{number:06d}") for number in range(partitions // PER_TOPIC))
    names = (WorkerId(f"worker-{number:04d}") for number in range(workers))
    made: list[Operation] = [Create(PATHS.topic(key), encode_intent(_intent(key))) for key in keys]
    made += [Create(PATHS.worker_live(name), live, ephemeral=True) for name in names]
    for begin in range(0, len(made), 100):
        client.transact(made[begin : begin + 100])
