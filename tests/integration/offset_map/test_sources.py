"""The offset map where brokers know an older protocol of transactions, and of a source that is compacted."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery
from ureplicator_common.offset_map.segments import forward
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import (
    assert_map_true,
    copy_in_turn,
    map_settings,
    mapped,
    start_mapped,
)
from ureplicator_testkit.records.topics import NewRecord, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.versions import kafka_of_version

BEFORE_TV2 = "3.9.2"
"""Partitions are added to a transaction by a request of their own."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}


@pytest.fixture(scope="module")
def old_clusters() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    source, target = (
        kafka_of_version(BEFORE_TV2, name=f"{end}-{BEFORE_TV2}") for end in ("source", "target")
    )
    try:
        start_all(source, target)
        yield source, target
    finally:
        source.stop()
        target.stop()


@pytest.fixture
def old_lane(
    old_clusters: tuple[KafkaCluster, KafkaCluster], topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(*old_clusters, topic, fleet, tmp_path)
    yield lane
    lane.close()


def maps_of(lane: RealLane) -> closing[KafkaOffsetMaps]:
    topic = map_topic(fleet=lane.fleet, route=ROUTE)
    return closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), topic))


@pytest.mark.parametrize("delivery", Delivery)
def test_the_first_protocol_of_transactions(old_lane: RealLane, delivery: Delivery) -> None:
    old_lane.make(1)
    copy_in_turn(old_lane, map_settings(delivery))
    with maps_of(old_lane) as maps:
        assert_map_true(old_lane, mapped(old_lane, maps))


@pytest.mark.parametrize("delivery", Delivery)
def test_a_compacted_source(lane: RealLane, delivery: Delivery) -> None:
    """Also at an offset whose record was removed, a group goes on with exactly the next record."""
    lane.make_source(1, COMPACTED)
    lane.make_target(1)
    turns = itertools.count()

    def fill() -> None:
        """Every third key is new; the others are overwritten by the next turn."""
        turn = next(turns)
        keys = (b"%d" % index + (b"" if index % 3 else b"-%d" % turn) for index in range(300))
        lane.fill(
            [NewRecord(b"%d-%d" % (turn, number), key=key) for number, key in enumerate(keys)],
            settings={"linger.ms": 20},
        )

    def has_holes() -> bool:
        fill()
        time.sleep(0.6)  # lets the segment grow old enough to be rolled and cleaned
        kept = read_all(lane.source.bootstrap, lane.topic)[0]
        return len(kept) < kept[-1].offset - kept[0].offset + 1

    eventually(has_holes, 60, "the cleaner has run", poll_s=0.5)
    for resumed in (False, True):
        driver = start_mapped(lane, map_settings(delivery), resumed=resumed)
        driver.wait_online()
        fill()
        driver.wait_caught_up()
        driver.stop()
    with maps_of(lane) as maps:
        segments = mapped(lane, maps)
    assert_map_true(lane, segments)
    source = read_all(lane.source.bootstrap, lane.topic)[0]
    places = {each.value: each.offset for each in read_all(lane.target.bootstrap, lane.topic)[0]}
    offsets = [each.offset for each in source]
    holes = 0
    for offset in range(offsets[0], offsets[-1]):
        following = source[bisect_left(offsets, offset)]
        at = forward(segments, offset)
        assert at is not None
        assert at <= places[following.value], f"{offset} would be missed"
        holes += following.offset != offset
    assert holes
