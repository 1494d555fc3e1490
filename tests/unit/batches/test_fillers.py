"""Fillers decode to empty records, with another implementation's reader."""

from __future__ import annotations

import pytest

from ureplicator_testkit.records.batches import ZSTD, Record, checksum_fits, decode, field
from ureplicator_worker.batches.fillers import filler
from ureplicator_worker.batches.header import Header, Kind, stamp

TIME_MS = 1_700_000_000_000


@pytest.mark.parametrize("records", [1, 2, 64, 65, 8_193, 16_384, 16_385, 20_000])
def test_a_filler_has_so_many_empty_records(records: int) -> None:
    built = filler(records, timestamp_ms=TIME_MS)
    assert list(decode(built.data)) == [
        Record(offset, TIME_MS, None, None, []) for offset in range(records)
    ]
    assert checksum_fits(built.data)


def test_many_records_are_few_bytes() -> None:
    built = filler(100_000, timestamp_ms=TIME_MS)
    assert len(built.data) < 100_000
    last = max(record.offset for record in decode(built.data))
    assert (last, built.records) == (99_999, 100_000)


def test_the_header() -> None:
    built = filler(300, timestamp_ms=TIME_MS)
    header = Header(built.data, 0)
    assert header.kind(0) is Kind.PASS
    assert (header.base_offset, header.last_offset, header.records) == (0, 299, 300)
    assert (header.codec, header.attributes, header.producer_id) == (ZSTD, ZSTD, -1)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (TIME_MS, TIME_MS)
    assert built.max_timestamp_ms == TIME_MS


def test_a_filler_is_stamped_again_and_again() -> None:
    built = filler(300, timestamp_ms=TIME_MS)
    for sequence in (0, 300, 2**31 - 1):
        view = memoryview(built.data)
        stamp(view, producer_id=7, producer_epoch=3, sequence=sequence, checked=True)
        assert checksum_fits(built.data)
        names = ("producer_id", "producer_epoch", "base_sequence", "records")
        assert [field(built.data, name) for name in names] == [7, 3, sequence, 300]
