"""Histories of a topic and its copy in which nothing is wrong: nothing is reported but repeats.

Transactions and aborts at the source; crashes of copiers, or transactions at the target; compaction and
retention on either side, before and after the copy.
"""

import random
from collections import Counter
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records.copies import Course, History, history
from ureplicator_worker.audit.result import FindingKind

COURSES = [
    Course(
        exactly_once=exactly_once,
        compact_source=source,
        compact_target=target,
        delete_source=delete,
        delete_target=delete,
    )
    for exactly_once, source, target, delete in product((False, True), repeat=4)
] + [
    *(
        Course(equal_contents=True, exactly_once=exactly_once, keys=keys)
        for exactly_once, keys in product((False, True), (20, 200))
    ),
    Course(keys=3, compact_source=True),
    Course(keys=3, compact_target=True),
    Course(keys=2_000, compact_source=True, compact_target=True),
    Course(keys=2_000, exactly_once=True, compact_target=True, delete_source=True),
]
assert len(COURSES) == 24


def assert_no_alarm(course: Course, seed: int) -> None:
    """Equal records may be counted as repeats, or as copies of the next ones: it is not determined."""
    past = history(course, random.Random(seed))  # noqa: S311
    found = past.compare()
    counts = {kind.value: count for kind, count in found.counts.items() if count}
    repeated = counts.pop("repeated", 0)
    assert not counts, found.findings[:5]
    assert course.equal_contents or past.repeats in (None, repeated)
    assert not (course.exactly_once and repeated)


@pytest.mark.parametrize("number", range(len(COURSES)))
def test_random_history(number: int) -> None:
    assert_no_alarm(COURSES[number], seed=number)


@pytest.mark.parametrize("seed", [422, 466, 543, 550, 577])
def test_repeats_of_frequent_contents_are_no_records_that_moved(seed: int) -> None:
    """A copier crashed twice within a few records, or just before the end."""
    assert_no_alarm(Course(equal_contents=True, keys=200), seed)


@pytest.mark.parametrize(
    ("compact_target", "seed"),
    [(False, 403), *((True, seed) for seed in (238, 311, 501, 1848, 1851, 103235))],
)
def test_repeats_of_records_that_compaction_removed(compact_target: bool, seed: int) -> None:
    """The source has removed them, the target their first copies, or a region begins within the repeats."""
    assert_no_alarm(Course(keys=2_000, compact_source=True, compact_target=compact_target), seed)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 7, 8, 9])
def test_a_foreign_record_of_a_compacted_topic_is_named(seed: int) -> None:
    """Neither log has a hole there, and nothing is repeated."""
    dice = random.Random(seed)  # noqa: S311
    past = history(Course(keys=20_000, exactly_once=True, compact_source=True), dice)
    place = dice.choice([n for n in range(10, len(past.target) - 20) if _has_no_holes(past, n)])
    foreign = past.with_foreign((b"k1", b"foreign", (), 1_000), place)
    assert foreign.compare().counts[FindingKind.FOREIGN] == 1


def _has_no_holes(past: History, place: int) -> bool:
    """True if 10 records before it and 20 from it on follow each other in both logs, offset by offset."""
    at = {content: offset for offset, content in past.source if offset < past.required}
    near = past.target[place - 10 : place + 20]
    ours = [at.get(content, 0) for _, content in near]
    return all(
        b == a + 1 for log in (ours, [offset for offset, _ in near]) for a, b in pairwise(log)
    )


DETERMINED = [chosen for chosen in COURSES if chosen.exactly_once or not chosen.equal_contents]
"""In the others contents recur at random and are repeated: some repeats are taken for records that moved
(docs/audit.md, limits)."""


@given(st.sampled_from(DETERMINED), st.integers(0, 1 << 32))
def test_any_history(course: Course, seed: int) -> None:
    assert_no_alarm(course, seed)


@given(st.booleans(), st.integers(0, 1 << 32))
def test_two_comparisons_are_as_one(exactly_once: bool, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    past = history(Course(records=800, exactly_once=exactly_once), dice)
    first, second = past.compare_in_two(dice)
    assert {finding.kind for finding in (*first.findings, *second.findings)} <= {
        FindingKind.REPEATED
    }
    assert len(first.findings) + len(second.findings) == past.repeats
    assert first.compared + second.compared == past.compare().compared


@pytest.mark.parametrize("number", range(16))
def test_a_lost_record_is_named_in_each_history_without_compaction(number: int) -> None:
    course = COURSES[number]
    if course.compact_source or course.compact_target:
        course = Course(exactly_once=course.exactly_once, delete_target=course.delete_target)
    past = history(course, random.Random(number))  # noqa: S311
    original = dict(past.source)
    seen = Counter(content for _, content in past.target)
    middle = [o for o, c in original.items() if seen[c] == 1 and o < past.required]
    lost = middle[len(middle) // 2]
    found = past.without(original[lost]).compare()
    named = [finding for finding in found.findings if finding.kind is not FindingKind.REPEATED]
    assert [(finding.kind, finding.source_offset) for finding in named] == [
        (FindingKind.MISSING, lost)
    ]
