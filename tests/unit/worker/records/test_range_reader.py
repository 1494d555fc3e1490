"""Exactly the committed records of a range, whatever the brokers do meanwhile."""

import socket
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.pumped_socket import PumpedSocket
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import TRANSACTIONAL
from ureplicator_worker.records import range_reader
from ureplicator_worker.records.errors import (
    LogChanged,
    OffsetOutOfRange,
    RangeUnavailable,
    ReadRefused,
    RecordsUnreadable,
)
from ureplicator_worker.records.fetch_connection import SILENCE_TIMEOUT_S
from ureplicator_worker.records.range_reader import CORRUPT_TRIES, RangeReader
from ureplicator_worker.wire import fetch_api

K0 = ("t", 0)
BEGAN_S = ManualClock().monotonic_s()


class Site:
    """A topic of one partition in memory, and readers of it. `opened`: brokers connected to."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka("A", {"t": 1}, nodes=2)
        self.log = self.kafka.logs[K0]
        self.clock = ManualClock()
        self.client = MemoryCluster(self.kafka)
        self.client.now_s = self.clock.monotonic_s  # type: ignore[method-assign]
        self.client.pause = self.clock.advance
        self.opened: list[int] = []
        self.batches: list[Any] = []

    def open(self, broker: Broker) -> tuple[socket.socket, Mapping[int, int]]:
        self.opened.append(broker.node_id)
        if broker.node_id in self.kafka.down:
            raise ClusterUnavailable(f"{broker} unreachable")
        connection = PumpedSocket(self.kafka, self.kafka.connect(broker.node_id))
        return cast(socket.socket, connection), self.kafka.newest

    def reader(self, start: int, end: int, **options: Any) -> RangeReader:
        return RangeReader(
            self.client,
            topic="t",
            partition=0,
            start=start,
            end=end,
            open_connection=self.open,
            **options,
        )

    def read(self, start: int, end: int, **options: Any) -> list[int]:
        """Offsets of the records."""
        return list(self.follow(start, end, **options))

    def follow(self, start: int, end: int, **options: Any) -> Iterator[int]:
        reader = self.reader(start, end, **options)
        try:
            for batch in reader.batches():
                self.batches.append(batch)
                yield from batch.column("offset").to_pylist()
        finally:
            reader.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.kafka.close()


def open_batch(producer: int, count: int = 2) -> bytes:
    return batches.batch(count, producer_id=producer, attributes=TRANSACTIONAL)


def end(producer: int, *, commit: bool) -> bytes:
    return batches.marker(base_offset=0, producer_id=producer, commit=commit)


@pytest.fixture
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch a response."""
    monkeypatch.setattr(range_reader, "FETCH_BYTES", 1)


@pytest.mark.parametrize(("start", "stop"), [(0, 12), (0, 0), (5, 5), (1, 2), (2, 9), (3, 12)])
def test_exactly_the_range(site: Site, start: int, stop: int) -> None:
    site.log.put(*[batches.batch(3)] * 4)
    assert site.read(start, stop) == list(range(start, stop))


def test_fetches_after_the_first_are_sent_ahead(site: Site, small_fetches: None) -> None:
    site.log.put(*[batches.batch(3)] * 4)
    found = site.follow(0, 12, max_batch_bytes=1)
    assert next(found) == 0
    assert len(site.kafka.requests) == 2
    assert list(found) == list(range(1, 12))
    assert len(site.kafka.requests) == 4
    assert [batch.num_rows for batch in site.batches] == [3] * 4


def test_no_session_is_left_at_the_broker(site: Site) -> None:
    site.log.put(batches.batch(3))
    site.read(0, 3)
    assert site.kafka.sessions == {}


@pytest.mark.parametrize("newest", [fetch_api.NAMES, fetch_api.IDS, fetch_api.LEADERS])
def test_each_version_of_fetch(site: Site, newest: int) -> None:
    site.kafka.newest = {fetch_api.API_KEY: newest}
    site.log.put(batches.batch(3))
    assert site.read(0, 3) == [0, 1, 2]
    assert {request.version for request in site.kafka.requests} == {newest}


def test_aborted_transactions_are_left_out(site: Site, small_fetches: None) -> None:
    site.log.put(open_batch(7), open_batch(8), end(7, commit=False), open_batch(7))
    site.log.put(end(8, commit=True), end(7, commit=True))
    assert site.read(0, 9) == [2, 3, 5, 6]
    assert site.read(1, 3) == [2]


def test_the_end_of_a_range_in_a_hole(site: Site) -> None:
    """No batch lies before the end, and the next one begins behind it."""
    site.log.put(batches.batch(2), open_batch(7), end(7, commit=False), batches.batch(2))
    assert site.read(0, 4) == [0, 1]
    assert site.read(2, 5) == []


def test_the_end_of_a_log_whose_last_batches_are_gone(site: Site) -> None:
    """Compaction keeps the last batch of a log. Without one nothing shows that the log ends here."""
    site.log.put(*[batches.batch(3)] * 2)
    del site.log.taken[1]
    found = site.follow(0, 6, max_batch_bytes=1)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RangeUnavailable, match="from offset 3 for 60 s: brokers respond without"):
        next(found)
    site.log.put(batches.batch(1))
    assert site.read(3, 6) == []


def test_a_hole_before_an_open_transaction(site: Site) -> None:
    """Fetches with read_committed end before the batch that shows the hole."""
    site.log.put(*[batches.batch(3)] * 2, open_batch(7))
    del site.log.taken[1]
    assert site.read(0, 6) == [0, 1, 2]
    assert site.clock.monotonic_s() - BEGAN_S < 1


@pytest.mark.parametrize("empty", range(1, 6))
def test_responses_without_a_batch_prove_nothing(site: Site, empty: int) -> None:
    """Brokers respond without a batch when a read of tiered storage takes too long."""
    site.log.put(*[batches.batch(3)] * 2, open_batch(7))
    site.kafka.empty_fetches[K0] = empty
    assert site.read(0, 6) == list(range(6))
    assert site.opened == [site.kafka.leaders[K0]]


@pytest.mark.parametrize("read_ms", [600, 3_000, 7_500])
def test_a_slow_read_is_given_more_time(site: Site, read_ms: int, small_fetches: None) -> None:
    site.log.put(*[batches.batch(3)] * 2)
    site.kafka.remote_ms[K0] = read_ms
    assert site.read(0, 6) == list(range(6))
    assert max(request.max_wait_ms for request in site.kafka.requests) < SILENCE_TIMEOUT_S * 1_000


def test_batches_that_never_come_are_an_error_that_says_what_to_do(site: Site) -> None:
    site.log.put(batches.batch(3))
    site.kafka.remote_ms[K0] = 1 << 31
    with pytest.raises(RangeUnavailable, match=r"committed up to 3.*remote\.fetch\.max\.wait\.ms"):
        site.read(0, 3)
    assert 60 <= site.clock.monotonic_s() - BEGAN_S < 62
    assert len(site.kafka.requests) < 80


def test_a_throttled_response_is_waited_for_on_the_same_connection(site: Site) -> None:
    """However long, as the broker asks for it: the time does not count as one without progress."""
    site.log.put(batches.batch(3))
    site.kafka.throttled_fetches.extend([5_000, 1, 4_000])
    assert site.read(0, 3, timeout_s=2) == [0, 1, 2]
    assert site.opened == [site.kafka.leaders[K0]]
    assert len(site.kafka.requests) == 4
    assert site.clock.monotonic_s() - BEGAN_S == pytest.approx(9.001)


def test_a_range_that_is_not_committed_yet(site: Site) -> None:
    site.log.put(batches.batch(2), open_batch(7))
    with pytest.raises(
        RangeUnavailable, match=r"t/0.*from offset 2.*committed up to offset 2 only"
    ):
        site.read(0, 4, timeout_s=0)
    site.log.put(end(7, commit=True))
    assert site.read(0, 4, timeout_s=0) == [0, 1, 2, 3]


def test_the_leader_moves(site: Site, small_fetches: None) -> None:
    site.log.put(*[batches.batch(3)] * 4)
    found = site.follow(0, 12, max_batch_bytes=1)
    first, other = next(found), 3 - site.kafka.leaders[K0]
    site.kafka.move(K0, other)
    assert [first, *found] == list(range(12))
    assert site.opened[-1] == other


def test_the_connection_breaks(site: Site, small_fetches: None) -> None:
    site.log.put(*[batches.batch(3)] * 4)
    found = site.follow(0, 12, max_batch_bytes=1)
    first = next(found)
    site.kafka.cut(site.kafka.leaders[K0])
    assert [first, *found] == list(range(12))


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_errors_that_pass(site: Site, code: int) -> None:
    site.log.put(batches.batch(3))
    site.kafka.refuse[K0] = deque([code] * 3)
    assert site.read(0, 3) == [0, 1, 2]


def test_a_leader_that_stays_away(site: Site) -> None:
    site.log.put(batches.batch(3))
    site.kafka.down.add(site.kafka.leaders[K0])
    with pytest.raises(RangeUnavailable, match="t/0 has no leader"):
        site.read(0, 3, timeout_s=0)


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (9, 12)])
def test_offsets_that_the_log_does_not_hold(site: Site, start: int, stop: int) -> None:
    site.log.put(*[batches.batch(3)] * 2)
    site.log.start = 3
    with pytest.raises(OffsetOutOfRange, match=f"t/0, offset {start} is not in the log"):
        site.read(start, stop)


def test_the_log_is_truncated(site: Site, small_fetches: None) -> None:
    """Other records under the same offsets are not taken for those of the range."""
    site.log.put(*[batches.batch(3)] * 3)
    found = site.follow(0, 9, max_batch_bytes=1)
    next(found)
    site.log.truncate(2)
    site.kafka.move(K0, 3 - site.kafka.leaders[K0])
    site.log.put(batches.batch(7))
    with pytest.raises(LogChanged, match="truncated to offset 2"):
        list(found)


def test_the_topic_is_recreated(site: Site, small_fetches: None) -> None:
    site.log.put(*[batches.batch(3)] * 3)
    found = site.follow(0, 9, max_batch_bytes=1)
    next(found)
    site.kafka.create("t", 1)
    with pytest.raises(LogChanged, match="topic t was recreated"):
        list(found)


def test_reading_is_not_permitted(site: Site) -> None:
    site.kafka.refuse[K0] = deque([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(ReadRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        site.read(0, 3)


def test_a_corrupt_batch(site: Site) -> None:
    """Records before it are read; it is fetched again, in case the network was at fault."""
    site.log.put(*[batches.batch(3)] * 2)
    site.log.taken[1] = site.log.taken[1][:-1] + b"!"
    found = site.follow(0, 6, max_batch_bytes=1)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RecordsUnreadable, match="t/0, offset 3: checksum"):
        list(found)
    assert len(site.kafka.requests) == CORRUPT_TRIES + 1


def test_records_that_are_wrong_under_a_right_checksum(site: Site) -> None:
    bad = batches.patched(batches.batch(3), records=2, last_offset_delta=1)
    site.log.put(bad)
    with pytest.raises(RecordsUnreadable, match="t/0: batch at offset 0"):
        site.read(0, 2)


def test_responses_that_are_none(site: Site) -> None:
    site.log.put(batches.batch(3))
    site.kafka.garbled[site.kafka.leaders[K0]] = 2
    assert site.read(0, 3) == [0, 1, 2]
