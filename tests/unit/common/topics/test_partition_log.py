"""The log of a single partition, read to its end: what counts, and what begins the reading anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.topics.partition_log import LogRecord, PartitionLog
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches

TOPIC = "t"
KEY = TOPIC, 0


class Site:
    """A topic, and a reader of it with what it holds: first offset of each batch, offset of each record."""

    def __init__(self, **options: Any) -> None:
        self.kafka = MemoryKafka("A", {TOPIC: 1}, nodes=2)
        self.added: list[tuple[int, list[int]]] = []
        self.reader = PartitionLog(
            MemoryCluster(self.kafka),
            TOPIC,
            add=self._add,
            clear=self._clear,
            unreadable=PermanentError,
            **options,
        )

    def _add(self, first: int, records: Sequence[LogRecord]) -> None:
        self.added.append((first, [record.offset for record in records]))

    def _clear(self) -> None:
        self.added.clear()

    def put(self, *stored: bytes) -> None:
        self.kafka.logs[KEY].put(*stored)

    @property
    def offsets(self) -> list[int]:
        return [offset for _, records in self.added for offset in records]


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.kafka.close()


def sent(count: int, producer: int) -> bytes:
    return batches.batch(count, producer_id=producer, attributes=batches.TRANSACTIONAL)


def ended(producer: int, *, commit: bool) -> bytes:
    return batches.marker(base_offset=0, producer_id=producer, commit=commit)


def test_what_is_new_is_added_once(site: Site) -> None:
    site.put(batches.batch(2), batches.batch(1))
    assert site.reader.read()
    assert site.added == [(0, [0, 1]), (2, [2])]
    assert site.reader.read()
    site.put(batches.batch(3, codec=batches.GZIP))
    assert site.reader.read()
    assert site.added == [(0, [0, 1]), (2, [2]), (3, [3, 4, 5])]


def test_a_batch_that_was_read_is_left_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put(batches.batch(2))
    site.reader.read()
    site.put(batches.batch(1))
    log = site.kafka.logs[KEY]
    monkeypatch.setattr(log, "fetch", lambda *_, **__: log.taken)
    site.reader.read()
    assert site.added == [(0, [0, 1]), (2, [2])]


def test_a_step_reads_one_response() -> None:
    site = Site(fetch_bytes=1)
    site.put(*[batches.batch(1)] * 3)
    assert [site.reader.step() for _ in range(3)] == [False, False, True]
    assert site.offsets == [0, 1, 2]


def test_records_of_aborted_and_open_transactions_do_not_count(site: Site) -> None:
    site.put(
        *(sent(2, 7), sent(1, 8), ended(7, commit=True), ended(8, commit=False)),  # 0 to 4
        *(sent(1, 8), ended(8, commit=True), sent(1, 9)),  # 5 to 7
    )
    site.reader.read()
    assert site.offsets == [0, 1, 5]
    assert (site.reader.stable_end, site.reader.end) == (7, 8)


def test_uncommitted_all_records_but_markers_count() -> None:
    site = Site(committed=False)
    site.put(sent(2, 7), ended(7, commit=True), sent(1, 9))
    site.reader.read()
    assert site.offsets == [0, 1, 3]


@pytest.mark.parametrize("start", [1, 3])
def test_a_log_that_begins_later_is_read_from_its_start(site: Site, start: int) -> None:
    """The start may lie within a batch: its records before it are deleted (DeleteRecords)."""
    site.put(batches.batch(2), batches.batch(2))
    log = site.kafka.logs[KEY]
    log.start = start
    site.reader.read()
    assert site.offsets == list(range(start, 4))


def test_a_log_that_was_truncated_is_read_anew(site: Site) -> None:
    site.put(batches.batch(2), batches.batch(2))
    site.reader.read()
    site.kafka.logs[KEY].truncate(2)
    site.reader.read()
    assert site.offsets == [0, 1]


def test_the_end_is_known_after_a_start_that_is_out_of_range(site: Site) -> None:
    site.put(batches.batch(3), sent(1, 7))
    site.kafka.logs[KEY].start = 1
    assert site.reader.step()
    assert (site.reader.stable_end, site.reader.end) == (3, 4)


def test_a_topic_that_is_missing_or_recreated_begins_anew(site: Site) -> None:
    site.put(batches.batch(2))
    site.reader.read()
    site.kafka.delete(TOPIC)
    assert not site.reader.read()
    assert site.reader.step()
    assert (site.added, site.reader.end) == ([], 0)
    site.kafka.create(TOPIC, 1)
    site.put(batches.batch(1))
    assert site.reader.read()
    assert site.offsets == [0]
    site.kafka.create(TOPIC, 1)
    site.put(batches.batch(3))
    site.reader.read()
    assert site.offsets == [0, 1, 2]


def test_only_the_last_records_are_read() -> None:
    site = Site(last=3)
    site.put(*[batches.batch(1)] * 10)
    site.reader.read()
    assert site.offsets == [7, 8, 9]


def test_of_a_log_that_begins_later_than_the_last_records_all_are_read() -> None:
    site = Site(last=3)
    site.put(*[batches.batch(1)] * 10)
    site.kafka.logs[KEY].start = 8
    site.reader.read()
    assert site.offsets == [8, 9]


def test_a_new_leader_is_found_and_the_reading_goes_on(site: Site) -> None:
    site.put(batches.batch(2))
    site.reader.read()
    site.kafka.move(KEY, 2)
    site.put(batches.batch(1))
    site.reader.read()
    assert site.added == [(0, [0, 1]), (2, [2])]


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
def test_a_refusal_is_temporary_and_names_the_topic(site: Site, code: ErrorCode) -> None:
    site.put(batches.batch(2))
    site.kafka.refuse[KEY] = deque([code])
    with pytest.raises(ClusterUnavailable, match=f"topic {TOPIC}: {code.name}"):
        site.reader.read()
    site.reader.read()
    assert site.offsets == [0, 1]


def test_a_topic_without_a_leader_or_hidden_is_not_missing(site: Site) -> None:
    site.put(batches.batch(2))
    site.reader.read()
    site.kafka.down.add(1)
    with pytest.raises(ClusterUnavailable, match=f"topic {TOPIC} has no leader"):
        site.reader.read()
    site.kafka.hidden.add(TOPIC)
    with pytest.raises(ClusterUnavailable, match=f"topic {TOPIC}: TOPIC_AUTHORIZATION_FAILED"):
        site.reader.step()
    assert site.offsets == [0, 1]


def test_batches_that_are_damaged_or_of_an_old_format_are_refused(site: Site) -> None:
    broken = bytearray(batches.batch(2, base_offset=1))
    broken[-1] ^= 1
    site.put(batches.batch(1))
    log = site.kafka.logs[KEY]
    log.taken.append(bytes(broken))
    log.end = 3
    with pytest.raises(PermanentError, match=f"topic {TOPIC} cannot be read: .*checksum"):
        site.reader.read()
    assert site.offsets == [0]
    log.taken[-1] = batches.old_batch([(1, b"k", b"v")], magic=1, base_offset=1)
    with pytest.raises(PermanentError, match="old format at offset 1"):
        site.reader.read()


def test_a_single_batch_is_read_again(site: Site) -> None:
    site.put(batches.batch(2), batches.batch(1))
    assert [record.offset for record in site.reader.batch_at(0, max_bytes=1)] == [0, 1]
    assert [record.key for record in site.reader.batch_at(2, max_bytes=1)] == [b"k0"]
    assert site.reader.batch_at(1, max_bytes=1) == ()
    assert site.reader.batch_at(9, max_bytes=1) == ()
