"""The record lane between two real brokers: what handlers emit, and what they do wrong.

KIP-3: points 11 (message handler), 12 (listener), 15 (fan-out), and 1 and 2 for what handlers emit.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.model import Delivery, HandlerSettings, Partition, RouteSettings
from ureplicator_testkit.copier.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.records.labels import numbers
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import (
    CODECS,
    NewRecord,
    create_topic,
    offsets,
    read_all,
    sample_records,
)
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.copier.record.encoding import partition_of
from ureplicator_worker.lifeline.messages import Add, Grant, PublishedSettings

IDENTITY = "ureplicator_worker.handlers:identity"
FAST: dict[str, Any] = {"timeout_s": 1.0}


def settings_of(
    handler: str,
    args: Mapping[str, Any] | None = None,
    *,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    **more: Any,
) -> RouteSettings:
    one = HandlerSettings(topics=".*", handler=handler, args=json.dumps(args or {}), **more)
    return RouteSettings(handlers=(one,), delivery=delivery)


def start(
    lane: RealLane, count: int, settings: RouteSettings, *, had_position: bool = False
) -> StubDriver:
    def grant(partition: Partition, epoch: Any) -> Grant:
        return Grant(epoch, partition.topic, settings=settings, had_position=had_position)

    return lane.start(count, grant=grant)


def values(log: Mapping[int, Any]) -> dict[int, list[bytes]]:
    return {number: [record.value for record in found] for number, found in log.items()}


def numbered(count: int, *, start: int = 0, partition: int = 0) -> list[NewRecord]:
    return [
        NewRecord(value=b"%d" % number, key=b"k%d" % number, partition=partition)
        for number in range(start, start + count)
    ]


def test_identity_is_the_same_as_the_raw_lane(lane: RealLane) -> None:
    lane.make(4)
    for seed, codec in enumerate(CODECS):
        lane.fill(sample_records(400, partitions=4, seed=seed), codec=codec)
    driver = start(lane, 4, settings_of(IDENTITY))
    driver.wait_caught_up()
    lane.fill(sample_records(400, partitions=4, seed=9))
    driver.wait_caught_up()
    driver.stop()
    assert driver.released == set(partitions_of(lane.topic, 4))
    lane.assert_equal()


def test_what_is_filtered_moves_the_position_all_the_same(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(numbered(1_000))
    settings = settings_of("ureplicator_worker.handlers.filters:by_key", {"pattern": ".*7"})
    driver = start(lane, 1, settings)
    driver.wait_caught_up()
    driver.stop()
    assert values(lane.copied())[0] == [b"%d" % number for number in range(7, 1_000, 10)]
    assert lane.stored(1)[0].offset == 1_000


def test_a_fan_out_by_key_waits_for_all_its_topics(lane: RealLane) -> None:
    lane.make(2)
    other = lane.topic + "-other"
    create_topic(lane.target.bootstrap, other, partitions=5)
    for partition in range(2):
        lane.fill(numbered(1_000, start=partition * 1_000, partition=partition))
        lane.fill([NewRecord(value=b"x", key=b"none-1", partition=partition)])
    driver = start(lane, 2, settings_of(f"{MODULE}:fan_out", {"topics": [other]}))
    driver.wait_caught_up()
    driver.stop()
    own = values(lane.copied())
    assert own == {
        0: [b"%d" % number for number in range(1_000)],
        1: [b"%d" % number for number in range(1_000, 2_000)],
    }
    found = read_all(lane.target.bootstrap, other)
    assert sorted(int(value) for row in values(found).values() for value in row) == [*range(2_000)]
    for number, log in found.items():
        assert all(partition_of(record.key or b"", 5) == number for record in log)


@pytest.mark.parametrize("delivery", Delivery)
def test_a_record_whose_handler_raises_stops_its_partition_only(
    lane: RealLane, delivery: Delivery
) -> None:
    lane.make(2)
    lane.fill([*numbered(100), *numbered(100, start=500, partition=1)])
    what = {"what": "raise", "at": "50"}
    driver = start(lane, 2, settings_of(f"{MODULE}:fails", what, delivery=delivery))
    reason = lane.failure(driver, 0)
    place = r"in sample_handlers\.py:\d+ \(at offset 50\)"
    assert re.fullmatch(f"handler: ValueError: no such customer {place}", reason)
    eventually(lambda: driver.report[lane.at(1)].committed == 100, 20, "the other is copied")
    assert lane.stored(1)[0].offset == 50
    driver.stop()
    assert values(lane.copied())[0] == [b"%d" % number for number in range(50)]


WRONG = {
    "sleep": "handler: HandlerTimeout: the handler did not return in 1 s (at offset 50)",
    "stuck": "handler did not return in 6 s; its process was killed",
    "memory": "handler: MemoryError (at offset 50)",
    "die": "handler: its process ended (killed by signal 9)",
    "topic": "handler: the target has no topic no-such-topic (at offset 50)",
    "partition": "handler: BadOutput: {topic} has no partition 99: it has 2 (at offset 50)",
}
"""Fault of a handler -> the reason of its partition."""


@pytest.fixture
def wrong(lane: RealLane) -> Iterator[tuple[StubDriver, dict[str, RealLane]]]:
    """One copier; a topic, and a handler, for each wrong."""
    lanes = {what: replace(lane, topic=f"{lane.topic}-{what}") for what in WRONG}
    handlers = []
    for what, one in lanes.items():
        one.make(2)
        one.fill([*numbered(100), *numbered(100, start=500, partition=1)])
        args = json.dumps({"what": what, "at": "50"})
        handlers.append(HandlerSettings(one.topic, f"{MODULE}:fails", args, **FAST))
    settings = RouteSettings(handlers=tuple(handlers))
    driver = StubDriver(
        {part: at for one in lanes.values() for part, at in partitions_of(one.topic, 2).items()},
        source=lane.source.bootstrap,
        target=lane.target.bootstrap,
        fleet=lane.fleet,
        folder=lane.folder,
        grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings),
    )
    yield driver, lanes
    driver.close()


def test_a_handler_that_goes_wrong(wrong: tuple[StubDriver, dict[str, RealLane]]) -> None:
    """It stops its partition only: the other one of its topic goes on, whatever becomes of the others."""
    driver, lanes = wrong
    for what, lane in lanes.items():
        found = re.sub(r" in sample_handlers\.py:\d+", "", lane.failure(driver, 0))
        assert found == WRONG[what].format(topic=lane.topic)
    for lane in lanes.values():
        lane.fill(numbered(100, start=600, partition=1))
    others = [lane.at(1) for lane in lanes.values()]
    eventually(
        lambda: all(driver.report[part].committed == 200 for part in others),
        20,
        "the others are copied",
    )
    driver.stop()
    for lane in lanes.values():
        assert values(lane.copied())[1] == [b"%d" % number for number in range(500, 700)]
        copied = values(lane.copied()).get(0, [])
        assert copied == [b"%d" % number for number in range(len(copied))]
        assert len(copied) <= 50


def test_a_handler_that_cannot_be_made(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(numbered(10))
    driver = start(lane, 1, settings_of(f"{MODULE}:raises"))
    found = lane.failure(driver, 0)
    assert found.startswith(f"handler {MODULE}:raises cannot be made: RuntimeError: no licence")
    assert not driver.failed[lane.at(0)].temporary
    driver.stop()
    assert lane.target_ends()[0] == 0


@pytest.mark.parametrize("delivery", Delivery)
def test_a_record_put_aside_says_where_it_came_from_and_why(
    lane: RealLane, delivery: Delivery
) -> None:
    lane.make(2)
    dead = lane.topic + "-dead"
    create_topic(lane.target.bootstrap, dead)
    lane.fill([*numbered(100), NewRecord(value=b"50", key=b"k", headers=(("h", b"1"),))])
    settings = settings_of(
        f"{MODULE}:fails", {"what": "raise", "at": "50"}, dead_letter_topic=dead, delivery=delivery
    )
    driver = start(lane, 2, settings)
    driver.wait_caught_up()
    driver.stop()
    assert values(lane.copied())[0] == [b"%d" % number for number in range(100) if number != 50]
    first, second = read_all(lane.target.bootstrap, dead)[0]
    assert (first.key, first.value, second.key) == (b"k50", b"50", b"k")
    prefix = "ureplicator.dead-letter."
    headers = dict(first.headers)
    reason = headers.pop(prefix + "reason") or b""
    assert headers == {
        prefix + "topic": lane.topic.encode(),
        prefix + "partition": b"0",
        prefix + "offset": b"50",
    }
    assert re.fullmatch(rb"ValueError: no such customer in sample_handlers\.py:\d+", reason)
    assert dict(second.headers)["h"] == b"1"


def test_hooks_run_on_assign_and_release(lane: RealLane, tmp_path: Path) -> None:
    lane.make(2)
    lane.fill(numbered(10))
    notes = tmp_path / "notes"
    driver = start(lane, 2, settings_of(f"{MODULE}:hooks", {"file": str(notes)}))
    driver.wait_caught_up()
    driver.remove(lane.at(0))
    eventually(lambda: lane.at(0) in driver.released, 10, "the partition is released")
    eventually(lambda: "release 0" in notes.read_text(), 5, "the hook ran")
    assert set(notes.read_text().splitlines()) == {"assign 0 0", "assign 1 0", "release 0"}
    driver.stop()
    eventually(lambda: "release 1" in notes.read_text(), 5, "the hook ran")


def test_a_copier_killed_under_load_loses_nothing(lane: RealLane) -> None:
    lane.make(2)
    other = lane.topic + "-other"
    create_topic(lane.target.bootstrap, other, partitions=2)
    settings = settings_of(f"{MODULE}:fan_out", {"topics": [other]})
    with Load(lane.source.bootstrap, lane.topic, partitions=2) as load:
        for turn in range(4):
            driver = start(lane, 2, settings)
            driver.wait_online()
            before = load.count
            while load.count < before + 500 * (turn + 1):
                driver.process.assert_running()
                time.sleep(0.01)
            driver.process.kill_tree()
            driver.close()
    driver = start(lane, 2, settings, had_position=True)
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_faultless()
    found = numbers(lane.copied(), lane.topic)
    assert all(wanted <= found[number].keys() for number, wanted in load.acknowledged.items())
    once = {record.value for log in lane.copied().values() for record in log}
    fanned = read_all(lane.target.bootstrap, other)
    assert {record.value for log in fanned.values() for record in log} == once


def test_a_topic_moves_between_the_lanes_under_load(lane: RealLane) -> None:
    """The topic goes on at its exact position: nothing is lost, nothing is repeated."""
    lane.make(2)
    once = Delivery.EXACTLY_ONCE
    kinds = [
        settings_of(IDENTITY),
        RouteSettings(),
        settings_of(IDENTITY, memory_bytes=128 << 20),
        settings_of(IDENTITY, memory_bytes=128 << 20, delivery=once),
        RouteSettings(delivery=once),
        settings_of(IDENTITY, delivery=once),
        settings_of(IDENTITY),
    ]
    current = [RouteSettings()]

    def grant(partition: Partition, epoch: Any) -> Grant:
        return Grant(epoch, partition.topic, settings=current[0])

    with Load(lane.source.bootstrap, lane.topic, partitions=2) as load:
        driver = lane.start(2, grant=grant)
        driver.wait_online()
        for version, settings in enumerate(kinds, start=1):
            before = load.count
            eventually(lambda: load.count > before + 300, 20, "records follow")  # noqa: B023
            current[0] = settings
            driver.send(PublishedSettings(ROUTE, version, settings))
            for number in range(2):
                reason = lane.failure(driver, number)
                assert re.match("(handler|delivery) changes to", reason)
                assert driver.failed.pop(lane.at(number)).temporary
            driver.send(Add(partitions_of(lane.topic, 2)))
            driver.wait_online()
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()


def test_positions_never_pass_what_a_target_has_not_acknowledged(lane: RealLane) -> None:
    """One of two targets refuses for good: the position stays before its record."""
    lane.make(1)
    small = lane.topic + "-small"
    create_topic(lane.target.bootstrap, small, config={"max.message.bytes": "1000"})
    lane.fill([*numbered(10), NewRecord(value=b"x" * 2_000, key=b"big"), *numbered(10, start=20)])
    driver = start(lane, 1, settings_of(f"{MODULE}:fan_out", {"topics": [small]}))
    assert "target refused offset 10" in lane.failure(driver, 0)
    driver.stop()
    assert lane.stored(1)[0].offset <= 10
    assert offsets(lane.target.bootstrap, small)[0][1] == 10
