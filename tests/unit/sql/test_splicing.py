"""Records that stay as they are, in new batches, which are equal to those spliced record by record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.batches.records import Records
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.copier.record.encoding import BATCH_BYTES
from ureplicator_worker.sql.pieces import Piece, whole_piece
from ureplicator_worker.sql.splicing import spliced

times = st.integers(0, 1 << 40)
rows = st.lists(
    st.tuples(
        times,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.just(()) | st.just((("h", b"1"), ("h", None))),
    ),
    min_size=1,
    max_size=200,
)


def piece_of(stored: list[batches.Row], base_offset: int = 0) -> Piece:
    data = batches.patched(batches.batch(stored), base_offset=base_offset)
    piece = whole_piece(StoredRecords(memoryview(data), position=0), 0)
    assert piece is not None
    return piece


@given(first=rows, second=rows, base=st.integers(0, 1 << 40), data=st.data())
def test_a_batch_has_the_bytes_of_records_spliced_one_by_one(
    first: list[batches.Row], second: list[batches.Row], base: int, data: st.DataObject
) -> None:
    whole = [piece_of(first, base), piece_of(second, base + len(first) + 7)]
    pieces, expected = [], Records()
    for full in whole:
        kept = data.draw(st.sets(st.sampled_from(full.places), min_size=1))
        piece = Piece(full.stored, sorted(kept), full.base)
        pieces.append(piece)
        expected.splice(
            full.stored.data,
            0,
            len(kept),
            full.base,
            full.stored.base_ms,
            places=piece.places,
        )
    (built,) = spliced(pieces)
    reference = expected.build(codec=0)
    assert reference is not None
    assert built.data == reference.data
    assert built.records == reference.records
    assert built.offsets.runs == reference.offsets.runs
    assert built.max_timestamp_ms == reference.max_timestamp_ms


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1_300])
def test_a_batch_ends_where_it_is_large_enough(count: int) -> None:
    size = BATCH_BYTES // 512
    piece = piece_of([(1, None, b"v" * (size - 4), ()) for _ in range(count)])
    built = list(spliced([piece]))
    assert [batch.records for batch in built] == [
        min(512, count - at) for at in range(0, count, 512)
    ]
    assert [batch.offsets.at(0) for batch in built] == list(range(0, count, 512))


def test_times_that_no_batch_holds_together_are_corrupt() -> None:
    pieces = [piece_of([(at, b"k", b"v", ())]) for at in (-1, (1 << 63) - 1)]
    with pytest.raises(CorruptBatch, match=f"a number of a record is {1 << 63}"):
        list(spliced(pieces))
