"""Segments of an offset map from the pairs of an audit: they say of each record where its copies lie."""

import random
from collections import defaultdict

from hypothesis import example, given
from hypothesis import strategies as st

from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_common.offset_map.segments import MAX_SEGMENTS, MapSegment
from ureplicator_testkit.records.copies import Course, compare, content, history
from ureplicator_worker.audit.core.pairs import Pairs
from ureplicator_worker.audit.result import FindingKind

COURSES = [
    Course(exactly_once=exactly_once, delete_source=source, delete_target=target)
    for exactly_once in (False, True)
    for source in (False, True)
    for target in (False, True)
]


@example(Course(), 247022725)
@example(Course(delete_source=True, delete_target=True), 435227)
@given(st.sampled_from(COURSES), st.integers(0, 1 << 32))
def test_they_agree_with_both_logs(course: Course, seed: int) -> None:
    """Forward to the last copy, back from each. Of what lies before the first pair repeats may be known.

    Records that have a copy there are recognised by that one, whose source offset is unknown. So the way back
    from another one may be rounded down.
    """
    past = history(course, random.Random(seed))  # noqa: S311
    pairs = Pairs()
    found = past.compare(pairs=pairs)
    segments = pairs.segments()
    view = MapView.of(segments)
    copies = defaultdict(list)
    for place, original in past.target:
        copies[original].append(place)
    known = [o for o, c in past.source if copies[c] and found.first_offset <= o < past.required]
    assert known
    for offset, record in past.source:
        if offset in known:
            assert view.forward(offset) == copies[record][-1]
            found_back = [
                view.backward(copied) for copied in copies[record] if copied >= segments[0].target
            ]
            assert found_back[-1] == offset
            if len(found_back) == len(copies[record]):
                assert set(found_back) == {offset}
            else:
                assert all(back is not None and back <= offset for back in found_back)
        elif copies[record] and offset < found.first_offset:
            assert view.forward(offset) in (None, copies[record][-1])


def test_a_short_log_with_repeats() -> None:
    """Shorter than a run: it is aligned by the longest common sequence."""
    source = [(10 + n, content(n)) for n in range(6)]
    target = list(enumerate(content(n) for n in (0, 1, 2, 3, 2, 3, 4, 5)))
    pairs = Pairs()
    assert compare(source, target, pairs=pairs).counts[FindingKind.REPEATED] == 2
    found = pairs.segments()
    assert [MapView.of(found).forward(10 + n) for n in range(6)] == [0, 1, 4, 5, 6, 7]
    assert [MapView.of(found).backward(n) for n in range(8)] == [10, 11, 12, 13, 12, 13, 14, 15]


def test_equal_differences_are_one_segment_also_across_chunks_and_holes_of_both() -> None:
    pairs = Pairs()
    pairs.add([5, 6, 7], [0, 1, 2])
    pairs.add([8, 10], [3, 5])
    pairs.add([11], [6])
    assert pairs.segments() == (MapSegment(5, 12, 0),)


def test_repeats_are_put_in_their_place() -> None:
    pairs = Pairs()
    pairs.add([0, 1, 2], [0, 1, 2])
    pairs.add([3, 4], [5, 6])
    pairs.add([1, 2], [3, 4], repeated=True)
    assert pairs.segments() == (
        MapSegment(0, 3, 0),
        MapSegment(1, 3, 3, repeated=True),
        MapSegment(3, 5, 5),
    )


def test_repeats_with_the_same_difference_are_not_joined_over_records_between_them() -> None:
    """Their difference is 2; what lies between them is explained later."""
    pairs = Pairs()
    pairs.add([0, 4], [0, 1])
    pairs.add([0], [2], repeated=True)
    pairs.add([4], [6], repeated=True)
    pairs.add([1, 2], [4, 5])
    assert [MapView.of(pairs.segments()).backward(offset) for offset in (2, 4, 5, 6)] == [
        0,
        1,
        2,
        4,
    ]


@example(3 * MAX_SEGMENTS)
@given(st.integers(1, 3 * MAX_SEGMENTS))
def test_memory_is_bounded_and_nothing_is_passed_over(records: int) -> None:
    """A marker behind each record of the target; what is left out is rounded down."""
    pairs = Pairs()
    for number in range(records):
        pairs.add([number], [2 * number])
        assert len(pairs) <= 2 * MAX_SEGMENTS
    segments = pairs.segments()
    view = MapView.of(segments)
    assert len(segments) <= MAX_SEGMENTS
    assert view.forward(0) == 0
    assert view.forward(records - 1) == 2 * (records - 1)
    for offset in range(0, records, 97):
        place = view.forward(offset)
        assert place is not None
        assert place <= 2 * offset
