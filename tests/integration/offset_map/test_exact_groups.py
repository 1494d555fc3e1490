"""Groups that stopped in logs with hundreds of gaps go on at the target with exactly the next record."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.model import Delivery, position_group
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_controller.core.groups.decisions import SyncState, measured
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import KafkaCopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import map_settings, start_mapped
from ureplicator_testkit.records.consumers import alter_offsets, open_member, read_next
from ureplicator_testkit.records.topics import QUIET, NewRecord, offsets, read_all
from ureplicator_testkit.servers.processes import eventually

TRANSACTIONS, RECORDS, GROUPS = 240, 1_200, 48
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}


def transactions(lane: RealLane) -> None:
    """Short ones; every third is aborted."""
    lane.make_source(1)
    producer = Producer(
        {
            "bootstrap.servers": lane.source.bootstrap,
            "transactional.id": f"{lane.topic}-producer",
            **QUIET,
        }
    )
    producer.init_transactions(20)
    for turn in range(TRANSACTIONS):
        producer.begin_transaction()
        for number in range(1 + turn % 3):
            producer.produce(lane.topic, b"%s-0-%d-%d" % (lane.topic.encode(), turn, number))
        # An abort that overtakes its records is refused as an invalid state (librdkafka 4849).
        assert producer.flush(20) == 0
        if turn % 3 == 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


def holes(lane: RealLane) -> None:
    """Every second record is overwritten by the next of its key, and cleaned away."""
    lane.make_source(1, COMPACTED)
    lane.fill(
        [
            NewRecord(b"%s-0-%d" % (lane.topic.encode(), n), key=b"%d" % n if n % 2 else b"same")
            for n in range(RECORDS)
        ],
        settings={"linger.ms": 20},
    )

    def is_cleaned() -> bool:
        lane.fill([NewRecord(b"%d" % time.monotonic_ns(), key=b"%d" % time.monotonic_ns())])
        return len(read_all(lane.source.bootstrap, lane.topic)[0]) < RECORDS * 0.6

    eventually(is_cleaned, 60, "the cleaner has run", poll_s=0.7)


@pytest.fixture
def clusters(lane: RealLane) -> Iterator[RouteClusters]:
    target = ClusterClient(lane.target.bootstrap)
    copied = KafkaCopiedReader(
        route=ROUTE,
        group=position_group(fleet=lane.fleet, route=ROUTE),
        positions=KafkaPositionReader(target),
        logs=KafkaLogReader(ClusterClient(lane.target.bootstrap)),
        source_logs=KafkaLogReader(ClusterClient(lane.source.bootstrap)),
        maps=KafkaOffsetMaps(
            ClusterClient(lane.target.bootstrap), map_topic(fleet=lane.fleet, route=ROUTE)
        ),
    )
    with closing(
        RouteClusters(
            source=KafkaConsumerGroups(ClusterClient(lane.source.bootstrap)),
            target=KafkaConsumerGroups(ClusterClient(lane.target.bootstrap)),
            copied=copied,
        )
    ) as found:
        yield found


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("fill", [transactions, holes])
def test_groups_go_on_with_exactly_the_next_record(
    lane: RealLane, clusters: RouteClusters, delivery: Delivery, fill: Callable[[RealLane], None]
) -> None:
    fill(lane)
    lane.make_target(1)
    driver = start_mapped(lane, map_settings(delivery), resumed=False)
    driver.wait_caught_up()
    driver.stop()
    end = offsets(lane.source.bootstrap, lane.topic)[0][1]
    stopped = {f"{lane.topic}-{n}": 1 + n * (end - 2) // GROUPS for n in range(GROUPS)}
    for group, offset in stopped.items():
        alter_offsets(lane.source.bootstrap, group, {(lane.topic, 0): offset})
    survey = Survey(clusters, selected=GroupFilter.of([f"{lane.topic}-.*"], []))
    found = survey.read({lane.topic: RouteTopic(lane.topic, lane.topic)})
    decisions = [
        measured(decision) for decision in write(clusters.target, found, may_write=lambda: True)
    ]
    assert {decision.group for decision in decisions} == stopped.keys()
    source = read_all(lane.source.bootstrap, lane.topic)[0]
    target = read_all(lane.target.bootstrap, lane.topic)[0]
    places = [record.offset for record in source]
    for decision in decisions:
        (row,) = decision.partitions
        assert (row.state, row.read_again) == (SyncState.SYNCED, 0)
        unread = source[bisect_left(places, stopped[decision.group]) :]
        goes_on = [record for record in target if record.offset >= (row.target_offset or 0)]
        assert [record.value for record in goes_on] == [record.value for record in unread]
    group = f"{lane.topic}-{GROUPS // 2}"
    (row,) = next(decision for decision in decisions if decision.group == group).partitions
    following = source[bisect_left(places, stopped[group])]
    with closing(open_member(lane.target.bootstrap, group, lane.topic)) as member:
        assert read_next(member, 1) == [(0, following.value)]
