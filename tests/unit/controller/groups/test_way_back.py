"""The way back of a group by the map of the way there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_controller.core.groups.decisions import (
    CopiedPartition,
    GroupView,
    Members,
    PartitionDecision,
    decide,
    measured,
    source_offset,
    translated_offset,
)
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.core.groups.way_back import reversed_partition, reversed_topics

SOURCE, TARGET = ("orders", 0), ("west.orders", 0)


def way_back(
    copied: CopiedPartition, *, source_end: int, exactly_once: bool = False
) -> CopiedPartition:
    return reversed_partition(copied, SOURCE, Extent(0, source_end), exactly_once=exactly_once)


@st.composite
def copies(draw: st.DrawFn) -> tuple[CopiedPartition, list[int], list[int]]:
    """A partition copied once, with the offsets of its records at both ends: each log has holes."""
    count = draw(st.integers(1, 30))
    steps = st.lists(st.integers(1, 4), min_size=count, max_size=count)
    ours, theirs = (
        [sum(drawn[: n + 1]) for n in range(count)] for drawn in (draw(steps), draw(steps))
    )
    segments = tuple(MapSegment(a, a + 1, b) for a, b in zip(ours, theirs, strict=True))
    copied = CopiedPartition(
        target=TARGET,
        position=ours[-1] + 1,
        translate=MapView.of(segments).forward,
        translate_back=MapView.of(segments).backward,
        end=theirs[-1] + 1,
        log=Extent(0, theirs[-1] + 1 + draw(st.integers(0, 3))),
    )
    return copied, ours, theirs


@given(copies(), st.data())
def test_there_and_back_is_before_the_same_record(
    drawn: tuple[CopiedPartition, list[int], list[int]], data: st.DataObject
) -> None:
    copied, ours, _ = drawn
    back = way_back(copied, source_end=ours[-1] + 5)
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
    back = way_back(copied, source_end=ours[-1] + 1)
    offset = theirs[-1] + 1 + behind
    assert translated_offset(back, offset) == copied.position
    assert copied.log is not None
    assert source_offset(back, copied.position or 0) == copied.log.end


@given(copies(), st.integers(0, 30), st.data())
def test_nothing_is_read_again_by_a_group_that_is_ready(
    drawn: tuple[CopiedPartition, list[int], list[int]], committed: int, data: st.DataObject
) -> None:
    """The newest copies are at the target before their position is committed, at least once."""
    whole, ours, theirs = drawn
    committed = min(committed, len(ours))
    copied = replace(
        whole,
        position=ours[committed] if committed < len(ours) else ours[-1] + 1,
        end=theirs[committed - 1] + 1 if committed else 0,
    )
    read = data.draw(st.integers(1, len(ours)))
    at = theirs[read - 1] + 1
    found = decided(way_back(copied, source_end=ours[-1] + 5), at)
    assert found.translated is not None
    assert all(offset < found.translated for offset in ours[:read]) or found.waits
    assert all(offset >= found.translated for offset in ours[read:])
    assert bool(found.waits) is (read > committed)
    assert (found.read_again or 0) > 0 or not found.waits


@pytest.mark.parametrize(
    ("exactly_once", "source_end", "behind", "waits"),
    [
        (False, 101, 1, True),
        (False, 100, 1, False),
        (True, 101, 1, False),
        (True, 101, 2, True),
        (True, 100, 2, False),
    ],
)
def test_a_group_waits_until_the_position_has_passed_what_it_has_read(
    exactly_once: bool, source_end: int, behind: int, waits: bool
) -> None:
    """The marker of the transaction of the position is no copy."""
    segments = (MapSegment(0, 100, 0),)
    copied = CopiedPartition(
        target=TARGET,
        position=100,
        translate=MapView.of(segments).forward,
        translate_back=MapView.of(segments).backward,
        end=100,
        log=Extent(0, 100 + behind),
    )
    back = way_back(copied, source_end=source_end, exactly_once=exactly_once)
    found = decided(back, 100 + behind)
    assert (found.translated, bool(found.waits)) == (100, waits)
    assert found.read_again == (behind - exactly_once if waits else 0)


def decided(back: CopiedPartition, at: int) -> PartitionDecision:
    """The decision for a group that has committed this offset at the target, and none at the source."""
    group = GroupView(
        id="g", source={TARGET: CommittedOffset(at, "")}, target={}, members=Members.NONE
    )
    return measured(decide(group, {TARGET: back})).partitions[0]


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
    back = way_back(nothing, source_end=9)
    assert (back.position, back.reason) == (None, "no position")
    away = reversed_partition(nothing, SOURCE, None, exactly_once=False, reason="no leader")
    assert away.log is None


def test_topics_have_the_names_of_the_other_end() -> None:
    topics = {"orders": RouteTopic(source="orders", target="west.orders", target_id="x")}
    back = reversed_topics(topics)
    assert back == {"west.orders": RouteTopic(source="west.orders", target="orders", target_id="x")}
    assert reversed_topics(back) == topics
