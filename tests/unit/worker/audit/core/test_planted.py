"""Differences planted into a copy: each is named with its offsets, and nothing else."""

import random
from collections.abc import Sequence

import pytest

from ureplicator_testkit.records.copies import Placed, compare, content
from ureplicator_worker.audit.result import FindingKind

COUNT = 20_000
PLANTED = 1_000
APART = 40
"""Planted records keep away from each other, so that there is one explanation only."""


def original(count: int = COUNT) -> list[Placed]:
    return [(offset, content(offset)) for offset in range(count)]


def placed(records: Sequence[tuple[object, ...]]) -> list[Placed]:
    return list(enumerate(records))


def picked(seed: int, count: int, apart: int = 2) -> list[int]:
    dice = random.Random(seed)  # noqa: S311
    return [pick * apart for pick in dice.sample(range(5, COUNT // apart - 5), count)]


@pytest.mark.parametrize("seed", range(5))
def test_all_kinds_at_once(seed: int) -> None:
    picks = picked(seed, 400, APART)
    gone, twice, altered, moved = (set(picks[n * 100 : (n + 1) * 100]) for n in range(4))
    swapped = list(moved)
    order = list(range(COUNT))
    for a, b in zip(swapped[::2], swapped[1::2], strict=True):
        order[a], order[b] = order[b], order[a]
    copy: list[tuple[object, ...]] = []
    expected = set()
    for place, offset in enumerate(order):
        record = content(offset)
        if place in gone:
            expected.add((FindingKind.MISSING, offset, -1))
            continue
        if place in altered:
            expected.add((FindingKind.ALTERED, offset, len(copy)))
            record = (record[0], b"altered", *record[2:])
        if place in moved:
            expected.add((FindingKind.REORDERED, offset, len(copy)))
        copy.append(record)
        if place in twice:
            expected.add((FindingKind.REPEATED, offset, len(copy)))
            copy.append(record)
    found = compare(original(), placed(copy), max_findings=COUNT)
    assert {
        (finding.kind, finding.source_offset, finding.target_offset) for finding in found.findings
    } == expected
    assert len(found.findings) == len(expected)
    assert found.compared == COUNT - 300


@pytest.mark.parametrize("length", [1, 63, 1_000, 10_000])
def test_a_run_is_missing_from_the_middle(length: int) -> None:
    first = 7_000
    copy = [content(n) for n in range(COUNT) if not first <= n < first + length]
    found = compare(original(), placed(copy), max_findings=COUNT)
    assert [finding.source_offset for finding in found.findings] == list(
        range(first, first + length)
    )
    assert found.counts[FindingKind.MISSING] == length


def test_a_gap_is_longer_than_any_window() -> None:
    count, first, length = 150_000, 20_000, 90_000
    copy = [content(n) for n in range(count) if not first <= n < first + length]
    found = compare(original(count), placed(copy))
    assert found.counts[FindingKind.MISSING] == length
    assert sum(found.counts.values()) == length


@pytest.mark.parametrize("apart", range(1, 6))
def test_two_records_are_swapped(apart: int) -> None:
    """One of two neighbours is named: it alone has moved."""
    copy = [content(n) for n in range(500)]
    copy[100], copy[100 + apart] = copy[100 + apart], copy[100]
    found = compare(original(500), placed(copy))
    named = sorted((finding.source_offset, finding.target_offset) for finding in found.findings)
    both = [(100, 100 + apart), (100 + apart, 100)]
    assert named in ([both[0]], [both[1]]) if apart == 1 else named == both
    assert {finding.kind for finding in found.findings} == {FindingKind.REORDERED}


@pytest.mark.parametrize(
    ("part", "name"), [(0, "key"), (1, "value"), (2, "headers"), (3, "timestamp")]
)
def test_the_altered_part_is_named(part: int, name: str) -> None:
    copy = [list(content(n)) for n in range(200)]
    copy[77][part] = (("x", b"y"),) if part == 2 else 5 if part == 3 else b"other"
    found = compare(original(200), placed([tuple(record) for record in copy]))
    assert [(finding.kind, finding.detail) for finding in found.findings] == [
        (FindingKind.ALTERED, name)
    ]


def test_the_end_is_missing_and_a_foreign_record_is_in_its_place() -> None:
    copy = [content(n) for n in range(400)] + [content(9_999)]
    found = compare(original(500), placed(copy))
    assert found.counts[FindingKind.MISSING] == 100
    assert found.counts[FindingKind.FOREIGN] == 1


def test_records_behind_the_position_may_be_copied_or_not() -> None:
    copy = [content(n) for n in range(450)]
    found = compare(original(500), placed(copy), required=400)
    assert not found.findings
    assert compare(original(500), placed(copy[:400]), required=400).findings == []


def test_a_finding_more_than_is_kept_is_counted() -> None:
    found = compare(original(500), placed([content(n) for n in range(300)]), max_findings=10)
    assert len(found.findings) == 10
    assert found.counts[FindingKind.MISSING] == 200


def test_what_is_not_copied_yet_is_left_to_the_next_comparison() -> None:
    """Records behind the position, and behind the target's end, are not verified, and not missing."""
    copy = [content(n) for n in range(300)]
    found = compare(original(500), placed(copy), required=400)
    assert [finding.source_offset for finding in found.findings] == list(range(300, 400))
    assert found.next_offsets == (400, 300)
    found = compare(original(500), placed(copy), required=200)
    assert (found.next_offsets, found.findings) == ((300, 300), [])


@pytest.mark.parametrize("count", [500, 100_000])
def test_a_difference_at_the_end_does_not_verify_what_is_not_copied_yet(count: int) -> None:
    copy = [content(n) for n in range(300)] + [content(999_999)]
    found = compare(original(count), placed(copy), required=300)
    assert found.next_offsets == (300, 301)
    assert [finding.kind for finding in found.findings] == [FindingKind.FOREIGN]


def test_a_record_is_missing_behind_the_position_if_later_ones_are_copied() -> None:
    copy = [content(n) for n in range(450) if n != 420]
    found = compare(original(500), placed(copy), required=400)
    assert [finding.source_offset for finding in found.findings] == [420]
    assert found.next_offsets == (450, 449)
