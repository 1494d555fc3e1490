"""Faults shorter than the rebalance delay move nothing, and cost at most a few duplicates.

Workers that stop cleanly and are back in time are in `test_mixed_versions`.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

import os
import signal

import pytest

from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.fleet.real_fleet import SESSION_TIMEOUT_S, Fleet, pids_of
from ureplicator_testkit.histories.repeats import lost
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.sessions import expire

DELAYS = {"rebalance_delay_s": 120}
BUSY_S = 15
"""It takes 5 s; the rest is for a busy machine, where it starts beside the servers of other tests."""


@pytest.mark.all_lanes
def test_a_copier_killed_is_back_on_its_worker_in_5_s(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """The session of the same worker expires next, which costs less than its JVM, which is killed last."""
    moves, owners, id = fleet.moves(flow.topic), flow.owners(), flow.a_worker()
    (slot,) = fleet.status(id)["slots"]
    os.kill(slot["pid"], signal.SIGKILL)
    eventually(
        lambda: fleet.status(id)["slots"][0]["pid"] not in (None, slot["pid"]),
        5,
        "another copier runs",
    )
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=BUSY_S)
    fleet.workers[id].assert_running()
    leader = fleet.leader()
    end_session(site, fleet, f"{Paths(fleet.name).workers_live}/{id}")
    eventually(lambda: flow.owners() == owners, 15, "each partition is ONLINE where it was")
    assert fleet.leader() == leader
    kill_jvm(fleet, id)
    flow.wait_owned_by(set(fleet.workers), 40)
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge(lost(id))


def kill_jvm(fleet: Fleet, id: str) -> None:
    """The worker ends by itself, with all that descends from it. Another one is started."""
    worker = fleet.workers[id]
    (jvm,) = pids_of(worker, "java")
    os.kill(jvm, signal.SIGKILL)
    assert worker.wait(15) == 1
    worker.assert_tree_gone(15)
    fleet.start_worker(id)
    fleet.wait_workers(id)


def test_a_short_freeze_and_an_expired_session_of_the_leader_repeat_and_move_nothing(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """A worker is frozen, too, for a moment."""
    moves, owners, leader = fleet.moves(flow.topic), flow.owners(), fleet.leader()
    frozen = [fleet.workers[flow.a_worker()], fleet.controllers[leader]]
    for process in frozen:
        process.pause()
    fleet.wait_seconds(SESSION_TIMEOUT_S / 3)
    for process in frozen:
        process.resume()
    fleet.wait_online(flow.topic, flow.partitions)
    flow.assert_copying()
    assert fleet.leader() == leader
    end_session(site, fleet, Paths(fleet.name).leader)
    eventually(lambda: flow.owners() == owners, 15, "each partition is ONLINE where it was")
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def end_session(site: BreakableServers, fleet: Fleet, path: str) -> None:
    """Expire the session of a healthy process, which owns this node; returns when all have sessions again."""
    before = owner_of(site, path)
    expire(site.zookeeper.hosts, before)
    eventually(lambda: owner_of(site, path) not in (0, before), 10, "the node is there again")
    fleet.wait_workers(*fleet.workers)
    eventually(lambda: set(fleet.controllers) <= controllers_of(fleet), 10, "both are there")


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
