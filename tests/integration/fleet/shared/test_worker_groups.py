"""A route that asks for workers by tags: who copies it, before, while and after one of them is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 6
MOVED_S = 60.0


@pytest.fixture
def large(running: Fleet) -> Iterator[None]:
    """A further worker with the tag, which does not outlive the test."""
    yield
    if "large" in running.workers:
        running.workers.pop("large").kill_tree()


def records(number: int) -> list[NewRecord]:
    return [
        NewRecord(f"{partition}:{number}".encode(), None, partition)
        for partition in range(PARTITIONS)
    ]


def test_only_workers_with_the_tags_copy_the_route_in_proportion_to_their_slots(
    running: Fleet,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    large: None,
) -> None:
    fleet = running
    fleet.change({"workers": {"tags": ["bulk"], "min": 2}})
    create_topic(source_cluster.bootstrap, topic, partitions=PARTITIONS)
    fleet.whitelist(topic)
    eventually(
        lambda: Counter(fleet.owners(topic).values()) == {"w2": PARTITIONS},
        MOVED_S,
        "the only worker with the tag has all",
    )
    condition = "route source.target has 1 of at least 2 workers with the tags bulk"
    assert fleet.rest("GET", "/validation")["conditions"] == [condition]
    fleet.start_worker("large")
    fleet.wait_workers("large")
    eventually(
        lambda: Counter(fleet.owners(topic).values()) == {"w2": 2, "large": 4},
        MOVED_S,
        "the shares are in proportion to the slots",
    )
    fleet.wait_online(topic, PARTITIONS, deadline_s=MOVED_S)
    produce(source_cluster.bootstrap, topic, records(0))
    assert fleet.rest("GET", "/validation")["conditions"] == []
    assert fleet.rest("GET", "/instances/large")["workers"]["large"]["tags"] == ["bulk", "ssd"]

    fleet.workers["large"].kill_tree()
    eventually(
        lambda: Counter(fleet.owners(topic).values()) == {"w2": PARTITIONS},
        MOVED_S,
        "what it had goes to the other one with the tag",
    )
    fleet.wait_online(topic, PARTITIONS, deadline_s=MOVED_S)
    produce(source_cluster.bootstrap, topic, records(1))

    def copied() -> bool:
        logs = read_all(target_cluster.bootstrap, topic)
        return all(len(log) >= 2 for log in logs.values()) and len(logs) == PARTITIONS

    eventually(copied, MOVED_S, "everything is copied")
    source, target = (
        read_all(cluster.bootstrap, topic) for cluster in (source_cluster, target_cluster)
    )
    for partition, log in source.items():
        seen = [record.value for record in target[partition]]
        assert list(dict.fromkeys(seen)) == [record.value for record in log]
