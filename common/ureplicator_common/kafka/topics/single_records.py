"""Records that are appended one at a time, outside of transactions, to topics with a single partition."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

VERSION = 9
TIMEOUT_MS = 4_000
FORMAT = 2
NUMBER = 0
"""Number of the partition."""


def append_request(
    topic: str, *, key: bytes | None, value: bytes | None, time_ms: int
) -> ProduceRequest:
    """Request that is answered when all replicas in sync have the record."""
    topics = ProduceRequest.TopicProduceData
    batch = _batch(key, value, time_ms)
    partition = topics.PartitionProduceData(index=NUMBER, records=batch)
    return ProduceRequest(
        version=VERSION,
        transactional_id=None,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topics(name=topic, partition_data=[partition])],
    )


def _batch(key: bytes | None, value: bytes | None, time_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=FORMAT,
        compression_type=DefaultRecordBatch.CODEC_NONE,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 16,
    )
    builder.append(0, time_ms, key, value, [])
    return bytes(builder.build())
