"""Topics that were deleted at the source: whose target topics are deleted, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import (
    GapPolicy,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, Switches, TopicIntent
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import (
    CONFIRM_S,
    IntentChange,
    TopicDecision,
    reconcile_topics,
)
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.core.topics.source_deletion import (
    EMPTY,
    KEEP,
    LOOKED_S,
    Outlooks,
    SourceDeletion,
)

ROUTE = Route("a", "b")
GRACE_S = 600.0
DELETE = SourceDeletion(GRACE_S)
START_MS = 1_700_000_000_000


def known(name: str) -> TopicIntent:
    return TopicIntent(
        2,
        2,
        target_topic=f"copy.{name}",
        source_topic_id=f"A-{name}",
        target_topic_id=f"B-{name}",
        source_cluster_id="A",
        target_created=True,
        whole=True,
    )


def key(name: str) -> TopicKey:
    return TopicKey(ROUTE, name)


@dataclass
class World:
    """A route whose leader reconciles again and again; its writes are applied."""

    policy: SourceDeletion = DELETE
    rules: RouteSettings = field(default_factory=RouteSettings)
    seen: Snapshot = field(default_factory=lambda: Snapshot(fleet="f", epoch=1))
    source: dict[str, TopicInfo] | None = field(default_factory=dict)
    cluster_id: str = "A"
    last: TopicDecision = field(default_factory=TopicDecision)
    now_s: float = 0.0

    def whitelist(self, name: str, intent: TopicIntent | None = None) -> None:
        self.put(name, intent or known(name))
        assert self.source is not None
        self.source[name] = TopicInfo(2, f"A-{name}")

    def put(self, name: str, intent: TopicIntent) -> None:
        stored = Stored(intent, 0, 0, SessionId(0))
        self.seen = replace(self.seen, topics={**self.seen.topics, key(name): stored})

    def intent(self, name: str) -> TopicIntent:
        return self.seen.topics[key(name)].value

    def hold(self, name: str) -> None:
        held = {Partition(ROUTE, name, 0): AssignmentEntry(OwnerEpoch(1))}
        assignments = {WorkerId("w"): Stored(Assignment(held), 0, 0, SessionId(0))}
        self.seen = replace(self.seen, assignments=assignments)

    def reconcile(self, *, after_s: float = 0.0) -> list[IntentChange]:
        self.now_s += after_s
        target: Mapping[str, TopicInfo] = {
            stored.value.target_topic: TopicInfo(2, stored.value.target_topic_id)
            for stored in self.seen.topics.values()
        }
        self.last = reconcile_topics(
            [TopicRules(ROUTE, self.rules, source_deletion=self.policy)],
            self.seen,
            {"a": self.source, "b": target},
            self.last.unconfirmed,
            self.now_s,
            wall_ms=START_MS + round(self.now_s * 1_000),
            cluster_ids={} if self.source is None else {"a": self.cluster_id},
        )
        for change in self.last.changes:
            self.put(change.key.topic, change.intent)
        return list(self.last.changes)

    def deletions(self, *, for_s: float) -> list[IntentChange]:
        """Deletions of rounds, CONFIRM_S apart."""
        rounds = round(for_s / CONFIRM_S)
        changes = [change for _ in range(rounds) for change in self.reconcile(after_s=CONFIRM_S)]
        return [change for change in changes if change.deleted_id]

    def lose(self, *names: str) -> None:
        assert self.source is not None
        for name in names:
            del self.source[name]


@pytest.fixture
def world() -> World:
    """Three topics that are copied."""
    world = World()
    for name in ("x", "y", "z"):
        world.whitelist(name)
    assert not world.reconcile()
    return world


def test_the_target_topic_is_deleted_by_its_id_after_the_grace(world: World) -> None:
    world.lose("x")
    assert not world.deletions(for_s=GRACE_S)
    assert world.intent("x").stopped
    (deleted,) = world.deletions(for_s=10 * CONFIRM_S)
    assert (deleted.key, deleted.deleted_id, deleted.kind) == (key("x"), "B-x", "deleted")
    assert (deleted.intent.state, deleted.intent.forget_positions) == (TopicState.DELETING, True)
    assert world.intent("y") == known("y")


def test_the_grace_begins_with_the_deletion_whoever_leads(world: World) -> None:
    world.lose("x")
    world.deletions(for_s=GRACE_S - LOOKED_S / 2)
    gone_ms = world.intent("x").source_gone_ms
    world.last = TopicDecision()
    assert not world.deletions(for_s=LOOKED_S)
    assert len(world.deletions(for_s=2 * CONFIRM_S)) == 1
    assert START_MS < gone_ms <= START_MS + 2 * CONFIRM_S * 1_000


def test_a_new_leader_deletes_nothing_on_its_first_observations(world: World) -> None:
    world.lose("x")
    world.deletions(for_s=10)
    world.last = TopicDecision()
    assert not world.reconcile(after_s=2 * GRACE_S)
    assert not world.reconcile(after_s=LOOKED_S - CONFIRM_S)
    assert len(world.reconcile(after_s=CONFIRM_S)) == 1


def test_a_short_grace_is_looked_at_from_its_begin(world: World) -> None:
    world.policy = SourceDeletion(20.0)
    world.lose("x")
    assert not world.deletions(for_s=20)
    assert len(world.deletions(for_s=3 * CONFIRM_S)) == 1


def test_a_source_that_did_not_respond_is_looked_at_anew(world: World) -> None:
    """Its topics when it is back may be those that were restored."""
    world.lose("x")
    world.deletions(for_s=GRACE_S - 10)
    there, world.source = world.source, None
    assert not world.deletions(for_s=2 * GRACE_S)
    world.source = there
    assert not world.deletions(for_s=LOOKED_S)
    assert len(world.deletions(for_s=2 * CONFIRM_S)) == 1


def test_target_topics_are_kept_by_default(world: World) -> None:
    assert TopicRules(ROUTE, RouteSettings()).source_deletion is KEEP
    world.policy = KEEP
    world.lose("x")
    assert not world.deletions(for_s=2 * GRACE_S)
    assert text(world, "x") == "the target topic is kept: on_source_deletion is keep"


def test_a_cluster_that_does_not_respond_has_deleted_nothing(world: World) -> None:
    world.source = None
    assert not world.deletions(for_s=2 * GRACE_S)
    assert not world.intent("x").source_gone_ms


def test_a_source_topic_that_is_back_is_not_gone(world: World) -> None:
    world.lose("x")
    world.deletions(for_s=GRACE_S / 2)
    assert world.source is not None
    world.source["x"] = TopicInfo(2, "A-other")
    assert not world.deletions(for_s=2 * GRACE_S)
    assert world.intent("x").source_gone_ms == 0
    assert "recreated" in world.intent("x").stopped


@pytest.mark.parametrize(
    "intent",
    [
        replace(known("x"), target_created=False),
        replace(known("x"), target_topic_id=""),
        replace(known("x"), source_topic_id=""),
        replace(known("x"), source_cluster_id=""),
    ],
)
def test_what_is_not_known_for_certain_is_kept(intent: TopicIntent) -> None:
    world = World()
    for name in ("x", "y", "z"):
        world.whitelist(name, intent if name == "x" else None)
    world.put("x", intent)
    world.lose("x")
    for _ in range(500):
        world.put("x", replace(world.intent("x"), target_topic_id=intent.target_topic_id))
        assert not any(change.deleted_id for change in world.reconcile(after_s=CONFIRM_S))


def test_nothing_is_deleted_while_most_topics_of_the_route_are_gone(world: World) -> None:
    world.lose("x", "y")
    assert not world.deletions(for_s=2 * GRACE_S)
    assert text(world, "x").endswith("2 of 3 topics of the route are gone at the source")
    world.whitelist("y")
    (deleted,) = world.deletions(for_s=LOOKED_S + 3 * CONFIRM_S)
    assert deleted.key == key("x")


def test_the_only_topic_of_a_route_is_deleted_unless_the_source_has_none_at_all() -> None:
    world = World()
    world.whitelist("x")
    world.lose("x")
    assert not world.deletions(for_s=2 * GRACE_S)
    assert world.last.refused == {key("x"): EMPTY}
    assert world.source is not None
    world.source["another"] = TopicInfo(1, "A-another")
    assert len(world.deletions(for_s=LOOKED_S + 10 * CONFIRM_S)) == 1


@pytest.mark.parametrize("names", [("x",), ("x", "y", "z")])
def test_another_cluster_under_the_name_of_the_source_stops_topics_and_deletes_nothing(
    names: tuple[str, ...],
) -> None:
    world = World()
    for name in names:
        world.whitelist(name)
    there = world.source
    world.cluster_id, world.source = "test", {"theirs": TopicInfo(1, "test-theirs")}
    assert not world.deletions(for_s=3 * GRACE_S)
    for name in names:
        intent = world.intent(name)
        assert intent.stopped == "the source is another cluster (was A, is test)"
        assert not intent.source_gone_ms
    world.cluster_id, world.source = "A", there
    world.deletions(for_s=2 * CONFIRM_S)
    assert world.intent("x") == known("x")


def test_a_topic_of_the_same_name_on_another_cluster_is_not_adopted(world: World) -> None:
    world.rules = RouteSettings(on_gap=GapPolicy.EARLIEST)
    world.cluster_id, world.source = "test", {"x": TopicInfo(2, "test-x")}
    world.deletions(for_s=GRACE_S)
    assert world.intent("x").source_topic_id == "A-x"
    assert "another cluster" in world.intent("x").stopped


def test_a_deletion_that_was_noted_is_none_while_the_source_is_another_cluster(
    world: World,
) -> None:
    world.lose("x")
    world.deletions(for_s=GRACE_S / 2)
    world.cluster_id = "test"
    assert not world.deletions(for_s=GRACE_S)
    assert not world.intent("x").source_gone_ms
    world.cluster_id = "A"
    assert not world.deletions(for_s=GRACE_S)
    assert len(world.deletions(for_s=10 * CONFIRM_S)) == 1


def test_the_cluster_of_a_topic_is_noted_where_its_topic_is_seen(world: World) -> None:
    world.put("x", replace(known("x"), source_cluster_id=""))
    (change,) = world.reconcile()
    assert (change.kind, change.intent) == ("identified", known("x"))
    world.policy = KEEP
    world.put("x", replace(known("x"), source_cluster_id=""))
    assert not world.reconcile()


def test_a_frozen_fleet_deletes_nothing(world: World) -> None:
    world.lose("x")
    world.seen = replace(world.seen, switches=Switches(frozen=True))
    assert not world.deletions(for_s=2 * GRACE_S)
    assert text(world, "x").endswith("the fleet is frozen")


def test_a_topic_that_a_worker_holds_is_not_deleted(world: World) -> None:
    world.hold("x")
    world.lose("x")
    assert not world.deletions(for_s=2 * GRACE_S)
    world.seen = replace(world.seen, assignments={})
    assert len(world.deletions(for_s=2 * CONFIRM_S)) == 1


def test_topics_that_were_stopped_before_are_marked_too(world: World) -> None:
    """A leader that knew no marks has stopped them."""
    world.put("x", replace(known("x"), stopped="source topic was deleted"))
    world.lose("x")
    world.reconcile(after_s=CONFIRM_S)
    assert world.intent("x").source_gone_ms == START_MS + CONFIRM_S * 1_000
    assert text(world, "x").startswith("the target topic is deleted at 2023-11-14T22:")


def text(world: World, name: str) -> str:
    found = Outlooks(world.policy, world.seen, ROUTE).of(world.intent(name))
    assert found is not None
    return found.text
