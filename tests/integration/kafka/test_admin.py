"""Topic admin on a real broker: create, grow, list, refusals with our errors, and timeouts."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ureplicator_common.errors import ConfigurationError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    TopicAlreadyExists,
    TopicInfo,
    TopicRefused,
)
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_controller.core.topics.target_limits import limit_findings
from ureplicator_testkit.kafka.clients import own_settings
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.own_broker import OwnBroker
from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

TIMEOUT_S = 5.0
THAWED_S = 30


@pytest.fixture(scope="module")
def cluster(own_broker: OwnBroker) -> KafkaCluster:
    return own_broker.cluster


@pytest.fixture
def admin(cluster: KafkaCluster) -> Iterator[ConfluentTopicAdmin]:
    admin = ConfluentTopicAdmin({"bootstrap.servers": cluster.bootstrap}, timeout_s=TIMEOUT_S)
    yield admin
    admin.close()


def test_a_created_topic_is_visible_at_once(admin: ConfluentTopicAdmin) -> None:
    configs = {"retention.ms": "1000", "cleanup.policy": "compact"}
    topic_id = admin.create_topic("made", partitions=3, configs=configs)
    assert len(topic_id) == 22
    assert admin.listing().topics["made"] == TopicInfo(3, topic_id)
    assert own_settings(admin.settings_of("made")) == configs


def test_topics_that_are_created_at_once_are_visible_or_refused_each(
    admin: ConfluentTopicAdmin,
) -> None:
    """Their threads share requests; what fails for one is no error of the others."""
    settings = {f"at-once-{n}": {"retention.ms": "x" if n == 3 else "1000"} for n in range(8)}

    def create(topic: str) -> str:
        try:
            admin.create_topic(topic, partitions=2, configs=settings[topic])
        except TopicRefused:
            return "refused"
        return "created" if admin.find([topic])[topic].partitions == 2 else "not visible"

    with ThreadPoolExecutor(len(settings)) as pool:
        outcomes = dict(zip(settings, pool.map(create, settings), strict=True))
    assert outcomes == {**dict.fromkeys(settings, "created"), "at-once-3": "refused"}


def test_settings_with_the_defaults_of_the_brokers(admin: ConfluentTopicAdmin) -> None:
    """A topic of a 4.1 broker refuses records an hour ahead, unless its settings say otherwise."""
    limits = {"message.timestamp.after.max.ms": "9223372036854775807", "max.message.bytes": "5000"}
    admin.create_topic("plain", partitions=1, configs={})
    admin.create_topic("limited", partitions=1, configs=limits)
    found = admin.effective_configs(["limited", "plain", "unknown"], timeout_s=TIMEOUT_S)
    plain, limited = found["plain"], found["limited"]
    assert isinstance(plain, dict)
    assert isinstance(limited, dict)
    assert limited.items() >= limits.items()
    assert plain["message.timestamp.after.max.ms"] == "3600000"
    assert plain["message.timestamp.before.max.ms"] == "9223372036854775807"
    assert plain["message.timestamp.type"] == "CreateTime"
    assert plain["max.message.bytes"] == "1048588"
    assert isinstance(found["unknown"], ClusterUnavailable)
    assert len(limit_findings("plain", source=limited, target=plain)) == 1
    assert len(limit_findings("limited", source=plain, target=limited)) == 1
    assert admin.effective_configs([], timeout_s=TIMEOUT_S) == {}


def test_settings_of_a_frozen_broker_are_waited_for_as_long_as_the_caller_says(
    cluster: KafkaCluster, admin: ConfluentTopicAdmin
) -> None:
    admin.listing()
    cluster.pause_broker()
    began_s = time.monotonic()
    try:
        with pytest.raises(ClusterUnavailable, match=cluster.bootstrap):
            admin.effective_configs(["plain"], timeout_s=1.0)
    finally:
        cluster.resume_broker()
    assert time.monotonic() - began_s < 3.0


def test_a_grown_topic_keeps_its_id(admin: ConfluentTopicAdmin) -> None:
    admin.create_topic("grown", partitions=1, configs={})
    before = admin.listing().topics["grown"]
    admin.grow_topic("grown", partitions=4)
    after = admin.listing().topics["grown"]
    assert (after.partitions, after.topic_id) == (4, before.topic_id)


def test_internal_topics_are_not_listed(cluster: KafkaCluster, admin: ConfluentTopicAdmin) -> None:
    assert "__consumer_offsets" in cluster.admin().list_topics(timeout=TIMEOUT_S).topics
    assert not [name for name in admin.listing().topics if name.startswith("__")]


def test_describing_an_unknown_topic_does_not_create_it(admin: ConfluentTopicAdmin) -> None:
    with pytest.raises(ClusterUnavailable, match="Unknown topic"):
        admin.settings_of("unknown")
    with pytest.raises(TopicRefused, match="Unknown topic"):
        admin.grow_topic("unknown", partitions=2)
    assert "unknown" not in admin.listing().topics


def test_creating_an_existing_topic(admin: ConfluentTopicAdmin) -> None:
    admin.create_topic("twice", partitions=1, configs={})
    with pytest.raises(TopicAlreadyExists, match="already exists"):
        admin.create_topic("twice", partitions=1, configs={})


@pytest.mark.parametrize(
    ("topic", "partitions", "configs"),
    [
        ("a/b", 1, {}),
        ("a" * 250, 1, {}),
        ("none", 0, {}),
        ("text", 1, {"retention.ms": "soon"}),
        ("unknown-key", 1, {"no.such.key": "1"}),
    ],
)
def test_refused_topics(
    admin: ConfluentTopicAdmin, topic: str, partitions: int, configs: dict[str, str]
) -> None:
    with pytest.raises(TopicRefused):
        admin.create_topic(topic, partitions=partitions, configs=configs)


def test_more_replicas_than_brokers_are_refused(admin: ConfluentTopicAdmin) -> None:
    with pytest.raises(TopicRefused, match=r"[Rr]eplicat"):
        admin.create_topic("replicated", partitions=1, configs={}, replication_factor=2)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_does_not_shrink(admin: ConfluentTopicAdmin, partitions: int) -> None:
    topic = f"shrunk-{partitions}"
    admin.create_topic(topic, partitions=2, configs={})
    with pytest.raises(TopicRefused):
        admin.grow_topic(topic, partitions=partitions)


def responds(admin: ConfluentTopicAdmin) -> bool:
    """A broker that thaws registers with its controller again first."""
    try:
        admin.listing()
    except ClusterUnavailable:
        return False
    return True


def test_a_frozen_broker_times_out(cluster: KafkaCluster, admin: ConfluentTopicAdmin) -> None:
    admin.listing()
    cluster.pause_broker()
    began_s = time.monotonic()
    try:
        with pytest.raises(ClusterUnavailable, match=cluster.bootstrap):
            admin.listing()
    finally:
        cluster.resume_broker()
    assert time.monotonic() - began_s < 2 * TIMEOUT_S
    eventually(lambda: responds(admin), THAWED_S, "the broker responds again")


def test_no_broker_reachable(capfd: pytest.CaptureFixture[str]) -> None:
    claim = claim_port()
    admin = ConfluentTopicAdmin({"bootstrap.servers": f"127.0.0.1:{claim.port}"}, timeout_s=0.5)
    for call in (
        admin.listing,
        lambda: admin.settings_of("t"),
        lambda: admin.effective_configs(["t"], timeout_s=0.5),
        lambda: admin.create_topic("t", partitions=1, configs={}),
        lambda: admin.grow_topic("t", partitions=1),
    ):
        with pytest.raises(ClusterUnavailable, match=f"127.0.0.1:{claim.port}"):
            call()
    admin.close()
    claim.release()
    assert capfd.readouterr().err == ""


def test_an_unknown_client_property_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        ConfluentTopicAdmin({"bootstrap.servers": "a:1", "no.such.property": "1"})
