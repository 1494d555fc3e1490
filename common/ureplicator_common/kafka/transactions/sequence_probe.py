"""Trial of what exactly once without transactions rests on, in a topic of the fleet on the target.

    sequence 0 --> appended; the same again --> not appended, and answered with its offset
    sequence 9 --> refused, since 1 would follow
    a fence (`data_fences`), then the former epoch --> refused, soon after the response to EndTxn

Servers that speak Kafka's protocol without keeping producers' states fail one of these. The topic holds a few
small records of each start of a copier, for an hour.
"""

from __future__ import annotations

from kafka.protocol.producer import ProduceResponse

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import (
    FENCED,
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.kafka.topics.internal_topics import create_topic
from ureplicator_common.kafka.topics.single_records import NUMBER, append_request
from ureplicator_common.kafka.transactions.data_fences import fence_data
from ureplicator_common.kafka.transactions.fencing import retry_delays
from ureplicator_common.kafka.transactions.probe_topic import CONFIGS, PARTITIONS
from ureplicator_common.kafka.transactions.producers import Producer, init_producer

READY_S = 2.0
"""Time for the leader of the topic to be there, and for the fence to be in its log."""
GAP = 9
OUT_OF_ORDER = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


def probe_sequences(
    client: ClusterClient, *, topic: str, transactional_id: str, time_ms: int
) -> str:
    """Properties that the cluster lacks, in words; "" if none. `transactional_id`: one that was never used.

    Raises ClusterUnavailable, and TopicRefused if the login may not do it: then nothing is known.
    """
    probe = _Probe(client, topic, time_ms)
    producer = init_producer(client, transactional_id)
    code, first = probe.append(producer, 0)
    _require(not code, topic, code)
    code, again = probe.append(producer, 0)
    if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER and (code or again != first):
        return f"a batch that is sent again is not recognised: {_shown(code, again)}"
    code, at = probe.append(producer, GAP)
    if not code:
        return f"a batch behind a gap is taken: {_shown(code, at)}"
    _require(code in OUT_OF_ORDER, topic, code)
    _, refused = fence_data(client, transactional_id, [(topic, NUMBER)])
    if refused:
        raise TopicRefused(f"topic {topic}: {refused[topic, NUMBER]}")
    return probe.fenced(producer)


def _require(done: bool, topic: str, code: int) -> None:
    if not done:
        raise TopicRefused(f"topic {topic}: {error_name(code)}")


def _shown(code: int, offset: int) -> str:
    return error_name(code) if code else f"appended at offset {offset}"


class _Probe:
    def __init__(self, client: ClusterClient, topic: str, time_ms: int) -> None:
        self._client, self._topic, self._time_ms = client, topic, time_ms

    def fenced(self, former: Producer) -> str:
        """The control record is written after the response to EndTxn: until then batches are taken."""
        deadline_s = self._client.deadline_s(READY_S)
        sequence = 1
        for delay_s in retry_delays():
            code, _ = self.append(former, sequence)
            if code in FENCED:
                return ""
            _require(not code, self._topic, code)
            if self._client.now_s() >= deadline_s:
                break
            sequence += 1
            self._client.pause(delay_s)
        return "a producer that was fenced goes on"

    def append(self, producer: Producer, sequence: int) -> tuple[int, int]:
        """Error code and offset of a record. Raises ClusterUnavailable, TopicRefused."""
        deadline_s = self._client.deadline_s(READY_S)
        for delay_s in retry_delays():
            code, offset = self._produce(producer, sequence)
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                lacks = refusal(code, f"WRITE on topic {self._topic}", self._client.name)
                raise TopicRefused(f"topic {self._topic}: {lacks}")
            if code not in RETRIABLE_PRODUCE and code not in LEADER_MOVED:
                break
            if self._client.now_s() >= deadline_s:
                raise ClusterUnavailable(f"topic {self._topic}: {error_name(code)}")
            self._client.pause(delay_s)
        return code, offset

    def _produce(self, producer: Producer, sequence: int) -> tuple[int, int]:
        view = self._client.view([self._topic])
        if self._topic in view.missing:
            create_topic(self._client, self._topic, partitions=PARTITIONS, configs=CONFIGS)
        leader = view.leader_of(self._topic, NUMBER)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1
        request = append_request(
            self._topic,
            key=None,
            value=b"",
            time_ms=self._time_ms,
            producer=(producer.id, producer.epoch),
            sequence=sequence,
        )
        (topic,) = self._client.call(leader, request, ProduceResponse).responses
        (row,) = topic.partition_responses
        return int(row.error_code), int(row.base_offset)
