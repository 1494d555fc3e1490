"""Windows that send to one target partition in one transaction: one series of sequences, in turns."""

from __future__ import annotations

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction, Leading
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.wire.topic_keys import TopicKeys

SHARED = ("shared", 0)
KEYS = TopicKeys.of("shared", "00000000-0000-0000-0000-000000000001", 0)


def leading(target: TopicPartition) -> Leading:
    """The same one at all times."""
    return Leading(1, 0, 0)


def sides(count: int) -> list[SendSide]:
    return [
        SendSide(
            partition=Partition(Route("a", "b"), "t", number),
            topic_partition=SHARED,
            keys=KEYS,
            abort_on_send_failure=True,
            window=SendWindow(position=0, leader_epoch=0),
        )
        for number in range(count)
    ]


def push(side: SendSide, records: int = 3) -> None:
    side.window.push(
        Batch(
            memoryview(bytearray(batches.batch(records))),
            lease=None,
            first_offset=0,
            next_offset=records,
            leader_epoch=0,
            records=records,
            max_timestamp_ms=0,
        )
    )


def opened(producer: Producer, sides: list[SendSide]) -> LaneTransaction:
    transaction = LaneTransaction("id")
    transaction.begin(producer)
    for side in sides:
        transaction.may_send(side)
    transaction.joined(transaction.number, frozenset({SHARED}))
    return transaction


def send(transaction: LaneTransaction, side: SendSide) -> Batch | None:
    """Batch that a turn of the loop sends for this side alone."""
    if not transaction.may_send(side) or not transaction.taking_part([side], leading, 0.0):
        return None
    return side.window.next()


def test_a_window_continues_the_sequences_of_the_former_one() -> None:
    first, second = both = sides(2)
    for side in both:
        push(side)
        push(side)
    transaction = opened(Producer(7, 0), both)
    found = []
    turns = [first, second] * 6
    for side in turns:
        batch = send(transaction, side)
        if batch is not None:
            found.append((batch.sequence, side))
            assert send(transaction, second if side is first else first) is None
            side.window.acknowledged(batch, -1)
    assert [sequence for sequence, _ in found] == [0, 3, 6, 9]
    assert {side.partition.number for _, side in found} == {0, 1}


def test_what_is_sent_again_keeps_its_turn() -> None:
    first, second = both = sides(2)
    for side in both:
        push(side)
    transaction = opened(Producer(7, 0), both)
    batch = send(transaction, first)
    assert batch is not None
    assert not transaction.may_send(second)
    first.window.lost(batch)
    assert not transaction.may_send(second)
    again = send(transaction, first)
    assert again is batch
    assert again.sequence == 0


def test_nothing_new_while_another_waits_or_the_transaction_is_sealed() -> None:
    first, second = both = sides(2)
    push(first)
    transaction = opened(Producer(7, 0), both)
    batch = send(transaction, first)
    assert batch is not None
    push(first)
    push(second)
    assert transaction.may_send(first)
    assert not transaction.may_send(second)
    assert not transaction.may_send(first)
    first.window.acknowledged(batch, -1)
    assert transaction.may_send(second)
    transaction.sealed = True
    assert not transaction.may_send(first)
    assert not transaction.may_send(second)


def test_a_window_that_was_dropped_while_it_waited_holds_up_none() -> None:
    first, second = both = sides(2)
    push(first)
    transaction = opened(Producer(7, 0), both)
    assert send(transaction, first) is not None
    push(second)
    assert not transaction.may_send(second)
    second.window.discard()
    push(first)
    assert transaction.may_send(first)


def test_another_producer_begins_at_zero() -> None:
    (side,) = sides(1)
    push(side)
    transaction = opened(Producer(7, 0), [side])
    batch = send(transaction, side)
    assert batch is not None
    side.window.acknowledged(batch, -1)
    transaction.begin(Producer(7, 1))
    push(side)
    transaction.may_send(side)
    transaction.joined(transaction.number, frozenset({SHARED}))
    following = send(transaction, side)
    assert following is not None
    assert following.sequence == 0


def test_a_window_that_begins_under_the_same_producer_continues() -> None:
    """A partition that left and came back has another window."""
    first, again = sides(2)
    push(first)
    transaction = opened(Producer(7, 0), [first])
    batch = send(transaction, first)
    assert batch is not None
    first.window.acknowledged(batch, -1)
    push(again)
    following = send(transaction, again)
    assert following is not None
    assert following.sequence == 3


def test_one_window_of_a_target_partition_sends_in_a_turn_of_the_loop() -> None:
    """Both may, since nothing is in flight; the one that has waited longer comes first."""
    first, second = both = sides(2)
    for side in both:
        push(side)
    transaction = opened(Producer(7, 0), both)
    assert all([transaction.may_send(side) for side in both])
    assert list(transaction.taking_part([second, first], leading, 0.0)) == [second]
    batch = second.window.next()
    assert batch is not None
    assert not transaction.taking_part([first], leading, 0.0)
    second.window.acknowledged(batch, -1)
    following = send(transaction, first)
    assert following is not None
    assert following.sequence == 3
