"""Faults shorter than the rebalance delay move nothing, and cost at most a few duplicates.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

import os
import signal

import pytest

from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes import Paths
from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet, pids_of
from ureplicator_testkit.histories.repeats import NO_LOST_WRITER, lost
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.sessions import expire

DELAYS = {"rebalance_delay_s": 120}


def test_workers_that_stop_cleanly_and_flap_repeat_nothing_and_move_nothing(
    fleet: Fleet, flow: Flow
) -> None:
    owners, moves = flow.owners(), fleet.moves(flow.topic)
    for id in ("w1", "w2", "w1"):
        worker = fleet.workers[id]
        assert worker.terminate() == 0
        worker.assert_tree_gone()
        fleet.start_worker(id)
        fleet.wait_workers(id)
    flow.wait_owned_by(set(fleet.workers), 40)
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge()


@pytest.mark.all_lanes
def test_a_copier_killed_is_back_on_its_worker_in_5_s(fleet: Fleet, flow: Flow) -> None:
    id = flow.a_worker()
    (slot,) = fleet.status(id)["slots"]
    os.kill(slot["pid"], signal.SIGKILL)
    eventually(
        lambda: fleet.status(id)["slots"][0]["pid"] not in (None, slot["pid"]),
        5,
        "another copier runs",
    )
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=5)
    fleet.workers[id].assert_running()
    flow.judge(lost(id))


@pytest.mark.all_lanes
def test_a_jvm_killed_ends_the_worker_and_its_successor_goes_on(fleet: Fleet, flow: Flow) -> None:
    owners, id = flow.owners(), flow.a_worker()
    worker = fleet.workers[id]
    (jvm,) = pids_of(worker, "java")
    os.kill(jvm, signal.SIGKILL)
    assert worker.wait(15) == 1
    worker.assert_tree_gone(15)
    fleet.start_worker(id)
    fleet.wait_workers(id)
    flow.wait_owned_by(set(fleet.workers), 40)
    assert flow.owners() == owners
    flow.judge(lost(id))


def test_a_short_freeze_of_a_worker_and_of_the_leader_moves_nothing(
    fleet: Fleet, flow: Flow
) -> None:
    moves, leader = fleet.moves(flow.topic), fleet.leader()
    frozen = [fleet.workers[flow.a_worker()], fleet.controllers[leader]]
    for process in frozen:
        process.pause()
    fleet.wait_seconds(SESSION_TIMEOUT_S / 3)
    for process in frozen:
        process.resume()
    fleet.wait_online(flow.topic, flow.partitions)
    flow.assert_copying()
    assert fleet.moves(flow.topic) == moves
    assert fleet.leader() == leader
    flow.judge()


@pytest.mark.parametrize("role", ["worker", "leader"])
def test_an_expired_session_of_a_healthy_process(
    site: BreakableServers, fleet: Fleet, flow: Flow, role: str
) -> None:
    moves, owners, leader = fleet.moves(flow.topic), flow.owners(), fleet.leader()
    paths, worker = Paths(fleet.name), flow.a_worker()
    path = paths.leader if role == "leader" else f"{paths.workers_live}/{worker}"
    before = owner_of(site, path)
    expire(site.zookeeper.hosts, before)
    eventually(lambda: owner_of(site, path) not in (0, before), 10, "the node is there again")
    fleet.wait_workers(*fleet.workers)
    eventually(lambda: set(fleet.controllers) <= controllers_of(fleet), 10, "both are there")
    flow.wait_owned_by(set(fleet.workers), 15)
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    assert role == "leader" or fleet.leader() == leader
    flow.judge(lost(worker) if role == "worker" else NO_LOST_WRITER)


def controllers_of(fleet: Fleet) -> set[str]:
    return set(fleet.rest("GET", "/ready")["controllers"])


def owner_of(site: BreakableServers, path: str) -> int:
    """The session that owns an ephemeral node; 0 if the node does not exist."""
    zookeeper = ZooKeeperCoordination(hosts=site.zookeeper.hosts, session_timeout_s=10)
    zookeeper.connect(10)
    try:
        node = zookeeper.get(path)
        return node.stat.owner if node else 0
    finally:
        zookeeper.close()
