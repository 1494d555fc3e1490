"""Claims in the topic of a real cluster: appended as single records, read from the beginning on."""

from __future__ import annotations

import struct
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record import MemoryRecords
from kafka.record.default_records import ControlRecord

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.claim_records import (
    CLAIMS_TOPIC,
    CONFIGS,
    PARTITIONS,
    Claim,
    Claims,
    ClaimsUnreadable,
    encode_key,
    encode_value,
)
from ureplicator_common.kafka.client import EARLIEST, Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import (
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.log_offsets import fetch_request, fetched_row
from ureplicator_common.kafka.topics.internal_topics import create_topic
from ureplicator_common.kafka.topics.single_records import NUMBER, append_request

FETCH_BYTES = 1 << 20
READY_S = 5.0
"""Time for the leader of a topic to be there: it was just created, or its leader moves."""
RETRY_S = 0.1
_KEY = CLAIMS_TOPIC, NUMBER


class KafkaClaimLog:
    """`ClaimLog` of one cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._claims = Claims()
        self._topic_id = ""

    def cluster_id(self) -> str:
        found = self._client.view([]).cluster_id
        if not found:
            raise ClusterUnavailable("the brokers do not tell the id of their cluster")
        return found

    def read(self) -> Claims:
        view = self._view()
        if CLAIMS_TOPIC in view.missing:
            self._claims, self._topic_id = Claims(), ""
            return self._claims
        leader = self._leader(view)
        while not self._fetch(leader):
            pass
        return self._claims

    def write(self, claim: Claim) -> None:
        self._append(claim, encode_value(claim))

    def withdraw(self, claim: Claim) -> None:
        self._append(claim, None)

    def close(self) -> None:
        self._client.close()

    def _append(self, claim: Claim, value: bytes | None) -> None:
        """Attempts whose outcome is unknown are repeated by the caller: a claim may be there twice."""
        deadline_s = self._client.deadline_s(READY_S)
        while True:
            view = self._view()
            if CLAIMS_TOPIC in view.missing:
                create_topic(self._client, CLAIMS_TOPIC, partitions=PARTITIONS, configs=CONFIGS)
            code = self._produce(view, claim, value)
            if not code:
                return
            if code not in RETRIABLE_PRODUCE and code not in LEADER_MOVED:
                right = f"WRITE on topic {CLAIMS_TOPIC}"
                reason = refusal(code, right, self._client.name)
                raise TopicRefused(f"topic {CLAIMS_TOPIC}: {reason}")
            if self._client.now_s() >= deadline_s:
                raise ClusterUnavailable(f"topic {CLAIMS_TOPIC}: {error_name(code)}")
            self._client.pause(RETRY_S)

    def _produce(self, view: ClusterView, claim: Claim, value: bytes | None) -> int:
        """Error code of the only partition."""
        broker = _broker(view)
        if broker is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        request = append_request(
            CLAIMS_TOPIC, key=encode_key(claim), value=value, time_ms=claim.since_ms
        )
        response = self._client.call(broker, request, ProduceResponse)
        (topic,) = response.responses
        (row,) = topic.partition_responses
        return int(row.error_code)

    def _view(self) -> ClusterView:
        return self._client.view([CLAIMS_TOPIC])

    def _leader(self, view: ClusterView) -> Broker:
        topic_id = view.topic_ids.get(CLAIMS_TOPIC, "")
        if not topic_id:
            raise ClusterUnavailable(f"topic {CLAIMS_TOPIC}: {view.absence(CLAIMS_TOPIC)}")
        if topic_id != self._topic_id:
            self._claims, self._topic_id = Claims(), topic_id
        broker = _broker(view)
        if broker is None:
            raise ClusterUnavailable(f"topic {CLAIMS_TOPIC} has no leader", delay_s=0.2)
        return broker

    def _fetch(self, leader: Broker) -> bool:
        """One response; True if it reached the end of the log."""
        claims = self._claims
        request = fetch_request(
            {_KEY: claims.next_offset}, max_bytes_each=FETCH_BYTES, max_bytes=FETCH_BYTES
        )
        response = self._client.call(leader, request, FetchResponse)
        row = fetched_row(response, CLAIMS_TOPIC)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._restart(leader)
            return False
        self._require(row.error_code, "READ")
        _add_all(claims, row)
        return claims.next_offset >= int(row.high_watermark)

    def _restart(self, leader: Broker) -> None:
        """The log was truncated, or begins later: it is read again from its start."""
        start = offset_at(self._client, leader, _KEY, EARLIEST)
        self._claims = Claims()
        self._claims.next_offset = start

    def _require(self, code: int, right: str) -> None:
        if code:
            reason = refusal(code, f"{right} on topic {CLAIMS_TOPIC}", self._client.name)
            raise ClusterUnavailable(f"topic {CLAIMS_TOPIC}: {reason}", delay_s=0.2)


def _broker(view: ClusterView) -> Broker | None:
    """The leader of the only partition."""
    leader = view.leaders.get(_KEY)
    return view.brokers.get(leader.node_id) if leader else None


def _add_all(claims: Claims, row: Any) -> None:
    """The records of a response. Raises ClaimsUnreadable."""
    begin = claims.next_offset
    try:
        for batch in MemoryRecords(bytes(row.records or b"")):
            for record in batch:
                if not isinstance(record, ControlRecord) and record.offset >= begin:
                    claims.add(record.offset, record.key, record.value)
            claims.next_offset = max(
                claims.next_offset, batch.base_offset + batch.last_offset_delta + 1
            )
    except (CorruptRecordError, UnsupportedCodecError, struct.error) as error:
        raise ClaimsUnreadable(f"topic {CLAIMS_TOPIC} cannot be read: {error}") from error
    if claims.next_offset == begin and begin < int(row.high_watermark):
        raise ClusterUnavailable(f"topic {CLAIMS_TOPIC}: an empty response at {begin}", delay_s=0.2)
