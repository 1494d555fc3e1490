"""The process of queries from inside: which chunks make a round, and what fails with a query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.copier.handler_process import MemoryChannel
from ureplicator_testkit.copier.memory_sql import ALL, EPOCH, EVEN, FAILS, RECENT, UPPER, MemorySql
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.record.frames import FrameReader, Head
from ureplicator_worker.sql.host import SqlHost
from ureplicator_worker.sql.query import Query, SessionLost


class Hosted:
    """A host whose Spark runs, and the messages that it sends."""

    def __init__(self, channel: type[MemoryChannel] = MemoryChannel) -> None:
        self.channel = channel(MemoryKafka("B", {"t": 3}))
        self.sql = MemorySql()
        self.host = SqlHost(self.channel, start=lambda config: self.sql)
        self.receives()
        assert self.host.begin()
        assert self.sent() == [{"ready": True}]

    def receives(self, payload: bytes = b"", **head: Any) -> None:
        self.channel.inbox.append((head, memoryview(payload)))

    def assign(self, query: str, *partitions: int, rows: int = 100, size: int = 1 << 20) -> None:
        for partition in partitions:
            where: Head = {"topic": "t", "partition": partition, "offset": 0}
            limits: Head = {"maxRows": rows, "maxBytes": size}
            self.receives(do="assign", query=query, **where, **limits)
            self.host.step()

    def chunk(self, partition: int, data: bytes, *, position: int = 0, more: bool = False) -> None:
        where: Head = {"topic": "t", "partition": partition, "target": "t"}
        sizes = [(len(data), position)]
        self.receives(data, do="handle", **where, batches=sizes, next=1_000, more=more)

    def sent(self) -> list[Head]:
        reader = FrameReader()
        found = [head for data in self.channel.outbox for head, _ in reader.feed(data)]
        self.channel.outbox.clear()
        return found


def short(messages: list[Head]) -> list[Any]:
    """`handled` with the next offset and the outputs; the rest by name."""
    found: list[Any] = []
    for head in messages:
        if "handled" in head:
            found.append((head["handled"], head["counts"]["outputs"], head["counts"]["dropped"]))
        else:
            found.append(head.get("failed") or next(iter(head)))
    return found


def values(*texts: bytes) -> bytes:
    return batches.batch([(1, b"k", text, ()) for text in texts])


def test_chunks_that_wait_for_one_query_make_one_round() -> None:
    hosted = Hosted()
    hosted.assign(EVEN, 0, 1)
    hosted.assign(ALL, 2)
    assert short(hosted.sent()) == ["done"] * 3
    hosted.chunk(0, values(b"a", b"b"))
    hosted.chunk(1, values(b"c"))
    hosted.chunk(2, values(b"d", b"e"))
    hosted.chunk(0, values(b"f"))
    for _ in range(3):
        hosted.host.step()
    assert hosted.sql.rows == [3, 2, 1]
    assert short(hosted.sent()) == [
        *((2, 1, 1), "done"),
        *((1, 1, 0), "done"),
        *((2, 2, 0), "done"),
        *((1, 1, 0), "done"),
    ]


class Slow(MemoryChannel):
    """The copier is still sending whatever comes next."""

    readable = False


def test_a_round_waits_for_chunks_that_are_announced() -> None:
    hosted = Hosted(Slow)
    hosted.assign(ALL, 0)
    hosted.sent()
    for more in (True, True, False, False):
        hosted.chunk(0, values(b"a", b"b"), more=more)
    hosted.host.step()
    hosted.host.step()
    assert hosted.sql.rows == [6, 2]


def test_a_round_is_limited_in_rows() -> None:
    hosted = Hosted()
    hosted.assign(ALL, 0, rows=4)
    hosted.sent()
    hosted.chunk(0, values(*[b"v"] * 10))
    hosted.host.step()
    assert hosted.sql.rows == [4, 4, 2]
    assert short(hosted.sent()) == [(4, 4, 0), (8, 4, 0), (10, 2, 0), "done"]


def test_a_round_is_limited_in_bytes_and_takes_one_record_in_any_case() -> None:
    hosted = Hosted()
    hosted.assign(ALL, 0, size=100)
    hosted.sent()
    hosted.chunk(0, values(b"v" * 40, b"v" * 40, b"v" * 40, b"v" * 400, b"v"))
    hosted.host.step()
    assert hosted.sql.rows == [3, 1, 1]
    assert short(hosted.sent()) == [(3, 3, 0), (4, 1, 0), (5, 1, 0), "done"]


def test_a_query_that_is_refused_fails_its_partition_until_it_is_assigned_again() -> None:
    hosted = Hosted()
    hosted.assign("SELEC", 0)
    hosted.assign(ALL, 1)
    hosted.chunk(0, values(b"a"))
    hosted.chunk(1, values(b"a"))
    hosted.host.step()
    hosted.host.step()
    reason = "sql: [PARSE_SYNTAX_ERROR] Syntax error"
    assert short(hosted.sent()) == [reason, "done", reason, (1, 1, 0), "done"]
    hosted.assign(ALL, 0)
    hosted.chunk(0, values(b"a"))
    hosted.host.step()
    assert short(hosted.sent()) == ["done", (1, 1, 0), "done"]


def test_a_record_that_the_query_fails_at_stops_its_partition_before_it() -> None:
    hosted = Hosted()
    hosted.assign(FAILS, 0, 1, 2)
    hosted.sent()
    hosted.chunk(0, values(b"a"))
    hosted.chunk(1, values(b"b", b"c", b"bad", b"d"))
    hosted.chunk(1, values(b"e"))
    hosted.chunk(2, values(b"f", b"g"))
    hosted.host.step()
    reason = "sql: [USER_RAISED_EXCEPTION] bad (at offset 2)"
    assert short(hosted.sent()) == [
        *((1, 1, 0), "done"),
        *((2, 2, 0), reason),
        reason,
        *((2, 2, 0), "done"),
    ]


@pytest.mark.parametrize("time_ms", [1_700_000_000_000_000_000, 1 << 62])
def test_a_time_that_spark_has_no_timestamp_for_stops_its_partition_alone(time_ms: int) -> None:
    """A producer that takes nanoseconds for milliseconds."""
    hosted = Hosted()
    hosted.assign(RECENT, 0, 1)
    hosted.sent()
    hosted.chunk(0, batches.batch([(at, b"k", b"v", ()) for at in (1, time_ms)]))
    hosted.chunk(1, values(b"a", b"b"))
    assert hosted.host.step()
    assert short(hosted.sent()) == [
        (1, 0, 1),
        f"sql: timestamp {time_ms} ms is out of range of Spark's timestamps (at offset 1)",
        *((2, 0, 2), "done"),
    ]


def test_a_time_that_the_query_does_not_compute_with_is_copied_as_it_is() -> None:
    hosted = Hosted()
    hosted.assign(UPPER, 0)
    hosted.sent()
    hosted.chunk(0, batches.batch([(1_700_000_000_000_000_000, b"k", b"v", ())]))
    assert hosted.host.step()
    assert short(hosted.sent()) == [(1, 1, 0), "done"]


def test_times_that_no_batch_can_hold_together_stop_their_partition_alone() -> None:
    hosted = Hosted()
    hosted.assign(UPPER, 0, 1)
    hosted.sent()
    first, second = (batches.batch([(at, b"k", b"v", ())]) for at in (-1, (1 << 63) - 1))
    second = batches.patched(second, base_offset=1)
    where: Head = {"topic": "t", "partition": 0, "target": "t"}
    sizes = [(len(first), 0), (len(second), 1)]
    hosted.receives(first + second, do="handle", **where, batches=sizes, next=2)
    hosted.chunk(1, values(b"a"))
    assert hosted.host.step()
    assert short(hosted.sent()) == [
        f"corrupt: a number of a record is {1 << 63} (in 2 records from offset 0)",
        *((1, 1, 0), "done"),
    ]


def test_a_timestamp_before_1970_is_of_no_record() -> None:
    hosted = Hosted()
    hosted.assign(EPOCH, 0)
    hosted.sent()
    hosted.chunk(0, values(b"7000", b"-7000"))
    assert hosted.host.step()
    assert short(hosted.sent()) == [(1, 1, 0), "sql: timestamp is -7 ms (at offset 1)"]


def test_a_chunk_without_records_to_copy_needs_no_round() -> None:
    hosted = Hosted()
    hosted.assign(UPPER, 0)
    hosted.sent()
    hosted.chunk(0, values(b"a", b"b"), position=2)
    hosted.host.step()
    assert hosted.sql.rows == []
    assert short(hosted.sent()) == ["done"]


def test_a_batch_that_cannot_be_read_fails_behind_the_records_before_it() -> None:
    hosted = Hosted()
    hosted.assign(ALL, 0)
    hosted.sent()
    good, bad = values(b"a", b"b"), batches.patched(values(b"c"), base_offset=2, records=2)
    where: Head = {"topic": "t", "partition": 0, "target": "t"}
    sizes = [(len(good), 0), (len(bad), 2)]
    hosted.receives(good + bad, do="handle", **where, batches=sizes, next=9)
    hosted.host.step()
    handled, failed = short(hosted.sent())
    assert handled == (3, 3, 0)
    assert failed.startswith("corrupt: ")
    assert failed.endswith("(at offset 3)")


def test_a_batch_that_fills_rounds_and_cannot_be_read_to_its_end_reports_each_record_once() -> None:
    hosted = Hosted()
    hosted.assign(ALL, 0, rows=2)
    hosted.sent()
    hosted.chunk(0, batches.patched(values(b"a", b"b", b"c"), records=4))
    hosted.host.step()
    *handled, failed = short(hosted.sent())
    assert handled == [(2, 2, 0), (3, 1, 0)]
    assert failed.startswith("corrupt: ")


def test_a_batch_goes_to_the_next_round_if_it_does_not_fit_wholly() -> None:
    hosted = Hosted()
    hosted.assign(ALL, 0, rows=4)
    hosted.sent()
    where: Head = {"topic": "t", "partition": 0, "target": "t"}
    first, second = values(b"a", b"b", b"c"), batches.patched(values(b"d", b"e"), base_offset=3)
    sizes = [(len(first), 0), (len(second), 3)]
    hosted.receives(first + second, do="handle", **where, batches=sizes, next=5)
    hosted.host.step()
    assert hosted.sql.rows == [3, 2]
    assert short(hosted.sent()) == [(3, 3, 0), (5, 2, 0), "done"]


class Lost(MemorySql):
    def evaluate(self, query: Query, table: pa.Table) -> pa.Table:
        raise SessionLost("its JVM ended")


def test_a_jvm_that_has_ended_ends_the_process() -> None:
    hosted = Hosted()
    hosted.host._sql = Lost()
    hosted.assign(ALL, 0)
    hosted.sent()
    hosted.chunk(0, values(b"a"))
    assert not hosted.host.step()
    assert hosted.sent() == [{"broken": "sql: its JVM ended"}]


def test_a_spark_that_does_not_start_is_the_reason() -> None:
    channel = MemoryChannel(MemoryKafka("B", {"t": 1}))

    def start(config: Head) -> MemorySql:
        raise PermanentError("Java is missing")

    channel.inbox.append(({}, memoryview(b"")))
    assert not SqlHost(channel, start=start).begin()
    (data,) = channel.outbox
    ((head, _),) = FrameReader().feed(data)
    assert head == {"broken": "sql: Java is missing"}
