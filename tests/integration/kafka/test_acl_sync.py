"""Access rights that follow on real brokers, with an authorizer and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import ALLOW, DENY, LITERAL, PREFIXED, NoAuthorizer, TopicAcl
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter
from ureplicator_controller.engines.syncs.acls import AclWork
from ureplicator_controller.engines.syncs.thread import SyncThread
from ureplicator_controller.engines.syncs.topic_sync import TopicWorkSync
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.control.memory_reports import MemoryReports
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.own_broker import OwnBroker
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

ROUTE = Route("source", "target")
SESSION = SessionId(0)
SEEN_S = 10
"""A broker shows a change of the controller when it has read it from the log of metadata."""


@pytest.fixture(scope="module")
def cluster(own_broker: OwnBroker) -> KafkaCluster:
    return own_broker.cluster


@pytest.fixture
def admin(cluster: KafkaCluster) -> Iterator[KafkaAclAdmin]:
    admin = KafkaAclAdmin(ClusterClient(cluster.bootstrap), name="c")
    yield admin
    admin.close()


def acl(
    name: str, pattern: str = LITERAL, *, operation: str = "READ", permission: str = ALLOW
) -> TopicAcl:
    return TopicAcl(name, pattern, "User:bob", "*", operation, permission)


def opened(admin: KafkaAclAdmin) -> SyncThread:
    """Both clusters of the route are the same one: target topics have a prefix."""
    paths, store = Paths("f"), MemoryCoordination(MemoryStore())
    for path in paths.skeleton:
        store.ensure(path)
    metrics = ControlMetrics(CollectorRegistry())
    snapshot = Snapshot(
        fleet="f",
        epoch=0,
        routes={ROUTE: Stored(RouteSettings(prefix="copy."), 0, 0, SESSION)},
        topics={
            TopicKey(ROUTE, "orders"): Stored(
                TopicIntent(1, 1, target_topic="copy.orders"), 0, 0, SESSION
            )
        },
    )
    work = AclWork(
        config=RouteConfig(source=ROUTE.source, target=ROUTE.target),
        source=lambda: admin,
        target=lambda: admin,
        coordination=store,
        paths=paths,
        writer=FencedWriter(store, paths=paths, metrics=metrics),
    )
    return SyncThread(
        route=ROUTE,
        sync=TopicWorkSync(ROUTE, work, metrics=metrics),
        seen=lambda: (0, snapshot),
        interval_s=60.0,
        clock=SystemClock(),
        reports=MemoryReports(),
    )


def test_rights_follow_and_only_they_are_removed_again(admin: KafkaAclAdmin) -> None:
    given = {
        acl("orders", operation="ALL"),
        acl("orders", operation="WRITE", permission=DENY),
        acl("ord", PREFIXED, operation="DESCRIBE"),
        acl("orders", operation="WRITE"),
        acl("elsewhere"),
    }
    theirs = {acl("copy.orders", operation="DELETE")}
    assert admin.add(given | theirs) == {}
    eventually(lambda: admin.read() == given | theirs, deadline_s=SEEN_S, what="given rights")
    sync = opened(admin)
    sync.run_once()
    copied = {
        acl("copy.orders"),
        acl("copy.orders", operation="WRITE", permission=DENY),
        acl("copy.ord", PREFIXED, operation="DESCRIBE"),
    }
    everything = given | theirs | copied
    eventually(lambda: admin.read() == everything, deadline_s=SEEN_S, what="copied rights")
    assert admin.remove(given) == {}
    eventually(lambda: admin.read() == theirs | copied, deadline_s=SEEN_S, what="their removal")
    sync.run_once()
    eventually(lambda: admin.read() == theirs, deadline_s=SEEN_S, what="removal of the copies")


def test_brokers_that_open_no_topic(admin: KafkaAclAdmin) -> None:
    """Brokers that do are in `tests/integration/security/test_first_rights.py`."""
    assert not admin.opens_topics()


def test_topics_are_known_by_their_ids(cluster: KafkaCluster, admin: KafkaAclAdmin) -> None:
    create_topic(cluster.bootstrap, "identified")
    with closing(ConfluentTopicAdmin({"bootstrap.servers": cluster.bootstrap})) as topics:
        id = topics.find(["identified"])["identified"].topic_id
    assert admin.others({}) == frozenset()
    assert admin.others({"identified": id}) == frozenset()
    assert admin.others({"identified": id[::-1], "missing": id}) == {"identified", "missing"}


def test_a_cluster_without_an_authorizer(source_cluster: KafkaCluster) -> None:
    admin = KafkaAclAdmin(ClusterClient(source_cluster.bootstrap), name="source")
    with pytest.raises(NoAuthorizer, match="source: "):
        admin.read()
    assert isinstance(admin.add([acl("t")])[acl("t")], NoAuthorizer)
    admin.close()


def test_a_cluster_that_does_not_respond() -> None:
    claim = claim_port()
    admin = KafkaAclAdmin(ClusterClient(f"127.0.0.1:{claim.port}", timeout_s=0.5), name="c")
    with pytest.raises(ClusterUnavailable):
        admin.read()
    assert admin.add([]) == admin.remove([]) == {}
    admin.close()
    claim.release()
