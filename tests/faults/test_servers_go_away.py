"""Kafka clusters and ZooKeeper go away while records flow, and come back.

Each test ends with both logs compared from their beginning.
"""

import time
from collections.abc import Callable

import pytest

from ureplicator_testkit.clusters import KafkaCluster, ZooKeeperServer
from ureplicator_testkit.fleet import Fleet, Load
from ureplicator_testkit.processes import eventually
from ureplicator_testkit.topics import compare_logs, create_topic, offsets, produce, sample_records

Servers = tuple[ZooKeeperServer, KafkaCluster, KafkaCluster]
StartFleet = Callable[..., Fleet]

PARTITIONS = 4
RECOVERY_S = 5


def all_in_error(fleet: Fleet, worker: str = "w1") -> bool:
    rows = fleet.status(worker)["partitions"].values()
    return bool(rows) and all(row["state"] == "ERROR" and row["reason"] for row in rows)


def all_online(fleet: Fleet, worker: str = "w1") -> bool:
    rows = fleet.status(worker)["partitions"].values()
    return bool(rows) and all(row["state"] == "ONLINE" for row in rows)


def wait_copied(servers: Servers, topic: str) -> None:
    def same_length() -> bool:
        source, target = (offsets(server.bootstrap, topic) for server in servers[1:])
        return all(target[number][1] >= end for number, (_, end) in source.items())

    eventually(same_length, 40, "everything is copied")


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_cluster_is_killed_and_comes_back(
    servers: Servers, filled_topic: str, start_fleet: StartFleet, end: str
) -> None:
    cluster = servers[1] if end == "source" else servers[2]
    fleet = start_fleet()
    produce(servers[1].bootstrap, filled_topic, sample_records(2_000, partitions=PARTITIONS))
    fleet.whitelist(filled_topic)
    fleet.wait_online(filled_topic, PARTITIONS)
    fleet.wait_seconds(6)  # nothing flows any more: silence must not be taken for health
    cluster.kill()
    eventually(lambda: all_in_error(fleet), 15, "every partition says ERROR and why")
    assert all(end in row["reason"] for row in fleet.status("w1")["partitions"].values())
    fleet.workers["w1"].assert_running()
    cluster.restart()
    eventually(lambda: all_online(fleet), RECOVERY_S, f"all ONLINE {RECOVERY_S} s after")
    produce(
        servers[1].bootstrap, filled_topic, sample_records(2_000, partitions=PARTITIONS, seed=1)
    )
    wait_copied(servers, filled_topic)
    fleet.stop()
    compare_logs(servers[1].bootstrap, servers[2].bootstrap, filled_topic).assert_clean()


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_cluster_is_down_when_the_worker_starts(
    servers: Servers, filled_topic: str, start_fleet: StartFleet, end: str
) -> None:
    cluster = servers[1] if end == "source" else servers[2]
    produce(servers[1].bootstrap, filled_topic, sample_records(100, partitions=PARTITIONS))
    fleet = start_fleet()
    fleet.whitelist(filled_topic)
    fleet.wait_online(filled_topic, PARTITIONS)
    assert fleet.workers["w1"].terminate() == 0
    cluster.kill()
    fleet.start_worker("w1")
    eventually(lambda: all_in_error(fleet), 40, "every partition says ERROR and why")
    cluster.restart()
    eventually(lambda: all_online(fleet), RECOVERY_S, f"all ONLINE {RECOVERY_S} s after")
    wait_copied(servers, filled_topic)
    fleet.stop()
    compare_logs(servers[1].bootstrap, servers[2].bootstrap, filled_topic).assert_clean()


def test_zookeeper_is_away_and_copying_goes_on(
    servers: Servers, filled_topic: str, topic: str, start_fleet: StartFleet
) -> None:
    zookeeper, source, target = servers
    other = f"{topic}-later"
    create_topic(source.bootstrap, other, partitions=1)
    fleet = start_fleet()
    fleet.whitelist(filled_topic)
    fleet.wait_online(filled_topic, PARTITIONS)
    owners = fleet.owners(filled_topic)
    zookeeper.kill()
    with Load(source.bootstrap, filled_topic, partitions=PARTITIONS, records_per_s=500):
        eventually(
            lambda: fleet.call("POST", "/topics", json={"topic": other}).status_code == 503,
            20,
            "REST says 503",
        )
        answer = fleet.call("POST", "/topics", json={"topic": other})
        assert "ZooKeeper" in answer.json()["detail"]
        deadline_s = time.monotonic() + 60
        former = 0
        while time.monotonic() < deadline_s:
            now = sum(end for _, end in offsets(target.bootstrap, filled_topic).values())
            if time.monotonic() > deadline_s - 2:
                assert now > former, "records go on arriving"
                former = now
            fleet.wait_seconds(1)
    zookeeper.restart()
    eventually(
        lambda: fleet.call("POST", "/topics", json={"topic": other}).ok, 30, "REST works again"
    )
    fleet.wait_online(other, 1)
    fleet.wait_online(filled_topic, PARTITIONS)
    assert fleet.owners(filled_topic) == owners
    wait_copied(servers, filled_topic)
    fleet.stop()
    compare_logs(source.bootstrap, target.bootstrap, filled_topic).assert_clean()
