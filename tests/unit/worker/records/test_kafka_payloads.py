"""Compressed records are read as Kafka's own reader reads them."""

import gzip

import pytest

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.payloads import COUNT, Payload, kafka_payloads
from ureplicator_worker.batches import codecs
from ureplicator_worker.batches.codecs import TooLarge, decompress
from ureplicator_worker.batches.header import CorruptBatch, Header
from ureplicator_worker.batches.rebuild import merge, rebuild
from ureplicator_worker.records.columns import RecordColumns

LENIENT = {"lz4.linked"}
"""Kafka's reader refuses linked blocks; what brokers never store may be read."""
PLAIN = list(batches.decode(batches.batch(COUNT)))


def named(payload: Payload) -> str:
    return payload.name


@pytest.mark.parametrize("payload", kafka_payloads(), ids=named)
def test_a_rebuild_reads_what_kafka_reads(payload: Payload) -> None:
    stored = payload.batch()
    header = Header(stored, 0)
    if payload.readers or payload.name in LENIENT:
        built = rebuild(memoryview(stored), header, position=0)
        assert built is not None
        assert list(batches.decode(built.data)) == PLAIN
    else:
        with pytest.raises(CorruptBatch):
            rebuild(memoryview(stored), header, position=0)


@pytest.mark.parametrize(
    "payload", [payload for payload in kafka_payloads() if payload.readers], ids=named
)
def test_a_reader_of_ranges_reads_what_kafka_reads(payload: Payload) -> None:
    stored = payload.batch()
    columns = RecordColumns(topic="t", partition=0, start=0, end=COUNT)
    columns.add(memoryview(stored), Header(stored, 0))
    batch = columns.take()
    assert batch is not None
    assert batch.column("value").to_pylist() == [record.value for record in PLAIN]


def test_an_odd_batch_among_others_is_read_once_it_is_alone() -> None:
    """Payloads of a run are decoded together, where what follows a frame is not ignored."""
    odd = next(
        payload for payload in kafka_payloads() if payload.name == "lz4.records_then_other_frame"
    )
    stored = [odd.batch(), batches.batch(2, base_offset=4, codec=codecs.LZ4)]
    items = [(memoryview(batch), Header(batch, 0)) for batch in stored]
    with pytest.raises(CorruptBatch):
        merge(items, position=0)
    assert all(rebuild(*item, position=0) for item in items)


@pytest.mark.parametrize("tail", [b"", b"garbage!" * 8])
def test_members_of_gzip_are_bounded_together(tail: bytes) -> None:
    payload = gzip.compress(bytes(10_000)) * 4 + tail
    assert decompress(codecs.GZIP, payload, limit_bytes=40_000) == bytes(40_000)
    with pytest.raises(TooLarge):
        decompress(codecs.GZIP, payload, limit_bytes=39_999)
