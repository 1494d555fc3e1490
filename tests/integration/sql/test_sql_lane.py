"""Topics through queries of Spark SQL, between two real brokers and with real Spark.

Each copier starts a JVM of its own, so a test does several things with one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from ureplicator_common.model import (
    Delivery,
    HandlerSettings,
    OwnerEpoch,
    Partition,
    RouteSettings,
    SqlSettings,
)
from ureplicator_testkit.copier.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import ConsumedRecord, NewRecord, read_all
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Add, Grant, PublishedSettings

START_S = 500.0
"""For a JVM on a busy machine, and what the query takes the first time."""
PARTITIONS = 2

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.usefixtures("quick_java")]


def query_of(text: str, *, udfs: tuple[str, ...] = ()) -> SqlSettings:
    """A query of all topics, with much time: the first round of a JVM takes long on a busy machine."""
    return SqlSettings(".*", text, udfs=udfs, timeout_s=START_S)


def queried(
    *queries: SqlSettings, delivery: Delivery = Delivery.AT_LEAST_ONCE, **more: Any
) -> RouteSettings:
    return RouteSettings(sql=queries, delivery=delivery, **more)


def start(lane: RealLane, settings: RouteSettings, *, count: int = PARTITIONS) -> StubDriver:
    return lane.start(count, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))


def orders(count: int, *, partition: int, start: int = 0) -> list[NewRecord]:
    """Every third without a key, every seventh without a value, every second with headers."""
    return [
        NewRecord(
            key=None if number % 3 == 0 else b"k%d" % number,
            value=order(number),
            partition=partition,
            headers=(("n", b"%d" % number), ("null", None)) if number % 2 else (),
            timestamp=1_700_000_000_000 + number,
        )
        for number in range(start, start + count)
    ]


def order(number: int) -> bytes | None:
    return (
        None
        if number % 7 == 0
        else b'{"id":%d,"large":%s}'
        % (
            number,
            b"true" if number % 2 else b"false",
        )
    )


def seen(log: Sequence[ConsumedRecord]) -> list[tuple[Any, ...]]:
    return [(row.key, row.value, tuple(row.headers), row.timestamp) for row in log]


LARGE = """
SELECT key, value, headers, timestamp FROM records
WHERE from_json(CAST(value AS STRING), 'id INT, large BOOLEAN').large AND xxhash64(value) IS NOT NULL
"""
IDS = """
SELECT CAST(get_json_object(CAST(value AS STRING), '$.id') AS STRING) AS key,
       shout(CAST(value AS STRING)) AS value,
       array(struct('from' AS key, CAST(CAST(offset AS STRING) AS BINARY) AS value)) AS headers,
       timestamp + INTERVAL 1 SECOND AS timestamp,
       1 - partition AS partition
FROM records WHERE value IS NOT NULL AND offset % 2 = 0
"""


def test_a_filter_and_a_projection(lane: RealLane) -> None:
    """Exactly once; the test of failures delivers at least once."""
    delivery = Delivery.EXACTLY_ONCE
    lane.make(PARTITIONS)
    for partition in range(PARTITIONS):
        lane.fill(orders(300, partition=partition))
    driver = start(lane, queried(query_of(LARGE), delivery=delivery))
    driver.wait_caught_up(START_S)
    source = read_all(lane.source.bootstrap, lane.topic)
    large = {
        number: [row for row in seen(log) if row[1] and json.loads(row[1])["large"]]
        for number, log in source.items()
    }
    assert {number: seen(log) for number, log in lane.copied().items()} == large
    udf = query_of(IDS, udfs=("ureplicator_testkit.copier.sample_udfs:register",))
    driver.send(PublishedSettings(ROUTE, 1, queried(udf, delivery=delivery)))
    wait_changed(lane, driver)
    for partition in range(PARTITIONS):
        lane.fill(orders(100, partition=partition, start=300))
    driver.wait_caught_up(START_S)
    driver.stop()
    projected = {
        1 - number: [
            (
                b"%d" % json.loads(row.value)["id"],
                row.value.upper(),
                (("from", b"%d" % row.offset),),
                row.timestamp + 1_000,
            )
            for row in log
            if row.offset >= 300 and row.offset % 2 == 0 and row.value is not None
        ]
        for number, log in read_all(lane.source.bootstrap, lane.topic).items()
    }
    copied = {number: seen(log)[len(large[number]) :] for number, log in lane.copied().items()}
    assert copied == projected
    assert {number: position.offset for number, position in lane.stored(PARTITIONS).items()} == {
        0: 400,
        1: 400,
    }


def wait_changed(lane: RealLane, driver: StubDriver) -> None:
    """The partitions are drained, and begin again as the worker would have them."""
    parts = partitions_of(lane.topic, PARTITIONS)
    eventually(lambda: set(driver.failed) == set(parts), START_S, "all partitions begin again")
    reasons = [failed.reason for failed in driver.failed.values()]
    assert all("handler changes to" in reason for reason in reasons), reasons
    driver.failed.clear()
    driver.send(Add(parts))
    eventually(lambda: len(driver.report) == PARTITIONS, START_S, "all partitions are there")
    driver.wait_online(START_S)


def test_a_topic_changes_lanes_at_exactly_its_position(lane: RealLane) -> None:
    """All changes there are, without brokers and Spark: in `tests/unit/sql/test_route_queried.py`."""
    lane.make(PARTITIONS)
    same = query_of("SELECT * FROM records")
    identity = HandlerSettings(".*", "ureplicator_worker.handlers:identity")
    once = Delivery.EXACTLY_ONCE
    changes = [
        queried(same, delivery=once),
        RouteSettings(handlers=(identity,), delivery=once),
        RouteSettings(delivery=once),
    ]
    versions = [RouteSettings(delivery=once)]

    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        """Grant with the newest settings, as a worker's."""
        version = len(versions) - 1
        return Grant(epoch, partition.topic, settings=versions[-1], settings_version=version)

    driver = lane.start(PARTITIONS, grant=grant)
    driver.wait_online()
    with Load(lane.source.bootstrap, lane.topic, partitions=PARTITIONS) as load:
        for settings in changes:
            follow(load, 300, driver)
            versions.append(settings)
            driver.send(PublishedSettings(ROUTE, len(versions) - 1, settings))
            wait_changed(lane, driver)
        follow(load, 300, driver)
    driver.wait_caught_up(START_S)
    driver.stop()
    lane.assert_equal()


def test_a_query_that_fails_stops_only_its_partitions(lane: RealLane) -> None:
    lane.make(PARTITIONS)
    lane.fill(orders(50, partition=0))
    lane.fill([*orders(20, partition=1), NewRecord(b"no number", b"x", 1), *orders(9, partition=1)])
    query = """
    SELECT key, CAST(CAST(CAST(value AS STRING) AS BIGINT) AS STRING) AS value FROM records
    WHERE CAST(value AS STRING) NOT LIKE '{%'
    """
    driver = start(lane, queried(query_of(query)))
    reason = failure(lane, driver, 1)
    assert "[CAST_INVALID_INPUT]" in reason
    assert "\n" not in reason
    assert reason.endswith("(at offset 20)")
    eventually(lambda: committed(lane) == 70, START_S, "the other partition is copied")
    assert {number: position.offset for number, position in lane.stored(PARTITIONS).items()} == {
        0: 50,
        1: 20,
    }
    wrong = {  # more of them are in `test_sql_session.py`
        "SELEC value FROM records": "[PARSE_SYNTAX_ERROR]",
        "SELECT a.value FROM records a JOIN records b ON a.key = b.key": "not row by row: Join",
    }
    for version, text in enumerate(wrong, 1):
        driver.failed.clear()
        driver.send(PublishedSettings(ROUTE, version, queried(query_of(text))))
        if version == 1:
            failure(lane, driver, 0)  # it begins again
            driver.failed.clear()
        driver.send(Add(partitions_of(lane.topic, PARTITIONS)))
        assert wrong[text] in failure(lane, driver, 0)
        assert wrong[text] in failure(lane, driver, 1)


def failure(lane: RealLane, driver: StubDriver, number: int) -> str:
    return lane.failure(driver, number, deadline_s=START_S)


def test_what_a_query_emits_is_there_once_whatever_is_killed(lane: RealLane) -> None:
    """The copier, its evaluator and the JVM of that are killed with SIGKILL."""
    lane.make(PARTITIONS)
    query = query_of("SELECT key, concat(value, CAST('!' AS BINARY)) AS value FROM records")
    settings = queried(query, delivery=Delivery.EXACTLY_ONCE)
    with Load(lane.source.bootstrap, lane.topic, partitions=PARTITIONS, records_per_s=100) as load:
        for what in ("copier", "evaluator"):
            driver = start(lane, settings)
            driver.wait_online()
            moved(lane)
            if what == "evaluator":
                kill_evaluator(driver)
            os.kill(driver.process.pid, signal.SIGKILL)
            driver.close()
            follow(load, 300, None)
    driver = start(lane, settings)
    driver.wait_caught_up(START_S)
    driver.stop()
    source = read_all(lane.source.bootstrap, lane.topic)
    assert sum(map(len, source.values())) > 600
    wanted = {
        number: [(row.key, None if row.value is None else row.value + b"!") for row in log]
        for number, log in source.items()
    }
    copied = {
        number: [(row.key, row.value) for row in log] for number, log in lane.copied().items()
    }
    assert copied == wanted


def kill_evaluator(driver: StubDriver) -> None:
    """The partition at work stops; if none was, the copier starts another evaluator without a failure."""
    killed = set(driver.process.tree())
    for pid in killed - {driver.process.pid}:
        os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: driver.failed or set(driver.process.tree()) - killed,
        START_S,
        "a partition stops, or there is another evaluator",
    )


def moved(lane: RealLane) -> None:
    """Wait until the copier has produced something: an aborted transaction of the source moves positions."""
    before = sum(lane.target_ends().values())
    eventually(
        lambda: sum(lane.target_ends().values()) > before + 50, START_S, "the target gets records"
    )


def committed(lane: RealLane) -> int:
    return sum(position.offset for position in lane.stored(PARTITIONS).values())


def follow(load: Load, count: int, driver: StubDriver | None) -> None:
    """Wait for so many records more."""
    wanted = load.count + count
    eventually(lambda: load.count >= wanted, START_S, "the load goes on")
    if driver is not None:
        driver.process.assert_running()
