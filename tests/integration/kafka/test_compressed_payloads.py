"""Compressed records in odd forms: brokers store what Kafka's own reader reads, and so do we read it."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.topics.single_records import VERSION
from ureplicator_testkit.records.java_consumer import JavaConsumer, properties_of
from ureplicator_testkit.records.kafka_reader import judged
from ureplicator_testkit.records.payloads import (
    COUNT,
    PAYLOADS,
    Payload,
    kafka_payloads,
    to_json,
)
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSIONS
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.records.range_reader import read_range

pytestmark = pytest.mark.integration

BROKER_VERSION = "4.1.0"
READ_S, POLL_MS = 20, 200


def is_stored(client: ClusterClient, topic: str, payload: Payload) -> bool:
    topics = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        version=VERSION,
        transactional_id=None,
        acks=-1,
        timeout_ms=4_000,
        topic_data=[
            topics(
                name=topic,
                partition_data=[topics.PartitionProduceData(index=0, records=payload.batch())],
            )
        ],
    )
    view = client.view([topic])
    broker = view.brokers[view.leaders[topic, 0].node_id]
    (found,) = client.call(broker, request, ProduceResponse).responses
    return not found.partition_responses[0].error_code


def test_the_file_says_what_kafka_s_own_reader_says() -> None:
    """A part of it: the program judges all. One payload that is read by none is among them at least."""
    payloads = kafka_payloads()
    assert to_json(payloads) == PAYLOADS.read_text()
    part = [*payloads[::10], next(payload for payload in payloads if not payload.readers)]
    unjudged = [replace(payload, readers=()) for payload in part]
    assert judged(unjudged, KAFKA_VERSIONS) == part


def test_what_brokers_store_is_read_as_their_own_consumer_reads_it(
    source_cluster: KafkaCluster, topic: str, jvm: Any
) -> None:
    bootstrap = source_cluster.bootstrap
    create_topic(bootstrap, topic)
    payloads = kafka_payloads()
    with closing(ClusterClient(bootstrap)) as client:
        stored = {payload.name for payload in payloads if is_stored(client, topic, payload)}
    assert stored == {payload.name for payload in payloads if BROKER_VERSION in payload.readers}
    offsets = list(range(COUNT * len(stored)))
    consumed: list[int] = []
    properties = properties_of(bootstrap, topic, **{"auto.offset.reset": "earliest"})
    with closing(JavaConsumer(jvm, properties)) as consumer:
        consumer.subscribe(topic)

        def all_read() -> bool:
            consumed.extend(consumer.poll(POLL_MS))
            return len(consumed) >= len(offsets)

        eventually(all_read, READ_S, f"a Java consumer reads {topic}")
    batches = read_range(
        cluster={"bootstrap.servers": bootstrap},
        topic=topic,
        partition=0,
        start=0,
        end=len(offsets),
    )
    ours = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert ours == consumed == offsets
