"""Faults of the network of one process, or of all: proxies stand before ZooKeeper and the brokers.

Each test ends with both logs, and all commits, read from the beginning (`Flow.judge`).
"""

import random

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
ON_THE_WAY_S = 1
MEGABIT_BYTES = 125_000


def others(fleet: Fleet, *ids: str) -> set[str]:
    return set(fleet.workers) - set(ids)


def test_a_worker_cut_off_from_zookeeper_is_replaced_and_cannot_commit(
    fleet: Fleet, flow: Flow
) -> None:
    """It receives nothing and continues until its commits are refused."""
    victim = flow.a_worker()
    fleet.links[victim].stall_zookeeper()
    flow.wait_owned_by(others(fleet, victim), TAKEN_OVER_S)
    flow.assert_copying()
    fleet.workers[victim].assert_running()
    fleet.links[victim].heal()
    fleet.wait_workers(victim)
    flow.judge(late(victim))


def test_repeated_resets_of_zookeeper_connections_move_nothing(fleet: Fleet, flow: Flow) -> None:
    moves, leader = fleet.moves(flow.topic), fleet.leader()
    for _ in range(8):
        for links in fleet.links.values():
            links.reset_zookeeper()
        fleet.wait_seconds(0.4)
    flow.assert_copying()
    assert eventually(fleet.leader, 10, "a leader is elected") == leader
    assert fleet.moves(flow.topic) == moves
    flow.judge()


def test_a_leader_cut_off_from_zookeeper_refuses_writes_while_another_one_leads(
    site: BreakableServers, fleet: Fleet, flow: Flow
) -> None:
    leader, later = fleet.leader(), f"{flow.topic}-later"
    create_topic(site.source.bootstrap, later, partitions=1)
    fleet.links[leader].stall_zookeeper()
    with fleet.calling(fleet.follower_of(leader)):
        successor = fleet.wait_leader(other_than=leader)
        for _ in range(3):
            response = fleet.call(
                "POST", f"/topics?{FORTH_QUERY}", controller=leader, json={"topic": later}
            )
            assert response.status_code == 503, response.text
            assert "ZooKeeper" in response.json()["detail"]
        assert fleet.call("GET", "/health", controller=leader).ok
        fleet.whitelist(later)
        fleet.wait_online(later, 1)
        fleet.links[leader].heal()
        fleet.wait_controller(leader)
        assert fleet.leader() == successor
    shown = f"/topics/{later}"
    eventually(lambda: fleet.call("GET", shown, controller=leader).ok, 5, "it knows of it, too")
    flow.judge()
    fleet.rest("DELETE", f"/topics/{later}?{FORTH_QUERY}")


@pytest.mark.all_lanes
def test_what_a_replaced_worker_had_sent_arrives_late(fleet: Fleet, flow: Flow) -> None:
    """Its requests are on their way while it is killed, and while its successors copy the same."""
    victim = flow.a_worker()
    target = proxy_of(fleet, victim, "target")
    target.stall(Way.UP)
    fleet.wait_seconds(ON_THE_WAY_S)
    fleet.workers[victim].kill_tree()
    flow.wait_owned_by(others(fleet, victim), TAKEN_OVER_S)
    flow.assert_copying()
    produced = target.requests(PRODUCE)
    target.heal()
    eventually(lambda: target.connections == 0, RECOVERY_S, f"all that {victim} sent has arrived")
    assert target.requests(PRODUCE) > produced
    flow.judge(late(victim))


Cut = tuple[str, tuple[Way, ...]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("source", ()), ("target", ()), id="stalled"),
        pytest.param(("source", (Way.UP,)), ("target", (Way.DOWN,)), id="half-open"),
        pytest.param(
            ("source", (Way.DOWN,)),
            ("target", (Way.UP,)),
            id="half-open-otherwise",
            marks=pytest.mark.all_lanes,
        ),
    ],
)
def test_two_workers_cut_off_from_a_cluster_each(
    fleet: Fleet, flow: Flow, first: Cut, second: Cut
) -> None:
    owners, moves = flow.owners(), fleet.moves(flow.topic)
    cuts = {"w1": first, "w2": second}
    for id, (end, ways) in cuts.items():
        proxy_of(fleet, id, end).stall(*ways)
    for id, (end, _) in cuts.items():
        eventually(lambda: in_error(fleet, id, end), SILENCE_TIMEOUT_S, f"{id} reports it")  # noqa: B023
    flow.assert_copying(*(number for number, owner in owners.items() if owner == "w3"))
    for id, (end, _) in cuts.items():
        proxy_of(fleet, id, end).heal()
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=RECOVERY_S)
    flow.assert_copying()
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    flow.judge(lost("w1", "w2"))


def test_workers_whose_connections_are_refused(fleet: Fleet, flow: Flow) -> None:
    owners = flow.owners()
    cuts = {"w1": "source", "w2": "target"}
    for id, end in cuts.items():
        proxy_of(fleet, id, end).refuse()
    for id, end in cuts.items():
        eventually(lambda: in_error(fleet, id, end), 15, f"{id} reports it")  # noqa: B023
    flow.assert_copying(*(number for number, owner in owners.items() if owner == "w3"))
    for id, end in cuts.items():
        proxy_of(fleet, id, end).heal()
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=RECOVERY_S)
    assert flow.owners() == owners
    flow.judge(lost("w1", "w2"))


@pytest.mark.all_lanes
def test_connections_that_are_cut_anywhere(fleet: Fleet, flow: Flow) -> None:
    """In the middle of a request, of a response, of a batch, of a commit."""
    dice = random.Random(SEED)  # noqa: S311
    for _ in range(12):
        for id in fleet.workers:
            end, way = dice.choice(["source", "target"]), dice.choice(list(Way))
            proxy_of(fleet, id, end).cut_after(dice.randrange(1, 20_000), way)
        fleet.wait_seconds(0.7)
    fleet.wait_online(flow.topic, flow.partitions)
    flow.assert_copying()
    flow.judge(lost(*fleet.workers))


@pytest.mark.all_lanes
def test_a_slow_network_expires_no_session(fleet: Fleet, flow: Flow) -> None:
    """100 ms round trip, 3 Mbit/s each way, for all."""
    owners, moves, leader = flow.owners(), fleet.moves(flow.topic), fleet.leader()
    for links in fleet.links.values():
        for proxy in (*links.zookeeper, links.source, links.target):
            proxy.slow(delay_s=0.05, rate_bytes_per_s=3 * MEGABIT_BYTES)
    fleet.wait_seconds(2 * SESSION_TIMEOUT_S)
    flow.assert_copying()
    flow.wait_caught_up()
    assert flow.owners() == owners
    assert fleet.moves(flow.topic) == moves
    assert fleet.leader() == leader
    flow.judge()


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
