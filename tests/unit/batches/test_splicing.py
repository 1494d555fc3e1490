"""Records with the usual numbers are taken in a shorter way, with the same outcome as the others."""

from collections.abc import Sequence
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import HEADER_BYTES, Row
from ureplicator_worker.batches.header import CorruptBatch, Header
from ureplicator_worker.batches.records import CODE_SIZE, Built, Records

NOW_MS = 1_700_000_000_000
Result = tuple[object, ...] | str


def rows_of(deltas_ms: Sequence[int], sizes: Sequence[int]) -> list[Row]:
    pairs = zip((0, *deltas_ms), sizes, strict=False)
    return [
        (NOW_MS + delta_ms, b"%d" % place, b"v" * size, ())
        for place, (delta_ms, size) in enumerate(pairs)
    ]


def spliced(stored: Sequence[bytes], *, regular: bool) -> Result:
    """All of them in one batch; the fault of one that is corrupt."""
    records = Records()
    shorter = Records._splice_regular if regular else lambda _, __, at, *___: (0, at)
    with mock.patch.object(Records, "_splice_regular", shorter):
        try:
            for batch in stored:
                header, body = Header(batch, 0), memoryview(batch)[HEADER_BYTES:]
                end = records.splice(
                    body, 0, header.records, header.base_offset, header.base_timestamp_ms
                )
                if end != len(body):
                    return "more records"
            built = records.build(codec=0)
        except CorruptBatch as error:
            return str(error)
    return "no records" if built is None else contents(built)


def contents(built: Built) -> Result:
    offsets = tuple(built.offsets.at(index) for index in range(built.records))
    return bytes(built.data), offsets, built.max_timestamp_ms


DELTAS_MS = st.lists(
    st.integers(0, 70) | st.sampled_from([-1, 127, 128, 20_000, 10**13]), max_size=80
)
SIZES = st.lists(
    st.integers(0, 80)
    | st.integers(80, 120)
    | st.sampled_from([500, 8_170, 8_180, 8_185, 8_190, 9_000]),
    min_size=1,
    max_size=80,
)
BATCHES = st.lists(
    st.tuples(DELTAS_MS, SIZES, st.integers(0, 3), st.integers(-3, 3) | st.just(30_000)),
    min_size=1,
    max_size=4,
)


def stored_batches(drawn: Sequence[tuple[list[int], list[int], int, int]]) -> list[bytes]:
    """`hole`: offsets that are missing before each batch; `later_ms`: its first time, after the first."""
    offset, found = 0, []
    for deltas_ms, sizes, hole, later_ms in drawn:
        rows = rows_of(deltas_ms, sizes)
        offset += hole
        whole = batches.batch([(row[0] + later_ms, *row[1:]) for row in rows])
        found.append(batches.patched(whole, base_offset=offset))
        offset += len(rows)
    return found


@given(BATCHES)
@example([([1] * 79, [100] * 80, 0, 0), ([63] * 79, [100] * 80, 1, 5)])
@example([([5, 9, 7], [100] * 4, 0, 0), ([8, 2], [100] * 3, 0, 1)])
def test_the_outcome_is_that_of_the_longer_way(
    drawn: list[tuple[list[int], list[int], int, int]],
) -> None:
    stored = stored_batches(drawn)
    found = spliced(stored, regular=True)
    assert found == spliced(stored, regular=False)
    assert not isinstance(found, str)


@given(BATCHES, st.integers(1, 3), st.data())
def test_garbled_records_are_found_as_in_the_longer_way(
    drawn: list[tuple[list[int], list[int], int, int]], flips: int, data: st.DataObject
) -> None:
    stored = [bytearray(batch) for batch in stored_batches(drawn)]
    for _ in range(flips):
        batch = data.draw(st.sampled_from(stored))
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] ^= data.draw(
            st.integers(1, 255)
        )
    found = spliced([bytes(batch) for batch in stored], regular=True)
    assert found == spliced([bytes(batch) for batch in stored], regular=False)


@pytest.mark.parametrize("key", [b"", b"k", None])
@pytest.mark.parametrize("size", [0, 3, 100])
def test_an_empty_key_looks_like_a_number(key: bytes | None, size: int) -> None:
    stored = [batches.batch([(NOW_MS, key, b"v" * size, ())] * 3)] * 2
    found = spliced(stored, regular=True)
    assert found == spliced(stored, regular=False)
    assert not isinstance(found, str)


def test_offsets_with_holes() -> None:
    stored = [batches.batch(rows_of([0] * 3, [100] * 4), deltas=[0, 2, 3, 9])]
    found = spliced(stored, regular=True)
    assert found == spliced(stored, regular=False)
    assert found[1] == (0, 2, 3, 9)


def test_a_garbled_offset_before_the_first_one_leaves_nothing() -> None:
    stored = bytearray(batches.batch(rows_of([], [0])))
    stored[HEADER_BYTES + 3] = 1
    for regular in (True, False):
        assert spliced([bytes(stored)], regular=regular) == "no records"


def test_attributes_of_a_record_stay() -> None:
    """Unused so far; consumers see none."""
    stored = bytearray(batches.batch(rows_of([0], [100] * 2)))
    stored[HEADER_BYTES + 2] = 5
    found = spliced([bytes(stored)], regular=True)
    assert found == spliced([bytes(stored)], regular=False)
    assert isinstance(found[0], bytes)
    assert found[0][HEADER_BYTES:] == stored[HEADER_BYTES:]


def test_fewer_records_than_promised() -> None:
    stored = [batches.patched(batches.batch(rows_of([0] * 2, [100] * 3)), records=4)]
    found = spliced(stored, regular=True)
    assert found == spliced(stored, regular=False) == "fewer records than the header promises"


def test_records_with_the_time_of_the_broker() -> None:
    body = batches.batch(rows_of([5, 9], [100] * 3))[HEADER_BYTES:]
    records = Records()
    records.splice(body, 0, 3, 0, NOW_MS, NOW_MS + 77)
    built = records.build(codec=0)
    assert built is not None
    assert {record.timestamp_ms for record in batches.decode(built.data)} == {NOW_MS + 77}


@pytest.mark.parametrize("cut_bytes", range(1, 12))
def test_records_that_are_cut(cut_bytes: int) -> None:
    stored = [batches.batch(rows_of([0] * 2, [100] * 3))[:-cut_bytes]]
    found = spliced(stored, regular=True)
    assert isinstance(found, str)
    assert found == spliced(stored, regular=False)


def test_offsets_behind_those_that_are_looked_up() -> None:
    each = batches.batch(rows_of([0] * 59, [100] * 60))
    count = CODE_SIZE // 60 + 2
    stored = [batches.patched(each, base_offset=number * 60) for number in range(count)]
    found = spliced(stored, regular=True)
    assert found == spliced(stored, regular=False)
    assert found[1] == tuple(range(count * 60))


def test_records_with_the_usual_numbers_are_taken_in_the_shorter_way() -> None:
    """The other tests would compare the longer way with itself otherwise."""
    taken = []
    each = batches.batch(rows_of([63] * 69, [100] * 70))
    header, records = Header(each, 0), Records()
    taken.append(records._splice_regular(each, HEADER_BYTES, 70, 0, header.base_timestamp_ms)[0])
    taken.append(records._splice_regular(each, HEADER_BYTES, 9, 70, header.base_timestamp_ms)[0])
    assert taken == [64, 9]
    assert records.count == 73
