"""Headers are read as a library wrote them, and changed nowhere but where they must be."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_worker.batches.derived_checksum import MOST_STEPS, STEP_BYTES, derived
from ureplicator_worker.batches.header import (
    CorruptBatch,
    Header,
    Kind,
    marker_type,
    next_sequence,
    spans,
    stamp,
    verify_crc,
)

INT63 = st.integers(0, 2**62)


@given(
    count=st.integers(1, 5),
    codec=st.sampled_from(batches.CODECS),
    base=INT63,
    epoch=st.integers(-1, 2**31 - 1),
    at=st.integers(0, 20),
)
def test_a_header_describes_what_was_built(
    count: int, codec: int, base: int, epoch: int, at: int
) -> None:
    whole = batches.batch(count, base_offset=base, codec=codec, leader_epoch=epoch)
    header = Header(b"\xee" * at + whole + b"\xee", at)
    assert (header.magic, header.codec, header.records) == (2, codec, count)
    assert (header.base_offset, header.last_offset) == (base, base + count - 1)
    assert (header.leader_epoch, header.producer_id) == (epoch, -1)
    assert header.max_timestamp_ms == 1_000 + count - 1
    verify_crc(memoryview(whole), header)


@given(
    codec=st.sampled_from(batches.CODECS),
    attributes=st.integers(0, 0x7FFF).map(lambda bits: bits & ~0x07),
    base=INT63,
    producer=st.tuples(INT63, st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)
def test_a_stamp_changes_only_what_it_names(
    codec: int, attributes: int, base: int, producer: tuple[int, int, int]
) -> None:
    before = batches.batch(3, base_offset=base, codec=codec, leader_epoch=9, attributes=attributes)
    after = bytearray(before)
    producer_id, epoch, sequence = producer
    stamp(memoryview(after), producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    assert batches.checksum_fits(after)
    assert batches.field(after, "base_offset") == 0
    assert batches.field(after, "attributes") == batches.field(before, "attributes") & 0x07
    assert batches.field(after, "producer_id") == producer_id
    assert batches.field(after, "producer_epoch") == epoch
    assert batches.field(after, "base_sequence") == sequence
    named = {*range(8), *range(17, 23), *range(43, 57)}
    assert all(after[at] == before[at] for at in range(len(before)) if at not in named)


def test_a_stamp_may_be_changed() -> None:
    data = bytearray(batches.batch(3, producer_id=4))
    for sequence in (0, 7):
        stamp(memoryview(data), producer_id=1, producer_epoch=0, sequence=sequence)
    once = bytearray(batches.batch(3, producer_id=4))
    stamp(memoryview(once), producer_id=1, producer_epoch=0, sequence=7)
    assert data == once


MOST_BYTES = MOST_STEPS * STEP_BYTES
SIZES = [
    size + more
    for size in (1, STEP_BYTES, 2 * STEP_BYTES, 131_072, MOST_BYTES, 2 * MOST_BYTES)
    for more in (-1, 0, 1)
]


@given(
    before=st.binary(min_size=1, max_size=40),
    data=st.data(),
    front=st.binary(max_size=9),
    behind_bytes=st.one_of(st.sampled_from(SIZES), st.integers(0, 3 * MOST_BYTES)),
)
def test_a_derived_checksum_is_that_of_the_bytes(
    before: bytes, data: st.DataObject, front: bytes, behind_bytes: int
) -> None:
    after = data.draw(st.binary(min_size=len(before), max_size=len(before)))
    behind = (bytes(range(251)) * (behind_bytes // 251 + 1))[:behind_bytes]
    assert derived(
        crc32c(front + before + behind), before=before, after=after, behind_bytes=behind_bytes
    ) == crc32c(front + after + behind)


@pytest.mark.parametrize("size", [1, 200, 70_000, MOST_BYTES - 200, MOST_BYTES])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_checked_batch_is_stamped_alike(size: int, transactional: bool) -> None:
    rows = [(1, None, b"x" * size, ())]
    stamped = []
    for checked in (False, True):
        data = bytearray(batches.batch(rows, producer_id=4, attributes=batches.TRANSACTIONAL))
        for sequence in (0, 7):
            stamp(
                memoryview(data),
                producer_id=1,
                producer_epoch=sequence,
                sequence=sequence,
                transactional=transactional,
                checked=checked,
            )
            assert batches.checksum_fits(data)
        stamped.append(data)
    assert stamped[0] == stamped[1]


WHOLE = batches.batch(3, base_offset=10)
TRANSACTIONAL = batches.batch(3, base_offset=10, producer_id=5, attributes=batches.TRANSACTIONAL)


@pytest.mark.parametrize(
    ("data", "position", "kind"),
    [
        pytest.param(WHOLE, 10, Kind.PASS, id="contiguous, plain"),
        pytest.param(WHOLE, 0, Kind.PASS, id="ahead of the position"),
        pytest.param(
            batches.batch(3, base_offset=10, producer_id=5), 10, Kind.PASS, id="idempotent"
        ),
        pytest.param(TRANSACTIONAL, 10, Kind.PASS, id="committed transaction"),
        pytest.param(
            batches.batch(3, base_offset=10, attributes=batches.DELETE_HORIZON),
            10,
            Kind.PASS,
            id="horizon",
        ),
        pytest.param(
            batches.batch(3, base_offset=10, attributes=0x7F80), 10, Kind.PASS, id="high bits"
        ),
        pytest.param(
            batches.marker(base_offset=10, producer_id=5, commit=True),
            10,
            Kind.CONTROL,
            id="marker",
        ),
        pytest.param(
            batches.batch(2, base_offset=10, deltas=[0, 2]),
            10,
            Kind.REBUILD,
            id="hole in the middle",
        ),
        pytest.param(
            batches.patched(batches.batch(2, base_offset=10), last_offset_delta=5),
            10,
            Kind.REBUILD,
            id="hole at the end",
        ),
        pytest.param(batches.emptied(WHOLE), 10, Kind.DROP, id="emptied"),
        pytest.param(
            batches.emptied(batches.marker(base_offset=10, producer_id=5, commit=False)),
            10,
            Kind.DROP,
            id="emptied marker",
        ),
        pytest.param(
            batches.batch(3, base_offset=10, attributes=batches.LOG_APPEND_TIME),
            10,
            Kind.REBUILD,
            id="log append time",
        ),
        pytest.param(
            batches.old_batch([(1, b"k", b"v")], magic=0, base_offset=10),
            10,
            Kind.REBUILD,
            id="format 0",
        ),
        pytest.param(
            batches.old_batch([(1, b"k", b"v")], magic=1, base_offset=10),
            10,
            Kind.REBUILD,
            id="format 1",
        ),
        pytest.param(WHOLE, 11, Kind.REBUILD, id="position inside"),
        pytest.param(WHOLE, 12, Kind.REBUILD, id="position at the last record"),
        pytest.param(WHOLE, 13, Kind.DROP, id="position behind"),
    ],
)
def test_kind(data: bytes, position: int, kind: Kind) -> None:
    assert Header(data, 0).kind(position) is kind


def test_markers_tell_how_a_transaction_ended() -> None:
    for commit in (False, True):
        data = batches.marker(base_offset=10, producer_id=5, commit=commit)
        assert marker_type(memoryview(data)) == int(commit)


def test_a_garbled_marker_is_corrupt() -> None:
    data = batches.marker(base_offset=10, producer_id=5, commit=False)
    with pytest.raises(CorruptBatch, match="marker"):
        marker_type(memoryview(data)[:66])


@given(st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=6), st.data())
def test_spans_are_the_whole_batches_before_a_cut(counts: list[int], data: st.DataObject) -> None:
    stored = [batches.batch(count) for count in counts]
    raw = b"".join(stored)
    cut = data.draw(st.integers(len(stored[0]), len(raw)))
    places = spans(b"??" + raw, 2, 2 + cut)
    found = [raw[start - 2 : stop - 2] for start, stop in places]
    assert found == stored[: len(found)]
    left = cut - sum(map(len, found))
    assert len(found) == len(stored) or left < len(stored[len(found)])


def test_nothing_is_no_batch() -> None:
    assert list(spans(b"", 0, 0)) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 4, 5, 48, 2**31 - 1])
def test_a_garbage_length_is_corrupt(length: int) -> None:
    data = batches.patched(WHOLE, length=length)
    with pytest.raises(CorruptBatch):
        list(spans(data, 0, len(data)))


def test_a_garbage_length_behind_whole_batches_is_a_cut_at_most() -> None:
    data = WHOLE + batches.patched(WHOLE, length=2**31 - 1)
    assert list(spans(data, 0, len(data))) == [(0, len(WHOLE))]


@pytest.mark.parametrize("magic", [3, -1])
def test_an_unknown_format_is_corrupt(magic: int) -> None:
    data = batches.patched(WHOLE, magic=magic)
    with pytest.raises(CorruptBatch, match="format"):
        list(spans(data, 0, len(data)))


@given(st.binary(max_size=400))
def test_no_garbage_is_more_than_corrupt(data: bytes) -> None:
    try:
        for start, stop in spans(data, 0, len(data)):
            verify_crc(memoryview(data)[start:stop], Header(data, start))
    except CorruptBatch:
        pass


@given(st.integers(21, len(WHOLE) - 1), st.integers(1, 255))
def test_every_flipped_byte_behind_the_checksum_is_found(at: int, flip: int) -> None:
    data = bytearray(WHOLE)
    data[at] ^= flip
    with pytest.raises(CorruptBatch, match="checksum"):
        verify_crc(memoryview(data), Header(data, 0))


def test_sequences_wrap_to_zero() -> None:
    assert next_sequence(0, 5) == 5
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 5) == 2
