"""A consumer stops at the source and goes on at the target: a fleet writes the offsets of its group there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.consumers import (
    READ_S,
    alter_offsets,
    group_offsets,
    open_member,
    read_next,
)
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    offsets,
    produce,
    produce_in_transaction,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS, RECORDS = 2, 20
INTERVAL_S = 0.5


@pytest.fixture(scope="module", params=["at_least_once", "exactly_once"])
def running(make_fleet: Callable[..., Fleet], request: pytest.FixtureRequest) -> Fleet:
    """It syncs the groups of this test only: the clusters are shared."""
    name = f"groups-{uuid.uuid4().hex[:8]}"
    route = {
        "delivery": request.param,
        "sync_group_offsets": {
            "enabled": True,
            "interval_s": INTERVAL_S,
            "groups": {"include": [f"{name}.*"]},
        },
    }
    return make_fleet(name, route=route).start()


def records(first: int) -> list[NewRecord]:
    return [
        NewRecord(b"%d" % number, partition=partition)
        for partition in range(PARTITIONS)
        for number in range(first, first + RECORDS)
    ]


def pairs(sent: list[NewRecord]) -> list[tuple[int, bytes | None]]:
    return sorted((each.partition, each.value) for each in sent)


def test_a_consumer_goes_on_at_the_target_with_exactly_the_rest(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    """The source has an aborted transaction between the records: the offsets differ."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    group = f"{running.name}.readers"
    create_topic(source, topic, partitions=PARTITIONS)
    produce_in_transaction(source, topic, records(-RECORDS), transactional_id=topic, commit=False)
    running.whitelist(topic)
    running.wait_online(topic, PARTITIONS)
    produce(source, topic, records(0))
    alter_offsets(source, group, {(topic, number): 0 for number in range(PARTITIONS)})
    with closing(open_member(source, group, topic)) as first:
        assert sorted(read_next(first, RECORDS * PARTITIONS)) == pairs(records(0))
        first.commit(asynchronous=False)
    ends = {(topic, number): end for number, (_, end) in offsets(source, topic).items()}
    assert {key: row.offset for key, row in group_offsets(source, group).items()} == ends

    def synced() -> bool:
        copied = {
            (topic, number): log[-1].offset + 1
            for number, log in read_all(target, topic).items()
            if len(log) == RECORDS
        }
        found = {key: row.offset for key, row in group_offsets(target, group).items()}
        return len(copied) == PARTITIONS and found == copied

    eventually(synced, READ_S, "the group is behind the last record at the target")
    produce(source, topic, records(RECORDS))
    with closing(open_member(target, group, topic)) as second:
        assert sorted(read_next(second, RECORDS * PARTITIONS)) == pairs(records(RECORDS))
