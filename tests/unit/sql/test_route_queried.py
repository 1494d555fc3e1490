"""Topics through queries in memory: real Holder, Delivery, lane and rounds, under random faults."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Delivery, HandlerSettings, RouteSettings, SqlSettings
from ureplicator_testkit.copier.handler_process import processes
from ureplicator_testkit.copier.line import ROUTE, Line, records, seen
from ureplicator_testkit.copier.line_history import NODES, PARTITIONS, add_again, fill
from ureplicator_testkit.copier.line_history import play as play_line
from ureplicator_testkit.copier.memory_sql import ALL, AWAY, EVEN, FAILS, TWICE
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS
from ureplicator_testkit.exactly_once.history import play
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.record.handler_scheduler import LINGER_S
from ureplicator_worker.lifeline.messages import Failed, PublishedSettings

QUERIED = RouteSettings(delivery=Delivery.EXACTLY_ONCE, sql=(SqlSettings("t", ALL),))
BREAKS = ("cut", "silent", "frozen", "down", "heal", "move", "refuse", "wait")
FAULTS = {"exactly": BREAKS, "in order": (*BREAKS, "release", "lose", "lose")}
"""A partition whose process is lost is released, and may have to be without a last commit."""


def new_line(*queries: SqlSettings) -> Line:
    source = MemoryKafka("A", {"t": PARTITIONS}, nodes=NODES)
    target = MemoryKafka("B", {"t": PARTITIONS, "u": PARTITIONS}, nodes=NODES)
    return Line(source, target, settings=RouteSettings(sql=queries), buffer_bytes=1 << 20)


def change(line: Line, version: int, changed: RouteSettings) -> None:
    line.copier.change_settings(PublishedSettings(ROUTE, version, changed))


@pytest.mark.parametrize("query", [EVEN, TWICE])
@pytest.mark.parametrize("promise", sorted(FAULTS))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_target_holds_the_result_in_the_end(
    query: str, promise: str, data: st.DataObject
) -> None:
    line = new_line(SqlSettings("t", query, max_rows=data.draw(st.integers(1, 50))))
    try:
        play_line(line, data, FAULTS[promise], check)
        for number in range(PARTITIONS):
            judge(line, query, number, promise)
        assert line.pool.used_bytes == 0
    finally:
        line.close()


def check(line: Line) -> None:
    for message in line.sent:
        assert not isinstance(message, Failed) or "lost by the test" in message.reason


def judge(line: Line, query: str, number: int, promise: str) -> None:
    source = records(line.source, ("t", number))
    target = records(line.target, ("t", number))
    if query == EVEN:
        wanted, found = seen([row for row in source if row.offset % 2 == 0]), seen(target)
        assert (found if promise == "exactly" else list(dict.fromkeys(found))) == wanted
        return
    doubled = [row.value for row in source for _ in range(2)]
    values = [row.value for row in target]
    assert values == doubled if promise == "exactly" else set(values) == set(doubled)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[member.name for member in PROTOCOLS])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_results_and_positions_are_the_same_at_every_moment(
    protocol: TransactionProtocol, seed: int
) -> None:
    play(Random(seed), protocol, QUERIED)  # noqa: S311  # repeatable


def test_a_topic_changes_lanes_at_exactly_its_position() -> None:
    identity = HandlerSettings("t", "ureplicator_worker.handlers:identity")
    lanes = [
        RouteSettings(),
        RouteSettings(sql=(SqlSettings("t", ALL),)),
        RouteSettings(handlers=(identity,)),
        RouteSettings(sql=(SqlSettings("t", ALL),)),
        RouteSettings(),
    ]
    line = new_line(SqlSettings("t", ALL))
    try:
        parts = line.add(*range(PARTITIONS))
        for version, lane in enumerate(lanes, 1):
            for number in range(PARTITIONS):
                fill(line, number, [(batches.NONE, (0, 1, 2))] * 3, 1)
            line.turns(version * 3)
            change(line, version, lane)
            line.run(lambda: len(line.sent) == PARTITIONS)
            assert all(
                isinstance(message, Failed) and message.reason.startswith("handler changes to ")
                for message in line.sent
            )
            add_again(line)
        line.run(lambda: all(map(line.copied, parts)))
        for number in range(PARTITIONS):
            target = records(line.target, ("t", number))
            assert seen(target) == seen(records(line.source, ("t", number)))
    finally:
        line.close()


def test_a_record_that_the_query_fails_at_stops_its_partition_only() -> None:
    line = new_line(SqlSettings("t", FAILS))
    try:
        first, second = line.add(0, 1)
        fill(line, 0, [(batches.NONE, (0, 1, 2))], 1)
        line.source.logs["t", 1].put(
            batches.batch([(1, None, text, ()) for text in (b"a", b"bad")])
        )
        line.run(lambda: bool(line.sent) and line.copied(first))
        reason = "sql: [USER_RAISED_EXCEPTION] bad (at offset 1)"
        assert line.sent == [Failed(second, reason, temporary=False)]
        assert line.ownership.stored[second] == 1
    finally:
        line.close()


def test_the_process_waits_for_partitions_that_begin_again() -> None:
    line = new_line(SqlSettings("t", ALL))
    try:
        for _ in range(2):
            (partition,) = line.add(0)
            line.run(lambda: bool(processes(line.lane)))
            (process,) = processes(line.lane)
            line.run(lambda at=process: at.ready)  # type: ignore[misc]
            line.copier.holder.remove(partition)
            line.run(lambda: bool(line.sent))
            line.sent.clear()
            assert processes(line.lane) == [process]
        line.turns(3, skip_s=LINGER_S / 2)
        assert processes(line.lane) == []
        assert process.stopped
    finally:
        line.close()


def test_queries_of_a_slot_share_a_process() -> None:
    line = new_line(
        SqlSettings("t", EVEN, max_rows=7), SqlSettings("u", TWICE), SqlSettings(".*", ALL)
    )
    try:
        line.add(0, 1)
        line.run(lambda: bool(processes(line.lane)))
        (process,) = processes(line.lane)
        assert process.settings == SqlSettings("", "")
        assert process.config() == {"udfs": (), "memory": 512 << 20}
    finally:
        line.close()


def test_a_result_for_a_topic_of_the_target_that_is_missing_stops_the_partition() -> None:
    line = new_line(SqlSettings("t", AWAY))
    try:
        (partition,) = line.add(0)
        rows = [(1, key, b"value", ()) for key in (b"u", b"t", b"nowhere")]
        line.source.logs["t", 0].put(batches.batch(rows))
        line.run(lambda: bool(line.sent))
        reason = "sql: the target has no topic nowhere (at offset 2)"
        assert line.sent == [Failed(partition, reason, temporary=False)]
        assert line.ownership.stored[partition] == 2
        assert len(records(line.target, ("u", 0))) == 1
    finally:
        line.close()
