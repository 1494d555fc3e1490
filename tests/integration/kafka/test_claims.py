"""Claims of fleets in the topic of a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka.claim_records import CLAIMS_TOPIC, Claim
from ureplicator_common.kafka.claim_requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.model import TopicKey
from ureplicator_controller.engines.claims.between_fleets import ClaimRefused, FleetClaims
from ureplicator_testkit.records.topics import delete_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

CONFIG = RouteConfig(source="a", target="b", claim_targets=True)
GONE_S = 20


@pytest.fixture
def claims_cluster(target_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """The shared cluster, without the topic before and after."""
    forget(target_cluster)
    yield target_cluster
    forget(target_cluster)


def forget(cluster: KafkaCluster) -> None:
    with closing(ClusterClient(cluster.bootstrap)) as client:
        if CLAIMS_TOPIC not in client.view([CLAIMS_TOPIC]).missing:
            delete_topic(cluster.bootstrap, CLAIMS_TOPIC)

        def is_gone() -> bool:
            return CLAIMS_TOPIC in client.view([CLAIMS_TOPIC]).missing

        eventually(is_gone, GONE_S, "the topic of claims is gone")


def log_of(cluster: KafkaCluster) -> KafkaClaimLog:
    return KafkaClaimLog(ClusterClient(cluster.bootstrap))


def claim(fleet: str, topic: str, since_ms: int = 1) -> Claim:
    return Claim(fleet, topic, "a.b", "id-a", topic, since_ms)


def test_claims_are_written_seen_by_others_and_withdrawn(claims_cluster: KafkaCluster) -> None:
    with closing(log_of(claims_cluster)) as mine, closing(log_of(claims_cluster)) as theirs:
        assert mine.read().holder("t") is None, "the topic does not exist yet"
        mine.write(claim("east", "t"))
        theirs.write(claim("west", "t"))
        assert theirs.read().holder("t") == claim("east", "t")
        assert mine.read().others("east", "t") == [claim("west", "t")]
        mine.withdraw(claim("east", "t"))
        assert mine.read().holder("t") == claim("west", "t")
        assert len(mine.cluster_id()) > 10
        assert mine.cluster_id() == theirs.cluster_id()


def test_topic_that_was_deleted_and_is_made_again_is_read_from_its_beginning(
    claims_cluster: KafkaCluster,
) -> None:
    with closing(log_of(claims_cluster)) as log:
        log.write(claim("east", "t"))
        assert log.read().holder("t") is not None
        forget(claims_cluster)
        assert log.read().holder("t") is None
        log.write(claim("west", "t"))
        assert log.read().holder("t") == claim("west", "t")


def test_of_fleets_that_claim_at_once_one_gets_each_topic(claims_cluster: KafkaCluster) -> None:
    fleets, topics = ("east", "west", "north"), [f"t{number}" for number in range(20)]

    def take_all(fleet: str) -> set[str]:
        claims = FleetClaims(
            fleet=fleet,
            routes={CONFIG.route: CONFIG},
            logs=lambda name: log_of(claims_cluster),
            clock=SystemClock(),
        )
        with closing(claims):
            return {topic for topic in topics if took(claims, topic)}

    with ThreadPoolExecutor(len(fleets)) as pool:
        won = list(pool.map(take_all, fleets))
    taken = [topic for part in won for topic in part]
    assert len(taken) == len(set(taken)), "by one fleet each"
    with closing(log_of(claims_cluster)) as log:
        held = {topic: log.read().holder(topic) for topic in topics}
    for fleet, mine in zip(fleets, won, strict=True):
        assert {topic for topic, holder in held.items() if holder and holder.fleet == fleet} == mine


def took(claims: FleetClaims, topic: str) -> bool:
    """`a` and `b` are one cluster here, but no topic is its own origin."""
    try:
        claims.take(TopicKey(CONFIG.route, f"from-{topic}"), topic)
    except ClaimRefused:
        return False
    return True
