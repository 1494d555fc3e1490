"""Offsets of groups at the target: each rule by itself, and what holds for all of them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import CommittedOffset, TopicPartition
from ureplicator_controller.core.groups.decisions import (
    BEFORE_START,
    METADATA_LEFT_OUT,
    CopiedPartition,
    GroupDecision,
    GroupView,
    Members,
    SyncState,
    decide,
    settled,
)

HERE = ("orders", 0)
THERE = ("copy.orders", 0)
OTHER = ("orders", 1)
OTHER_THERE = ("copy.orders", 1)


def plus(constant: int) -> CopiedPartition:
    """A partition copied up to source offset 100, whose records lie `constant` behind at the target."""
    return CopiedPartition(
        target=THERE,
        position=100,
        translate=lambda source: source + constant,
        translate_back=lambda target: target - constant,
        end=100 + constant,
        log=Extent(0, 100 + constant),
        source_log=Extent(0, 100),
        constant_from=50,
    )


def offsets(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
    return {key: CommittedOffset(value, f"meta{value}") for key, value in values.items()}


def view(source: int = 60, target: int | None = None, members: Members = Members.NONE) -> GroupView:
    return GroupView(
        id="billing",
        source=offsets({HERE: source}),
        target=offsets({} if target is None else {THERE: target}),
        members=members,
    )


def decided(group: GroupView, copied: CopiedPartition | None = None) -> GroupDecision:
    return decide(group, {HERE: copied or plus(7)})


def test_the_translated_offset_is_written_with_the_metadata_of_the_consumer() -> None:
    found = decided(view(60))
    assert found.state is SyncState.PENDING
    assert found.writes == {THERE: CommittedOffset(67, "meta60")}


@pytest.mark.parametrize(
    ("copied", "source"),
    [
        (plus(7), 49),
        (plus(7), 101),
        (replace(plus(7), constant_from=None), 60),
        (replace(plus(7), log=Extent(80, 107)), 60),
    ],
    ids=["a gap follows", "beyond the copy", "records to come", "bounded by the log"],
)
def test_metadata_are_left_out_where_later_records_may_lie_at_another_distance(
    copied: CopiedPartition, source: int
) -> None:
    """A consumer that keeps places of later records there would skip others."""
    found = decided(view(source), copied)
    assert [offset.metadata for offset in found.writes.values()] == [""]
    assert found.partitions[0].note == METADATA_LEFT_OUT
    assert settled(found, {}).partitions[0].note == METADATA_LEFT_OUT


def test_metadata_that_are_there_already_are_not_said_to_be_left_out() -> None:
    there = {THERE: CommittedOffset(56, "meta49")}
    found = decided(replace(view(49), target=there))
    assert (found.state, found.partitions[0].note) == (SyncState.SYNCED, "")


@pytest.mark.parametrize("start", [50, 100, 120])
def test_a_group_before_the_start_of_the_source_goes_on_at_that_of_the_target(start: int) -> None:
    begins = replace(
        plus(7),
        translate=lambda source: source + 7 if source >= 40 else None,
        source_log=Extent(start, 120),
        log=Extent(3, 107),
    )
    found = decided(replace(view(), source={HERE: CommittedOffset(20)}), begins)
    assert found.writes == {THERE: CommittedOffset(3)}
    assert settled(found, {}).partitions[0].note == BEFORE_START
    mapped = decided(view(45), begins)
    assert [offset.offset for offset in mapped.writes.values()] == [52], "the target still has them"
    assert BEFORE_START not in mapped.partitions[0].note


def test_a_group_before_the_map_whose_records_are_still_there_is_not_translated() -> None:
    begins = replace(plus(7), translate=lambda source: None)
    assert decided(view(20), begins).state is SyncState.NO_MAP


def test_a_group_with_members_at_the_target_is_left_alone() -> None:
    found = decided(view(60, target=10, members=Members.SOME))
    assert (found.state, found.writes) == (SyncState.ACTIVE, {})
    assert found.partitions[0].translated == 67


@pytest.mark.parametrize(
    ("target", "state"),
    [
        (66, SyncState.PENDING),
        (67, SyncState.SYNCED),
        (68, SyncState.AHEAD),
    ],
)
def test_an_offset_is_never_lowered(target: int, state: SyncState) -> None:
    found = decided(view(60, target=target))
    assert found.state is state
    assert bool(found.writes) is (state is SyncState.PENDING)


def test_a_lower_offset_on_one_partition_does_not_hold_up_the_others() -> None:
    group = replace(
        view(),
        source=offsets({HERE: 60, OTHER: 60}),
        target=offsets({THERE: 90, OTHER_THERE: 3}),
    )
    copied = {HERE: plus(7), OTHER: replace(plus(0), target=OTHER_THERE)}
    found = decide(group, copied)
    assert [partition.state for partition in found.partitions] == [
        SyncState.AHEAD,
        SyncState.PENDING,
    ]
    assert found.writes == {OTHER_THERE: CommittedOffset(60, "meta60")}


def test_a_group_that_has_read_what_is_not_copied_goes_to_the_end_of_the_copy() -> None:
    found = decided(view(130))
    assert found.writes[THERE].offset == 107
    assert settled(found, {}).state is SyncState.WAITS
    assert decided(view(130, target=107)).state is SyncState.WAITS


def test_a_marker_behind_the_last_copy_does_not_hide_that_the_group_waits() -> None:
    """It stopped at the target behind a marker, and has read on at the source."""
    group = replace(
        view(),
        source=offsets({HERE: 60, OTHER: 130}),
        target=offsets({THERE: 90, OTHER_THERE: 108}),
    )
    copied = {HERE: plus(7), OTHER: replace(plus(7), target=OTHER_THERE)}
    found = decide(group, copied)
    assert [partition.state for partition in found.partitions] == [SyncState.AHEAD, SyncState.WAITS]
    assert found.state is SyncState.WAITS


def test_an_offset_is_never_past_the_end_of_the_log() -> None:
    found = decided(view(60), replace(plus(7), log=Extent(0, 20)))
    assert found.writes[THERE].offset == 20


@pytest.mark.parametrize("source", [60, 100])
def test_a_group_waits_for_copies_whose_marker_is_under_way(source: int) -> None:
    """The position is visible already, and so is the end that its metadata name. The copies are not: a group
    that went on before them would read again."""
    hidden = replace(plus(7), log=Extent(0, 50))
    found = settled(decided(view(source), hidden), {})
    assert (found.state, found.partitions[0].target_offset) == (SyncState.WAITS, 50)
    assert "up to 50 only" in found.reason
    assert decided(view(source, target=50), hidden).state is SyncState.WAITS
    assert settled(decided(view(source, target=50)), {}).state is SyncState.SYNCED


def test_an_offset_is_never_before_the_start_of_the_log() -> None:
    """Consumers would reset it, some to the end."""
    found = decided(view(60), replace(plus(7), log=Extent(80, 107)))
    assert found.writes[THERE].offset == 80


def test_without_a_segment_nothing_is_written() -> None:
    found = decided(view(60), replace(plus(7), translate=lambda _: None))
    assert (found.state, found.writes) == (SyncState.NO_MAP, {})


def test_a_group_at_the_end_of_the_copy_does_not_wait() -> None:
    assert settled(decided(view(100)), {}).state is SyncState.SYNCED


def test_without_the_end_of_the_copy_the_map_has_it() -> None:
    found = decided(view(130), replace(plus(7), end=None, log=Extent(0, 500)))
    assert found.writes[THERE].offset == 107


@pytest.mark.parametrize("source", [100, 130])
def test_a_group_that_has_read_all_that_was_copied_needs_no_map(source: int) -> None:
    found = decided(view(source), replace(plus(7), translate=lambda _: None))
    assert found.writes[THERE].offset == 107


@pytest.mark.parametrize("end", [0, 500])
def test_where_the_targets_log_is_empty_the_next_record_is_its_end(end: int) -> None:
    """Nothing was copied yet, or all of it was deleted there: no segment is needed."""
    copied = replace(plus(7), translate=lambda _: None, end=None, log=Extent(end, end))
    found = decided(view(100), copied)
    assert found.writes[THERE].offset == end
    assert settled(found, {}).state is SyncState.SYNCED


@pytest.mark.parametrize("end", [107, None])
def test_a_log_that_shows_nothing_yet_is_not_empty(end: int | None) -> None:
    """The marker of the first transaction is under way."""
    found = settled(decided(view(60), replace(plus(7), end=end, log=Extent(0, 0))), {})
    assert (found.state, found.partitions[0].target_offset) == (SyncState.WAITS, 0)


def test_a_partition_without_position_is_not_copied() -> None:
    found = decided(view(60), replace(plus(7), position=None, reason="stopped"))
    assert (found.state, found.reason, found.writes) == (SyncState.NOT_COPIED, "stopped", {})


UNKNOWN = {
    "the list of the target": replace(view(), members=Members.UNKNOWN, reason="no list"),
    "the offsets at the target": replace(view(), target=None, reason="no offsets"),
    "the offsets at the source": replace(view(), source=None, reason="no offsets"),
}


@pytest.mark.parametrize("read", UNKNOWN)
def test_what_cannot_be_read_is_unknown_and_nothing_is_written(read: str) -> None:
    found = decided(UNKNOWN[read])
    assert (found.state, found.writes) == (SyncState.UNKNOWN, {})
    assert found.reason == UNKNOWN[read].reason


def test_an_unknown_end_of_the_target_is_unknown() -> None:
    found = decided(view(), replace(plus(7), log=None, reason="no leader"))
    assert (found.state, found.reason, found.writes) == (SyncState.UNKNOWN, "no leader", {})


def test_a_group_of_another_kind_is_named_and_not_synced() -> None:
    found = decided(replace(view(), unsupported="share groups are not synced"))
    assert (found.state, found.reason) == (SyncState.UNSUPPORTED, "share groups are not synced")


def test_partitions_outside_the_route_are_left_out() -> None:
    found = decided(replace(view(), source=offsets({("elsewhere", 0): 5})))
    assert (found.partitions, found.reason) == ((), "the group has no offsets on the route")
    assert found.state is SyncState.NO_OFFSETS


def test_a_written_offset_is_synced_and_a_refused_one_says_why() -> None:
    found = decided(view(60))
    assert settled(found, {}).partitions[0].target_offset == 67
    assert settled(found, {}).state is SyncState.SYNCED
    refused = settled(found, {THERE: "UNKNOWN_MEMBER_ID"})
    assert (refused.state, refused.reason) == (SyncState.REFUSED, "UNKNOWN_MEMBER_ID")


@given(
    source=st.integers(0, 200),
    target=st.none() | st.integers(0, 300),
    position=st.integers(0, 150),
    constant=st.integers(0, 50),
    log=st.tuples(st.integers(0, 250), st.integers(0, 250)).map(sorted),
    members=st.sampled_from(Members),
    known=st.booleans(),
)
def test_no_offset_is_lowered_or_past_an_end(
    source: int,
    target: int | None,
    position: int,
    constant: int,
    log: list[int],
    members: Members,
    known: bool,
) -> None:
    start, end = log
    extent, last = Extent(start, end), position + constant
    copied = replace(plus(constant), position=position, end=last, log=extent)
    group = view(source, target, members)
    written = decided(group if known else replace(group, target=None), copied).writes
    if members is not Members.NONE or not known:
        assert not written
    for write in written.values():
        assert target is None or write.offset > target
        assert write.offset <= end
        assert write.offset <= max(start, min(position, source) + constant)
