"""Records that are appended one at a time, outside of transactions, to topics with a single partition."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient

VERSION = 9
TIMEOUT_MS = 4_000
FORMAT = 2
NO_PRODUCER = (-1, -1)
NUMBER = 0
"""Number of the partition."""


def only_leader(client: ClusterClient, topic: str) -> Broker:
    """Leader of the partition. Raises ClusterUnavailable."""
    view = client.view([topic])
    leader = view.leader_of(topic, NUMBER)
    if leader is None:
        raise ClusterUnavailable(f"topic {topic}{view.leaderless(topic)}", delay_s=0.2)
    return leader


def append_request(
    topic: str,
    *,
    key: bytes | None,
    value: bytes | None,
    time_ms: int,
    producer: tuple[int, int] = NO_PRODUCER,
    sequence: int = -1,
) -> ProduceRequest:
    """Request that is answered when all replicas in sync have the record. `producer`: id and epoch of an
    idempotent one, whose `sequence` the record has."""
    topics = ProduceRequest.TopicProduceData
    batch = _batch(key, value, time_ms, producer, sequence)
    partition = topics.PartitionProduceData(index=NUMBER, records=batch)
    return ProduceRequest(
        version=VERSION,
        transactional_id=None,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topics(name=topic, partition_data=[partition])],
    )


def _batch(
    key: bytes | None, value: bytes | None, time_ms: int, producer: tuple[int, int], sequence: int
) -> bytes:
    id, epoch = producer
    builder = DefaultRecordBatchBuilder(
        magic=FORMAT,
        compression_type=DefaultRecordBatch.CODEC_NONE,
        is_transactional=False,
        producer_id=id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 16,
    )
    builder.append(0, time_ms, key, value, [])
    return bytes(builder.build())
