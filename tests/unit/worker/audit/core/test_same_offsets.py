"""Offsets that are claimed: others are counted, and each change of the shift is a finding."""

from __future__ import annotations

import random

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_testkit.records.copies import Placed, chunks, compare, content
from ureplicator_worker.audit.core.claims import SAME, UNCLAIMED, Claim, claim_of
from ureplicator_worker.audit.core.comparison import Comparison
from ureplicator_worker.audit.core.side import Side
from ureplicator_worker.audit.result import FindingKind

COUNT = 3_000
SHIFTED = FindingKind.SHIFTED

SOURCE = [(offset, content(offset)) for offset in range(COUNT)]


def compared(source: list[Placed], target: list[Placed], claim: Claim = SAME) -> Comparison:
    return compare(source, target, claim=claim, leading=False)


def named(found: Comparison) -> list[tuple[FindingKind, int, int]]:
    return [(each.kind, each.source_offset, each.target_offset) for each in found.findings]


def moved(first: int, shift: int) -> list[Placed]:
    """The copy, shifted from an offset on."""
    return [(offset + shift * (offset >= first), held) for offset, held in SOURCE]


def test_gaps_that_both_have_are_no_difference() -> None:
    log = [placed for placed in SOURCE if placed[0] % 7]
    found = compared(log, list(log))
    assert (found.compared, found.findings) == (len(log), [])


@pytest.mark.parametrize("first", [0, 1, 499, 500, 501, COUNT - 1])
@pytest.mark.parametrize("shift", [1, 3])
def test_the_first_record_behind_a_shift_is_named(first: int, shift: int) -> None:
    found = compared(SOURCE, moved(first, shift))
    assert named(found) == [(SHIFTED, first, first + shift)]
    assert found.counts[SHIFTED] == COUNT - first
    assert found.compared == COUNT


def test_a_shift_that_is_taken_back_and_comes_again_is_named_twice() -> None:
    target = [(offset + (offset % 1_000 >= 900), held) for offset, held in SOURCE]
    gaps = [placed for placed in SOURCE if placed[0] % 1_000]
    target = [placed for placed in target if placed[1] in {held for _, held in gaps}]
    found = compared(gaps, target)
    assert named(found) == [(SHIFTED, n, n + 1) for n in (900, 1_900, 2_900)]
    assert found.counts[SHIFTED] == 300


def test_a_record_that_is_missing_is_named_though_a_gap_keeps_the_offsets() -> None:
    found = compared(SOURCE, [placed for placed in SOURCE if placed[0] != 70])
    assert named(found) == [(FindingKind.MISSING, 70, -1)]


def test_a_record_that_is_left_out_shifts_those_behind_it() -> None:
    found = compared(SOURCE, [placed for placed in moved(71, -1) if placed[1] != content(70)])
    assert sorted(named(found)) == [(FindingKind.MISSING, 70, -1), (SHIFTED, 71, 70)]


@pytest.mark.parametrize("seed", range(20))
def test_shifts_are_counted_wherever_they_are(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    shift, target = 0, []
    for offset, held in SOURCE:
        shift += dice.random() < 0.01
        target.append((offset + shift, held))
    found = compared(SOURCE, target)
    differing = [place for place, (offset, _) in enumerate(target) if offset != place]
    changes = [n for n in differing if target[n][0] - n != (target[n - 1][0] - (n - 1) if n else 0)]
    assert named(found) == [(SHIFTED, n, target[n][0]) for n in changes]
    assert found.counts[SHIFTED] == len(differing)


def test_elsewhere_offsets_are_not_looked_at() -> None:
    assert compare(SOURCE, moved(10, 5)).findings == []


def claimed(shift: int, *, since: int, before: int = COUNT) -> Claim:
    return Claim(since, shift, before)


@pytest.mark.parametrize(
    ("claim", "differing"),
    [
        (claimed(1, since=1_500), range(0)),
        (claimed(1, since=1_499), range(1_499, 1_500)),
        (claimed(0, since=0, before=1_500), range(0)),
        (claimed(0, since=0), range(1_500, COUNT)),
        (claimed(0, since=1_700, before=1_900), range(1_700, 1_900)),
        (claimed(2, since=2_000), range(2_000, COUNT)),
        (claimed(0, since=COUNT), range(0)),
    ],
)
def test_a_takeover_shifts_what_follows(claim: Claim, differing: range) -> None:
    """Only records lie elsewhere that the claim is about."""
    found = compared(SOURCE, moved(1_500, 1), claim)
    assert found.counts[SHIFTED] == len(differing)
    first = [(SHIFTED, n, n + (n >= 1_500)) for n in differing[:1]]
    assert (named(found), found.compared) == (first, COUNT)


@pytest.mark.parametrize("before", [1, 499, 500, 501, COUNT])
def test_a_step_ends_where_the_claim_does(before: int) -> None:
    log = [Side(chunks(SOURCE), 0) for _ in range(2)]
    found = Comparison(0, *log, required=COUNT, claim=claimed(0, since=0, before=before))
    reached = []
    while found.step():
        reached.append(found.next_offsets[0])
    assert before in reached


@pytest.mark.parametrize(
    ("same", "claim"),
    [
        (None, UNCLAIMED),
        (SameOffsets(40, 1, "why"), Claim(40, 1, 90)),
        (SameOffsets(90, filling=90), Claim(90, 0, 90)),
    ],
)
def test_the_claim_of_a_position(same: SameOffsets | None, claim: Claim) -> None:
    written = Provenance("A", "s", "t", "w", 0, 1, same=same).encode()
    assert claim_of(Position(90, metadata=written)) == claim
    assert claim_of(Position(90)) == claim_of(None) == UNCLAIMED
