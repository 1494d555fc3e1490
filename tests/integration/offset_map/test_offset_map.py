"""The offset map between two real brokers: what it says of every record is what both logs hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest

from ureplicator_common.kafka import topic_id_text
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Delivery, HandlerSettings, RouteSettings, position_group
from ureplicator_common.offset_map.adoption import MAX_FORMER
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import (
    TURNS,
    assert_map_true,
    copy_in_turn,
    map_settings,
    mapped,
    start_mapped,
)
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.kafka.offset_maps import forward
from ureplicator_testkit.records.topics import NewRecord
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.audit.offset_map import add_to_map
from ureplicator_worker.audit.result import AuditOptions, AuditResult, PartitionRange
from ureplicator_worker.audit.task import Work, compare_partition


@pytest.fixture
def maps(lane: RealLane) -> Iterator[KafkaOffsetMaps]:
    topic = map_topic(fleet=lane.fleet, route=ROUTE)
    with closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), topic)) as maps:
        yield maps


@pytest.mark.parametrize("delivery", Delivery)
def test_the_map_agrees_with_a_scan_of_both_clusters(
    lane: RealLane, maps: KafkaOffsetMaps, delivery: Delivery
) -> None:
    lane.make(1)
    copy_in_turn(lane, map_settings(delivery))
    assert_map_true(lane, mapped(lane, maps))


@pytest.mark.parametrize("delivery", Delivery)
def test_chunks_of_former_owners_are_adopted(
    lane: RealLane, maps: KafkaOffsetMaps, delivery: Delivery
) -> None:
    """Five owners leave a chunk or more each; the position says that they are too many.

    One takes their place, beside the last, where nothing of them says where it ends.
    """
    lane.make(1)
    for turn in range(5):
        driver = start_mapped(lane, map_settings(delivery), resumed=bool(turn))
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
        driver.stop()
    former = frozenset(keys(lane, maps))
    assert len(former) >= 5
    say_chunks(lane, MAX_FORMER + 1)
    driver = start_mapped(lane, map_settings(delivery), resumed=True)
    turns = itertools.count(5)

    def is_adopted() -> bool:
        lane.fill_in_turn(next(turns))
        driver.wait_caught_up()
        return len(keys(lane, maps) & former) <= 2

    eventually(is_adopted, 30, "chunks of former owners are adopted")
    driver.stop()
    assert_map_true(lane, mapped(lane, maps))
    provenance = Provenance.decode(lane.stored(1)[0].metadata)
    assert provenance is not None
    assert provenance.map_chunks == len(keys(lane, maps))


def keys(lane: RealLane, maps: KafkaOffsetMaps) -> set[int]:
    """Keys of all chunks that the topic holds."""
    maps.update()
    return maps.partitions[lane.at(0)].keys


def say_chunks(lane: RealLane, count: int) -> None:
    """Commit the stored position again, with another number of chunks."""
    stored = lane.stored(1)[0]
    provenance = Provenance.decode(stored.metadata)
    assert provenance is not None
    client = ClusterClient(lane.target.bootstrap)
    group = position_group(fleet=lane.fleet, route=ROUTE)
    store = PositionStore(client, group=group, transactional_id=f"{group}-of-the-test")
    store.initialise()
    metadata = replace(provenance, map_chunks=count).encode()
    store.commit({(lane.topic, 0): replace(stored, metadata=metadata)})
    client.close()


def test_records_that_a_handler_drops_and_multiplies(lane: RealLane, maps: KafkaOffsetMaps) -> None:
    lane.make(1)
    twice = HandlerSettings(".*", f"{MODULE}:fan_out", json.dumps({"topics": [lane.topic]}))
    handled = RouteSettings(offset_map=True, handlers=(twice,))
    driver = start_mapped(lane, handled, resumed=False)
    lane.fill(
        [
            NewRecord(b"%d" % number, key=b"none-" if number % 3 else b"twice")
            for number in range(500)
        ]
    )
    driver.wait_caught_up()
    driver.stop()
    assert_map_true(lane, mapped(lane, maps), copy=0, rounded=500)


def test_what_was_copied_before_the_map_existed_is_unknown(
    lane: RealLane, maps: KafkaOffsetMaps
) -> None:
    lane.make(1)
    for turn, offset_map in enumerate((False, True, False, True)):
        driver = start_mapped(
            lane, map_settings(Delivery.AT_LEAST_ONCE, offset_map=offset_map), resumed=bool(turn)
        )
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
        driver.stop()
        segments = mapped(lane, maps)
        assert bool(segments) is bool(turn)
        if turn:
            assert forward(segments, segments[0].first - 1) is None
            assert forward(segments, segments[0].first) == segments[0].target


@pytest.mark.parametrize("delivery", Delivery)
def test_an_audit_adds_what_was_copied_before_the_map_existed(
    lane: RealLane, maps: KafkaOffsetMaps, delivery: Delivery
) -> None:
    """Copiers are killed before the map is switched on: records are repeated, or their batches aborted."""
    lane.make(1)
    copy_in_turn(lane, map_settings(delivery, offset_map=False))
    driver = start_mapped(lane, map_settings(delivery), resumed=True)
    lane.fill_in_turn(TURNS)
    driver.wait_caught_up()
    assert mapped(lane, maps)[0].first > 0
    added, *_ = add_to_map(
        audited(lane, delivery),
        fleet=lane.fleet,
        clusters={ROUTE.target: {"bootstrap.servers": lane.target.bootstrap}},
    )
    assert not added.reason
    lane.fill_in_turn(TURNS + 1)
    driver.wait_caught_up()
    driver.stop()
    segments = mapped(lane, maps)
    assert segments[0].first == 0
    assert_map_true(lane, segments)


def audited(lane: RealLane, delivery: Delivery) -> AuditResult:
    """All that is copied, by the task of an audit in this process."""
    source, target = (
        {"bootstrap.servers": cluster.bootstrap} for cluster in (lane.source, lane.target)
    )
    options = AuditOptions(delivery=delivery, segments=True)
    wanted = PartitionRange(0, lane.stored(1)[0].offset)
    outcome = compare_partition(Work(lane.topic, lane.topic, source, target, wanted, options, 0, 9))
    assert not outcome.error
    ids = [topic_id(cluster.bootstrap, lane.topic) for cluster in (lane.source, lane.target)]
    return AuditResult(
        str(ROUTE),
        lane.topic,
        lane.topic,
        (outcome.result,),
        source_topic_id=ids[0],
        target_topic_id=ids[1],
        segments={0: outcome.segments},
    )


def topic_id(bootstrap: str, topic: str) -> str:
    with closing(ClusterClient(bootstrap)) as client:
        return topic_id_text(UUID(client.view([topic]).topic_ids[topic]))


def test_without_the_topic_copying_goes_on(lane: RealLane, maps: KafkaOffsetMaps) -> None:
    """A name that no topic can have is refused like one without the right to create it."""
    lane.make(1)
    lane.fleet = "f" * 230
    driver = start_mapped(lane, map_settings(Delivery.AT_LEAST_ONCE), resumed=False)
    lane.fill([NewRecord(b"%d" % number) for number in range(50)])
    driver.wait_caught_up()
    eventually(
        lambda: "offset map is not written" in driver.process.log_text(), 20, "the reason is logged"
    )
    driver.stop()
    lane.assert_equal()
