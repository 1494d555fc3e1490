"""Groups that a route syncs: patterns, kinds, and the groups that are positions."""

import pytest

from ureplicator_common.kafka.groups import ListedGroup
from ureplicator_common.model import Route, position_group
from ureplicator_controller.core.groups.selection import GroupFilter, unsupported


def test_patterns_match_the_whole_name_and_exclusion_wins() -> None:
    chosen = GroupFilter.of(["app-.*", "billing"], ["app-test.*"])
    names = ["app-1", "billing", "billing-2", "app-test-3", "other"]
    assert [name for name in names if chosen.matches(name)] == ["app-1", "billing"]


def test_patterns_match_names_with_line_feeds() -> None:
    chosen = GroupFilter.of([".*"], ["test-.*"])
    assert chosen.matches("two\nlines\n")
    assert not chosen.matches("test-two\nlines")


def test_positions_are_never_synced() -> None:
    group = position_group(fleet="any", route=Route("a", "b"))
    assert not GroupFilter.of([".*"], []).matches(group)


@pytest.mark.parametrize("kind", ["streams", "connect"])
def test_kinds_that_have_more_than_offsets_are_named(kind: str) -> None:
    assert kind in unsupported(ListedGroup("g", kind, "Stable"), share=True)


def test_share_groups_need_brokers_that_set_their_offsets() -> None:
    group = ListedGroup("g", "share", "Stable")
    assert not unsupported(group, share=True)
    assert "Kafka 4.2" in unsupported(group, share=False)


@pytest.mark.parametrize("kind", ["", "consumer"])
def test_consumer_groups_and_offsets_without_members_are_synced(kind: str) -> None:
    assert not unsupported(ListedGroup("g", kind, "Empty"), share=False)


@pytest.mark.parametrize(
    "state", ["Stable", "PreparingRebalance", "Assigning", "of a later version"]
)
def test_any_other_state_than_empty_has_members(state: str) -> None:
    assert ListedGroup("g", "consumer", state).has_members
    assert not ListedGroup("g", "consumer", "Empty").has_members
