"""Faults of the network of one process, or of all: proxies stand before ZooKeeper and the brokers.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

import random
from collections.abc import Mapping

import pytest
import requests

from ureplicator_testkit.fleet.real_fleet import FORTH_QUERY, SESSION_TIMEOUT_S, Fleet
from ureplicator_testkit.histories.repeats import late, lost
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.network import BreakableServers
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, Way
from ureplicator_worker.wire.produce_api import API_KEY as PRODUCE

DELAYS = {"rebalance_delay_s": 0, "handover_timeout_s": 8}
SEED = 4
TAKEN_OVER_S = SESSION_TIMEOUT_S + 2
SILENCE_TIMEOUT_S = 30
"""A silent target times out after 15 s. With exactly once nothing may be under way but a commit, which is
shown as long after it was sent. The rest is for a busy machine."""
RECOVERY_S = 5
MEGABIT_BYTES = 125_000


def others(fleet: Fleet, *ids: str) -> set[str]:
    return set(fleet.workers) - set(ids)


@pytest.mark.all_lanes
def test_what_a_replaced_worker_had_sent_arrives_late(fleet: Fleet, flow: Flow) -> None:
    """One is cut off from ZooKeeper: it receives nothing and continues until its commits are refused.
    Requests of another one are on their way while it is killed, and while its successors copy the same."""
    cut_off = flow.a_worker()
    fleet.links[cut_off].stall_zookeeper()
    flow.wait_owned_by(others(fleet, cut_off), TAKEN_OVER_S)
    flow.assert_copying()
    fleet.workers[cut_off].assert_running()
    fleet.links[cut_off].heal()
    fleet.wait_workers(cut_off)
    fleet.wait_settled()
    victim = flow.a_worker()
    target = proxy_of(fleet, victim, "target")
    target.stall(Way.UP)
    sent = target.requests(PRODUCE)
    eventually(lambda: target.requests(PRODUCE) > sent, RECOVERY_S, f"{victim} has sent records")
    fleet.workers[victim].kill_tree()
    flow.wait_owned_by(others(fleet, victim), TAKEN_OVER_S)
    flow.assert_copying()
    passed_bytes = target.carried_bytes(Way.UP)
    target.heal()
    eventually(lambda: target.connections == 0, RECOVERY_S, f"all that {victim} sent has arrived")
    assert target.carried_bytes(Way.UP) > passed_bytes
    flow.judge(late(cut_off, victim))


@pytest.mark.all_lanes
def test_a_slow_network_expires_no_session(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    """100 ms round trip, 3 Mbit/s each way, for all. Nor do connections to ZooKeeper that are reset move
    anything. Last, the leader is cut off from ZooKeeper."""
    owners, moves, leader = flow.owners(), fleet.moves(flow.topic), fleet.leader()
    for links in fleet.links.values():
        for proxy in (*links.zookeeper, links.source, links.target):
            proxy.slow(delay_s=0.05, rate_bytes_per_s=3 * MEGABIT_BYTES)
    fleet.wait_seconds(2 * SESSION_TIMEOUT_S)
    flow.assert_copying()
    flow.wait_caught_up()
    site.proxies.heal()
    reset_zookeeper(fleet)
    flow.assert_copying()
    assert eventually(fleet.leader, 10, "a leader is elected") == leader
    cut_leader_off(site, fleet, f"{flow.topic}-later")
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def reset_zookeeper(fleet: Fleet) -> None:
    for _ in range(8):
        for links in fleet.links.values():
            links.reset_zookeeper()
        fleet.wait_seconds(0.4)


def cut_leader_off(site: BreakableServers, fleet: Fleet, topic: str) -> None:
    """Cut the leader off: it refuses writes while another one leads, which takes them, as this topic
    shows."""
    leader = fleet.leader()
    create_topic(site.source.bootstrap, topic, partitions=1)
    fleet.links[leader].stall_zookeeper()
    with fleet.calling(fleet.follower_of(leader)):
        successor = fleet.wait_leader(other_than=leader)
        for _ in range(3):
            response = fleet.call(
                "POST", f"/topics?{FORTH_QUERY}", controller=leader, json={"topic": topic}
            )
            assert response.status_code == 503, response.text
            assert "ZooKeeper" in response.json()["detail"]
        assert fleet.call("GET", "/health", controller=leader).ok
        fleet.whitelist(topic)
        fleet.wait_online(topic, 1)
        fleet.links[leader].heal()
        fleet.wait_controller(leader)
        assert fleet.leader() == successor
    shown = f"/topics/{topic}"
    eventually(lambda: fleet.call("GET", shown, controller=leader).ok, 5, "it knows of it, too")
    fleet.rest("DELETE", f"/topics/{topic}?{FORTH_QUERY}")


CUTS = (
    {"w1": ("source", (Way.UP,)), "w2": ("target", (Way.DOWN,))},
    {"w1": ("source", (Way.DOWN,)), "w2": ("target", (Way.UP,))},
)
"""Half of the network, each way: nothing passes one way, so no response comes back. For a client that is the
same as nothing either way (`nemesis` draws that, too)."""


@pytest.mark.all_lanes
def test_two_workers_cut_off_from_a_cluster_each(fleet: Fleet, flow: Flow) -> None:
    """Each way in turn; then connections are refused, and at last cut anywhere: in the middle of a request,
    of a response, of a batch, of a commit."""
    owners, moves = flow.owners(), fleet.moves(flow.topic)
    elsewhere = [number for number, owner in owners.items() if owner == "w3"]
    for cuts in CUTS:
        for id, (end, ways) in cuts.items():
            proxy_of(fleet, id, end).stall(*ways)
        wait_in_error(fleet, {id: end for id, (end, _) in cuts.items()}, SILENCE_TIMEOUT_S)
        flow.assert_copying(*elsewhere)
        recover(fleet, flow)
        flow.assert_copying()
    refused = {"w1": "source", "w2": "target"}
    for id, end in refused.items():
        proxy_of(fleet, id, end).refuse()
    wait_in_error(fleet, refused, 15)
    flow.assert_copying(*elsewhere)
    recover(fleet, flow)
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    cut_anywhere(fleet)
    fleet.wait_online(flow.topic, flow.partitions)
    flow.assert_copying()
    flow.judge(lost(*fleet.workers))


def wait_in_error(fleet: Fleet, ends: Mapping[str, str], deadline_s: float) -> None:
    """Each of these workers reports the end that it is cut off from."""
    for id, end in ends.items():
        eventually(lambda: in_error(fleet, id, end), deadline_s, f"{id} reports it")  # noqa: B023


def recover(fleet: Fleet, flow: Flow) -> None:
    for links in fleet.links.values():
        links.heal()
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=RECOVERY_S)


def cut_anywhere(fleet: Fleet) -> None:
    dice = random.Random(SEED)  # noqa: S311
    for _ in range(12):
        for id in fleet.workers:
            end, way = dice.choice(["source", "target"]), dice.choice(list(Way))
            proxy_of(fleet, id, end).cut_after(dice.randrange(1, 20_000), way)
        fleet.wait_seconds(0.7)


def proxy_of(fleet: Fleet, worker: str, end: str) -> Proxy:
    links = fleet.links[worker]
    return links.source if end == "source" else links.target


def in_error(fleet: Fleet, worker: str, end: str) -> bool:
    try:
        rows = fleet.status(worker)["partitions"].values()
    except requests.RequestException:
        return False
    return bool(rows) and all(
        row["state"] == "ERROR" and row["reason"].startswith(end) for row in rows
    )
