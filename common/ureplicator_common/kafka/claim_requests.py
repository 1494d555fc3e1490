"""Claims in the topic of a real cluster: appended as single records, read from the beginning on."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.protocol.producer import ProduceResponse

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
from ureplicator_common.kafka.client import ClusterClient, ClusterView
from ureplicator_common.kafka.errors import (
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.kafka.topics.internal_topics import create_topic
from ureplicator_common.kafka.topics.partition_log import LogRecord, PartitionLog
from ureplicator_common.kafka.topics.single_records import NUMBER, append_request

READY_S = 5.0
"""Time for the leader of a topic to be there: it was just created, or its leader moves."""
RETRY_S = 0.1


class KafkaClaimLog:
    """`ClaimLog` of one cluster."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._claims = Claims()
        self._log = PartitionLog(
            client,
            CLAIMS_TOPIC,
            add=self._add,
            clear=self._clear,
            unreadable=ClaimsUnreadable,
            committed=False,
        )

    def cluster_id(self) -> str:
        found = self._client.view([]).cluster_id
        if not found:
            raise ClusterUnavailable("the brokers do not tell the id of their cluster")
        return found

    def read(self) -> Claims:
        self._log.read()
        return self._claims

    def write(self, claim: Claim) -> None:
        self._append(claim, encode_value(claim))

    def withdraw(self, claim: Claim) -> None:
        self._append(claim, None)

    def close(self) -> None:
        self._client.close()

    def _add(self, first: int, records: Sequence[LogRecord]) -> None:
        for record in records:
            self._claims.add(*record)

    def _clear(self) -> None:
        self._claims = Claims()

    def _append(self, claim: Claim, value: bytes | None) -> None:
        """Attempts whose outcome is unknown are repeated by the caller: a claim may be there twice."""
        deadline_s = self._client.deadline_s(READY_S)
        while True:
            view = self._client.view([CLAIMS_TOPIC])
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
        broker = view.leader_of(CLAIMS_TOPIC, NUMBER)
        if broker is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        request = append_request(
            CLAIMS_TOPIC, key=encode_key(claim), value=value, time_ms=claim.since_ms
        )
        response = self._client.call(broker, request, ProduceResponse)
        (topic,) = response.responses
        (row,) = topic.partition_responses
        return int(row.error_code)
