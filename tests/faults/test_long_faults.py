"""Workers and leaders that are gone for good, or seem to be: others take over, and a former owner
that returns does no harm (guarantees of docs/architecture.md).

Without a rebalance delay, so that every lost worker's partitions move. The join delay is longer than a
start of workers, one after the other, takes on a busy machine. Each test ends with both logs,
and all commits, read from the beginning (`Flow.judge`).
"""

import random
import time

import pytest

from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.histories.repeats import late, lost
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers.processes import eventually

HANDOVER_TIMEOUT_S = 8
DELAYS = {"rebalance_delay_s": 0, "join_delay_s": 5, "handover_timeout_s": HANDOVER_TIMEOUT_S}
SEED = 4
TAKEN_OVER_S = SESSION_TIMEOUT_S + 2


def others(fleet: Fleet, *ids: str) -> set[str]:
    return set(fleet.workers) - set(ids)


@pytest.mark.all_lanes
def test_a_worker_killed_at_random_is_replaced_and_nothing_is_lost(
    fleet: Fleet, flow: Flow
) -> None:
    """The second dies while the first is still restarting."""
    dice = random.Random(SEED)  # noqa: S311
    took_s: list[float] = []
    dead: list[str] = []
    for _ in range(2):
        fleet.wait_seconds(dice.uniform(0, 1))
        victim = dice.choice(sorted(set(flow.owners().values()).difference(dead)))
        dead.append(victim)
        fleet.workers[victim].kill_tree()
        began_s = time.monotonic()
        flow.wait_owned_by(others(fleet, victim), TAKEN_OVER_S)
        took_s.append(time.monotonic() - began_s)
        fleet.start_worker(victim)
    print(f"killed worker's partitions ONLINE elsewhere after {[round(s, 2) for s in took_s]} s")
    flow.judge(lost(*dead))


@pytest.mark.all_lanes
def test_a_worker_and_a_leader_that_thaw_after_takeover_do_no_harm(
    fleet: Fleet, flow: Flow
) -> None:
    """A worker whose loop hangs while its session lives does none either: it is evicted, and takes part
    again."""
    leader, victim = fleet.leader(), flow.a_worker()
    frozen = [fleet.controllers[leader], fleet.workers[victim]]
    with fleet.calling(fleet.follower_of(leader)):
        for process in frozen:
            process.pause()
        successor = fleet.wait_leader(other_than=leader)
        flow.wait_owned_by(others(fleet, victim), 20)
        for process in frozen:
            process.resume()
        fleet.wait_workers(victim)
        eventually(
            lambda: set(fleet.rest("GET", "/ready")["controllers"]) == set(fleet.controllers),
            20,
            "the thawed controller is back",
        )
        assert fleet.leader() == successor
    hanging = max(others(fleet, victim))
    evict_hanging(fleet, flow, hanging)
    flow.judge(late(victim, hanging))


def evict_hanging(fleet: Fleet, flow: Flow, id: str) -> None:
    hang = fleet.folder / "hang"
    assert fleet.workers[id].terminate() == 0
    fleet.start_worker(id, hang=hang)
    fleet.wait_workers(id)
    fleet.wait_settled()
    assert fleet.rest("GET", "/validation")["IdealState"][id], "it has its share"
    hang.touch()
    try:
        fleet.rest("DELETE", f"/instances/{id}")
        flow.wait_owned_by(others(fleet, id), HANDOVER_TIMEOUT_S + 15)
        assert id not in fleet.live_workers()
        flow.assert_copying()
    finally:
        hang.unlink()
    fleet.rest("POST", f"/instances/{id}")
    fleet.wait_workers(id)
    fleet.workers[id].assert_running()


def test_a_fleet_that_shrinks_to_one_and_grows_again(fleet: Fleet, flow: Flow) -> None:
    """Leaders are killed in the middle of their plans at the end: no request is lost."""
    first, *leaving = sorted(fleet.workers)
    for id in leaving:
        assert fleet.workers[id].terminate() == 0
    flow.wait_owned_by({first}, 15)
    moves = len(fleet.moves(flow.topic))
    for id in leaving:
        fleet.start_worker(id)
    fleet.wait_workers(*leaving)
    fleet.wait_settled()
    moved = len(fleet.moves(flow.topic)) - moves
    apart = sum(flow.partitions // workers for workers in range(2, len(fleet.workers) + 1))
    assert moved <= apart, "only their shares move, if one joins long after the other, too"
    dice = random.Random(SEED)  # noqa: S311
    for _ in range(2):
        kill_leader_in_a_drain(fleet, flow, after_s=dice.uniform(0, 0.6))
    flow.judge()


def kill_leader_in_a_drain(fleet: Fleet, flow: Flow, *, after_s: float) -> None:
    """Its network to ZooKeeper is slow, so that a drain takes many round trips."""
    leader, drained = fleet.leader(), flow.a_worker()
    fleet.links[leader].slow_zookeeper(0.03)
    assert fleet.call("DELETE", f"/instances/{drained}", controller=leader).ok
    fleet.wait_seconds(after_s)
    fleet.controllers[leader].kill_tree()
    fleet.links[leader].slow_zookeeper(0)
    fleet.wait_leader(other_than=leader)
    flow.wait_owned_by(others(fleet, drained), 15)
    fleet.start_controller(leader)
    fleet.rest("POST", f"/instances/{drained}")
    fleet.wait_settled()
