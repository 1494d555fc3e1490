"""Control records on request, log starts that move, producers and fillers, at real brokers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.client import EARLIEST, LATEST, ClusterClient
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.producer_states import ProducerState, producer_states
from ureplicator_common.kafka.transactions.producers import init_producer
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.topics import create_topic, offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSION, KAFKA_VERSIONS
from ureplicator_testkit.servers.versions import kafka_of_version
from ureplicator_worker.batches.fillers import filler
from ureplicator_worker.batches.header import stamp
from ureplicator_worker.wire import delete_records_api, markers_api, produce_api
from ureplicator_worker.wire.markers_api import Filling
from ureplicator_worker.wire.produce_api import Piece
from ureplicator_worker.wire.topic_keys import by_name

pytestmark = pytest.mark.integration

RESPONSE_S, TIMEOUT_MS = 60, 30_000
FILLERS, FILLED = 10, 100_000
NONE = ErrorCode.NONE


@pytest.fixture(scope="module", params=KAFKA_VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    if request.param == KAFKA_VERSION:
        yield request.getfixturevalue("target_cluster")
        return
    with kafka_of_version(request.param, name=f"logs-{request.param}") as started:
        yield started


class Site:
    """An empty partition, and a connection to its leader, with one request at a time."""

    def __init__(self, cluster: KafkaCluster, topic: str, connection: socket.socket) -> None:
        self.bootstrap, self.key = cluster.bootstrap, (topic, 0)
        self.client = ClusterClient(cluster.bootstrap)
        self._connection = connection

    def _call(self, pieces: Sequence[Piece]) -> memoryview:
        self._connection.sendall(b"".join(pieces))
        (size,) = struct.unpack(">i", self._receive(4))
        return memoryview(self._receive(size))

    def _receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._connection.recv(size - len(found))
            assert part, "closed by the broker"
            found += part
        return found

    def new_producer(self) -> int:
        return init_producer(self.client, None).id

    def send(
        self, id: int, sequence: int, *, epoch: int = 0, data: bytearray | None = None
    ) -> tuple[int, int]:
        """(error code, base offset) of a batch, by default of one record."""
        view = memoryview(bytearray(batches.batch(1)) if data is None else data)
        stamp(view, producer_id=id, producer_epoch=epoch, sequence=sequence)
        pieces = produce_api.request(
            [((by_name(self.key[0]), self.key[1]), view)],
            version=produce_api.NAMES,
            correlation_id=1,
            timeout_ms=TIMEOUT_MS,
        )
        (row,) = produce_api.parse(self._call(pieces), produce_api.NAMES).partitions
        return row.error, row.base_offset

    def mark(self, filling: Filling, *, coordinator_epoch: int = 0) -> list[int]:
        pieces = markers_api.request(
            {self.key: filling}, coordinator_epoch=coordinator_epoch, correlation_id=2
        )
        return markers_api.parse(self._call(pieces))[self.key]

    def delete(self, before: int) -> tuple[int, int]:
        pieces = delete_records_api.request(
            {self.key: before}, correlation_id=3, timeout_ms=TIMEOUT_MS
        )
        return delete_records_api.parse(self._call(pieces))[self.key]

    def at(self, time_ms: int) -> int:
        leader = self.client.view([self.key[0]]).leader_of(*self.key)
        assert leader is not None
        return offset_at(self.client, leader, self.key, time_ms)

    def known(self, id: int) -> ProducerState | None:
        view = self.client.view([self.key[0]])
        states = producer_states(self.client, view, [self.key])[self.key]
        assert not isinstance(states, PartitionUnavailable)
        return states.get(id)

    def seen(self, isolation: str) -> list[int]:
        return [record.offset for record in read_all(self.bootstrap, self.key[0], isolation)[0]]


@contextmanager
def connected(cluster: KafkaCluster, topic: str) -> Iterator[Site]:
    create_topic(cluster.bootstrap, topic)
    offsets(cluster.bootstrap, topic)  # once its leader knows the partition
    address = ("127.0.0.1", cluster.ports[0])
    with socket.create_connection(address, timeout=RESPONSE_S) as connection:
        site = Site(cluster, topic, connection)
        with closing(site.client):
            yield site


@pytest.fixture
def site(cluster: KafkaCluster, topic: str) -> Iterator[Site]:
    with connected(cluster, topic) as site:
        yield site


def test_control_records_take_offsets_that_no_consumer_sees(site: Site) -> None:
    id = site.new_producer()
    first = bytearray(batches.batch(3))
    assert site.send(id, 0, data=first) == (NONE, 0)
    assert site.mark(Filling(id, 0, 500)) == [NONE]
    assert site.at(LATEST) == 503
    assert site.send(id, 0, data=first) == (NONE, 0), "recognised behind them"
    assert site.send(id, 4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert site.send(id, 3) == (NONE, 503)
    assert site.mark(Filling(id, 0, 2)) == [NONE]
    for isolation in ("read_uncommitted", "read_committed"):
        assert site.seen(isolation) == [0, 1, 2, 503], isolation


def test_what_is_known_of_producers(site: Site) -> None:
    one, other = site.new_producer(), site.new_producer()
    assert site.known(one) is None
    site.send(one, 5, data=bytearray(batches.batch(batches.rows(3, timestamp_ms=2_000))))
    assert site.known(one) == ProducerState(0, 7, 2_002, -1)
    site.mark(Filling(one, 0, 1))
    renewed = site.known(one)
    assert renewed is not None
    assert renewed[:2] == (0, 7)
    assert renewed.last_timestamp_ms > 1_000_000_000_000, "the broker's time"
    site.mark(Filling(other, 3, 1))
    state = site.known(other)
    assert state is not None
    assert (state.epoch, state.last_sequence, state.transaction_start) == (3, -1, -1)


def test_a_higher_epoch_fences_and_begins_with_sequence_0(site: Site) -> None:
    id = site.new_producer()
    assert site.send(id, 0) == (NONE, 0)
    assert site.mark(Filling(id, 1, 1)) == [NONE]
    assert site.send(id, 1) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert site.mark(Filling(id, 0, 1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert site.send(id, 1, epoch=1) == out_of_order
    assert site.send(id, 5, epoch=2) == out_of_order
    assert site.send(id, 0, epoch=1) == (NONE, 2)


def test_an_unknown_producer_may_begin_with_control_records(site: Site) -> None:
    id = site.new_producer()
    assert site.mark(Filling(id, 0, 2)) == [NONE]
    assert site.send(id, 7) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert site.send(id, 0) == (NONE, 2)


def test_a_lower_coordinator_epoch_is_refused(site: Site) -> None:
    id, other = site.new_producer(), site.new_producer()
    assert site.mark(Filling(id, 0, 1), coordinator_epoch=4) == [NONE]
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert site.mark(Filling(id, 0, 3), coordinator_epoch=3) == [fenced]
    assert site.mark(Filling(id, 0, 1), coordinator_epoch=4) == [NONE]
    assert site.mark(Filling(other, 0, 1), coordinator_epoch=0) == [NONE]
    assert site.at(LATEST) == 3


def test_a_log_begins_far_up(site: Site) -> None:
    id = site.new_producer()
    built = filler(FILLED, timestamp_ms=1_700_000_000_000)
    for number in range(FILLERS):
        sequence = number * FILLED
        assert site.send(id, sequence, data=built.data) == (NONE, sequence)
    end = FILLERS * FILLED
    assert site.delete(end + 1)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert site.delete(end) == (NONE, end)
    assert site.delete(7) == (NONE, end), "what was deleted before stays deleted"
    assert [site.at(time_ms) for time_ms in (EARLIEST, LATEST)] == [end, end]
    assert site.known(id) == ProducerState(0, end - 1, 1_700_000_000_000, -1)
    assert site.send(id, end) == (NONE, end)
    assert site.seen("read_uncommitted") == [end]
