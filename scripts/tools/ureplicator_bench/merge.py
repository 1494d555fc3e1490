"""Cost of small batches: from a Fetch response to batches that are stamped for the target, on one core.

No broker and no socket takes part. Batches of one record are the worst case: all that is done for each
batch is done for each record. Batches of 16 KB are what producers send unless configured otherwise. Times are
the process's own, the best of some rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle

from ureplicator_bench.figures import Figure
from ureplicator_bench.load import values
from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.loop.allocator import keep_freed_memory
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.ingest import ingest
from ureplicator_worker.copier.raw.partition import RawPartition
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.wire.fetch_api import Fetched

RECORDS = 8_000
VALUE_BYTES = 100
BULKY_RECORDS = 16
BULKY_BYTES = 1_000
ROUNDS = 7
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PARTITION = Partition(Route("a", "b"), "t", 0)
TOPIC_ID = "6a5f0d4e-5b0f-4d57-9a43-1f1f4f1b7a01"
BEGINNING = StartPosition(0, -1, 0, "A", TOPIC_ID, TOPIC_ID)
TEXT = b"lorem ipsum dolor sit amet "


def one_record(number: int, codec: int, *, producer_id: int = -1, attributes: int = 0) -> bytes:
    value = b'{"id":%d,"user":"u%d","text":"%s"}' % (
        number,
        number * 7919 % 10_007,
        TEXT[number % 7 :] * 3,
    )
    row = (1_700_000_000_000 + number, b"k%d" % number, value[:VALUE_BYTES], ())
    return batches.batch([row], codec=codec, producer_id=producer_id, attributes=attributes)


def plain(codec: int) -> Iterator[bytes]:
    return (one_record(number, codec) for number in range(RECORDS))


def transactional(codec: int) -> Iterator[bytes]:
    """One record a transaction."""
    for number in range(RECORDS):
        yield one_record(number, codec, producer_id=1, attributes=batches.TRANSACTIONAL)
        yield batches.marker(base_offset=0, producer_id=1, commit=True)


def stamped(codec: int) -> Iterator[bytes]:
    """Batches with the broker's time: each must be rebuilt."""
    return (
        one_record(number, codec, attributes=batches.LOG_APPEND_TIME) for number in range(RECORDS)
    )


def bulky(codec: int) -> Iterator[bytes]:
    """Batches of 16 KB before compression."""
    texts = cycle(values(BULKY_BYTES))
    for first in range(0, RECORDS, BULKY_RECORDS):
        rows: list[batches.Row] = [
            (1_700_000_000_000 + number, b"k%d" % number, next(texts)[number % 200 :], ())
            for number in range(first, first + BULKY_RECORDS)
        ]
        yield batches.batch(rows, codec=codec)


SOURCES: Mapping[str, tuple[Callable[[int], Iterator[bytes]], float]] = {
    "plain": (plain, 5.0),
    "transactional": (transactional, 10.0),
    "log append time": (stamped, 10.0),
    "16 KB": (bulky, 20.0),
}
"""Each with the time that a record may take, us: 50,000 to 200,000 records/s."""


def figures(*, progress: Callable[[str], None]) -> Iterator[Figure]:
    keep_freed_memory()
    pool = BufferPool(limit_bytes=64 << 20)
    for name, (source, limit_us) in SOURCES.items():
        for codec, number in CODECS.items():
            progress(f"{name}, {codec}")
            data = b"".join(_in_a_log(source(number)))
            best_s = min(_seconds(data, pool) for _ in range(ROUNDS))
            yield Figure(f"{name}, {codec}", best_s / RECORDS * 1e6, "us a record", limit_us)


def _in_a_log(appended: Iterable[bytes]) -> Iterator[bytes]:
    offset = 0
    for whole in appended:
        yield batches.patched(whole, base_offset=offset)
        offset += batches.field(whole, "records")


def _seconds(data: bytes, pool: BufferPool) -> float:
    raw = RawPartition.begin(PARTITION, Grant(OwnerEpoch(1), "t"), BEGINNING)
    raw.window.restart(1, 0)
    lease = pool.lease(len(data))
    lease.view[:] = data
    fetched = Fetched((b"t", 0), error=0, high_watermark=1 << 40, last_stable=1 << 40)
    fetched.start, fetched.end = 0, len(data)
    began_s = time.process_time()
    ingest(raw.fetch, fetched, lease)
    while (batch := raw.window.next()) is not None:
        raw.window.acknowledged(batch, -1)
    took_s = time.process_time() - began_s
    lease.release()
    assert raw.window.position == raw.fetch.offset
    return took_s
