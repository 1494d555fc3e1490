"""Transactions of topics at real brokers: found, and aborted from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import KafkaException, Producer

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.transactions.writer_requests import TOO_OLD, KafkaWriters
from ureplicator_common.kafka.transactions.writers import (
    AbortRefused,
    TopicTransaction,
    TransactionKind,
)
from ureplicator_testkit.records.hanging import UNVERIFIED, leave_hanging
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSIONS
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.versions import kafka_of_version

pytestmark = pytest.mark.integration

RESPONSE_S = ENDED_S = 30
OLDEST, NEWEST = KAFKA_VERSIONS[0], KAFKA_VERSIONS[-1]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Site:
    """Two topics of a cluster, and its writers."""

    def __init__(self, cluster: KafkaCluster, name: str, *, described: bool) -> None:
        self.bootstrap, self.inside, self.outside = cluster.bootstrap, name, f"{name}-outside"
        self.described = described
        for topic in (self.inside, self.outside):
            create_topic(cluster.bootstrap, topic)
        self.client = ClusterClient(cluster.bootstrap)
        self.writers = KafkaWriters(self.client)
        self.logs = KafkaLogReader(self.client)

    def extent(self, topic: str = "") -> Extent:
        found = self.logs.extents({topic or self.inside: [0]})[topic or self.inside, 0]
        assert isinstance(found, Extent)
        return found

    def one(self) -> TopicTransaction:
        """The only transaction of the topic inside."""
        found = self.writers.transactions_on([self.inside])
        assert found.unknown == (() if self.described else (TOO_OLD,))
        (one,) = found.found
        return one

    def abort(self, transaction: TopicTransaction) -> None:
        assert self.writers.abort([transaction], now_ms=now_ms()) == {}
        assert self.writers.transactions_on([self.inside]).found == ()
        assert self.extent().held == 0


@contextmanager
def open_transaction(site: Site) -> Iterator[Producer]:
    """A record in each of both topics."""
    producer = Producer(
        {
            "bootstrap.servers": site.bootstrap,
            "transactional.id": f"{site.inside}-id",
            "log_level": 0,
        }
    )
    producer.init_transactions(RESPONSE_S)
    producer.begin_transaction()
    for topic in (site.inside, site.outside):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(RESPONSE_S) == 0
    yield producer


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    name = f"writers-{request.param}"
    properties = UNVERIFIED if request.param >= "3.6" else {}
    with kafka_of_version(request.param, name=name, properties=properties) as started:
        yield started


@pytest.fixture
def site(cluster: KafkaCluster, topic: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    described = request.node.callspec.params["cluster"] == NEWEST
    site = Site(cluster, topic, described=described)
    with closing(site.client):
        yield site


def test_an_open_transaction_with_its_topics_outside(site: Site) -> None:
    began_ms = now_ms()
    with open_transaction(site) as producer:
        one = site.one()
        assert [(row.topic, row.first_offset) for row in one.held] == [(site.inside, 0)]
        recent = site.writers.recent_producers([(site.inside, 0)], since_ms=began_ms)
        assert recent == {(site.inside, 0): {one.producer_id: one.held[0].last_ms}}
        if site.described:
            assert (one.kind, one.state) == (TransactionKind.OPEN, "Ongoing")
            assert one.topics == {site.inside, site.outside}
            assert one.began_ms >= began_ms
            assert site.writers.transactional_ids([one.producer_id]) == {
                one.producer_id: f"{site.inside}-id"
            }
        else:
            assert one.kind is TransactionKind.HIDDEN
            assert one.topics == {site.inside}
        producer.commit_transaction(RESPONSE_S)
    eventually(
        lambda: site.writers.transactions_on([site.inside]).found == (), ENDED_S, "it has ended"
    )


def test_abort_fences_a_producer_that_lives(site: Site) -> None:
    with open_transaction(site) as producer:
        one = site.one()
        if not site.described:
            refused = site.writers.abort([one], now_ms=now_ms())[one]
            assert isinstance(refused, AbortRefused)
            producer.abort_transaction(RESPONSE_S)
            return
        site.abort(one)
        assert site.extent(site.outside).held == 0, "it ends in all its partitions"
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(RESPONSE_S)
        assert raised.value.args[0].fatal()


def test_a_hanging_transaction(site: Site) -> None:
    id = leave_hanging(site.client, site.inside, f"{site.inside}-id")
    assert site.extent() == Extent(0, 0, held=1)
    one = site.one()
    assert one.producer_id == id
    if not site.described:
        assert one.kind is TransactionKind.HIDDEN
        return
    assert (one.kind, one.transactional_id) == (TransactionKind.HANGING, f"{site.inside}-id")
    site.abort(one)
    assert site.extent() == Extent(0, 2)
