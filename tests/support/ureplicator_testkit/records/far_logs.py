"""Logs that begin far from zero."""

from __future__ import annotations

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_testkit.records.topics import delete_records
from ureplicator_worker.batches.fillers import filler

RECORDS = 100_000
"""In a batch."""
TIMEOUT_MS = 10_000


def begin_at(bootstrap: str, topic: str, offset: int, *, partition: int = 0) -> None:
    """Have the log of an empty partition begin there; two million offsets take a second."""
    client = ClusterClient(bootstrap)
    try:
        for done in range(0, offset, RECORDS):
            _append(client, topic, partition, min(RECORDS, offset - done))
    finally:
        client.close()
    delete_records(bootstrap, topic, {partition: offset})


def _append(client: ClusterClient, topic: str, partition: int, records: int) -> None:
    leader = client.view([topic]).leader_of(topic, partition)
    assert leader is not None
    topics = ProduceRequest.TopicProduceData
    batch = bytes(filler(records, timestamp_ms=0).data)
    rows = [topics.PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        version=9,
        transactional_id=None,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topics(name=topic, partition_data=rows)],
    )
    reply = client.call(leader, request, ProduceResponse)
    assert reply.responses[0].partition_responses[0].error_code == 0, reply
