"""Brokers in memory: control records on request, logs that begin later, and what is known of producers."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Mapping

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.kafka.batch_log import BatchLog, KnownProducer
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.wire import delete_records_api, markers_api
from ureplicator_worker.wire.markers_api import Filling
from ureplicator_worker.wire.produce_api import Piece

Key = tuple[str, int]
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
OLD_MS = 1_000
NONE = ErrorCode.NONE
LOWER_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def sent(sequence: int, *, records: int = 1, id: int = 7, epoch: int = 0) -> bytes:
    made = batches.batch(records, producer_id=id)
    return batches.patched(made, producer_epoch=epoch, base_sequence=sequence)


class Brokers:
    """Two nodes: the first leads t/0 and u/0, the second t/1."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka("c", {"t": 2, "u": 1}, nodes=2)
        self._clients = {node: self.kafka.connect(node) for node in self.kafka.nodes}

    def call(self, node: int, pieces: list[Piece]) -> memoryview:
        client = self._clients[node]
        client.sendall(b"".join(pieces))
        self.kafka.pump()
        (size,) = struct.unpack(">i", client.recv(4))
        return memoryview(client.recv(size))

    def mark(
        self, wanted: Mapping[Key, Filling], *, node: int = 1, coordinator_epoch: int = 0
    ) -> dict[Key, list[int]]:
        pieces = markers_api.request(
            wanted, coordinator_epoch=coordinator_epoch, correlation_id=5, client_id="c"
        )
        return markers_api.parse(self.call(node, pieces))

    def delete(self, before: Mapping[Key, int], *, node: int = 1) -> dict[Key, tuple[int, int]]:
        pieces = delete_records_api.request(before, correlation_id=6)
        return delete_records_api.parse(self.call(node, pieces))

    def close(self) -> None:
        self.kafka.close()
        for client in self._clients.values():
            client.close()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()


@pytest.fixture
def log(brokers: Brokers) -> BatchLog:
    return brokers.kafka.logs[T0]


def test_control_records_take_offsets_and_the_sequence_goes_on(
    brokers: Brokers, log: BatchLog
) -> None:
    assert log.produce(sent(0, records=3)) == (NONE, 0)
    assert brokers.mark({T0: Filling(7, 0, 5), U0: Filling(7, 0, 2)}) == {T0: [0], U0: [0]}
    assert (log.end, brokers.kafka.logs[U0].end) == (8, 2)
    assert log.known_producers() == {7: KnownProducer(0, 2, OLD_MS, 0, -1)}
    assert log.produce(sent(0, records=3)) == (NONE, 0)
    assert log.produce(sent(4)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(3)) == (NONE, 8)
    assert log.committed() == [batch for batch in log.taken if not is_control(batch)]
    assert len(log.committed()) == 2


def is_control(batch: bytes) -> bool:
    return bool(batches.field(batch, "attributes") & batches.CONTROL)


def test_a_higher_epoch_fences_and_begins_with_sequence_0(brokers: Brokers, log: BatchLog) -> None:
    log.produce(sent(0, records=3))
    assert brokers.mark({T0: Filling(7, 1, 1)}) == {T0: [0]}
    assert log.known_producers()[7].last_sequence == -1
    assert log.produce(sent(3)) == (LOWER_EPOCH, -1)
    assert brokers.mark({T0: Filling(7, 0, 1)}) == {T0: [LOWER_EPOCH]}
    assert log.produce(sent(3, epoch=1)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(5, epoch=2)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(0, epoch=1)) == (NONE, 4)


def test_a_producer_that_only_has_control_records_begins_with_sequence_0(
    brokers: Brokers, log: BatchLog
) -> None:
    assert brokers.mark({T0: Filling(9, 0, 1)}) == {T0: [0]}
    assert log.known_producers() == {9: KnownProducer(0, -1, OLD_MS, 0, -1)}
    assert log.produce(sent(7, id=9)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(0, id=9)) == (NONE, 1)


def test_a_lower_coordinator_epoch_is_refused(brokers: Brokers, log: BatchLog) -> None:
    brokers.mark({T0: Filling(7, 0, 1)}, coordinator_epoch=4)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert brokers.mark({T0: Filling(7, 0, 1)}, coordinator_epoch=3) == {T0: [fenced]}
    assert brokers.mark({T0: Filling(8, 0, 1)}, coordinator_epoch=3) == {T0: [NONE]}
    assert brokers.mark({T0: Filling(7, 0, 1)}, coordinator_epoch=4) == {T0: [NONE]}
    assert log.end == 3


def test_a_response_has_one_outcome_for_each_producer_id(brokers: Brokers, log: BatchLog) -> None:
    """That of the last entry."""
    brokers.kafka.refuse_markers[T0] = deque([19, 20])
    assert brokers.mark({T0: Filling(7, 0, 3)}) == {T0: [NONE]}
    assert log.end == 1
    wanted = {T0: Filling(7, 0, 1), U0: Filling(8, 0, 1), T1: Filling(8, 0, 1)}
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert brokers.mark(wanted) == {T0: [NONE], U0: [NONE], T1: [moved]}
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.mark({("w", 0): Filling(7, 0, 1)}) == {("w", 0): [gone]}


def test_control_records_under_way_arrive_late(brokers: Brokers, log: BatchLog) -> None:
    brokers.kafka.delaying.add(1)
    with pytest.raises(struct.error):
        brokers.mark({T0: Filling(7, 0, 2)})
    assert log.end == 0
    brokers.kafka.arrive()
    assert log.end == 2


def test_old_data_expires_and_control_records_renew_it(brokers: Brokers, log: BatchLog) -> None:
    log.produce(sent(0))
    brokers.mark({T0: Filling(7, 0, 1)})
    log.expired_ms = 2 * OLD_MS
    assert log.produce(sent(5)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(1)) == (NONE, 2)
    assert log.known_producers() == {}
    assert log.produce(sent(5)) == (NONE, 3)
    log.forget_producers()
    assert log.known_producers() == {}


def test_records_without_a_producer_are_appended_each_time(log: BatchLog) -> None:
    assert [log.produce(batches.batch(3)) for _ in range(2)] == [(NONE, 0), (NONE, 3)]
    assert log.known_producers() == {}


def test_an_open_transaction_has_its_first_offset(log: BatchLog) -> None:
    log.produce(sent(0))
    log.produce(batches.patched(sent(1), attributes=batches.TRANSACTIONAL))
    assert log.known_producers()[7].transaction_start == 1


def test_an_election_takes_back_what_it_loses(brokers: Brokers, log: BatchLog) -> None:
    for sequence in range(3):
        log.produce(sent(sequence))
    log.truncate(2)
    assert log.produce(sent(3)) == (OUT_OF_ORDER, -1)
    assert log.produce(sent(2)) == (NONE, 2)
    log.truncate(0)
    assert log.known_producers() == {}
    assert log.produce(sent(9)) == (NONE, 0)


def test_records_are_deleted(brokers: Brokers, log: BatchLog) -> None:
    for sequence in range(0, 9, 3):
        log.produce(sent(sequence, records=3))
    assert brokers.delete({T0: 3}) == {T0: (NONE, 3)}
    assert (log.start, log.end, len(log.taken)) == (3, 9, 2)
    assert brokers.delete({T0: 2}) == {T0: (NONE, 3)}
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert brokers.delete({T0: 10, U0: -2}) == {T0: out_of_range, U0: out_of_range}
    moved = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert brokers.delete({T0: -1, T1: 0}) == {T0: (NONE, 9), T1: moved}
    assert log.produce(sent(9)) == (NONE, 9)


def test_a_deletion_is_refused_by_script(brokers: Brokers, log: BatchLog) -> None:
    brokers.kafka.refuse_deletions[T0] = deque([ErrorCode.REQUEST_TIMED_OUT])
    assert brokers.delete({T0: 0}) == {T0: (ErrorCode.REQUEST_TIMED_OUT, -1)}
    assert brokers.delete({T0: 0}) == {T0: (NONE, 0)}
