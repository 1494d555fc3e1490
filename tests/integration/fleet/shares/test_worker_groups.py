"""A route that asks for workers by tags: who copies it, before, while and after one of them is there."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 6
MOVED_S = 60.0
OWN = {"small": {"tags": ["bulk"], "slots": 1}, "large": {"tags": ["bulk", "ssd"], "slots": 2}}


def records(number: int) -> list[NewRecord]:
    return [
        NewRecord(f"{partition}:{number}".encode(), None, partition)
        for partition in range(PARTITIONS)
    ]


def test_only_workers_with_the_tags_copy_the_route_in_proportion_to_their_slots(
    make_fleet: Callable[..., Fleet],
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
) -> None:
    fleet = make_fleet(
        f"groups-{uuid.uuid4().hex[:8]}",
        route={"workers": {"tags": ["bulk"], "min": 2}},
        workers_own=OWN,
    ).start(workers=1)
    create_topic(source_cluster.bootstrap, topic, partitions=PARTITIONS)
    fleet.whitelist(topic)
    condition = "route source.target has 0 of at least 2 workers with the tags bulk"
    assert fleet.rest("GET", "/validation")["conditions"] == [condition]
    assert fleet.held(topic) == {}, "the worker without the tag gets nothing"
    for id in OWN:
        fleet.start_worker(id)
    fleet.wait_workers("w1", *OWN)
    fleet.wait_online(topic, PARTITIONS, deadline_s=MOVED_S)
    eventually(
        lambda: Counter(fleet.owners(topic).values()) == {"small": 2, "large": 4},
        MOVED_S,
        "the shares are in proportion to the slots",
    )
    fleet.wait_online(topic, PARTITIONS, deadline_s=MOVED_S)
    produce(source_cluster.bootstrap, topic, records(0))
    assert fleet.rest("GET", "/validation")["conditions"] == []
    assert fleet.rest("GET", "/instances/large")["workers"]["large"]["tags"] == ["bulk", "ssd"]

    fleet.workers["large"].kill_tree()
    eventually(
        lambda: Counter(fleet.owners(topic).values()) == {"small": PARTITIONS},
        MOVED_S,
        "what it had goes to the other one with the tag",
    )
    fleet.wait_online(topic, PARTITIONS, deadline_s=MOVED_S)
    produce(source_cluster.bootstrap, topic, records(1))

    def copied() -> bool:
        logs = read_all(target_cluster.bootstrap, topic)
        return all(len(log) >= 2 for log in logs.values()) and len(logs) == PARTITIONS

    eventually(copied, MOVED_S, "everything is copied")
    source, target = (read_all(each.bootstrap, topic) for each in (source_cluster, target_cluster))
    for partition, log in source.items():
        seen = [each.value for each in target[partition]]
        assert list(dict.fromkeys(seen)) == [each.value for each in log]
