"""Heartbeats of a real cluster: one record for each, its value the milliseconds since 1970 as text.

The time is in the value, as a target topic may have times of its own broker. Only the last records of the
log are read. A transaction that was aborted leaves records there that no consumer sees: of a producer with an
aborted transaction nothing counts, so that the result is too old, if it is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record import MemoryRecords

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import EARLIEST, LATEST, Broker, ClusterClient
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.log_offsets import fetch_request, fetched_row
from ureplicator_common.kafka.topics.single_records import NUMBER, append_request

LAST_RECORDS = 20
"""Records that are read: in transactions every second one is a marker."""
FETCH_BYTES = 64 << 10


class KafkaHeartbeats:
    """`Heartbeats` of one cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def send(self, topic: str, time_ms: int) -> None:
        beat = append_request(topic, key=None, value=str(time_ms).encode(), time_ms=time_ms)
        response = self._client.call(self._leader(topic), beat, ProduceResponse)
        for topic_row in response.responses:
            for row in topic_row.partition_responses:
                self._require(topic, row.error_code, "WRITE")

    def newest_ms(self, topic: str) -> int | None:
        leader = self._leader(topic)
        start, end = (
            offset_at(self._client, leader, (topic, NUMBER), time_ms)
            for time_ms in (EARLIEST, LATEST)
        )
        request = fetch_request(
            {(topic, NUMBER): max(start, end - LAST_RECORDS)},
            max_bytes_each=FETCH_BYTES,
            max_bytes=FETCH_BYTES,
        )
        response = self._client.call(leader, request, FetchResponse)
        row = fetched_row(response, topic)
        self._require(topic, row.error_code, "READ")
        if start < end and not row.records:
            raise ClusterUnavailable(
                f"{topic}: a response without records before {end}", delay_s=0.2
            )
        return max(_times_ms(topic, row), default=None)

    def close(self) -> None:
        self._client.close()

    def _leader(self, topic: str) -> Broker:
        view = self._client.view([topic])
        leader = view.leaders.get((topic, NUMBER))
        broker = view.brokers.get(leader.node_id) if leader else None
        if broker is None:
            raise ClusterUnavailable(f"{topic}{view.leaderless(topic)}", delay_s=0.2)
        return broker

    def _require(self, topic: str, code: int, right: str) -> None:
        if code:
            reason = refusal(code, f"{right} on topic {topic}", self._client.name)
            raise ClusterUnavailable(f"{topic}: {reason}", delay_s=0.2)


def _times_ms(topic: str, row: Any) -> Iterator[int]:
    aborted = {transaction.producer_id for transaction in row.aborted_transactions or ()}
    try:
        for batch in MemoryRecords(bytes(row.records or b"")):
            is_aborted = batch.is_transactional and batch.producer_id in aborted
            if not batch.is_control_batch and not is_aborted:
                yield from (
                    int(value) for record in batch if (value := record.value or b"").isdigit()
                )
    except (CorruptRecordError, UnsupportedCodecError, struct.error) as error:
        raise ClusterUnavailable(f"{topic}: heartbeats cannot be read: {error}") from error
