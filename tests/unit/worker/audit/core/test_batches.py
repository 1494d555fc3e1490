"""Batches that are compared by their checksums: only equal records are passed over."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from crc32c import crc32c

from ureplicator_testkit.records.batches import (
    TRANSACTIONAL,
    batch,
    emptied,
    field,
    marker,
    old_batch,
    patched,
)
from ureplicator_testkit.records.copies import Course, Placed, chunks, content, history
from ureplicator_worker.audit.core import batches as core
from ureplicator_worker.audit.core.batches import (
    HEADER,
    Aborted,
    Batch,
    Lockstep,
    Matched,
    OldFormat,
    Place,
    parsed,
    shifted,
)
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim
from ureplicator_worker.audit.core.comparison import Comparison
from ureplicator_worker.audit.core.side import Content, Side
from ureplicator_worker.audit.result import FindingKind

COUNT, SIZE = 400, 10
GZIP = 1
BEGIN = Place(0, 0)


def stored(contents: Sequence[Content], *, base_offset: int = 0, codec: int = 0) -> bytes:
    rows = [
        (time or 0, key, value, [(name, header) for name, header in headers])
        for key, value, headers, time in contents
    ]
    return batch(rows, base_offset=base_offset, codec=codec)


def copied(whole: bytes, number: int, *, base_offset: int) -> bytes:
    """The batch as a copier passes it on, in a transaction of its own producer."""
    return patched(
        whole,
        base_offset=base_offset,
        attributes=field(whole, "attributes") | TRANSACTIONAL,
        producer_id=7,
        producer_epoch=number % 3,
        base_sequence=number * 10,
    )


def read(
    log: Sequence[bytes], *, timestamps: bool = True, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[Batch]:
    transactions = Aborted(aborted)
    for raw in log:
        found, _, size = parsed(raw[: HEADER.size], timestamps=timestamps, aborted=transactions)
        assert size == len(raw) - HEADER.size
        if found is not None:
            yield found


def logs(*, codec: int = 0) -> tuple[list[bytes], list[bytes]]:
    """The target has a marker behind every fifth batch."""
    source, target, offset = [], [], 0
    for number in range(COUNT // SIZE):
        first = number * SIZE
        contents = [content(n) for n in range(first, first + SIZE)]
        source.append(stored(contents, base_offset=first, codec=codec))
        target.append(copied(source[-1], number, base_offset=offset))
        offset += SIZE
        if number % 5 == 4:
            target.append(marker(base_offset=offset, producer_id=7, commit=True))
            offset += 1
    return source, target


def lockstep(
    source: Sequence[bytes],
    target: Sequence[bytes],
    *,
    place: Place = BEGIN,
    end: int = COUNT,
    claim: Claim = UNCLAIMED,
) -> Matched:
    return Lockstep(read(source), read(target), place=place, end=end, claim=claim).run()


@pytest.mark.parametrize("codec", [0, GZIP])
def test_copied_batches_are_equal(codec: int) -> None:
    source, target = logs(codec=codec)
    assert lockstep(source, target) == Matched(Place(COUNT, COUNT + 7))
    assert lockstep(source, target, end=COUNT - SIZE) == Matched(Place(COUNT - 10, COUNT - 10 + 7))


def test_it_goes_on_in_the_middle_of_a_batch_if_both_are_as_far() -> None:
    source, target = logs()
    assert lockstep(source[3:], target[3:], place=Place(34, 34)).place.source == COUNT
    for place in (Place(34, 35), Place(34, 30), Place(30, 34)):
        assert lockstep(source[3:], target[3:], place=place) == Matched(place, True, SIZE)


@pytest.mark.parametrize(
    ("claim", "reached"),
    [
        (Claim(0, 0, COUNT), 50),
        (Claim(0, 0, 50), COUNT),
        (Claim(50, 1, 100), COUNT),
        (Claim(45, 1, 100), 40),
        (Claim(50, 0, 100), 50),
        (Claim(353, 7, COUNT), COUNT),
        (Claim(353, 8, COUNT), 350),
        (Claim(350, 7, 353), COUNT),
        (Claim(350, 8, 353), 350),
    ],
)
def test_a_batch_that_lies_elsewhere_than_claimed_is_a_difference(
    claim: Claim, reached: int
) -> None:
    """A batch has one shift: what is claimed of one of its records is so of all."""
    source, target = logs()
    found = lockstep(source, target, claim=claim)
    assert (found.place.source, found.differs) == (reached, reached < COUNT)


def test_the_end_of_a_side_is_a_difference() -> None:
    source, target = logs()
    assert lockstep(source, target[:20]).place == Place(170, 173)
    assert lockstep(source[:3], target) == Matched(Place(30, 30), differs=True)


def test_it_ends_when_it_is_late() -> None:
    source, target = logs()
    ends = iter([False, False, True])
    found = Lockstep(
        read(source), read(target), place=Place(0, 0), end=COUNT, late=lambda: next(ends)
    ).run()
    assert found == Matched(Place(20, 20))


def _altered(part: int, value: object) -> Callable[[list[Content]], None]:
    def change(contents: list[Content]) -> None:
        record = list(contents[4])
        record[part] = value
        contents[4] = tuple(record)

    return change


def _swap(contents: list[Content]) -> None:
    contents[3], contents[4] = contents[4], contents[3]


def _double(contents: list[Content]) -> None:
    contents[4:4] = [contents[4]]


def _remove(contents: list[Content]) -> None:
    del contents[4]


CHANGES = {
    "key": _altered(0, b"K4"),
    "value": _altered(1, b"V124"),
    "no value": _altered(1, None),
    "headers": _altered(2, (("h", b"x"),)),
    "timestamp": _altered(3, 5_000),
    "swapped": _swap,
    "repeated": _double,
    "missing": _remove,
}


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("name", CHANGES)
def test_no_change_of_a_record_is_passed_over(name: str, codec: int) -> None:
    source, target = logs(codec=codec)
    contents = [content(n) for n in range(120, 130)]
    CHANGES[name](contents)
    base = field(target[14], "base_offset")
    target[14] = copied(stored(contents, codec=codec), 12, base_offset=base)
    assert lockstep(source, target).place == Place(120, base)


def test_no_change_of_batches_is_passed_over() -> None:
    source, target = logs()
    at = 14
    base = field(target[at], "base_offset")
    for changed in (
        target[:at] + target[at + 1 :],
        [*target[:at], target[at - 1], *target[at:]],
        [*target[:at], target[at + 1], target[at], *target[at + 2 :]],
        [*target[:at], stored([content(9_999)]), *target[at:]],
    ):
        found = lockstep(source, changed)
        assert found.differs
        assert found.place == Place(120, base)


def test_any_change_of_bits_is_seen() -> None:
    """Bursts of up to 32 bits always, as in each CRC."""
    dice = random.Random(1)  # noqa: S311
    whole = stored([content(n) for n in range(50)])
    for _ in range(2_000):
        damaged = bytearray(whole)
        first = dice.randrange(HEADER.size * 8, len(whole) * 8 - 32)
        for bit in {first, *(first + dice.randrange(32) for _ in range(dice.randrange(4)))}:
            damaged[bit // 8] ^= 1 << bit % 8
        there = copied(bytes(damaged), 3, base_offset=0)
        (ours,), (theirs,) = read([whole]), read([there])
        assert not core.equal(ours, theirs)


def test_what_only_the_records_can_show_is_not_equal() -> None:
    records = [content(n) for n in range(5)]
    whole = stored(records)
    for unfit in (
        patched(whole, attributes=0x08),
        patched(whole, attributes=0x40),
        patched(whole, last_offset_delta=7),
    ):
        (found,) = read([unfit])
        assert found.form is None
        assert not core.equal(found, found)
    (merged,) = read([stored(records + records)])
    (single,) = read([whole])
    assert not core.equal(merged, single)


def test_times_that_the_target_stamps_are_left_out() -> None:
    whole = stored([content(n) for n in range(5)])
    there = patched(whole, attributes=0x08, max_timestamp=99_999)
    (ours,), (theirs,) = read([whole], timestamps=False), read([there], timestamps=False)
    assert core.equal(ours, theirs)


def test_markers_and_emptied_batches_hold_nothing() -> None:
    assert list(read([marker(base_offset=3, producer_id=7, commit=True)])) == []
    assert list(read([emptied(stored([content(1)]))])) == []


def test_records_of_aborted_transactions_are_left_out_and_no_others() -> None:
    records = [content(n) for n in range(SIZE)]

    def sent(offset: int, producer: int) -> bytes:
        whole = stored(records, base_offset=offset)
        return patched(whole, attributes=TRANSACTIONAL, producer_id=producer)

    log = [
        sent(0, 7),
        marker(base_offset=10, producer_id=7, commit=True),
        sent(11, 7),
        sent(21, 8),
        sent(31, 7),
        stored(records, base_offset=41),
        marker(base_offset=51, producer_id=7, commit=False),
        sent(52, 7),
        sent(62, 7),
        marker(base_offset=72, producer_id=7, commit=False),
        marker(base_offset=73, producer_id=8, commit=True),
    ]
    found = [kept.first for kept in read(log, aborted=[(7, 11), (7, 62)])]
    assert found == [0, 21, 41, 52]


def test_old_formats_are_refused() -> None:
    old = old_batch([(1_000, b"k", b"v" * 100)], magic=1)
    with pytest.raises(OldFormat):
        list(read([old]))


@pytest.mark.parametrize("size", [0, 1, 1_000, 100_000, (1 << 20) + 17, (2 << 20) + 40_000])
def test_a_checksum_is_shifted_as_by_zeros(size: int) -> None:
    one, other = crc32c(b"one"), crc32c(b"two")
    zeros = bytes(size)
    assert shifted(one ^ other, size) == crc32c(zeros, one) ^ crc32c(zeros, other)


@pytest.mark.parametrize("wrong", ["never", "always", "no header", "no count"])
def test_mutants_are_seen(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Each part of `equal` is needed: without it a copy differs, or an altered one does not."""
    source, target = logs()
    contents = [content(n) for n in range(120, 130)]
    CHANGES["value"](contents)
    altered = copied(stored(contents), 12, base_offset=0)
    (ours,), (same,), (other,) = read(source[12:13]), read(target[14:15]), read([altered])
    assert (core.equal(ours, same), core.equal(ours, other)) == (True, False)
    mutants: dict[str, Any] = {
        "never": lambda a, b: False,
        "always": lambda a, b: True,
        "no header": lambda a, b: a.crc == b.crc,
        "no count": lambda a, b: a.size == b.size,
    }
    monkeypatch.setattr(core, "equal", mutants[wrong])
    assert (core.equal(ours, same), core.equal(ours, other)) != (True, False)


# Histories.


def cut(log: Sequence[Placed]) -> list[bytes]:
    """Batches that end where a content says so, or before a hole: on both sides at the same records."""
    found: list[list[Placed]] = [[log[0]]]
    for before, after in pairwise(log):
        if after[0] != before[0] + 1 or crc32c(repr(before[1]).encode()) % 6 == 0:
            found.append([])
        found[-1].append(after)
    return [stored([c for _, c in run], base_offset=run[0][0]) for run in found]


COURSES = [
    Course(
        exactly_once=bool(bits & 1),
        compact_source=bool(bits & 2),
        compact_target=bool(bits & 4),
        delete_source=bool(bits & 8),
        delete_target=bool(bits & 16),
    )
    for bits in range(32)
]


@pytest.mark.parametrize("course", COURSES)
def test_what_is_passed_over_is_equal_and_the_rest_is_no_alarm(course: Course) -> None:
    past = history(course, random.Random(5))  # noqa: S311
    dice = random.Random(6)  # noqa: S311
    there = {content: offset for offset, content in past.target}
    common = [(o, there[c]) for o, c in past.source if c in there and o < past.required]
    total = 0
    for _ in range(5):
        place = Place(*dice.choice(common))
        ours = [record for record in past.source if record[0] >= place.source]
        theirs = [record for record in past.target if record[0] >= place.target]
        found = lockstep(cut(ours), cut(theirs), place=place, end=past.required).place
        passed = [content for offset, content in ours if offset < found.source]
        assert passed == [content for offset, content in theirs if offset < found.target]
        total += len(passed)
        rest = Comparison(
            0,
            Side(
                chunks([record for record in past.source if record[0] >= found.source]),
                found.source,
            ),
            Side(
                chunks([record for record in past.target if record[0] >= found.target]),
                found.target,
            ),
            required=past.required,
            limits=past.limits,
            leading=False,
            tail=lambda end=found.source: chunks([e for e in past.source if e[0] < end]),  # type: ignore[misc]
        )
        while rest.step():
            pass
        rest.finish()
        assert {kind for kind, count in rest.counts.items() if count} <= {FindingKind.REPEATED}
    assert total
