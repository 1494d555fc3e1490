"""Two fleets that claim their target topics on the same clusters: only one of them copies each topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from click.testing import Result

from ureplicator_common.kafka.claim_records import Claim
from ureplicator_common.kafka.claim_requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_controller.engines.syncs.claims import INTERVAL_S, UNUSED_S
from ureplicator_testkit.control.command import run
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import NewRecord, compare_logs, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

MakeFleet = Callable[..., Fleet]
pytestmark = pytest.mark.integration

COPIED_S = 30
WITHDRAWN_S = 2 * INTERVAL_S + 10
FORTH = {"source": "source", "target": "target", "claim_targets": True}
BACK = {
    "source": "target",
    "target": "source",
    "claim_targets": True,
    "naming": {"prefix": "back."},
}
Pair = tuple[Fleet, Fleet]


@pytest.fixture(scope="module")
def fleets(make_fleet: MakeFleet, source_cluster: KafkaCluster) -> Iterator[Pair]:
    """East whitelists by hand, west all topics of the tests by itself, and has a route back, too."""
    auto = {"auto_whitelist": {"enabled": True, "include": ["claimed-auto.*"]}}
    east = make_fleet("claims-east", routes=(FORTH,)).launch()
    west = make_fleet("claims-west", routes=({**FORTH, **auto}, BACK)).launch()
    yield east.wait_started(), west.wait_started()
    for fleet in (east, west):
        fleet.stop()


def refused(fleet: Fleet, topic: str, way: str = "?src=source&dst=target") -> str:
    """Reason why the fleet does not whitelist a topic that is added by hand."""
    response = fleet.call("POST", f"/topics{way}", json={"topic": topic})
    assert response.status_code == 409, response.text
    return str(response.json()["detail"])


def fill(cluster: KafkaCluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic, partitions=2)
    records = [NewRecord(f"{topic}-{n % 2}-{n}".encode(), None, n % 2) for n in range(200)]
    produce(cluster.bootstrap, topic, records)


def make_old(cluster: KafkaCluster, topic: str) -> None:
    """A claim is only withdrawn at an age at which no intent is on its way any more."""
    with closing(KafkaClaimLog(ClusterClient(cluster.bootstrap))) as log:
        claim = log.read().of("claims-east", topic)
        assert claim is not None
        log.write(replace(claim, since_ms=claim.since_ms - int(UNUSED_S * 1_000)))


def test_topic_of_one_fleet_is_refused_to_the_other_until_it_is_deleted(
    fleets: Pair, source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique_name: str
) -> None:
    east, west = fleets
    fill(source_cluster, unique_name)
    east.whitelist(unique_name)
    expected = f"already the target of fleet claims-east (source.target/{unique_name})"
    assert expected in refused(west, unique_name)
    eventually(partial(is_copied, source_cluster, target_cluster, unique_name), COPIED_S, "copied")
    make_old(target_cluster, unique_name)
    east.rest("DELETE", f"/topics/{unique_name}?src=source&dst=target")

    def is_free() -> bool:
        response = west.call("POST", "/topics?src=source&dst=target", json={"topic": unique_name})
        assert response.status_code in (201, 409), response.text
        return response.status_code == 201

    eventually(is_free, WITHDRAWN_S, "east has withdrawn its claim")
    assert "fleet claims-west" in refused(east, unique_name)


def test_claim_of_a_fleet_that_is_gone_is_withdrawn_by_hand(
    fleets: Pair, source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique_name: str
) -> None:
    _, west = fleets
    fill(source_cluster, unique_name)
    with closing(KafkaClaimLog(ClusterClient(target_cluster.bootstrap))) as log:
        log.write(Claim("claims-gone", unique_name, "old.target", "old-id", unique_name))
    assert "fleet claims-gone" in refused(west, unique_name)
    there = ("--url", west.url(), "--src", "source", "--dst", "target")
    assert "claims-gone" in run("claims", "list", *there).stdout
    done = run("claims", "withdraw", unique_name, "--fleet", "claims-gone", *there)
    assert done.exit_code == 0, done.output
    added = west.call("POST", "/topics?src=source&dst=target", json={"topic": unique_name})
    assert added.status_code == 201, added.text
    again = run("claims", "withdraw", unique_name, "--fleet", "claims-gone", *there)
    assert "has no claim" in again.stderr


def test_copy_of_one_fleet_is_not_copied_back_by_the_other(
    fleets: Pair, source_cluster: KafkaCluster, unique_name: str
) -> None:
    east, west = fleets
    fill(source_cluster, unique_name)
    east.whitelist(unique_name)
    assert "replication loop" in refused(west, unique_name, "?src=target&dst=source")


def test_auto_whitelisting_leaves_topics_of_the_other_fleet(
    fleets: Pair, source_cluster: KafkaCluster, unique_name: str
) -> None:
    east, _ = fleets
    topic = f"claimed-auto-{unique_name}"
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    owners = eventually(partial(whitelisted_by, fleets, topic), COPIED_S, "west whitelists it")
    assert owners == ["claims-west"]
    assert "fleet claims-west" in refused(east, topic)


def test_claims_are_shown_with_their_routes(fleets: Pair) -> None:
    for fleet in fleets:
        eventually(partial(is_in_order, fleet), COPIED_S, f"{fleet.name} has claimed all")


def test_moved_topic_is_copied_on_without_loss_or_repeat(
    fleets: Pair, source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique_name: str
) -> None:
    east, _ = fleets
    fill(source_cluster, unique_name)
    east.whitelist(unique_name)
    produced = threading.Thread(target=keep_filling, args=(source_cluster, unique_name))
    produced.start()
    moved = move(fleets, unique_name)
    produced.join()
    assert moved.exit_code == 0, moved.output
    assert moved.stdout.splitlines()[-1] == "claims-west: copies it"
    assert whitelisted_by(fleets, unique_name) == ["claims-west"]
    eventually(partial(is_copied, source_cluster, target_cluster, unique_name), COPIED_S, "copied")
    again = move(fleets, unique_name)
    assert again.exit_code == 1
    assert "is with claims-west already, active, and not with claims-east" in again.stderr


def move(fleets: Pair, topic: str) -> Result:
    """East gives the topic to west."""
    giver, taker = (fleet.url() for fleet in fleets)
    route = ("--src", "source", "--dst", "target")
    return run("topics", "move", topic, "--url", giver, "--to-fleet", taker, *route)


def keep_filling(cluster: KafkaCluster, topic: str) -> None:
    """Produce for longer than a move takes on an idle machine."""
    for round in range(30):
        records = [NewRecord(f"{topic}-{round}-{n}".encode(), None, n % 2) for n in range(20)]
        produce(cluster.bootstrap, topic, records)


def whitelisted_by(fleets: Pair, topic: str) -> list[str]:
    path = f"/topics/{topic}?src=source&dst=target"
    return [fleet.name for fleet in fleets if fleet.call("GET", path).status_code == 200]


def is_in_order(fleet: Fleet) -> bool:
    syncs: list[dict[str, Any]] = fleet.rest("GET", "/routes")["routes"]["source.target"]["syncs"]
    (claims,) = (sync for sync in syncs if sync["kind"] == "claims")
    return bool(claims["states"].get("equal")) and not claims["error"]


def is_copied(source: KafkaCluster, target: KafkaCluster, topic: str) -> bool:
    return compare_logs(source.bootstrap, target.bootstrap, topic).clean
