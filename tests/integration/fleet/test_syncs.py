"""Settings and access rights follow under a fleet, also when the leader dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import ALLOW, LITERAL, TopicAcl
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.kafka.clients import own_settings
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

SYNCED_S = 20
SYNC = {"enabled": True, "interval_s": 0.5}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Both ends of the route: target topics have a prefix."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(name="syncs", properties=authorizer) as cluster:
        yield cluster


@pytest.fixture
def running(
    cluster: KafkaCluster,
    zookeeper: ZooKeeperServer,
    fleet: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Two controllers. Nothing is copied: what follows needs no worker."""
    whole = Fleet(
        name=fleet,
        folder=tmp_path_factory.mktemp(fleet),
        zookeeper=zookeeper.hosts,
        source=cluster.bootstrap,
        target=cluster.bootstrap,
        route={
            "naming": {"prefix": "copy."},
            "sync_topic_configs": SYNC,
            "sync_topic_acls": SYNC,
        },
    )
    try:
        yield whole.start(controllers=2, workers=0)
    finally:
        whole.kill()


def test_the_next_leader_goes_on_and_removes_what_the_last_one_added(
    running: Fleet, cluster: KafkaCluster, topic: str
) -> None:
    create_topic(cluster.bootstrap, topic, partitions=1)
    running.whitelist(topic)
    given = TopicAcl(topic, LITERAL, "User:bob", "*", "ALL", ALLOW)
    copied = TopicAcl(f"copy.{topic}", LITERAL, "User:bob", "*", "READ", ALLOW)
    with (
        closing(ConfluentTopicAdmin({"bootstrap.servers": cluster.bootstrap})) as topics,
        closing(KafkaAclAdmin(ClusterClient(cluster.bootstrap), name="syncs")) as acls,
    ):

        def retention() -> str:
            return own_settings(topics.settings_of(f"copy.{topic}")).get("retention.ms", "")

        def configure(settings: Mapping[str, str | None]) -> None:
            assert topics.alter_settings({topic: settings}) == {}

        assert acls.add([given]) == {}
        configure({"retention.ms": "70000"})
        wait(lambda: retention() == "70000", "the setting follows")
        wait(lambda: copied in acls.read(), "the right follows")
        wait(lambda: running.rest("GET", "/validation/topics")["numTopics"] == 0, "no difference")
        wait(lambda: reported(running) == ["configs", "acls"], "both are reported")
        leader = running.leader()
        running.controllers.pop(leader).kill_tree()
        configure({"retention.ms": "80000"})
        assert acls.remove([given]) == {}
        wait(lambda: retention() == "80000", "the setting follows the next leader")
        wait(lambda: not acls.read(), "the right is removed by the next leader")


def reported(fleet: Fleet) -> list[str]:
    """Kinds whose last pass has found the topic and nothing to change."""
    (route,) = fleet.rest("GET", "/routes")["routes"].values()
    return [sync["kind"] for sync in route["syncs"] if sync["states"] == {"equal": 1}]


def wait(reached: Callable[[], bool], what: str) -> None:
    eventually(reached, SYNCED_S, what)
