"""A route that delivers exactly once, in a whole fleet: a gap that is passed over."""

from __future__ import annotations

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import read_positions
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.labels import labelled_records, numbers
from ureplicator_testkit.records.topics import (
    create_topic,
    delete_records,
    offsets,
    produce,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

COPIED_S = 60.0


def wait_committed(fleet: Fleet, source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    client = ClusterClient(target.bootstrap)

    def committed() -> bool:
        ends = offsets(source.bootstrap, topic, isolation="read_committed")
        found = all_readable(read_positions(client, fleet.group(), {topic: sorted(ends)}))
        return all(found[topic, number].offset >= end for number, (_, end) in ends.items())

    try:
        eventually(committed, COPIED_S, f"{topic} is committed to its ends")
    finally:
        client.close()


def test_a_gap_that_was_passed_over_stays_in_the_history_with_its_offsets(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    running.change({"delivery": "exactly_once", "on_gap": "earliest"})
    create_topic(source_cluster.bootstrap, topic)
    produce(source_cluster.bootstrap, topic, labelled_records(topic, partitions=1, count=10))
    running.whitelist(topic)
    wait_committed(running, source_cluster, target_cluster, topic)
    running.rest("POST", f"/topics/{topic}/pause")
    eventually(lambda: not running.held(topic), COPIED_S, "the topic is released")
    later = labelled_records(topic, partitions=1, count=10, first=10)
    produce(source_cluster.bootstrap, topic, later)
    delete_records(source_cluster.bootstrap, topic, {0: 15})
    running.rest("POST", f"/topics/{topic}/resume")
    wait_committed(running, source_cluster, target_cluster, topic)

    def gaps() -> list[dict[str, object]]:
        found: list[dict[str, object]] = running.rest("GET", f"/history?topic={topic}&kind=gap")[
            "history"
        ]
        return found

    eventually(lambda: len(gaps()) == 1, COPIED_S, "the gap is in the history")
    (gap,) = gaps()
    assert (gap["firstOffset"], gap["nextOffset"]) == (10, 15)
    assert "out of range" in str(gap["reason"])
    copied = numbers(read_all(target_cluster.bootstrap, topic), topic)
    assert sorted(copied[0]) == [*range(10), *range(15, 20)]
