"""Heartbeats of a real cluster: one record for each, its value the milliseconds since 1970 as text.

The time is in the value, as a target topic may have times of its own broker. Only the last records of the
log are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.protocol.producer import ProduceResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.topics.partition_log import LogRecord, PartitionLog
from ureplicator_common.kafka.topics.single_records import append_request, only_leader

LAST_RECORDS = 20
"""Records that are read: in transactions every second one is a marker."""


class KafkaHeartbeats:
    """`Heartbeats` of one cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def send(self, topic: str, time_ms: int) -> None:
        beat = append_request(topic, key=None, value=str(time_ms).encode(), time_ms=time_ms)
        response = self._client.call(only_leader(self._client, topic), beat, ProduceResponse)
        ((row,),) = (topic_row.partition_responses for topic_row in response.responses)
        if row.error_code:
            reason = refusal(row.error_code, f"WRITE on topic {topic}", self._client.name)
            raise ClusterUnavailable(f"topic {topic}: {reason}", delay_s=0.2)

    def newest_ms(self, topic: str) -> int | None:
        times_ms: list[int] = []

        def add(first: int, records: Sequence[LogRecord]) -> None:
            values = (record.value or b"" for record in records)
            times_ms.extend(int(value) for value in values if value.isdigit())

        log = PartitionLog(
            self._client,
            topic,
            add=add,
            clear=times_ms.clear,
            unreadable=ClusterUnavailable,
            last=LAST_RECORDS,
        )
        if not log.read():
            raise ClusterUnavailable(f"topic {topic} does not exist", delay_s=0.2)
        return max(times_ms, default=None)

    def close(self) -> None:
        self._client.close()
