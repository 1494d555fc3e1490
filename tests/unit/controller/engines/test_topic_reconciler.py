"""Topic reconciliation on in-memory clusters: targets created, intents written, failures logged."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Create, Node, Set
from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_common.model import Route, RouteSettings, TopicKey, TopicState
from ureplicator_common.znode_contents import RouteMemory, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_memory
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_controller.core.state.snapshot import parse
from ureplicator_controller.core.topics.reconcile import CONFIRM_S
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules
from ureplicator_controller.core.topics.source_deletion import SourceDeletion
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.target_topics import TIMESTAMP_LIMITS
from ureplicator_controller.engines.topic_observer import TopicObserver
from ureplicator_controller.engines.topic_reconciler import (
    MAX_KAFKA_WORK_S,
    RETRY_DELAYS_S,
    UNFINISHED_S,
)
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic, claims_of
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin

ROUTE = Route("source", "target")
PATHS = Paths("test")
AUTO = TopicRules(ROUTE, RouteSettings(prefix="x-"), AutoWhitelist((re.compile(".*"),)))
GRACE_S = 60.0
BY_HAND = replace(AUTO, auto=None)


class World:
    """Two clusters and a store; the leader reconciles at the epoch that is there."""

    def __init__(self, rules: TopicRules = AUTO, claims: FleetClaims | None = None) -> None:
        self.claims = claims or claims_of()
        self.source, self.target = MemoryTopicAdmin(), MemoryTopicAdmin()
        self.source.model.cluster_id, self.target.model.cluster_id = "source-id", "target-id"
        self.store = MemoryStore()
        self.hand = MemoryCoordination(self.store)
        self.clock = ManualClock()
        for path in PATHS.skeleton:
            self.hand.ensure(path)
        self.epoch = 0
        self.leads = True
        self.rules = rules
        self.metrics = ControlMetrics(CollectorRegistry())
        self.observer = self.another()

    def another(self) -> TopicObserver:
        """Observer of another controller."""
        admins: Mapping[str, MemoryTopicAdmin] = {"source": self.source, "target": self.target}
        return TopicObserver(
            rules=lambda _: [self.rules],
            admins=admins.__getitem__,
            claims=self.claims,
            seen=lambda: (
                (self.epoch, parse(self.tree_cache(), PATHS, fleet="test")) if self.leads else None
            ),
            metrics=self.metrics,
            coordination=MemoryCoordination(self.store),
            paths=PATHS,
            clock=self.clock,
        )

    def tree_cache(self) -> Mapping[str, Node]:
        cache = self.hand.tree_cache(PATHS.root, lambda: None)
        try:
            return cache.nodes()
        finally:
            cache.close()

    def poll(self, *, after_s: float = 0.0) -> float:
        self.clock.advance(after_s)
        return self.observer.poll()

    def intent(self, topic: str) -> TopicIntent | None:
        node = self.hand.get(PATHS.topic(TopicKey(ROUTE, topic)))
        return decode_intent(node.data) if node else None

    def intend(self, topic: str, intent: TopicIntent) -> None:
        path = PATHS.topic(TopicKey(ROUTE, topic))
        self.hand.ensure(path.rpartition("/")[0])
        self.hand.transact([Create(path, encode_intent(intent))])

    @property
    def memory(self) -> RouteMemory:
        node = self.hand.get(PATHS.route_memory(ROUTE))
        return decode_memory(node.data) if node else RouteMemory()

    def figure(self, name: str, **labels: str) -> float | None:
        full = f"ureplicator_controller_{name}"
        return self.metrics.registry.get_sample_value(full, labels)


def test_a_whitelisted_topic_is_written_once_with_the_ids_of_both_topics() -> None:
    world = World()
    world.poll()
    world.source.put("made", 1)
    for _ in range(3):
        world.poll(after_s=CONFIRM_S)
    node, made = world.hand.get(PATHS.topic(TopicKey(ROUTE, "made"))), world.intent("made")
    assert node is not None
    assert made is not None
    assert node.stat.version == 0
    assert made.source_topic_id == world.source.topics()["made"].topic_id
    assert made.target_topic_id == world.target.topics()["x-made"].topic_id


def test_old_and_new_topics_are_whitelisted_and_their_targets_created() -> None:
    world = World()
    world.source.put("old", 4, configs={"retention.ms": "7", "segment.ms": "9"})
    assert world.poll() == UNFINISHED_S
    assert world.memory == RouteMemory(baseline={"old": "id-1"})
    assert world.intent("old") is None
    world.source.put("young", 3)
    world.poll()
    old, young = world.intent("old"), world.intent("young")
    assert old is not None
    assert young is not None
    assert (old.partitions, old.initial_partitions) == (4, 4)
    assert (young.partitions, young.initial_partitions, young.source_topic_id) == (3, 0, "id-2")
    assert world.target.topics()["x-young"].partitions == 3
    assert world.target.configs("x-old") == {
        "retention.ms": "7",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        **TIMESTAMP_LIMITS[0],
    }
    world.poll()
    assert world.memory == RouteMemory(baseline={})
    assert world.intent("old") == replace(old, target_topic_id="id-2")
    assert world.figure("topic_changes_total", kind="whitelisted") == 2


def test_limits_of_a_target_topic_that_exists_are_logged_at_whitelisting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.poll()
    world.target.defaults = {"message.timestamp.after.max.ms": "3600000"}
    world.target.put("x-there", 1)
    world.source.put("there", 1)
    world.source.put("young", 1)
    for _ in range(3):
        world.poll()
    assert world.intent("there") is not None
    assert caplog.text.count("message.timestamp.after.max.ms is 3600000") == 1
    world.target.configs_failure = ClusterUnavailable("t:1")
    world.source.put("next", 1)
    world.poll()
    assert world.intent("next") is not None
    assert "source.target/next: limits for records were not checked: t:1" in caplog.text


def test_the_baseline_survives_a_change_of_leader() -> None:
    world = World()
    world.source.put("old", 1)
    world.target.put("x-blocked", 1)
    world.poll()
    world.source.put("meanwhile", 2)
    world.observer = world.another()
    world.poll()
    old, meanwhile = world.intent("old"), world.intent("meanwhile")
    assert old is not None
    assert meanwhile is not None
    assert (old.initial_partitions, meanwhile.initial_partitions) == (1, 0)


def test_a_deleted_topic_is_stopped_and_resumed_when_it_reappears(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(BY_HAND)
    world.source.put("t", 2)
    world.target.put("t", 2)
    world.intend("t", TopicIntent(2, 2, target_topic="t"))
    world.poll()
    known = world.intent("t")
    assert known is not None
    world.source.unlisted.add("t")
    world.poll(after_s=CONFIRM_S)
    world.poll(after_s=CONFIRM_S)
    assert world.intent("t") == known, "one broker's list is no proof"
    world.source.remove("t")
    assert world.poll() == CONFIRM_S
    world.poll(after_s=CONFIRM_S)
    stopped = world.intent("t")
    assert stopped is not None
    assert replace(stopped, source_gone_ms=0) == replace(known, stopped="source topic was deleted")
    world.poll(after_s=CONFIRM_S)
    world.poll(after_s=CONFIRM_S)
    assert world.figure("stopped_topics", route=str(ROUTE)) == 1
    assert caplog.text.count("stopped: source topic was deleted") == 1


def test_an_expanded_source_expands_target_and_intent() -> None:
    world = World(BY_HAND)
    world.source.put("t", 2)
    world.target.put("t", 2)
    world.intend("t", TopicIntent(2, 2, target_topic="t"))
    world.poll()
    world.source.grow_topic("t", partitions=5)
    world.poll()
    grown = world.intent("t")
    assert grown is not None
    assert (grown.partitions, grown.initial_partitions) == (5, 2)
    assert world.target.topics()["t"].partitions == 5


def test_a_target_topic_with_fewer_partitions_is_not_expanded_for_a_new_topic() -> None:
    world = World()
    world.poll()
    world.target.put("x-t", 1)
    world.source.put("t", 4)
    world.poll()
    world.poll()
    assert world.intent("t") is None
    assert world.target.topics()["x-t"].partitions == 1
    assert "exists with 1 partitions, not 4" in world.memory.refused["t"]


def test_a_failing_topic_is_logged_and_retried_and_blocks_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    tries: list[str] = []

    def refuse(call: str, topic: str) -> None:
        tries.append(topic)
        if topic == "x-bad":
            raise TopicRefused("policy violation")

    world.target.before = refuse
    world.poll()
    world.source.put("bad", 1)
    world.source.put("good", 1)
    world.poll()
    assert world.intent("good") is not None
    world.poll()
    assert world.memory.refused == {"bad": "whitelisted failed: policy violation"}
    assert world.figure("refused_topics", route=str(ROUTE)) == 1
    at_first = tries.count("x-bad")
    world.poll(after_s=RETRY_DELAYS_S[0] - 0.1)
    assert tries.count("x-bad") == at_first
    world.poll(after_s=0.1)
    assert tries.count("x-bad") == 2 * at_first
    world.poll(after_s=RETRY_DELAYS_S[0])
    assert tries.count("x-bad") == 2 * at_first, "each time a little later"
    assert caplog.text.count("policy violation") == 1
    world.target.before = lambda call, topic: None
    world.poll(after_s=RETRY_DELAYS_S[1])
    world.poll()
    assert world.intent("bad") is not None
    assert world.memory.refused == {}


def test_target_topics_have_the_replicas_of_the_route() -> None:
    world = World(replace(AUTO, replication_factor=2))
    world.poll()
    world.source.put("made", 1)
    for _ in range(3):
        world.poll()
    assert world.target.replication == {"x-made": 2}


def test_a_target_topic_that_the_route_created_is_deleted_with_its_source_topic() -> None:
    """The first try fails. Somebody else's topic, and another route's, stay."""
    world = World(replace(AUTO, source_deletion=SourceDeletion(GRACE_S)))
    world.poll()
    for topic in ("made", "found", "kept"):
        world.source.put(topic, 1)
    world.target.put("x-found", 1)
    world.poll()
    world.poll()
    world.poll()
    made, found = world.intent("made"), world.intent("found")
    assert made is not None
    assert found is not None
    assert (made.target_created, found.target_created) == (True, False)
    tries = refuse_deletions(world)
    world.source.remove("made")
    polls(world, GRACE_S)
    assert not tries
    polls(world, 4 * CONFIRM_S)
    assert tries == [made.target_topic_id]
    assert "x-made" in world.target.topics()
    assert "not now" in world.memory.refused["made"]
    world.target.before = lambda call, topic: None
    polls(world, RETRY_DELAYS_S[0] + CONFIRM_S)
    assert "x-made" not in world.target.topics()
    made = world.intent("made")
    assert made is not None
    assert (made.state, made.forget_positions) == (TopicState.DELETING, True)
    world.source.remove("found")
    polls(world, 2 * GRACE_S)
    assert set(world.target.topics()) == {"x-found", "x-kept"}


def world_without_topic() -> World:
    """The source has deleted "t", of two topics, and the grace is over but for a poll."""
    world = World(replace(AUTO, source_deletion=SourceDeletion(GRACE_S)))
    world.poll()
    for topic in ("t", "other"):
        world.source.put(topic, 1)
    polls(world, 4 * CONFIRM_S)
    world.source.remove("t")
    polls(world, GRACE_S)
    return world


def test_a_deposed_leader_deletes_no_target_topic() -> None:
    """It was suspended while it decided: another leader was elected meanwhile."""
    world = world_without_topic()
    tries = refuse_deletions(world)
    epoch = world.hand.get(PATHS.epoch)
    assert epoch is not None
    world.hand.transact([Set(PATHS.epoch, b"", epoch.stat.version)])
    polls(world, GRACE_S)
    assert not tries
    world.epoch += 1
    polls(world, 2 * CONFIRM_S)
    assert tries


def test_a_topic_that_was_changed_meanwhile_keeps_its_target_topic() -> None:
    world = world_without_topic()
    tries = refuse_deletions(world)
    path = PATHS.topic(TopicKey(ROUTE, "t"))
    seen = world.tree_cache()
    world.tree_cache = lambda: seen  # type: ignore[method-assign]
    there = world.hand.get(path)
    assert there is not None
    world.hand.transact([Set(path, there.data, there.stat.version)])
    polls(world, 4 * CONFIRM_S)
    assert not tries


def test_a_target_topic_of_the_same_name_that_is_another_one_stays() -> None:
    """Somebody deleted the copy and created a topic of its name."""
    world = World(replace(AUTO, source_deletion=SourceDeletion(GRACE_S)))
    world.poll()
    world.source.put("t", 1)
    world.source.put("other", 1)
    world.poll()
    world.poll()
    world.poll()
    world.source.remove("t")
    polls(world, GRACE_S / 2)
    world.target.put("x-t", 1)
    polls(world, GRACE_S)
    known = world.intent("t")
    assert known is not None
    assert known.state is TopicState.DELETING
    assert "x-t" in world.target.topics()


def polls(world: World, for_s: float) -> None:
    for _ in range(round(for_s / CONFIRM_S)):
        world.poll(after_s=CONFIRM_S)


def test_topic_of_another_fleet_is_refused_until_its_claim_is_withdrawn() -> None:
    claims = MemoryClaimTopic("target-id")
    clusters = {"source": MemoryClaimTopic("source-id"), "target": claims}
    config = RouteConfig(source="source", target="target", claim_targets=True)
    world = World(claims=claims_of(config, clusters=clusters))
    theirs = Claim("other", "x-t", "far.target", "far-id", "t")
    claims.log().write(theirs)
    world.poll()
    world.source.put("t", 1)
    world.poll()
    world.poll()
    assert world.intent("t") is None
    assert "fleet other (far.target/t)" in world.memory.refused["t"]
    assert "x-t" not in world.target.topics(), "nothing is created for it"
    claims.log().withdraw(theirs)
    world.poll(after_s=RETRY_DELAYS_S[1])
    world.poll()
    assert world.intent("t") is not None
    assert world.memory.refused == {}
    assert claims.log().read().of("test", "x-t") is not None


def refuse_deletions(world: World) -> list[str]:
    tries: list[str] = []

    def refuse(call: str, topic: str) -> None:
        if call == "delete_topic":
            tries.append(topic)
            raise ClusterUnavailable("not now")

    world.target.before = refuse
    return tries


def test_changes_without_work_on_kafka_come_first() -> None:
    world = World(BY_HAND)
    for topic in ("a", "b"):
        world.source.put(topic, 2)
        world.target.put(f"x-{topic}", 2)
        world.intend(topic, TopicIntent(2, 2, target_topic=f"x-{topic}"))
    world.poll()  # ids noted
    world.target.before = lambda call, topic: world.clock.advance(MAX_KAFKA_WORK_S)
    world.source.remove("b")
    world.poll()
    world.source.grow_topic("a", partitions=5)
    world.poll(after_s=CONFIRM_S)
    stopped = world.intent("b")
    assert stopped is not None
    assert stopped.stopped


def test_ids_are_recorded_also_while_the_target_refuses_to_expand() -> None:
    world = World(BY_HAND)
    world.source.put("t", 5)
    world.target.put("x-t", 2)
    world.intend("t", TopicIntent(2, 2, target_topic="x-t", source_topic_id="id-1", whole=True))

    def refuse(call: str, topic: str) -> None:
        raise TopicRefused("policy violation")

    world.target.before = refuse
    world.poll()
    there = world.intent("t")
    assert there is not None
    assert there.target_topic_id


def test_a_deposed_leader_writes_nothing() -> None:
    world = World()
    world.poll()
    world.source.put("t", 1)
    node = world.hand.get(PATHS.epoch)
    assert node is not None
    world.hand.transact([Set(PATHS.epoch, b"", node.stat.version)])
    world.poll()
    assert world.intent("t") is None
    world.leads = False
    world.poll()
    assert world.intent("t") is None
    assert world.figure("refused_topics", route=str(ROUTE)) is None


def test_an_intent_changed_concurrently_is_not_overwritten() -> None:
    world = World(BY_HAND)
    world.source.put("t", 1)
    world.target.put("t", 1)
    world.intend("t", TopicIntent(1, 1, target_topic="t"))
    stale = parse(world.tree_cache(), PATHS, fleet="test")
    path = PATHS.topic(TopicKey(ROUTE, "t"))
    theirs = TopicIntent(1, 1, target_topic="t", blacklisted=frozenset({0}))
    world.hand.transact([Set(path, encode_intent(theirs), 0)])
    world.observer._seen = lambda: (0, stale)
    world.poll()
    assert world.intent("t") == theirs


def test_work_on_kafka_is_bounded_in_each_round() -> None:
    world = World()
    world.poll()
    for number in range(10):
        world.source.put(f"t{number}", 1)
    world.target.before = lambda call, topic: world.clock.advance(MAX_KAFKA_WORK_S / 4)
    assert world.poll() == UNFINISHED_S
    assert sum(world.intent(f"t{number}") is not None for number in range(10)) == 4
    world.poll()
    world.poll()
    assert all(world.intent(f"t{number}") for number in range(10))


def test_a_baseline_too_large_for_its_node_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    monkeypatch.setattr("ureplicator_common.znodes.codec.LIMIT_BYTES", 10)
    with caplog.at_level(logging.ERROR):
        world.poll()
        world.poll()
    assert caplog.text.count("topics cannot be stored") == 1
