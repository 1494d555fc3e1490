"""The offset map between two real brokers: what it says of every record is what both logs hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery, HandlerSettings, OwnerEpoch, Partition, RouteSettings
from ureplicator_common.offset_map.segments import MapSegment, backward, forward
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_testkit.copier.driver import ROUTE, StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.records.topics import NewRecord, read_all
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Grant


def settings(delivery: Delivery, *, offset_map: bool = True) -> RouteSettings:
    return RouteSettings(delivery=delivery, offset_map=offset_map)


def start(lane: RealLane, settings: RouteSettings, *, resumed: bool) -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, had_position=resumed, settings=settings)

    return lane.start(1, grant=grant)


@pytest.fixture
def maps(lane: RealLane) -> Iterator[KafkaOffsetMaps]:
    topic = map_topic(fleet=lane.fleet, route=ROUTE)
    with closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), topic)) as maps:
        yield maps


def mapped(lane: RealLane, maps: KafkaOffsetMaps) -> Sequence[MapSegment]:
    maps.update()
    return maps.segments(lane.at(0), lane.stored(1)[0])


def values(bootstrap: str, topic: str) -> Mapping[int, bytes | None]:
    return {record.offset: record.value for record in read_all(bootstrap, topic)[0]}


def assert_true(
    lane: RealLane, segments: Sequence[MapSegment], *, copy: int = -1, rounded: int = 0
) -> None:
    """Every record of the source, forward to one of its copies and back from each, or unknown before the
    map begins: where an owner died before its first commit, the next one cannot tell repeats.

    `copy` 0: they are outputs of one record, of which the first counts. `rounded`: so many may be rounded
    down.
    """
    source = values(lane.source.bootstrap, lane.topic)
    target = values(lane.target.bootstrap, lane.topic)
    copies = defaultdict(list)
    for place, value in target.items():
        copies[value].append(place)
    inexact = 0
    for offset, value in source.items():
        at = forward(segments, offset)
        if at is None:
            assert offset < segments[0].first
            inexact += 1
        elif value in copies:
            assert at <= copies[value][copy], f"{offset} would be missed"
            inexact += at != copies[value][copy]
        for place in copies[value] if copy < 0 else copies[value][:1]:
            back = backward(segments, place)
            if back is None:
                assert place < segments[0].target
                continue
            assert back <= offset, f"{offset} would be missed on the way back"
    assert inexact <= rounded


@pytest.mark.parametrize("delivery", Delivery)
def test_the_map_agrees_with_a_scan_of_both_clusters(
    lane: RealLane, maps: KafkaOffsetMaps, delivery: Delivery
) -> None:
    """Copiers are killed in between: their batches are aborted, or repeated by the next one."""
    lane.make(1)
    for turn in range(6):
        driver = start(lane, settings(delivery), resumed=bool(turn))
        driver.wait_online()
        lane.fill_in_turn(turn)
        if turn % 2:
            driver.wait_caught_up()
        driver.process.kill_tree()
        driver.close()
    driver = start(lane, settings(delivery), resumed=True)
    for turn in range(6, 14):
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
    driver.stop()
    assert_true(lane, mapped(lane, maps))


def test_records_that_a_handler_drops_and_multiplies(lane: RealLane, maps: KafkaOffsetMaps) -> None:
    lane.make(1)
    twice = HandlerSettings(".*", f"{MODULE}:fan_out", json.dumps({"topics": [lane.topic]}))
    handled = RouteSettings(offset_map=True, handlers=(twice,))
    driver = start(lane, handled, resumed=False)
    lane.fill(
        [
            NewRecord(b"%d" % number, key=b"none-" if number % 3 else b"twice")
            for number in range(500)
        ]
    )
    driver.wait_caught_up()
    driver.stop()
    assert_true(lane, mapped(lane, maps), copy=0, rounded=500)


def test_what_was_copied_before_the_map_existed_is_unknown(
    lane: RealLane, maps: KafkaOffsetMaps
) -> None:
    lane.make(1)
    for turn, offset_map in enumerate((False, True, False, True)):
        driver = start(
            lane, settings(Delivery.AT_LEAST_ONCE, offset_map=offset_map), resumed=bool(turn)
        )
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
        driver.stop()
        segments = mapped(lane, maps)
        assert bool(segments) is bool(turn)
        if turn:
            assert forward(segments, segments[0].first - 1) is None
            assert forward(segments, segments[0].first) == segments[0].target


def test_without_the_topic_copying_goes_on(lane: RealLane, maps: KafkaOffsetMaps) -> None:
    """A name that no topic can have is refused like one without the right to create it."""
    lane.make(1)
    lane.fleet = "f" * 230
    driver = start(lane, settings(Delivery.AT_LEAST_ONCE), resumed=False)
    lane.fill([NewRecord(b"%d" % number) for number in range(50)])
    driver.wait_caught_up()
    eventually(
        lambda: "offset map is not written" in driver.process.log_text(), 20, "the reason is logged"
    )
    driver.stop()
    lane.assert_equal()
