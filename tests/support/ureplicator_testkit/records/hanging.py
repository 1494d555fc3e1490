"""A transaction that hangs: its leader holds it open, and its coordinator does not have it.

Leaders ask the coordinator before they take the first batch of a transaction (Kafka 3.6, KIP-890), unless
they are told not to (`UNVERIFIED`).
"""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producers import init_producer
from ureplicator_testkit.records import batches
from ureplicator_testkit.servers.processes import eventually

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Setting of brokers."""
VERSION, TIMEOUT_MS = 7, 30_000
TAKEN_S = 10


def leave_hanging(client: ClusterClient, topic: str, transactional_id: str) -> int:
    """Write one record into partition 0; the id of its producer."""
    producer = init_producer(client, transactional_id)
    made = batches.batch(1, producer_id=producer.id, attributes=batches.TRANSACTIONAL)
    topics = ProduceRequest.TopicProduceData
    row = topics.PartitionProduceData(
        index=0, records=batches.patched(made, producer_epoch=producer.epoch)
    )
    request = ProduceRequest(
        version=VERSION,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topics(name=topic, partition_data=[row])],
    )
    leader = client.view([topic]).leader_of(topic, 0)
    assert leader is not None

    def taken() -> bool:
        (found,) = client.call(leader, request, ProduceResponse).responses
        (code,) = {row.error_code for row in found.partition_responses}
        assert code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
        return bool(code == ErrorCode.NONE)

    eventually(taken, TAKEN_S, "the broker has the setting")
    return producer.id
