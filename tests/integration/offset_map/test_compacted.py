"""The offset map of a source that is compacted."""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from contextlib import closing

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import (
    assert_map_true,
    map_settings,
    mapped,
    start_mapped,
)
from ureplicator_testkit.kafka.offset_maps import forward
from ureplicator_testkit.records.topics import NewRecord, read_all
from ureplicator_testkit.servers.processes import eventually

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
}
RECORDS, KEPT = 300, 100
"""Of each turn: in all, and those that the next turn does not overwrite. So a turn leaves one hole."""


@pytest.mark.parametrize("delivery", Delivery)
def test_a_compacted_source(lane: RealLane, delivery: Delivery) -> None:
    """A group goes on with exactly the next record, also at an offset whose record was removed."""
    lane.make_source(1, COMPACTED)
    lane.make_target(1)
    turns = itertools.count()

    def fill() -> None:
        turn = next(turns)
        keys = [b"%d" % n + (b"-%d" % turn if n < KEPT else b"") for n in range(RECORDS)]
        records = [NewRecord(b"%d-%d" % (turn, n), key=key) for n, key in enumerate(keys)]
        lane.fill(records, settings={"linger.ms": 20})

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
    topic = map_topic(fleet=lane.fleet, route=ROUTE)
    with closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), topic)) as maps:
        segments = mapped(lane, maps)
    assert_map_true(lane, segments)
    source = read_all(lane.source.bootstrap, lane.topic)[0]
    target = read_all(lane.target.bootstrap, lane.topic)[0]
    places = {record.value: record.offset for record in target}
    offsets = [record.offset for record in source]
    holes = 0
    for offset in range(offsets[0], offsets[-1]):
        following = source[bisect_left(offsets, offset)]
        at = forward(segments, offset)
        assert at is not None
        assert at <= places[following.value], f"{offset} would be missed"
        holes += following.offset != offset
    assert holes
