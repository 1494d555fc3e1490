"""Kafka clusters and ZooKeeper servers fail during copying, and return.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

import os
import signal
import time

from ureplicator_testkit.fleet.real_fleet import FORTH_QUERY, SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually

DELAYS = {"rebalance_delay_s": 120}
RECOVERY_S = 5
QUORUM_LOST_S = 5 * SESSION_TIMEOUT_S
"""Copying continues throughout: nothing in it measures how long."""


def wait_all_in_error(fleet: Fleet, reason: str) -> None:
    def all_in_error() -> bool:
        states = fleet.states()
        return bool(states) and all(
            state == "ERROR" and why.startswith(reason) for state, why in states
        )

    eventually(all_in_error, 40, f"every partition is in ERROR, by {reason}")


def test_a_cluster_is_killed_and_comes_back(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """The source, while a copier starts, then the target, while a worker does."""
    owners = flow.owners()
    flow.stop()
    for end in ("source", "target"):
        flow.wait_caught_up()
        fleet.wait_seconds(6)  # no records arrive: silence must not count as health
        if end == "target":
            assert fleet.workers["w1"].terminate() == 0
        site.cluster(end).kill()
        if end == "target":
            fleet.start_worker("w1")
        else:
            os.kill(fleet.status("w1")["slots"][0]["pid"], signal.SIGKILL)
        wait_all_in_error(fleet, end)
        for worker in fleet.workers.values():
            worker.assert_running()
        site.cluster(end).restart()
        fleet.wait_online(flow.topic, flow.partitions, deadline_s=RECOVERY_S)
        assert flow.owners() == owners
        flow.produce(300)
    flow.judge()


def test_one_zookeeper_server_killed_or_frozen_or_no_quorum_moves_nothing(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """Copying continues without a quorum, and REST refuses what it cannot write."""
    moves, leader = fleet.moves(flow.topic), fleet.leader()
    first = site.zookeeper.leader()
    first.kill()
    fleet.wait_seconds(SESSION_TIMEOUT_S + 1)
    flow.assert_copying()
    assert fleet.leader() == leader, "no session expired"
    site.zookeeper.heal()
    second = next(member for member in site.zookeeper.members if member is not first)
    second.pause()
    fleet.wait_seconds(SESSION_TIMEOUT_S + 1)
    flow.assert_copying()
    eventually(fleet.leader, 15, "a leader is elected")
    flow.wait_owned_by(set(fleet.workers), 10)
    site.zookeeper.heal()
    take_quorum(site, fleet, flow)
    flow.wait_owned_by(set(fleet.workers), 15)
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def take_quorum(site: BreakableServers, fleet: Fleet, flow: Flow) -> None:
    """Away for some session timeouts; then it is back."""
    later = f"{flow.topic}-later"
    create_topic(site.source.bootstrap, later, partitions=1)
    for member in site.zookeeper.members[:2]:
        member.kill()
    began_s = time.monotonic()

    def refused() -> bool:
        response = fleet.call("POST", f"/topics?{FORTH_QUERY}", json={"topic": later})
        assert not response.ok
        return response.status_code == 503 and "ZooKeeper" in response.json()["detail"]

    eventually(refused, 20, "REST responds 503")
    while time.monotonic() - began_s < QUORUM_LOST_S:
        flow.assert_copying()
        fleet.wait_seconds(2)
    assert refused()
    flow.assert_copying()
    site.zookeeper.heal()

    def taken() -> bool:
        """409: a former request was carried out after its response."""
        response = fleet.call("POST", f"/topics?{FORTH_QUERY}", json={"topic": later})
        return response.ok or response.status_code == 409

    eventually(taken, 60, "REST works again")
    fleet.wait_online(later, 1)
    fleet.rest("DELETE", f"/topics/{later}?{FORTH_QUERY}")
