"""Equal batches of one record are taken by columns: with the same outcome as one by one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import HEADER_BYTES
from ureplicator_worker.batches import plain
from ureplicator_worker.batches.equal import LEAST, read_equal
from ureplicator_worker.batches.plain import PlainRecords, Taken

Change = Callable[[bytes], bytes]

NOW_MS = 1_700_000_000_000
SIZES = (0, 1, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 100, 900)
"""Of values: lengths of the record of one byte and of two, and those between."""


def stored(value_bytes: int, times_ms: list[int], *, first_offset: int = 0) -> list[bytes]:
    """Batches of one record, each with another key of three bytes."""
    return [
        batches.batch(
            [(NOW_MS + time_ms, b"%03d" % place, b"v" * value_bytes, ())],
            base_offset=first_offset + place,
            leader_epoch=3,
        )
        for place, time_ms in enumerate(times_ms)
    ]


def take(
    data: bytes, *, position: int = 0, end_offset: int = 10_000, check_crc: bool = True
) -> tuple[Taken, PlainRecords]:
    records = PlainRecords()
    taken = records.take_plain(
        memoryview(data),
        0,
        len(data),
        position=position,
        end_offset=end_offset,
        batch_bytes=8_192,
        limit_bytes=1 << 20,
        check_crc=check_crc,
    )
    return taken, records


def outcome(taken: Taken, records: PlainRecords) -> tuple[object, ...]:
    built = records.build(codec=0)
    if built is None:
        return (taken,)
    return taken, bytes(built.data), built.offsets, built.records, built.max_timestamp_ms


def assert_same(data: bytes, **how: Any) -> None:
    found = outcome(*take(data, **how))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainRecords, "_take_equal", lambda *_: False)
        assert found == outcome(*take(data, **how))


@pytest.mark.parametrize("value_bytes", SIZES)
@pytest.mark.parametrize("count", [LEAST - 1, LEAST, 63, 64, 65, 200])
def test_every_length_has_the_outcome_of_one_by_one(value_bytes: int, count: int) -> None:
    times_ms = [place // 2 for place in range(count)]
    assert_same(b"".join(stored(value_bytes, times_ms)))


TIMES = st.integers(0, 200) | st.sampled_from([-1, 20_000, 1 << 40])
FIELDS = {
    "base_offset": st.integers(0, 300),
    "leader_epoch": st.integers(0, 5),
    "magic": st.integers(0, 3),
    "attributes": st.integers(0, 16),
    "last_offset_delta": st.integers(0, 2),
    "base_timestamp": st.integers(-5, 300).map(lambda delta_ms: NOW_MS + delta_ms),
    "records": st.integers(0, 2),
    "producer_id": st.integers(-1, 3),
}
CHANGES = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), FIELDS[name])
)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 50, 100]), st.lists(TIMES, min_size=1, max_size=40)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.tuples(st.integers(0, 200), CHANGES), max_size=3),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=2),
    st.integers(0, 60),
    st.booleans(),
)
def test_changed_and_garbled_batches_have_the_outcome_of_one_by_one(
    runs: list[tuple[int, list[int]]],
    changes: list[tuple[int, tuple[str, int]]],
    flips: list[tuple[int, int]],
    end_offset: int,
    check_crc: bool,
) -> None:
    """Runs of equal batches, in which some differ by a field with a right checksum, and some by a byte."""
    whole: list[bytes] = []
    for value_bytes, times_ms in runs:
        whole += stored(value_bytes, sorted(times_ms), first_offset=len(whole))
    for place, (name, value) in changes:
        at = place % len(whole)
        whole[at] = batches.patched(whole[at], **{name: value})
    data = bytearray(b"".join(whole))
    for place, mask in flips:
        data[place % len(data)] ^= mask
    assert_same(bytes(data), end_offset=end_offset or 10_000, check_crc=check_crc)


def numbered(place: int, byte: int) -> Change:
    """Another byte in the numbers of the record, with a right checksum."""

    def change(whole: bytes) -> bytes:
        changed = bytearray(whole)
        changed[HEADER_BYTES + place] = byte
        return batches.patched(bytes(changed))

    return change


ALTERED: dict[str, Change] = {
    "format": lambda whole: batches.patched(whole, magic=1),
    "time of the broker": lambda whole: batches.patched(whole, attributes=8),
    "transactional": lambda whole: batches.patched(whole, attributes=16),
    "unknown attribute": lambda whole: batches.patched(whole, attributes=1 << 8),
    "last offset": lambda whole: batches.patched(whole, last_offset_delta=1),
    "last offset, high byte": lambda whole: batches.patched(whole, last_offset_delta=1 << 24),
    "count": lambda whole: batches.patched(whole, records=2),
    "count, high byte": lambda whole: batches.patched(whole, records=(1 << 24) + 1),
    "shorter": lambda whole: batches.batch([(NOW_MS, b"k", b"", ())]),
    "longer": lambda whole: batches.batch([(NOW_MS, b"k", b"v" * 200, ())]),
    "longer by 64 KiB": lambda whole: batches.batch([(NOW_MS, b"k", b"v" * (1 << 16), ())]),
    **{f"number {place} is {byte}": numbered(place, byte) for place in range(6) for byte in (1, 2)},
}


@pytest.mark.parametrize("name", ALTERED)
@pytest.mark.parametrize("value_bytes", [10, 100])
@pytest.mark.parametrize("altered", [range(1), range(20, 21), range(39, 40), range(40)])
def test_one_that_differs_has_the_outcome_of_one_by_one(
    name: str, value_bytes: int, altered: range
) -> None:
    whole = stored(value_bytes, [0] * 40)
    for at in altered:
        whole[at] = batches.patched(ALTERED[name](whole[at]), base_offset=at)
    assert_same(b"".join(whole))


def test_bytes_behind_the_only_record_are_no_batch() -> None:
    """They look like the next one, but belong to it by its length."""
    whole = stored(100, [0] * 40)
    both = bytearray(whole[20] + whole[21])
    both[8:12] = (len(both) - 12).to_bytes(4, "big")
    data = b"".join([*whole[:20], bytes(both), *whole[22:]])
    assert take(data, check_crc=False)[0].batches == 20
    assert_same(data, check_crc=False)


def test_equal_batches_before_the_position_are_left() -> None:
    data = b"".join(stored(100, [0] * 40))
    for position in (1, 20, 40):
        assert_same(data, position=position)
        assert take(data, position=position)[0].batches == 0


def test_equal_batches_behind_the_end_are_left() -> None:
    data = b"".join(stored(100, [0] * 40))
    for end_offset in (1, LEAST, 30):
        assert take(data, end_offset=end_offset)[0].next_offset == end_offset


@pytest.mark.parametrize("times_ms", [[5] * 20 + [4] * 20, [5] * 39 + [4], [0] * 39 + [1 << 40]])
def test_times_that_go_back_or_jump_have_the_outcome_of_one_by_one(times_ms: list[int]) -> None:
    assert_same(b"".join(stored(100, times_ms)))


def test_the_latest_time_of_former_ones_counts() -> None:
    data = b"".join(stored(100, [0] * 19 + [90]) + stored(50, [40] * 20, first_offset=20))
    taken, records = take(data)
    built = records.build(codec=0)
    assert built is not None
    assert (taken.batches, built.max_timestamp_ms) == (40, NOW_MS + 90)


def test_the_leader_epoch_is_that_of_the_last_one() -> None:
    whole = stored(100, [0] * 40)
    whole[-1] = batches.patched(whole[-1], leader_epoch=7)
    assert take(b"".join(whole))[0].leader_epoch == 7


def test_equal_batches_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests would compare that with itself otherwise."""
    singles: list[int] = []
    former = PlainRecords._take_singles

    def count(records: PlainRecords, cursor: plain._Cursor) -> None:
        before = cursor.batches
        former(records, cursor)
        singles.append(cursor.batches - before)

    monkeypatch.setattr(PlainRecords, "_take_singles", count)
    data = b"".join(stored(100, [place // 2 for place in range(300)]))
    taken, records = take(data)
    assert (taken.batches, records.count, sum(singles)) == (300, 300, 0)


@pytest.mark.parametrize("at", [0, 1, LEAST, 40])
def test_a_single_wrong_checksum_is_seen(at: int) -> None:
    whole = stored(100, [0] * 50)
    whole[at] = whole[at][:-1] + bytes([whole[at][-1] ^ 1])
    data = b"".join(whole)
    size = len(whole[0])
    how: dict[str, Any] = {"size": size, "rest_from": 66, "most": 50, "offset": 0}
    assert read_equal(data, 0, check_crc=True, **how) is None
    assert read_equal(data, 0, check_crc=False, **how) is not None
    taken, _ = take(data)
    assert taken.batches == at


def test_a_hole_ends_what_follows_one_another() -> None:
    whole = stored(100, [0] * 30) + stored(100, [0] * 30, first_offset=31)
    taken, records = take(b"".join(whole))
    built = records.build(codec=0)
    assert built is not None
    assert taken.batches == 60
    assert [built.offsets.at(index) for index in (0, 29, 30, 59)] == [0, 29, 31, 60]
