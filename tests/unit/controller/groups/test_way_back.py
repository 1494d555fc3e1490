"""The way back of a group by the map of the way there."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import Extent
from ureplicator_common.offset_map.segments import MapSegment, backward, translation
from ureplicator_controller.core.groups.decisions import (
    CopiedPartition,
    source_offset,
    translated_offset,
)
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.core.groups.way_back import reversed_partition, reversed_topics

SOURCE, TARGET = ("orders", 0), ("west.orders", 0)


@st.composite
def copies(draw: st.DrawFn) -> tuple[CopiedPartition, list[int], list[int]]:
    """A partition copied once, with the offsets of its records at both ends: each log has holes."""
    count = draw(st.integers(1, 30))
    steps = st.lists(st.integers(1, 4), min_size=count, max_size=count)
    ours, theirs = (
        [sum(each[: n + 1]) for n in range(count)] for each in (draw(steps), draw(steps))
    )
    segments = tuple(MapSegment(a, a + 1, b) for a, b in zip(ours, theirs, strict=True))
    copied = CopiedPartition(
        target=TARGET,
        position=ours[-1] + 1,
        translate=translation(segments),
        translate_back=partial(backward, segments),
        end=theirs[-1] + 1,
        log=Extent(0, theirs[-1] + 1 + draw(st.integers(0, 3))),
    )
    return copied, ours, theirs


@given(copies(), st.data())
def test_there_and_back_is_before_the_same_record(
    drawn: tuple[CopiedPartition, list[int], list[int]], data: st.DataObject
) -> None:
    copied, ours, _ = drawn
    back = reversed_partition(copied, SOURCE, Extent(0, ours[-1] + 5))
    assert back.target == SOURCE
    next_record = data.draw(st.sampled_from(ours))
    there = translated_offset(copied, next_record)
    assert there is not None
    assert translated_offset(back, there) == next_record


@given(copies(), st.integers(0, 3))
def test_a_group_behind_all_that_was_copied_goes_on_at_the_position(
    drawn: tuple[CopiedPartition, list[int], list[int]], behind: int
) -> None:
    """Markers are behind the last record, and records of others: nothing of the copy is read again."""
    copied, ours, theirs = drawn
    back = reversed_partition(copied, SOURCE, Extent(0, ours[-1] + 5))
    offset = theirs[-1] + 1 + behind
    assert translated_offset(back, offset) == copied.position
    assert copied.log is not None
    assert source_offset(back, copied.position or 0) == copied.log.end


def test_without_a_position_or_a_log_nothing_is_known() -> None:
    def unknown(_: int) -> int | None:
        return None

    nothing = CopiedPartition(
        target=TARGET,
        position=None,
        translate=unknown,
        translate_back=unknown,
        reason="no position",
    )
    back = reversed_partition(nothing, SOURCE, Extent(0, 9))
    assert (back.position, back.reason) == (None, "no position")
    away = reversed_partition(nothing, SOURCE, None, reason="no leader")
    assert away.log is None


def test_topics_have_the_names_of_the_other_end() -> None:
    topics = {"orders": RouteTopic(source="orders", target="west.orders", target_id="x")}
    back = reversed_topics(topics)
    assert back == {"west.orders": RouteTopic(source="west.orders", target="orders", target_id="x")}
    assert reversed_topics(back) == topics
