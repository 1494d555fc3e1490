"""Rights that a look at transactions, and their end from outside, need."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.transactions.writer_requests import KafkaWriters
from ureplicator_common.kafka.transactions.writers import (
    AbortRefused,
    TopicTransaction,
    TransactionKind,
)
from ureplicator_testkit.records.hanging import UNVERIFIED, leave_hanging
from ureplicator_testkit.records.topics import create_topic, transaction
from ureplicator_testkit.secured.brokers import USER, by_password, granted
from ureplicator_testkit.secured.ends import Secured

pytestmark = pytest.mark.integration

LITERAL = ResourcePatternType.LITERAL
RESPONSE_S = 30


@pytest.fixture
def writers(secured: Secured, topic: str) -> Iterator[KafkaWriters]:
    """As the user sees them."""
    create_topic(secured.source.bootstrap, topic)
    client = open_client("source", by_password(secured.source, secured.authority, "SCRAM-SHA-512"))
    with closing(KafkaWriters(client)) as writers:
        yield writers


@pytest.fixture
def unverified(secured: Secured) -> None:
    """Brokers take transactions that their coordinators do not have, from now on."""
    ((name, value),) = UNVERIFIED.items()
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = secured.source.admin()
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(timeout=RESPONSE_S)


def only(writers: KafkaWriters, topic: str) -> TopicTransaction:
    found = writers.transactions_on([topic])
    assert found.unknown == ()
    (one,) = found.found
    return one


def refusal(writers: KafkaWriters, one: TopicTransaction) -> AbortRefused:
    refused = writers.abort([one], now_ms=time.time_ns() // 1_000_000)[one]
    assert isinstance(refused, AbortRefused)
    return refused


def denied(kind: ResourceType, name: str, *operations: AclOperation) -> list[AclBinding]:
    """All rights to everyone, and these operations denied to the user."""
    everyone = AclBinding(
        kind, name, LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
    return [
        everyone,
        *(
            AclBinding(kind, name, LITERAL, f"User:{USER}", "*", one, AclPermissionType.DENY)
            for one in operations
        ),
    ]


def test_open_transactions(writers: KafkaWriters, secured: Secured, topic: str) -> None:
    ids = ResourceType.TRANSACTIONAL_ID
    with transaction(secured.source.bootstrap, transactional_id=topic, commit=False) as producer:
        producer.produce(topic, b"v", partition=0)
        producer.flush(RESPONSE_S)
        with granted(secured.source, denied(ids, "*", AclOperation.DESCRIBE)):
            one = only(writers, topic)
            assert (one.kind, one.transactional_id) == (TransactionKind.HIDDEN, "")
            assert refusal(writers, one).right.startswith("DESCRIBE on all transactional ids")
        with granted(secured.source, denied(ids, topic, AclOperation.WRITE)):
            one = only(writers, topic)
            assert (one.kind, one.transactional_id) == (TransactionKind.OPEN, topic)
            refused = refusal(writers, one)
            assert refused.right == f"WRITE on transactional id {topic}"
            assert f"the principal lacks {refused.right} at cluster source" in str(refused)


def test_hanging_transactions(
    writers: KafkaWriters, unverified: None, secured: Secured, topic: str
) -> None:
    with closing(open_client("source", {"bootstrap.servers": secured.source.bootstrap})) as client:
        leave_hanging(client, topic, topic)
    both = (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    with granted(secured.source, denied(ResourceType.BROKER, "kafka-cluster", *both)):
        one = only(writers, topic)
        assert one.kind is TransactionKind.HANGING
        assert refusal(writers, one).right.startswith("ALTER on the cluster")
    assert writers.abort([one], now_ms=0) == {}
    assert writers.transactions_on([topic]).found == ()
