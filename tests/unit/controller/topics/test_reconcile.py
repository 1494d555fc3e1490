"""Topic reconciliation: tables of observations and changes."""

from __future__ import annotations

import re
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
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, RouteMemory, TopicIntent
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.core.state.decoding import Stored, UnreadableNode
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import (
    CONFIRM_S,
    IntentChange,
    TopicDecision,
    reconcile_topics,
)
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules

ROUTE = Route("a", "b")
BACK = Route("b", "a")
KEY = TopicKey(ROUTE, "t")
ALL = AutoWhitelist((re.compile(".*"),))
KNOWN = TopicIntent(2, 2, target_topic="t", source_topic_id="A1", target_topic_id="B1", whole=True)
SAME = {"a": {"t": TopicInfo(2, "A1")}, "b": {"t": TopicInfo(2, "B1")}}
OTHER_SOURCE = {**SAME, "a": {"t": TopicInfo(3, "A2")}}
OTHER_TARGET = {**SAME, "b": {"t": TopicInfo(2, "B2")}}
NO_SOURCE: Mapping[str, Mapping[str, TopicInfo]] = {**SAME, "a": {}}
NO_TARGET: Mapping[str, Mapping[str, TopicInfo]] = {**SAME, "b": {}}

WALL_MS = 1_700_000_000_000
DELETED = "source topic was deleted"
RECREATED = "source topic was recreated (was A1, is A2)"
TARGET_DELETED = "target topic t was deleted"
TARGET_RECREATED = "target topic t was recreated (was B1, is B2)"

Clusters = Mapping[str, Mapping[str, TopicInfo] | None]


@dataclass
class World:
    """A snapshot under construction, and its reconciliations."""

    rules: tuple[TopicRules, ...] = (TopicRules(ROUTE, RouteSettings()),)
    seen: Snapshot = field(default_factory=lambda: Snapshot(fleet="f", epoch=1))
    last: TopicDecision = field(default_factory=TopicDecision)
    now_s: float = 100.0

    def intend(self, intent: TopicIntent, key: TopicKey = KEY) -> World:
        stored = Stored(intent, 7, 0, SessionId(0))
        self.seen = replace(self.seen, topics={**self.seen.topics, key: stored})
        return self

    def remember(self, *names: str, route: Route = ROUTE) -> World:
        memory = RouteMemory(baseline=dict.fromkeys(names, ""))
        stored = Stored(memory, 3, 0, SessionId(0))
        self.seen = replace(self.seen, memory={**self.seen.memory, route: stored})
        return self

    def reconcile(self, clusters: Clusters, *, after_s: float = 0.0) -> list[IntentChange]:
        self.now_s += after_s
        self.last = reconcile_topics(
            self.rules,
            self.seen,
            clusters,
            self.last.unconfirmed,
            self.now_s,
            wall_ms=WALL_MS + round(self.now_s * 1_000),
        )
        return list(self.last.changes)

    def one(self, clusters: Clusters, *, after_s: float = 0.0) -> IntentChange:
        (change,) = self.reconcile(clusters, after_s=after_s)
        return change


def auto(auto: AutoWhitelist = ALL, *, prefix: str = "", route: Route = ROUTE) -> TopicRules:
    return TopicRules(route, RouteSettings(prefix=prefix), auto)


def sizes(**topics: int) -> dict[str, TopicInfo]:
    return {name: TopicInfo(count, f"id-{name}") for name, count in topics.items()}


# --- Deleted and recreated


@pytest.mark.parametrize(
    ("clusters", "why"),
    [
        (NO_SOURCE, DELETED),
        (OTHER_SOURCE, RECREATED),
        (NO_TARGET, TARGET_DELETED),
        (OTHER_TARGET, TARGET_RECREATED),
        ({"a": {}, "b": None}, DELETED),
        ({"a": None, "b": {}}, TARGET_DELETED),
    ],
)
@pytest.mark.parametrize("state", [TopicState.ACTIVE, TopicState.PAUSED])
def test_deleted_or_recreated_topic_is_stopped_after_two_observations(
    clusters: Clusters, why: str, state: TopicState
) -> None:
    world = World().intend(replace(KNOWN, state=state))
    assert not world.reconcile(clusters)
    assert not world.reconcile(clusters, after_s=CONFIRM_S - 0.1)
    change = world.one(clusters, after_s=0.1)
    assert (change.kind, change.intent.stopped, change.version) == ("stopped", why, 7)
    assert replace(change.intent, stopped="", source_gone_ms=0) == replace(KNOWN, state=state)
    assert (change.intent.source_gone_ms > 0) == (why == DELETED)
    assert change.target_partitions == 0


@pytest.mark.parametrize(
    "clusters",
    [
        {"a": None, "b": None},
        {"a": {"t": TopicInfo(0, error="no leader")}, "b": SAME["b"]},
        {"a": SAME["a"], "b": {"t": TopicInfo(0, error="no leader")}},
    ],
)
@pytest.mark.parametrize("stopped", ["", DELETED])
def test_unavailable_cluster_changes_nothing(clusters: Clusters, stopped: str) -> None:
    world = World().intend(replace(KNOWN, stopped=stopped))
    for _ in range(3):
        assert not world.reconcile(clusters, after_s=CONFIRM_S)


def test_unconfirmed_observation_survives_an_outage_but_no_other_observation() -> None:
    world = World().intend(KNOWN)
    world.reconcile(NO_SOURCE)
    assert not world.reconcile({"a": None, "b": None}, after_s=CONFIRM_S)
    assert world.one(NO_SOURCE).kind == "stopped"
    world = World().intend(KNOWN)
    world.reconcile(NO_SOURCE)
    assert not world.reconcile(SAME, after_s=CONFIRM_S)
    assert not world.reconcile(NO_SOURCE)
    assert not world.reconcile(OTHER_SOURCE, after_s=CONFIRM_S)


def test_stop_has_the_latest_reason_and_is_lifted_for_the_same_topic() -> None:
    world = World().intend(replace(KNOWN, stopped=DELETED))
    world.reconcile(OTHER_SOURCE)
    assert world.one(OTHER_SOURCE, after_s=CONFIRM_S).intent.stopped == RECREATED
    world.reconcile(SAME)
    change = world.one(SAME, after_s=CONFIRM_S)
    assert (change.kind, change.intent) == ("resumed", KNOWN)


def test_stopped_topic_stays_stopped() -> None:
    world = World().intend(replace(KNOWN, stopped=RECREATED))
    for _ in range(3):
        assert not world.reconcile(OTHER_SOURCE, after_s=CONFIRM_S)


def test_topic_being_deleted_is_not_changed() -> None:
    world = World().intend(replace(KNOWN, state=TopicState.DELETING))
    for _ in range(3):
        assert not world.reconcile(NO_SOURCE, after_s=CONFIRM_S)


@pytest.mark.parametrize("policy", [GapPolicy.EARLIEST, GapPolicy.LATEST])
def test_recreated_topic_is_adopted_by_policy_once_the_former_is_released(
    policy: GapPolicy,
) -> None:
    world = World(rules=(TopicRules(ROUTE, RouteSettings(on_gap=policy)),))
    had = replace(KNOWN, stopped=RECREATED, had_position=frozenset({0, 1}), restarted=True)
    world.intend(had)
    held = {Partition(ROUTE, "t", 0): AssignmentEntry(OwnerEpoch(1))}
    assignments = {WorkerId("w"): Stored(Assignment(held), 0, 0, SessionId(0))}
    quiet = world.seen
    world.seen = replace(quiet, assignments=assignments)
    assert not world.reconcile(OTHER_SOURCE)
    world.seen = quiet
    change = world.one(OTHER_SOURCE)
    assert change.target_partitions == 3
    assert change.intent == replace(
        KNOWN, partitions=3, initial_partitions=0, source_topic_id="A2", had_position=frozenset()
    )


@pytest.mark.parametrize("info", [TopicInfo(0, error="no leader"), TopicInfo(2)])
def test_source_topic_with_trouble_or_without_id_is_not_adopted(info: TopicInfo) -> None:
    """It would be adopted without partitions, or without an id."""
    world = World(rules=(TopicRules(ROUTE, RouteSettings(on_gap=GapPolicy.EARLIEST)),))
    world.intend(replace(KNOWN, stopped=TARGET_DELETED, had_position=frozenset({0, 1})))
    for _ in range(3):
        assert not world.reconcile({"a": {"t": info}, "b": {}}, after_s=CONFIRM_S)


# --- Ids and sizes


def test_ids_are_recorded_first_and_whether_all_partitions_are_wanted() -> None:
    old = TopicIntent(2, 2, target_topic="t")
    for size, whole in ((2, True), (3, False)):
        clusters = {"a": {"t": TopicInfo(size, "A1")}, "b": SAME["b"]}
        assert World().intend(old).one(clusters).intent == replace(KNOWN, whole=whole)


def test_brokers_without_topic_ids_cause_no_changes() -> None:
    world = World().intend(TopicIntent(2, 2, target_topic="t"))
    assert not world.reconcile({"a": sizes(), "b": None} | {"a": {"t": TopicInfo(2)}})


@pytest.mark.parametrize(
    ("intent", "auto_expand", "grows"),
    [
        (KNOWN, True, True),
        (replace(KNOWN, state=TopicState.PAUSED), True, True),
        (KNOWN, False, False),
        (replace(KNOWN, whole=False), True, False),
    ],
)
def test_topic_expands_with_its_source_if_all_partitions_are_wanted(
    intent: TopicIntent, auto_expand: bool, grows: bool
) -> None:
    rules = (TopicRules(ROUTE, RouteSettings(), auto_expand=auto_expand),)
    changes = World(rules=rules).intend(intent).reconcile({**SAME, "a": {"t": TopicInfo(5, "A1")}})
    assert [change.kind for change in changes] == (["expanded"] if grows else [])
    for change in changes:
        assert change.intent == replace(intent, partitions=5)
        assert (change.intent.initial_partitions, change.target_partitions) == (2, 5)


# --- Auto-whitelisting


def test_topic_too_big_for_its_nodes_is_refused() -> None:
    """A plan with a node that is too big would fail in every cycle and block all others."""
    huge = TopicInfo(MAX_TOPIC_PARTITIONS + 1, "A2")
    world = World(rules=(auto(),)).remember()
    assert not world.reconcile({"a": {"t": huge}, "b": {}})
    assert world.last.refused == {KEY: "it has 10001 partitions, more than the maximum of 10000"}
    assert world.one({"a": {"t": TopicInfo(MAX_TOPIC_PARTITIONS, "A2")}, "b": {}})
    follows = TopicRules(ROUTE, RouteSettings(on_gap=GapPolicy.EARLIEST))
    for known, seen in (
        (KNOWN, replace(huge, topic_id="A1")),
        (replace(KNOWN, stopped=RECREATED), huge),
    ):
        world = World(rules=(follows,)).intend(known)
        assert not world.reconcile({**SAME, "a": {"t": seen}})
        assert set(world.last.refused) == {KEY}


def test_nothing_is_whitelisted_before_the_baseline_is_written() -> None:
    world = World(rules=(auto(),)).intend(replace(KNOWN, source_topic_id="id-t"))
    assert not world.reconcile({"a": sizes(t=2, old=4), "b": SAME["b"]})
    assert world.last.baselines == {ROUTE: {"old": "id-old"}}


def test_baseline_topics_start_at_the_routes_start_and_new_ones_at_their_first_record() -> None:
    world = World(rules=(auto(prefix="x-"),)).remember("old")
    young, old = world.reconcile({"a": sizes(old=4, young=3), "b": {}})
    assert (young.key.topic, young.intent.initial_partitions) == ("young", 0)
    assert (old.key.topic, old.intent.initial_partitions) == ("old", 4)
    assert young.intent == TopicIntent(
        3, 0, target_topic="x-young", source_topic_id="id-young", whole=True, restarted=True
    )
    assert (young.version, young.target_partitions) == (None, 3)


def test_baseline_drops_deleted_whitelisted_and_recreated_topics() -> None:
    world = World(rules=(auto(AutoWhitelist(())),)).intend(KNOWN)
    memory = RouteMemory({"t": "A1", "gone": "x", "new": "old-id", "kept": "id-k", "dim": "q"})
    stored = Stored(memory, 3, 0, SessionId(0))
    world.seen = replace(world.seen, memory={ROUTE: stored})
    there = {**SAME["a"], **sizes(new=1, kept=1), "dim": TopicInfo(0, error="?")}
    world.reconcile({"a": there, "b": SAME["b"]})
    assert world.last.baselines == {ROUTE: {"kept": "id-k", "dim": "q"}}
    world.reconcile({"a": None, "b": None})
    assert not world.last.baselines


@pytest.mark.parametrize(
    ("include", "exclude", "topic", "wanted"),
    [
        ((".*",), (), "t", True),
        (("orders", "clicks.*"), (), "clicks-1", True),
        (("click",), (), "clicks", False),
        (("licks",), (), "clicks", False),
        ((".*",), ("t.*", "x"), "t1", False),
        ((".*",), ("t",), "t1", True),
        ((), (), "t", False),
        ((".*",), (), "ureplicator-main-b.a-offset-map", False),
    ],
)
def test_patterns_are_for_whole_names_and_exclusion_wins(
    include: tuple[str, ...], exclude: tuple[str, ...], topic: str, wanted: bool
) -> None:
    rules = AutoWhitelist(tuple(map(re.compile, include)), tuple(map(re.compile, exclude)))
    changes = World(rules=(auto(rules),)).remember().reconcile({"a": sizes(**{topic: 1}), "b": {}})
    assert bool(changes) == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"blacklist": frozenset({KEY})},
        {"unreadable_topics": frozenset({KEY})},
        {"unreadable_nodes": (UnreadableNode("/ureplicator/f/memory/a.b", "garbled"),)},
    ],
)
def test_blacklisted_and_unreadable_topics_are_not_whitelisted(
    change: Mapping[str, object],
) -> None:
    world = World(rules=(auto(),)).remember()
    world.seen = replace(world.seen, **change)  # type: ignore[arg-type]
    assert not world.reconcile({"a": sizes(t=1), "b": {}})


def test_topic_waits_while_a_cluster_is_unavailable() -> None:
    world = World(rules=(auto(),)).remember()
    assert not world.reconcile({"a": sizes(t=1), "b": None})
    assert not world.reconcile({"a": {"t": TopicInfo(0, error="?")}, "b": {}})
    assert not world.last.refused


def test_topic_without_its_required_target_topic_is_refused() -> None:
    rules = auto(AutoWhitelist((re.compile(".*"),), require_target=True))
    world = World(rules=(rules,)).remember()
    assert not world.reconcile({"a": sizes(t=1), "b": {}})
    assert "requires it" in world.last.refused[KEY]
    assert world.one({"a": sizes(t=1), "b": sizes(t=1)}).key == KEY
    assert not world.last.refused


def test_taken_or_too_long_target_name_is_refused() -> None:
    world = World(rules=(auto(prefix="x-"), auto(prefix="x-", route=Route("c", "b"))))
    world.remember().remember(route=Route("c", "b"))
    long = "l" * 248
    changes = world.reconcile({"a": sizes(t=1, **{long: 1}), "b": {}, "c": sizes(t=1, u=1)})
    assert [str(change.key) for change in changes] == ["a.b/t", "c.b/u"]
    assert "already the target of a.b/t" in world.last.refused[TopicKey(Route("c", "b"), "t")]
    assert "250 of 249" in world.last.refused[TopicKey(ROUTE, long)]


def test_copies_are_not_copied_back() -> None:
    there, back = auto(prefix="a."), auto(prefix="b.", route=BACK)
    world = World(rules=(there, back)).remember().remember(route=BACK)
    clusters = {"a": sizes(t=1), "b": sizes(u=1)}
    changes = world.reconcile(clusters)
    assert sorted(str(change.key) for change in changes) == ["a.b/t", "b.a/u"]
    clusters = {"a": {**sizes(t=1), **sizes(**{"b.u": 1})}, "b": {**sizes(u=1, **{"a.t": 1})}}
    for change in changes:
        world.intend(change.intent, change.key)
    assert all(change.kind == "identified" for change in world.reconcile(clusters))
    assert "it is a copy of t on a" in world.last.refused[TopicKey(BACK, "a.t")]
    world.seen = replace(world.seen, topics={})
    assert not world.reconcile({"a": {}, "b": sizes(**{"a.t": 1})})
    assert "its prefix is that of copies" in world.last.refused[TopicKey(BACK, "a.t")]


def test_copies_of_a_topic_whose_intent_cannot_be_read_are_not_copied_back() -> None:
    there, back = auto(prefix="a."), auto(route=BACK)
    world = World(rules=(there, back)).remember().remember(route=BACK)
    published = {ROUTE: Stored(RouteSettings(rename={"t": "u"}), 0, 0, SessionId(0))}
    world.seen = replace(world.seen, routes=published, unreadable_topics=frozenset({KEY}))
    assert not world.reconcile({"a": sizes(t=1), "b": sizes(u=1)})
    assert "it is a copy of t on a" in world.last.refused[TopicKey(BACK, "u")]


def test_chain_of_copies_ends_before_it_closes_a_loop() -> None:
    routes = (ROUTE, Route("b", "c"), Route("c", "a"))
    world = World(rules=tuple(auto(prefix=f"{route.source}.", route=route) for route in routes))
    for route in routes:
        world.remember(route=route)
    world.intend(replace(KNOWN, target_topic="a.t"))
    world.intend(replace(KNOWN, target_topic="b.a.t"), TopicKey(routes[1], "a.t"))
    world.reconcile({"a": SAME["a"], "b": sizes(**{"a.t": 2}), "c": sizes(**{"b.a.t": 2})})
    assert "it is a copy of t on a" in world.last.refused[TopicKey(routes[2], "b.a.t")]
