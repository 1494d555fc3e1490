"""Deletions of a route at a real target: only copies of topics that their own source cluster has lost."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_intent
from ureplicator_controller.core.state.snapshot import Snapshot, parse
from ureplicator_controller.core.topics.reconcile import CONFIRM_S
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules
from ureplicator_controller.core.topics.source_deletion import SourceDeletion
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.topic_observer import TopicObserver
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import claims_of
from ureplicator_testkit.records.topics import create_topic, delete_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

ROUTE = Route("source", "target")
PATHS = Paths("deletion")
GRACE_S = 20.0
SEEN_S = 20.0
"""Within which brokers show what was changed."""


class World:
    """A route of one topic that deletes: two real clusters, the leader's store and clock in memory."""

    def __init__(self, clusters: Mapping[str, ConfluentTopicAdmin], topic: str) -> None:
        self.clusters, self.topic, self.copy = clusters, topic, f"x-{topic}"
        self.rules = TopicRules(
            ROUTE,
            RouteSettings(prefix="x-"),
            AutoWhitelist((re.compile(re.escape(topic)),)),
            source_deletion=SourceDeletion(GRACE_S),
            replication_factor=1,
        )
        self.store, self.clock = MemoryCoordination(MemoryStore()), ManualClock()
        for path in PATHS.skeleton:
            self.store.ensure(path)
        self.lead(source="source")

    def lead(self, *, source: str) -> None:
        """Begin a leader anew, for which the name of the source leads to this cluster."""
        clusters = {"source": self.clusters[source], "target": self.clusters["target"]}
        self.observer = TopicObserver(
            rules=lambda _: [self.rules],
            admins=clusters.__getitem__,
            claims=claims_of(),
            seen=lambda: (0, self._snapshot()),
            metrics=ControlMetrics(CollectorRegistry()),
            coordination=self.store,
            paths=PATHS,
            clock=self.clock,
        )

    def looks(self, for_s: float) -> None:
        """Let the leader look at the clusters for so long, by its clock."""
        for _ in range(round(for_s / CONFIRM_S)):
            self.clock.advance(CONFIRM_S)
            self.observer.poll()

    def looks_until(self, is_state: str) -> None:
        def seen() -> bool:
            self.looks(CONFIRM_S)
            return self.state() == is_state

        eventually(seen, SEEN_S, f"{self.topic} is {is_state}")

    def intent(self) -> TopicIntent | None:
        node = self.store.get(PATHS.topic(TopicKey(ROUTE, self.topic)))
        return decode_intent(node.data) if node else None

    def state(self) -> str:
        intent = self.intent()
        if intent is None:
            return "unknown"
        return re.sub(r" \(.*", "", intent.stopped) or intent.state.value

    def has_copy(self) -> bool:
        return bool(self.clusters["target"].find([self.copy]))

    def _snapshot(self) -> Snapshot:
        with closing(self.store.tree_cache(PATHS.root, lambda: None)) as cache:
            return parse(cache.nodes(), PATHS, fleet="deletion")


@pytest.fixture
def world(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> Iterator[World]:
    create_topic(source_cluster.bootstrap, f"{topic}-of-others", partitions=1)
    with ExitStack() as opened:
        clusters = {
            cluster.name: opened.enter_context(
                closing(ConfluentTopicAdmin({"bootstrap.servers": cluster.bootstrap}))
            )
            for cluster in (source_cluster, target_cluster)
        }
        yield World(clusters, topic)


def test_a_name_that_leads_to_another_cluster_deletes_nothing(
    world: World, source_cluster: KafkaCluster
) -> None:
    """The route has one topic, so no share of missing topics holds it back."""
    create_topic(source_cluster.bootstrap, world.topic, partitions=1)
    world.looks_until("active")
    world.looks_until("active")
    known = world.intent()
    assert known is not None
    assert known.source_cluster_id == world.clusters["source"].listing().cluster_id
    world.lead(source="target")
    world.looks(4 * GRACE_S)
    assert world.state() == "the source is another cluster"
    assert world.has_copy()
    world.lead(source="source")
    world.looks_until("active")
    assert world.intent() == known
    delete_topic(source_cluster.bootstrap, world.topic)
    world.looks_until("source topic was deleted")
    assert world.has_copy()
    world.looks(3 * GRACE_S)
    eventually(lambda: not world.has_copy(), SEEN_S, "the copy is deleted")
