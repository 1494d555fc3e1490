"""Fences of a cutover, and offsets that it puts back: changed by a proven leader alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ureplicator_common.cutovers import AclChange, Cutover, CutoverPlan, FenceKind, GroupOffset
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acls import ALLOW, DENY, LITERAL, TopicAcl
from ureplicator_common.model import Route
from ureplicator_controller.engines.cutover.fencing import (
    NO_CHANGE,
    Fencing,
    NotLeading,
    with_fence,
    without_fence,
)
from ureplicator_controller.engines.cutover.groups import put_back
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups

DENIED = TopicAcl("t", LITERAL, "User:bob", "*", "WRITE", DENY)
OTHER = TopicAcl("u", LITERAL, "User:bob", "*", "WRITE", DENY)
EVERYONE = TopicAcl("t", LITERAL, "User:*", "*", "WRITE", ALLOW)
FENCE = AclChange(added=frozenset({DENIED}), removed=frozenset({EVERYONE}))
OF_OTHER = AclChange(added=frozenset({OTHER}))


class World:
    """`leads`: answers to the next proofs; then it leads no more."""

    def __init__(self, kind: FenceKind, *leads: bool) -> None:
        self.leads = list(leads)
        self.source, self.target = MemoryAclAdmin(), MemoryAclAdmin()
        self.source.acls = {EVERYONE}
        self.target.acls = {DENIED, OTHER}
        self.calls: list[str] = []
        plan = CutoverPlan("id", Route("a", "b"), ("t",), topics={"t": 1}, fence=kind, acls=FENCE)
        fences = {"a": FENCE, "b": FENCE | OF_OTHER}
        self.cutover = Cutover("run", plan, fencing=True, fences=fences)
        clusters: Any = SimpleNamespace(source_acls=self.source, target_acls=self.target)
        program: Any = SimpleNamespace(call=lambda verb, *_: self.calls.append(verb))
        self.fencing = Fencing("move", clusters, program, leads=self._leads)

    def _leads(self) -> bool:
        return bool(self.leads) and self.leads.pop(0)

    @property
    def changes(self) -> list[str]:
        return [*self.calls, *(sign for sign, _ in (*self.source.changes, *self.target.changes))]


CHANGES: list[Callable[[World], Any]] = [
    lambda world: world.fencing.raise_(world.cutover.plan),
    lambda world: world.fencing.take_down(world.cutover),
    lambda world: world.fencing.open(world.cutover),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [FenceKind.ACL, FenceKind.COMMAND])
def test_nothing_is_changed_without_a_proof(
    kind: FenceKind, change: Callable[[World], Any]
) -> None:
    world = World(kind)
    with pytest.raises(NotLeading):
        change(world)
    assert world.changes == []


@pytest.mark.parametrize("change", CHANGES)
def test_each_request_has_a_proof_of_its_own(change: Callable[[World], Any]) -> None:
    world = World(FenceKind.ACL, True)
    with pytest.raises(NotLeading):
        change(world)
    assert world.changes == ["+"]


def test_a_fence_of_other_topics_stays() -> None:
    world = World(FenceKind.ACL, *[True] * 4)
    assert world.fencing.open(world.cutover) == ""
    assert world.target.acls == {OTHER, EVERYONE}


def test_fences_that_are_in_force() -> None:
    both = with_fence({"a": OF_OTHER}, "a", FENCE)
    assert both == {"a": FENCE | OF_OTHER}
    assert without_fence(both, "a", FENCE) == {"a": OF_OTHER}
    assert without_fence({"a": FENCE, "b": OF_OTHER}, "a", FENCE) == {"b": OF_OTHER}
    assert without_fence({"b": OF_OTHER}, "a", NO_CHANGE) == {"b": OF_OTHER}
    assert both["a"].of({"u": 1}) == OF_OTHER


def proven() -> None: ...


BEFORE = {
    "g": (GroupOffset("t", 0, 5, "m"), GroupOffset("t", 1)),
    "h": (GroupOffset("t", 0),),
}


@pytest.fixture
def groups() -> MemoryConsumerGroups:
    found = MemoryConsumerGroups()
    for id in BEFORE:
        found.add(id, {("t", 0): 9, ("t", 1): 8})
    return found


def test_offsets_are_put_back(groups: MemoryConsumerGroups) -> None:
    assert put_back(groups, BEFORE, prove=proven) == ()
    assert groups.groups["g"].offsets == {("t", 0): (5, "m")}
    assert groups.groups["h"].offsets == {("t", 1): (8, "")}


def test_refusals_are_named(groups: MemoryConsumerGroups) -> None:
    groups.groups["g"].state = "Stable"
    assert [text.split(":")[0] for text in put_back(groups, BEFORE, prove=proven)] == [
        "group g"
    ] * 2


def test_a_coordinator_that_does_not_respond_is_asked_again(groups: MemoryConsumerGroups) -> None:
    groups.failing.add("h")
    with pytest.raises(ClusterUnavailable):
        put_back(groups, BEFORE, prove=proven)
    groups.failing.clear()
    assert put_back(groups, BEFORE, prove=proven) == ()
    assert groups.groups["h"].offsets == {("t", 1): (8, "")}


def test_offsets_are_not_put_back_without_a_proof(groups: MemoryConsumerGroups) -> None:
    def lost() -> None:
        raise NotLeading("another one may")

    with pytest.raises(NotLeading):
        put_back(groups, BEFORE, prove=lost)
    assert not groups.commits
    assert not groups.deletions
