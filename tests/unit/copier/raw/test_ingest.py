"""Fetch responses become batches to send; the fetch offset passes what was queued, no more."""

import contextlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import decode
from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.batches.merge_rules import (
    FAR_MERGED_BYTES,
    FEW_RECORDS,
    LARGE_BYTES,
    MERGE_AT_LEAST,
    MERGED_BYTES,
    QUICK_RECORDS,
    SMALL_BYTES,
)
from ureplicator_worker.batches.rebuild import FAR_DECODED_BYTES, MERGED_DECODED_BYTES
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.ingest import ingest
from ureplicator_worker.copier.raw.partition import RawPartition
from ureplicator_worker.copier.raw.send_window import MAX_IN_FLIGHT_BATCHES
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.wire.fetch_api import Fetched

AT = Partition(Route("a", "b"), "t", 0)
LARGE = LARGE_BYTES + 1
SPACE = b"response"
ID = "6a5f0d4e-5b0f-4d57-9a43-1f1f4f1b7a01"


class Fixture:
    """One partition, and Fetch responses for it."""

    def __init__(self, *, position: int = 0, verify_crc: bool = True) -> None:
        grant = Grant(OwnerEpoch(1), "t", settings=RouteSettings(verify_crc=verify_crc))
        raw = RawPartition.begin(AT, grant, StartPosition(position, -1, position, "A", ID, ID))
        self.fetch, self.window = raw.fetch, raw.window
        self.pool = BufferPool(limit_bytes=1 << 20)

    def ingest(self, data: bytes, *aborted: tuple[int, int], high_watermark: int = 1_000) -> None:
        lease = self.pool.lease(len(SPACE) + len(data))
        lease.view[:] = SPACE + data
        fetched = Fetched(
            (b"t", 0), error=0, high_watermark=high_watermark, last_stable=high_watermark
        )
        fetched.aborted = list(aborted)
        fetched.start, fetched.end = len(SPACE), len(SPACE) + len(data)
        try:
            ingest(self.fetch, fetched, lease)
        finally:
            lease.release()

    @property
    def queued(self) -> list[tuple[int, int, int]]:
        """First offset, next offset and records of what waits."""
        return [
            (batch.first_offset, batch.next_offset, batch.records) for batch in self.window._queue
        ]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.window._queue for record in decode(batch.view)]


def log(*appended: bytes, start: int = 0, epoch: int = 0) -> bytes:
    stored = BatchLog(end=start, epoch=epoch)
    stored.put(*appended)
    return b"".join(stored.taken)


def large(count: int, name: str = "") -> bytes:
    return batches.batch([(1, None, name.encode() + b"x" * (LARGE // count), ())] * count)


def small(*values: bytes, codec: int = batches.NONE) -> bytes:
    return batches.batch([(1, None, value, ()) for value in values], codec=codec)


def test_whole_batches_stay_where_they_lie() -> None:
    at = Fixture()
    at.ingest(log(large(2), large(3), epoch=4))
    assert at.queued == [(0, 2, 2), (2, 5, 3)]
    assert (at.fetch.offset, at.fetch.leader_epoch) == (5, 4)
    assert at.pool.used_bytes > 0
    at.window.discard()
    assert at.pool.used_bytes == 0


@pytest.mark.parametrize("verify_crc", [True, False])
def test_the_target_finds_what_was_damaged_after_it_was_checked(verify_crc: bool) -> None:
    at = Fixture(verify_crc=verify_crc)
    at.ingest(log(large(2)))
    (waiting,) = at.window._queue
    waiting.view[-1] ^= 1
    at.window.restart(1, 0)
    sent = at.window.next()
    assert sent is waiting
    assert batches.checksum_fits(sent.view) is not verify_crc


def test_a_cut_batch_at_the_end_is_left_for_the_next_response() -> None:
    at = Fixture()
    data = log(large(2), large(3))
    at.ingest(data[:-1])
    assert at.queued == [(0, 2, 2)]
    at.ingest(data)
    assert at.queued == [(0, 2, 2), (2, 5, 3)]


def test_nothing_but_a_cut_batch_is_corrupt() -> None:
    """A broker always sends the first batch whole; fetching it again and again would be a standstill."""
    at = Fixture()
    with pytest.raises(CorruptBatch, match="no whole batch"):
        at.ingest(log(large(2))[:-1])
    assert at.fetch.offset == 0


def test_what_was_fetched_before_is_left_out() -> None:
    at = Fixture(position=4)
    at.ingest(log(large(2), large(3), large(1)))
    assert at.queued == [(4, 5, 1), (5, 6, 1)]


@pytest.mark.parametrize(
    "data",
    [
        log(large(2), large(3)),
        log(large(4), batches.marker(base_offset=0, producer_id=1, commit=True)),
        b"".join(batches.old_batch([(1, None, b"v")], magic=0, base_offset=n) for n in range(5)),
        batches.old_batch([(1, None, b"v")] * 5, magic=1, codec=batches.GZIP),
    ],
    ids=["batches", "marker", "messages", "wrapper"],
)
@pytest.mark.parametrize("high_watermark", range(5))
def test_what_was_appended_behind_the_high_watermark_of_the_response(
    data: bytes, high_watermark: int
) -> None:
    at = Fixture()
    at.ingest(data, high_watermark=high_watermark)
    assert at.fetch.offset == 5
    assert at.window._queue[-1].next_offset == 5


@pytest.mark.parametrize(
    "data",
    [
        log(large(2), start=3),
        batches.patched(large(2), last_offset_delta=7),
        batches.old_batch([(1, None, b"v")], magic=1, base_offset=1 << 20),
    ],
    ids=["behind a hole", "with holes", "far ahead"],
)
def test_what_cannot_follow_behind_the_high_watermark_is_corrupt(data: bytes) -> None:
    at = Fixture()
    with pytest.raises(CorruptBatch, match="in a log up to 2"):
        at.ingest(data, high_watermark=2)
    assert at.fetch.offset == 0


def test_holes_and_emptied_batches() -> None:
    at = Fixture()
    gapped = batches.batch([(1, None, b"a", ()), (1, None, b"b", ())], deltas=[1, 5])
    data = log(gapped, batches.emptied(large(3)), large(1), batches.emptied(large(2)))
    at.ingest(data)
    assert at.queued == [(1, 9, 2), (9, 12, 1)]
    assert at.fetch.offset == 12
    assert at.window.position == 0


def test_nothing_to_send_moves_the_position() -> None:
    at = Fixture()
    marker = batches.marker(base_offset=0, producer_id=1, commit=True)
    at.ingest(log(batches.emptied(large(3)), marker, batches.emptied(marker), epoch=7))
    assert at.window.empty
    assert (at.window.position, at.window.leader_epoch) == (5, 7)
    assert at.pool.used_bytes == 0


def test_aborted_transactions_are_left_out() -> None:
    def sent(producer: int, value: bytes) -> bytes:
        return batches.batch(
            [(1, None, value, ())], producer_id=producer, attributes=batches.TRANSACTIONAL
        )

    def ends(producer: int, commit: bool) -> bytes:
        return batches.marker(base_offset=0, producer_id=producer, commit=commit)

    history = [
        sent(1, b"aborted"),  # 0
        sent(2, b"committed"),
        small(b"plain"),
        ends(1, False),  # 3
        sent(1, b"committed later"),
        ends(2, True),  # 5
        sent(2, b"aborted"),  # 6
        ends(1, True),
        ends(2, False),
        sent(2, b"last"),
    ]
    at = Fixture()
    at.ingest(log(*history), (2, 6), (1, 0))
    assert at.values == [b"committed", b"plain", b"committed later", b"last"]
    assert at.fetch.offset == 10


def test_an_aborted_producer_harms_no_plain_batch_of_its_own() -> None:
    at = Fixture()
    plain = batches.batch([(1, None, b"plain", ())], producer_id=1)
    at.ingest(log(plain), (1, 0))
    assert at.values == [b"plain"]


def test_many_small_batches_become_one() -> None:
    at = Fixture()
    at.ingest(log(*(small(b"%d" % n) for n in range(MERGE_AT_LEAST))))
    assert at.queued == [(0, MERGE_AT_LEAST, MERGE_AT_LEAST)]
    assert at.values == [b"%d" % n for n in range(MERGE_AT_LEAST)]
    assert at.pool.used_bytes == at.window.queued_bytes
    at.window.discard()
    assert at.pool.used_bytes == 0


def test_few_small_batches_go_as_they_are() -> None:
    at = Fixture()
    at.ingest(log(*(small(b"x") for _ in range(MERGE_AT_LEAST - 1))))
    assert len(at.queued) == MERGE_AT_LEAST - 1


def test_runs_end_where_something_else_comes() -> None:
    at = Fixture()
    run = [small(b"x")] * MERGE_AT_LEAST
    other = [small(b"x", codec=batches.GZIP)] * MERGE_AT_LEAST
    marker = batches.marker(base_offset=0, producer_id=1, commit=True)
    at.ingest(log(*run, *other, large(1), *run, marker, *run))
    assert [records for _, _, records in at.queued] == [4, 4, 1, 8]
    assert [following for _, following, _ in at.queued] == [4, 8, 9, 18]


def test_runs_go_on_over_markers_dropped_and_rebuilt_batches() -> None:
    """A transactional source is one batch and one marker in turn: each would be a round trip."""
    at = Fixture()

    def sent(producer: int, value: bytes) -> bytes:
        return batches.batch(
            [(1, None, value, ())], producer_id=producer, attributes=batches.TRANSACTIONAL
        )

    def ends(commit: bool) -> bytes:
        return batches.marker(base_offset=0, producer_id=1, commit=commit)

    at.ingest(
        log(
            *(sent(1, b"a"), ends(True)),
            *(sent(1, b"aborted"), ends(False)),
            *(sent(1, b"b"), ends(True)),
            batches.emptied(small(b"x", b"y")),  # 6
            batches.batch([(1, None, b"c", ()), (1, None, b"d", ())], deltas=[1, 3]),  # 8
            batches.batch([(1, None, b"e", ())], attributes=batches.LOG_APPEND_TIME),  # 12
            ends(True),
        ),
        (1, 2),
    )
    assert at.values == [b"a", b"b", b"c", b"d", b"e"]
    assert at.queued == [(0, 14, 5)]
    (batch,) = at.window._queue
    assert [batch.source_offsets().at(index) for index in range(5)] == [0, 4, 9, 11, 12]
    assert at.pool.used_bytes == len(batch.view)


def test_a_corrupt_batch_of_a_run_is_the_place_to_go_on() -> None:
    """The batches before it are queued, those behind it are fetched again."""
    gapped = batches.batch([(1, None, b"a", ()), (1, None, b"b", ())], deltas=[0, 5])
    endless = b"\xff" * (len(gapped) - batches.HEADER_BYTES)
    bad = batches.patched(gapped[: batches.HEADER_BYTES] + endless)
    at = Fixture()
    whole = log(*[small(b"x")] * 5, *[gapped] * 2, bad, *[small(b"x")] * 5, epoch=3)
    with pytest.raises(CorruptBatch):
        at.ingest(whole)
    assert at.fetch.offset == 5 + 2 * 6
    assert at.fetch.leader_epoch == 3
    assert sum(count for _, _, count in at.queued) == 5 + 2 * 2
    assert at.queued[-1][1] == 5 + 2 * 6


def test_a_merged_batch_has_its_limit() -> None:
    at = Fixture()
    size = SMALL_BYTES - 100
    count = 2 * MERGED_BYTES // size
    at.ingest(log(*(small(b"x" * size) for _ in range(count))))
    assert len(at.queued) > 1
    assert sum(records for _, _, records in at.queued) == count
    assert all(len(batch.view) <= MERGED_BYTES + 100 for batch in at.window._queue)


Build = Callable[[list[batches.Row]], bytes]
PLAIN: Build = batches.batch
OF_TRANSACTIONS: Build = partial(batches.batch, producer_id=1, attributes=batches.TRANSACTIONAL)
GZIP: Build = partial(batches.batch, codec=batches.GZIP)
SNAPPY: Build = partial(batches.batch, codec=batches.SNAPPY)
LZ4: Build = partial(batches.batch, codec=batches.LZ4)
ZSTD: Build = partial(batches.batch, codec=batches.ZSTD)


def bulky(count: int, records: int, size: int, build: Build = PLAIN) -> list[bytes]:
    """Batches whose values begin with their number."""
    rows: list[batches.Row] = [
        (number % records, None, name + batches.incompressible(name, size), ())
        for number, name in ((number, b"%d " % number) for number in range(count * records))
    ]
    return [build(rows[at : at + records]) for at in range(0, len(rows), records)]


@pytest.mark.parametrize(
    ("records", "size", "build", "queued"),
    [
        (16, 1_000, PLAIN, 1),
        (1, 10_000, PLAIN, 1),
        (FEW_RECORDS, 200, PLAIN, 1),
        (FEW_RECORDS + 1, 200, PLAIN, 12),
        (FEW_RECORDS + 1, 50, PLAIN, 1),
        (60, 1_000, PLAIN, 3),
        (60, 1_100, PLAIN, 12),
        (16, 1_000, OF_TRANSACTIONS, 1),
        (FEW_RECORDS + 1, 200, OF_TRANSACTIONS, 12),
        (7, 1_000, LZ4, 1),
        (11, 1_000, LZ4, 1),
        (13, 1_000, LZ4, 12),
        (16, 1_000, LZ4, 12),
        (QUICK_RECORDS, 350, LZ4, 1),
        (QUICK_RECORDS + 1, 350, LZ4, 12),
        (QUICK_RECORDS + 1, 200, LZ4, 1),
        (11, 1_000, SNAPPY, 1),
        (7, 1_000, ZSTD, 1),
        (11, 1_000, ZSTD, 12),
        (11, 1_000, GZIP, 12),
    ],
)
def test_batches_are_merged_where_that_costs_less_than_sending_each(
    records: int, size: int, build: Build, queued: int
) -> None:
    at = Fixture()
    stored = bulky(12, records, size, build)
    at.ingest(log(*stored), high_watermark=10_000)
    assert len(at.queued) == queued
    expected = [record.value for batch in stored for record in decode(memoryview(batch))]
    assert at.values == expected
    assert at.fetch.offset == 12 * records


def test_batches_are_merged_up_to_what_the_target_takes() -> None:
    at = Fixture()
    at.window.merged_bytes = 80_000
    at.ingest(log(*bulky(12, 16, 1_000)))
    sizes = [len(batch.view) for batch in at.window._queue]
    assert len(sizes) == 3
    assert max(sizes) < 80_000
    at.window.merged_bytes = 30_000
    at.ingest(log(*bulky(12, 16, 1_000), start=12 * 16))
    assert len(at.queued) == 3 + 12


def test_what_batches_for_a_far_broker_decode_to_is_bounded() -> None:
    """The bound is higher than elsewhere, since the merged ones are larger."""
    at = Fixture()
    at.window.far_bytes = FAR_MERGED_BYTES
    names = [b"%d" % number for number in range(24)]
    rows = [(1, None, batches.incompressible(name, 500) + b"x" * 8_000, ()) for name in names]
    stored = batches.batch(rows, codec=batches.ZSTD)
    assert len(stored) > SMALL_BYTES
    at.ingest(log(*[stored] * (MAX_IN_FLIGHT_BATCHES + 60)), high_watermark=10_000)
    merged = [records for _, _, records in at.queued[MAX_IN_FLIGHT_BATCHES:]]
    assert sum(merged) == 60 * len(rows)
    assert MERGED_DECODED_BYTES < max(merged) * 8_500 < FAR_DECODED_BYTES
    assert len(merged) < 5


@pytest.mark.parametrize("before", [[], [large(2)], [small(b"x")], [small(b"x")] * 9])
def test_what_came_before_a_corrupt_batch_is_queued(before: list[bytes]) -> None:
    at = Fixture()
    whole = log(*before, large(1), large(1))
    bad_at = len(log(*before)) + 80
    data = whole[:bad_at] + bytes([whole[bad_at] ^ 1]) + whole[bad_at + 1 :]
    with pytest.raises(CorruptBatch):
        at.ingest(data)
    good = sum(batches.field(batch, "records") for batch in before)
    assert at.fetch.offset == good
    assert sum(records for _, _, records in at.queued) == good
    at.ingest(whole)
    assert at.fetch.offset == good + 2
    assert [following for _, following, _ in at.queued][-2:] == [good + 1, good + 2]


def test_a_rebuilt_batch_that_cannot_be_decoded_is_corrupt() -> None:
    gapped = batches.batch(
        [(1, None, b"a", ()), (1, None, b"b", ())], deltas=[0, 5], codec=batches.GZIP
    )
    bad = batches.patched(gapped[:-9] + b"\xff" * 9)
    at = Fixture()
    with pytest.raises(CorruptBatch):
        at.ingest(log(large(1)) + batches.patched(bad, base_offset=1))
    assert at.fetch.offset == 1
    assert at.queued == [(0, 1, 1)]


def test_small_batches_that_cannot_be_decoded_go_as_they_are() -> None:
    """The target's broker is the judge of what the checksum calls sound."""
    bad = batches.patched(batches.batch(3, codec=batches.GZIP)[:-9] + b"\xff" * 9)
    at = Fixture()
    at.ingest(log(*[bad] * MERGE_AT_LEAST))
    assert len(at.queued) == MERGE_AT_LEAST


def test_one_batch_that_cannot_be_decoded_leaves_the_others_of_its_run_merged() -> None:
    good = small(b"x", codec=batches.GZIP)
    bad = batches.patched(good[:-9] + b"\xff" * 9)
    at = Fixture()
    at.ingest(log(*[good] * 5, bad, *[good] * 26))
    assert sum(records for _, _, records in at.queued) == 32
    assert len(at.queued) == 7


def test_checksums_are_the_operators_choice() -> None:
    data = bytearray(log(large(1)))
    data[-1] ^= 1
    at = Fixture(verify_crc=False)
    at.ingest(bytes(data))
    assert at.queued == [(0, 1, 1)]


KINDS = {
    "whole": lambda: small(b"whole"),
    "large": lambda: large(2),
    "gapped": lambda: batches.batch([(1, None, b"g", ()), (1, None, b"h", ())], deltas=[1, 3]),
    "emptied": lambda: batches.emptied(small(b"x", b"y")),
    "marker": lambda: batches.marker(base_offset=0, producer_id=1, commit=True),
    "stamped": lambda: batches.batch(2, attributes=batches.LOG_APPEND_TIME),
}


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12), st.data())
def test_every_offset_is_queued_or_passed_over_once(kinds: list[str], data: st.DataObject) -> None:
    stored = BatchLog()
    stored.put(*(KINDS[kind]() for kind in kinds))
    raw = b"".join(stored.taken)
    wanted = [
        record
        for whole in stored.taken
        if batches.field(whole, "records")
        and not batches.field(whole, "attributes") & batches.CONTROL
        for record in decode(whole)
    ]
    at = Fixture(position=data.draw(st.integers(0, stored.end - 1)))
    start = at.fetch.offset
    while at.fetch.offset < stored.end:
        before = at.fetch.offset
        cut = data.draw(st.integers(len(raw) // 2, len(raw)))
        with contextlib.suppress(CorruptBatch):
            at.ingest(raw[:cut])
        if at.fetch.offset == before:
            at.ingest(raw)
    left = [record.value for record in wanted if record.offset >= start]
    assert at.values == left
    window = at.window
    ends = [window.position, *(batch.next_offset for batch in window._queue)]
    assert ends == sorted(ends)
    assert ends[-1] == stored.end
