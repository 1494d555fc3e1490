"""Target offsets between two real brokers: random source offsets are translated, the records compared."""

import random
from collections.abc import Mapping, Sequence

import pytest

from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import (
    ConsumedRecord,
    read_all,
)
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.copier.raw.target_offsets import target_offset
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import Grant

SEED = 5
TRANSLATED = 500
KILLS = 4


def start(lane: RealLane, delivery: Delivery) -> StubDriver:
    settings = RouteSettings(delivery=delivery)
    return lane.start(1, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))


def by_offset(bootstrap: str, topic: str) -> Mapping[int, ConsumedRecord]:
    return {record.offset: record for record in read_all(bootstrap, topic)[0]}


def assert_true(lane: RealLane, segments: Sequence[Segment], *, end: int) -> None:
    """A segment holds the same records at both ends; a consumer that goes on at any translated
    offset misses none."""
    source = by_offset(lane.source.bootstrap, lane.topic)
    target = by_offset(lane.target.bootstrap, lane.topic)
    dice = random.Random(SEED)  # noqa: S311
    for _ in range(TRANSLATED):
        offset = dice.randrange(end + 5)
        at = target_offset(segments, offset)
        if at is None:
            assert offset < segments[0].first
            continue
        if any(segment.first <= offset < segment.end for segment in segments):
            assert target[at].value == source[offset].value
        read = {record.value for place, record in target.items() if place >= at}
        assert {record.value for place, record in source.items() if place >= offset} <= read
    for segment in segments:
        earlier = {record.value for place, record in target.items() if place < segment.target}
        inside = {source[offset].value for offset in range(segment.first, segment.end)}
        assert segment.repeated or not inside & earlier


@pytest.mark.parametrize("delivery", Delivery)
def test_offsets_are_translated_to_the_same_records(lane: RealLane, delivery: Delivery) -> None:
    """Copiers are killed in between: their batches are aborted, or repeated by the next one."""
    lane.make(1)
    for turn in range(KILLS):
        driver = start(lane, delivery)
        driver.wait_online()
        lane.fill_in_turn(turn)
        if turn % 2:
            driver.wait_caught_up()
        driver.process.kill_tree()
        driver.close()
    driver = start(lane, delivery)
    for turn in range(KILLS, KILLS + 8):
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
    end = driver.report[lane.at(0)].position

    def known() -> tuple[Segment, ...]:
        segments = driver.segments.get(lane.at(0), ())
        return segments if target_offset(segments, end) == ends(segments, lane) else ()

    segments = eventually(known, 20, "the last segment is reported")
    assert segments is not None
    driver.stop()
    assert len(segments) > 5
    assert_true(lane, segments, end=end)


def ends(segments: Sequence[Segment], lane: RealLane) -> int:
    """Offsets behind the last record at the target: a marker of our own may follow it."""
    return max(by_offset(lane.target.bootstrap, lane.topic), default=-1) + 1 if segments else -1
