"""Outputs of a record partition in one transaction: a part of them is in it wholly or not at all."""

from __future__ import annotations

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction, Leading, unsettled
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.copier.record.window import (
    PARTS_AHEAD,
    OutputWindow,
    RecordWindow,
    output_of,
)
from ureplicator_worker.wire.topic_keys import TopicKeys

OWN, OTHER = ("t", 0), ("u", 0)
UUID = "00000000-0000-0000-0000-000000000001"
NODE = 1


def leading(target: TopicPartition) -> Leading:
    """The same one at all times."""
    return Leading(1, 0, 0)


class Outputs:
    """A partition with two target partitions; `part` handles one record more."""

    def __init__(self, number: int = 0, own: TopicPartition = OWN) -> None:
        self.window = RecordWindow(position=0, leader_epoch=0, target_end=-1)
        self.pool = BufferPool(limit_bytes=1 << 30)
        self.sides: dict[TopicPartition, SendSide] = {}
        self.own = self._side(number, own, self.window.own)
        self.other = self._side(number, OTHER, self.window.output())
        self.fetched = 0

    def _side(self, number: int, target: TopicPartition, window: OutputWindow) -> SendSide:
        side = self.sides[target] = SendSide(
            partition=Partition(Route("a", "b"), "t", number),
            topic_partition=target,
            keys=TopicKeys.of(target[0], UUID, target[1]),
            abort_on_send_failure=True,
            window=window,
            outputs=self.sides,
        )
        return side

    def part(self, *sides: SendSide) -> None:
        """The next record has an output for each of these."""
        self.fetched += 1
        self.window.keep(
            self.pool.adopt(bytes(9)),
            position=self.fetched - 1,
            next_offset=self.fetched,
            leader_epoch=0,
        )
        chunk = self.window.take()
        part = self.window.handled(chunk, self.fetched)
        assert part is not None
        for side in sides:
            side.window.push(output_of(one_record(self.fetched - 1), part))
        self.window.done(chunk)


def one_record(offset: int) -> Batch:
    return Batch(
        memoryview(bytearray(batches.batch(1))),
        lease=None,
        first_offset=offset,
        next_offset=offset + 1,
        leader_epoch=0,
        records=1,
        max_timestamp_ms=0,
    )


def opened(*joined: TopicPartition) -> LaneTransaction:
    transaction = LaneTransaction("id")
    transaction.begin(Producer(7, 0))
    transaction.joined(transaction.number, frozenset(joined))
    return transaction


def send(transaction: LaneTransaction, side: SendSide, *more: SendSide) -> list[Batch]:
    """Batch that a turn of the loop sends for the first of them that has its turn; acknowledged at once."""
    ready = [candidate for candidate in (side, *more) if transaction.may_send(candidate)]
    sent = []
    for found in transaction.taking_part(ready, leading, 0.0):
        while (batch := found.window.next()) is not None:
            sent.append(batch)
            found.window.acknowledged(batch, -1)
    return sent


def test_a_sealed_transaction_sends_the_rest_of_the_parts_that_were_begun_and_no_more() -> None:
    outputs = Outputs()
    outputs.part(outputs.own, outputs.other)
    transaction = opened(OWN, OTHER)
    assert len(send(transaction, outputs.own)) == 1
    outputs.part(outputs.own, outputs.other)
    transaction.sealed = True
    assert not send(transaction, outputs.own)
    assert unsettled(outputs.other.window)
    assert len(send(transaction, outputs.other)) == 1
    assert not send(transaction, outputs.other)
    assert outputs.window.position == 1
    assert not any(unsettled(side.window) for side in outputs.sides.values())


def test_parts_before_one_that_was_begun_belong_to_the_transaction() -> None:
    outputs = Outputs()
    outputs.part(outputs.other)
    outputs.part(outputs.own)
    transaction = opened(OWN, OTHER)
    assert len(send(transaction, outputs.own)) == 1
    transaction.sealed = True
    assert unsettled(outputs.other.window)
    assert len(send(transaction, outputs.other)) == 1
    assert outputs.window.position == 2


def test_a_part_is_begun_when_all_its_targets_take_part() -> None:
    """It would otherwise hold up the transaction until the last one has a leader."""
    outputs = Outputs()
    outputs.part(outputs.own, outputs.other)
    transaction = opened(OWN)
    assert not send(transaction, outputs.own)
    assert not send(transaction, outputs.other)
    assert transaction.take_joining() == {OTHER: None}
    transaction.joined(transaction.number, frozenset({OTHER}))
    assert len(send(transaction, outputs.own)) == 1


def test_a_part_that_waits_for_a_target_keeps_no_turn_from_others() -> None:
    stuck, free = Outputs(0), Outputs(1, own=("t", 1))
    transaction = opened(("t", 1), OTHER)
    stuck.part(stuck.own, stuck.other)
    for _ in range(3):
        free.part(free.other)
        assert transaction.may_send(stuck.other)
        assert len(send(transaction, stuck.other, free.other)) == 1
    assert free.window.position == 3


def test_no_target_is_far_ahead_of_another() -> None:
    """A sealed transaction sends the rest of all that was begun, for which it has little time."""
    outputs = Outputs()
    for _ in range(PARTS_AHEAD):
        outputs.part(outputs.own, outputs.other)
    transaction = opened(OWN, OTHER)
    assert len(send(transaction, outputs.own)) == PARTS_AHEAD // 2
    assert len(send(transaction, outputs.other)) == PARTS_AHEAD
    assert len(send(transaction, outputs.own)) == PARTS_AHEAD // 2
    assert outputs.window.position == PARTS_AHEAD
