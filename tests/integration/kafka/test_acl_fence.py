"""Access rights that fence writers off, on brokers of the oldest and the newest version.

The model of their authorizer, by which fences are judged elsewhere, decides here as they do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AdminClient,
    NewTopic,
)

from ureplicator_common.cutovers import AclChange
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import (
    ALLOW,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    AclAdmin,
    TopicAcl,
)
from ureplicator_common.kafka.client import open_client
from ureplicator_controller.core.cutover.acl_fence import Unfenceable, fence
from ureplicator_controller.engines.cutover.acl_fence import AclFence
from ureplicator_testkit.kafka.authorizer import Authorizer
from ureplicator_testkit.records.topics import QUIET, RESPONSE_S, create_topic
from ureplicator_testkit.secured.plain_logins import (
    LISTENER,
    ROOT,
    logged_in,
    properties_with_logins,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSIONS
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.versions import kafka_of_version

OLDEST, NEWEST = KAFKA_VERSIONS[0], KAFKA_VERSIONS[-1]
SHOWN_S = 20
HERE, ELSEWHERE = "127.0.0.1", "10.0.0.1"
LOGINS = ("fleet", "bob", "eve")
CASES = 60
FLEET = "User:fleet"


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One that opens topics without rights to everyone."""
    version = request.param
    with kafka_of_version(
        version,
        name=f"rights-{version}",
        properties=properties_with_logins(version, opens_topics=True),
        listeners=[LISTENER],
    ) as cluster:
        yield cluster


@contextmanager
def admin_of(cluster: KafkaCluster, login: str) -> Iterator[AclAdmin]:
    with closing(KafkaAclAdmin(open_client("c", logged_in(cluster, login)), name="c")) as admin:
        yield admin


@pytest.fixture
def root(cluster: KafkaCluster) -> Iterator[AclAdmin]:
    """A super user. What a test adds is removed behind it."""
    with admin_of(cluster, ROOT) as admin:
        yield admin
        carry_out(admin, AclChange(removed=admin.read()))


def carry_out(admin: AclAdmin, change: AclChange) -> None:
    """A change that all brokers show at the end."""
    fence = AclFence(admin, principal=f"User:{ROOT}", way_back=True)
    fence.apply(change)
    eventually(lambda: not fence.lagging(change), SHOWN_S, "all brokers show the change")


def create_topics(cluster: KafkaCluster, names: list[str]) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET}) as admin:
        for created in admin.create_topics([NewTopic(name, 1) for name in names]).values():
            created.result(timeout=RESPONSE_S)
        for found in admin.describe_topics(TopicCollection(names)).values():
            found.result(timeout=RESPONSE_S)


def drawn(prefix: str, dice: random.Random) -> TopicAcl:
    """A right that concerns topics with this prefix only."""
    pattern = dice.choice((LITERAL, PREFIXED))
    return TopicAcl(
        name=prefix + dice.choice(("1", "2") if pattern == LITERAL else ("", "1")),
        pattern=pattern,
        principal=dice.choice((*(f"User:{login}" for login in LOGINS[:2]), "User:*")),
        host=dice.choice((HERE, ELSEWHERE, "*", "*")),
        operation=dice.choice(("WRITE", "ALL", *sorted(OPERATIONS))),
        permission=dice.choice((ALLOW, ALLOW, DENY)),
    )


def assert_decides_like_model(
    cluster: KafkaCluster, acls: frozenset[TopicAcl], topics: list[str]
) -> None:
    model = Authorizer(acls, opens_topics=True, super_users=[f"User:{ROOT}"])
    for login in (*LOGINS, ROOT):
        with admin_of(cluster, login) as admin:
            shown = admin.own_operations(topics)
        for topic in topics:
            expected = model.operations(f"User:{login}", HERE, topic)
            if "DESCRIBE" not in expected:  # then a broker shows nothing of the topic
                expected = frozenset()
            rights = [str(acl) for acl in sorted(acls) if topic.startswith(acl.name)]
            assert shown[topic] == expected, (login, topic, rights)


def test_brokers_decide_as_their_model_before_a_fence_and_behind_it(
    cluster: KafkaCluster, root: AclAdmin, unique_name: str
) -> None:
    dice = random.Random(7)  # noqa: S311
    prefixes = [f"{unique_name}.{number}-" for number in range(CASES)]
    topics = [prefix + name for prefix in prefixes for name in ("1", "2")]
    create_topics(cluster, topics)
    before, after = frozenset[TopicAcl](), frozenset[TopicAcl]()
    fenced: set[str] = set()
    for prefix in prefixes:
        rights = frozenset(drawn(prefix, dice) for _ in range(dice.randrange(6)))
        change = fence_or_nothing(rights, f"{prefix}1", spared=dice.choice((FLEET, "")))
        before |= rights
        after |= rights if change is None else rights - change.removed | change.added
        fenced |= set() if change is None else {f"{prefix}1"}
    assert len(fenced) > CASES / 2
    carry_out(root, AclChange(added=before))
    assert_decides_like_model(cluster, before, topics)
    carry_out(root, AclChange(added=after - before, removed=before - after))
    assert_decides_like_model(cluster, after, topics)
    with admin_of(cluster, "eve") as eve:
        assert all("WRITE" not in eve.own_operations(fenced)[topic] for topic in fenced)
    everywhere = TopicAcl("*", LITERAL, "User:eve", "*", "ALTER_CONFIGS", ALLOW)
    carry_out(root, AclChange(added=frozenset({everywhere})))
    assert_decides_like_model(cluster, after | {everywhere}, topics)


def fence_or_nothing(rights: frozenset[TopicAcl], topic: str, *, spared: str) -> AclChange | None:
    try:
        return fence(rights, [topic], spared=spared, opens_topics=True)
    except Unfenceable:
        return None


def test_writers_are_refused_and_the_fleet_and_readers_go_on(
    cluster: KafkaCluster, root: AclAdmin, topic: str
) -> None:
    """The fleet's own login sees that topics without rights are open, as it is no super user."""
    create_topic(cluster.bootstrap, topic)
    create_topic(cluster.bootstrap, other := f"{topic}-other")
    cluster_rights = TopicAcl(other, LITERAL, FLEET, "*", "READ", ALLOW)
    carry_out(root, AclChange(added=frozenset({cluster_rights})))
    for login in ("bob", "fleet"):
        assert written(cluster, login, topic) is None
    with admin_of(cluster, "fleet") as admin:
        fence = AclFence(admin, principal=FLEET, way_back=True)
        change = fence.change([topic])
        assert len(change.added) == len(OPERATIONS)
        fence.apply(change)
        eventually(lambda: not fence.lagging(change), SHOWN_S, "all brokers show the fence")
        assert written(cluster, "bob", topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert written(cluster, "fleet", topic) is None
        with admin_of(cluster, "eve") as eve:
            assert eve.own_operations([topic])[topic] == OPERATIONS - {"WRITE"}
        assert (fence.closed([topic]), fence.missing(change)) == (frozenset(), AclChange())
        assert fence.change([topic]) == AclChange()
        fence.apply(change.reversed)
        eventually(lambda: not fence.lagging(change.reversed), SHOWN_S, "all brokers lift it")
        assert admin.read() == {cluster_rights}
    assert written(cluster, "bob", topic) is None


def written(cluster: KafkaCluster, login: str, topic: str) -> int | None:
    """Write a record; the error, if it was refused."""
    errors: list[KafkaError | None] = []
    with Producer({**logged_in(cluster, login), **QUIET}) as producer:
        producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(RESPONSE_S) == 0
    (error,) = errors
    return None if error is None else error.code()


def test_brokers_without_a_change_are_named(root: AclAdmin, topic: str) -> None:
    right = TopicAcl(topic, LITERAL, "User:bob", "*", "READ", ALLOW)
    allowed = replace(right, operation="ALL")
    (lacking,) = root.brokers_without(added=[right, allowed], removed=[]).items()
    assert lacking == ("broker 1", f"lacks 2: {allowed}")
    carry_out(root, AclChange(added=frozenset({right})))
    (left,) = root.brokers_without(added=[], removed=[right]).values()
    assert left == f"still has 1: {right}"


def test_a_broker_that_is_frozen_is_one_without_the_change(unique_name: str) -> None:
    right = TopicAcl("t", LITERAL, "User:bob", "*", "WRITE", DENY)
    cluster = KafkaCluster(
        3,
        name="three",
        version=NEWEST,
        properties=properties_with_logins(NEWEST, opens_topics=False),
        listeners=[LISTENER],
        combined=True,
    )
    with cluster, admin_of(cluster, ROOT) as root:
        carry_out(root, AclChange(added=frozenset({right})))
        cluster.pause_broker(3)
        lagging = root.brokers_without(added=[right], removed=[])
        cluster.resume_broker(3)
        assert list(lagging) == ["broker 3"]
        eventually(
            lambda: not root.brokers_without(added=[right], removed=[]),
            SHOWN_S,
            "all brokers show the right",
        )
