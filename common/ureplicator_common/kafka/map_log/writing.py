"""Rows of the map in transactions, on a cluster.

The producer is that of the positions, so a copier that was fenced cannot write a row either, and rows and
positions are committed together. The sequence numbers of the map's partition are its own.

A target that refuses the rows for good, or where the topic cannot be created, is asked again after
`REFUSED_S`, and a leader that is away, or has too few replicas in sync, after `AWAY_S`: until then positions
are committed without the map, at no cost. A coordinator ends no transaction with a partition in such a state.
So the map takes part only once its leader is connected and has its replicas, and after a failure only once it
has responded without an error.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import LATEST, Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import (
    FENCED,
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.map_log import MapReading, MapRefused
from ureplicator_common.kafka.map_log.batches import encode_batch
from ureplicator_common.kafka.map_log.creation import create_map_topic
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.kafka.map_log.replicas import require_in_sync, required_in_sync
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.topics.single_records import NUMBER, only_leader
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import Row

REFUSED_S = 30.0
AWAY_S = 10.0
RESPONSE_S = 1.0
"""Time for the leader to show that it responds again: commits wait meanwhile."""
REQUIRED_S = 30.0
"""A setting that an operator changes is known within this time."""
BATCH_BYTES = 400_000
"""Bytes of a batch, far below what a topic takes by default (1 MiB)."""
STEP_BYTES = 1 << 20
"""Bytes of a response that is read between two commits."""
TIMEOUT_MS = 4_000
TRIES = 5
RETRY_S = 0.1
ADDED_VERSION, IMPLICIT_VERSION = 9, 12
REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)

logger = logging.getLogger(__name__)


class KafkaMapLog:
    """`MapLog` in this topic, which is created when it is first needed."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._topic = topic
        self._wall_ms = wall_ms
        self._leader: Broker | None = None
        self._required = 1
        """Replicas that must be in sync, as of `_required_at_s`."""
        self._required_at_s = -math.inf
        self._sequence = 0
        self._producer: tuple[int, int] | None = None
        self._refused = ""
        self._again_at_s = -math.inf

    def is_refused(self) -> bool:
        """See `MapLog`."""
        return self._client.now_s() < self._again_at_s

    def write(self, rows: Sequence[Row], store: PositionStore, *, replication_factor: int) -> None:
        """See `MapLog`."""
        if self.is_refused():
            raise MapRefused(self._refused)
        self._reach_leader(replication_factor)
        try:
            refused = store.add_partitions([(self._topic, NUMBER)])
            if refused:
                self._leader = None
                raise MapRefused(f"topic {self._topic}: {', '.join(refused.values())}")
            self._produce_all(rows, store)
        except MapRefused as error:
            self._refuse(str(error), REFUSED_S)
            raise
        if self._refused:
            logger.info("offset map is written again: topic %s", self._topic)
            self._refused = ""

    def reading(self, partitions: Collection[Partition]) -> MapReading:
        """See `MapLog`."""
        return KafkaOffsetMaps(
            self._client, self._topic, only=frozenset(partitions), fetch_bytes=STEP_BYTES
        )

    def _refuse(self, reason: str, delay_s: float) -> None:
        """Write nothing for so long, and look for the leader then."""
        self._leader = None
        if reason != self._refused:
            logger.warning("offset map is not written, copying goes on: %s", reason)
        self._refused, self._again_at_s = reason, self._client.now_s() + delay_s

    def _reach_leader(self, replication_factor: int) -> None:
        """Raises MapRefused: nothing was added to the transaction yet."""
        try:
            if self._leader is None:
                self._create_if_missing(replication_factor)
                with self._client.within(RESPONSE_S):
                    offset_at(self._client, self._find_leader(), (self._topic, NUMBER), LATEST)
            else:
                self._client.call_all(self._leader, [], None)  # connects where it is not
            with self._client.within(RESPONSE_S):
                self._require_in_sync(self._find_leader())
        except MapRefused as error:
            self._refuse(str(error), REFUSED_S)
            raise
        except ClusterUnavailable as error:
            self._refuse(str(error), AWAY_S)
            raise MapRefused(str(error)) from error

    def _require_in_sync(self, leader: Broker) -> None:
        """Raises ClusterUnavailable. A leader alone is always in sync."""
        if self._client.now_s() - self._required_at_s >= REQUIRED_S:
            self._required = required_in_sync(self._client, leader, self._topic)
            self._required_at_s = self._client.now_s()
        if self._required > 1:
            require_in_sync(self._client, leader, self._topic, self._required)

    def _create_if_missing(self, replication_factor: int) -> None:
        view = self._client.view([self._topic])
        if self._topic in view.missing:
            create_map_topic(self._client, self._topic, replication_factor=replication_factor)
            view = self._view_of_created()
        if self._topic not in view.topic_ids:
            raise MapRefused(f"topic {self._topic}: {view.absence(self._topic)}")

    def _find_leader(self) -> Broker:
        if self._leader is None:
            self._leader = only_leader(self._client, self._topic)
        return self._leader

    def _view_of_created(self) -> ClusterView:
        """Brokers learn of a topic after it is created."""
        for _ in range(TRIES):
            view = self._client.view([self._topic])
            if (self._topic, NUMBER) in view.leaders:
                break
            self._client.pause(RETRY_S)
        return view

    def _produce_all(self, rows: Sequence[Row], store: PositionStore) -> None:
        """Raises as `MapLog.write`. After a leader that does not take them the next commits do without."""
        try:
            for batch in batches(rows):
                self._produce(batch, store)
        except ClusterUnavailable as error:
            self._refuse(str(error), AWAY_S)
            raise

    def _produce(self, rows: Sequence[Row], store: PositionStore) -> None:
        """Send the same batch until it is taken: the broker knows it by its sequence."""
        producer = store.producer
        if self._producer != (producer.id, producer.epoch):
            self._producer, self._sequence = (producer.id, producer.epoch), 0
        data = encode_batch(
            rows,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            sequence=self._sequence,
            time_ms=self._wall_ms(),
        )
        request = _request(self._topic, data, producer, store.transactional_id)
        for _ in range(TRIES):
            response = self._client.call(self._find_leader(), request(), ProduceResponse)
            ((row,),) = (topic.partition_responses for topic in response.responses)
            code = row.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequence = (self._sequence + len(rows)) % (1 << 31)
                return
            self._raise_unless_retriable(code)
            self._client.pause(RETRY_S)
        raise ClusterUnavailable(f"{self._topic}: {error_name(code)}", delay_s=0.2)

    def _raise_unless_retriable(self, code: int) -> None:
        if code in FENCED:
            raise Fenced(f"{self._topic}: {error_name(code)}")
        if code in LEADER_MOVED:
            self._leader = None
        if code in REFUSALS:
            self._leader = None
            right = f"WRITE on topic {self._topic}"
            raise MapRefused(f"topic {self._topic}: {refusal(code, right, self._client.name)}")
        if code not in RETRIABLE_PRODUCE:
            raise ClusterUnavailable(f"{self._topic}: {error_name(code)}", delay_s=0.2)


def batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in batches that a broker takes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        row_bytes = len(row.key) + len(row.value or b"") + 20
        if batch and size + row_bytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row_bytes
    if batch:
        yield batch


def _request(
    topic: str, data: bytes, producer: Producer, transactional_id: str
) -> Callable[[], ProduceRequest]:
    topics = ProduceRequest.TopicProduceData
    added = producer.protocol is TransactionProtocol.ADDED

    def request() -> ProduceRequest:
        return ProduceRequest(
            version=ADDED_VERSION if added else IMPLICIT_VERSION,
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                topics(
                    name=topic,
                    partition_data=[topics.PartitionProduceData(index=NUMBER, records=data)],
                )
            ],
        )

    return request
