"""Copiers with an offset map on real brokers, and the map compared with a scan of both clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery, OwnerEpoch, Partition, RouteSettings
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.kafka.offset_maps import backward, forward
from ureplicator_testkit.records.topics import read_all
from ureplicator_worker.lifeline.messages import Grant


def map_settings(delivery: Delivery, *, offset_map: bool = True) -> RouteSettings:
    return RouteSettings(delivery=delivery, offset_map=offset_map)


def start_mapped(lane: RealLane, settings: RouteSettings, *, resumed: bool) -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, had_position=resumed, settings=settings)

    return lane.start(1, grant=grant)


def mapped(lane: RealLane, maps: KafkaOffsetMaps) -> Sequence[MapSegment]:
    maps.update()
    return maps.view(lane.at(0), lane.stored(1)[0]).segments()


def values(bootstrap: str, topic: str) -> Mapping[int, bytes | None]:
    return {record.offset: record.value for record in read_all(bootstrap, topic)[0]}


def assert_map_true(
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


KILLS, TURNS = 3, 6
"""Copiers of `copy_in_turn` that are killed; its turns in all."""


def copy_in_turn(lane: RealLane, settings: RouteSettings) -> None:
    """Copiers are killed in between: their batches are aborted, or repeated by the next one."""
    for turn in range(KILLS):
        driver = start_mapped(lane, settings, resumed=bool(turn))
        driver.wait_online()
        lane.fill_in_turn(turn)
        if turn % 2:
            driver.wait_caught_up()
        driver.process.kill_tree()
        driver.close()
    driver = start_mapped(lane, settings, resumed=True)
    for turn in range(KILLS, TURNS):
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
    driver.stop()
