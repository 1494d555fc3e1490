"""Access rights that follow to brokers that open topics without rights to everyone."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclOperation,
    AdminClient,
)
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import ALLOW, LITERAL, TopicAcl
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter
from ureplicator_controller.engines.syncs.acls import AclWork
from ureplicator_controller.engines.syncs.thread import Term
from ureplicator_controller.engines.syncs.topic_sync import TopicSyncState
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.secured.brokers import USER, by_password
from ureplicator_testkit.secured.ends import Secured
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

ROUTE = Route("source", "target")
SESSION = SessionId(0)
SEEN_S = 20


def test_the_first_right_on_a_topic_does_not_follow_before_the_copiers_have_one(
    secured: Secured, topic: str
) -> None:
    """It would close the topic to them: that is shown last."""
    create_topic(secured.target.bootstrap, topic)
    bob = TopicAcl(topic, LITERAL, "User:bob", "*", "READ", ALLOW)
    copier = replace(bob, principal=f"User:{USER}", operation="WRITE")
    login = AdminClient({**by_password(secured.target, secured.authority, "SCRAM-SHA-512")})

    def may_write() -> bool:
        (found,) = login.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True
        ).values()
        try:
            return AclOperation.WRITE in (found.result(timeout=30).authorized_operations or ())
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return False

    with ExitStack() as opened:
        target = opened.enter_context(
            closing(KafkaAclAdmin(ClusterClient(secured.target.bootstrap), name="target"))
        )
        opened.callback(target.remove, [bob, copier])
        source = MemoryAclAdmin()
        source.acls = {bob}
        assert target.opens_topics()
        assert may_write()
        assert followed(source, target, topic) is TopicSyncState.REFUSED
        assert bob not in target.read()
        assert target.add([copier]) == {}
        eventually(lambda: copier in target.read(), SEEN_S, "the copiers' right")
        assert followed(source, target, topic) is TopicSyncState.CHANGED
        eventually(lambda: bob in target.read(), SEEN_S, "the right follows")
        assert may_write()
        assert target.remove([copier]) == {}
        eventually(lambda: not may_write(), SEEN_S, "the topic is closed")


def followed(source: MemoryAclAdmin, target: KafkaAclAdmin, topic: str) -> TopicSyncState:
    """Outcome of one round."""
    paths, store = Paths("f"), MemoryCoordination(MemoryStore())
    for path in paths.skeleton:
        store.ensure(path)
    snapshot = Snapshot(
        fleet="f",
        epoch=0,
        routes={ROUTE: Stored(RouteSettings(), 0, 0, SESSION)},
        topics={
            TopicKey(ROUTE, topic): Stored(TopicIntent(1, 1, target_topic=topic), 0, 0, SESSION)
        },
    )
    work = AclWork(
        config=RouteConfig(source=ROUTE.source, target=ROUTE.target),
        source=lambda: source,
        target=lambda: target,
        coordination=store,
        paths=paths,
        writer=FencedWriter(store, paths=paths, metrics=ControlMetrics(CollectorRegistry())),
    )
    term = Term(0, seen=lambda: (0, snapshot), clock=SystemClock())
    return work.perform(snapshot, term)[topic].state
