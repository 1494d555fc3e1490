"""Groups that are gone at the source: which are noted, which are due, and what speaks against a deletion."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import CommittedOffset, TopicPartition
from ureplicator_common.znode_contents import GoneGroup, GoneGroups
from ureplicator_common.znodes.routes import decode_gone, encode_gone
from ureplicator_controller.core.groups.decisions import (
    CopiedPartition,
    GroupDecision,
    GroupView,
    Members,
    decide,
)
from ureplicator_controller.core.groups.gone import (
    MAX_GONE_BYTES,
    digest,
    doubt,
    due,
    noted,
    outlook,
    own_offsets,
)

FIRST, SECOND = ("t", 0), ("t", 1)
NOW_MS = 50_000
GONE = GoneGroup(since_ms=10_000, offsets="x")
BASE = 1_000


def decided(
    source: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int],
    *,
    members: Members = Members.NONE,
    is_copied: bool = True,
) -> GroupDecision:
    """The decision about a group on two partitions that are copied up to offset 100, BASE further at the
    target."""
    copied = {
        key: CopiedPartition(
            target=key,
            position=100 if is_copied else None,
            translate=lambda offset: offset + BASE,
            translate_back=lambda offset: offset - BASE,
            log=Extent(0, 100 + BASE),
        )
        for key in (FIRST, SECOND)
    }
    view = GroupView(
        id="g",
        source={key: CommittedOffset(at) for key, at in source.items()},
        target={key: CommittedOffset(at) for key, at in target.items()},
        members=members,
    )
    return decide(view, copied)


def test_offsets_that_the_sync_gave_are_its_own() -> None:
    found = decided({FIRST: 60, SECOND: 100}, {FIRST: BASE + 60, SECOND: BASE + 100})
    assert own_offsets(found) == {FIRST: BASE + 60, SECOND: BASE + 100}


def test_the_end_of_what_was_copied_is_the_sync_s_own_too() -> None:
    assert own_offsets(decided({FIRST: 130}, {FIRST: BASE + 100})) == {FIRST: BASE + 100}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(decided({FIRST: 60}, {FIRST: BASE + 61}), id="ahead"),
        pytest.param(decided({FIRST: 130}, {FIRST: BASE + 101}), id="ahead, and waits"),
        pytest.param(decided({FIRST: 60}, {FIRST: BASE + 59}), id="pending"),
        pytest.param(
            decided({FIRST: 60}, {FIRST: BASE + 60}, members=Members.SOME), id="has members"
        ),
        pytest.param(
            decided({FIRST: 60}, {FIRST: BASE + 60}, members=Members.UNKNOWN), id="unknown"
        ),
        pytest.param(decided({FIRST: 60}, {FIRST: 5}, is_copied=False), id="not copied"),
        pytest.param(
            decided({FIRST: 60, SECOND: 60}, {FIRST: BASE + 60, SECOND: BASE + 61}),
            id="ahead on one partition",
        ),
    ],
)
def test_other_offsets_are_not(found: GroupDecision) -> None:
    assert own_offsets(found) is None


def test_partitions_without_an_offset_at_the_target_are_left_out() -> None:
    assert own_offsets(decided({FIRST: 60}, {}, is_copied=False)) == {}


def test_a_group_that_is_not_listed_is_noted_with_its_offsets() -> None:
    own = {"a": {FIRST: 5}, "b": {FIRST: 6}}
    found = noted({}, listed={"a"}, own=own, now_ms=NOW_MS)
    assert found == {"b": GoneGroup(since_ms=NOW_MS, offsets=digest({FIRST: 6}))}


def test_a_group_that_was_noted_keeps_its_time_and_offsets() -> None:
    found = noted({"a": GONE}, listed=(), own={"a": {FIRST: 5}}, now_ms=NOW_MS)
    assert found == {"a": GONE}


def test_a_group_that_is_listed_again_is_noted_no_more() -> None:
    assert noted({"a": GONE}, listed={"a"}, own={"a": {FIRST: 5}}, now_ms=NOW_MS) == {}


def test_a_group_without_offsets_is_not_noted() -> None:
    assert noted({}, listed=(), own={"a": {}}, now_ms=NOW_MS) == {}


def test_more_groups_than_a_node_can_hold_are_noted_later() -> None:
    own = {f"{number:0>249}": {FIRST: number} for number in range(2_000)}
    found = noted({}, listed=(), own=own, now_ms=NOW_MS)
    assert 0 < len(found) < len(own)
    assert sum(map(len, found)) < MAX_GONE_BYTES
    left = {id: own[id] for id in own if id not in found}
    assert noted(found, listed=(), own=left, now_ms=NOW_MS) == found
    few = dict(list(found.items())[:3])
    assert len(noted(few, listed=(), own=left, now_ms=NOW_MS)) > 3


@pytest.mark.parametrize(("now_ms", "expected"), [(39_999, []), (40_000, ["a"])])
def test_a_group_is_due_when_its_grace_is_over(now_ms: int, expected: list[str]) -> None:
    assert due({"a": GONE}, grace_s=30.0, now_ms=now_ms) == expected
    assert "at 1970-01-01T00:00:40Z" in outlook(GONE, grace_s=30.0)


@pytest.mark.parametrize(
    ("gone", "listed", "is_doubted"),
    [(1, 0, False), (2, 0, True), (2, 1, True), (2, 2, False), (3, 2, True)],
)
def test_many_groups_that_are_gone_at_once_are_doubted(
    gone: int, listed: int, is_doubted: bool
) -> None:
    assert bool(doubt(gone=gone, listed=listed)) is is_doubted


@given(
    st.dictionaries(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3)), st.integers(0, 9)),
    st.dictionaries(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3)), st.integers(0, 9)),
)
def test_equal_offsets_have_one_digest_and_others_another(
    one: dict[TopicPartition, int], other: dict[TopicPartition, int]
) -> None:
    assert (digest(one) == digest(other)) is (one == other)
    assert digest(dict(reversed(one.items()))) == digest(one)


def test_the_node_is_the_same_for_the_same_groups() -> None:
    one, other = GoneGroups({"a": GONE, "b": GONE}), GoneGroups({"b": GONE, "a": GONE})
    assert encode_gone(one) == encode_gone(other)
    assert decode_gone(encode_gone(one)) == one
