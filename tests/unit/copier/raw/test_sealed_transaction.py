"""A sealed transaction sends again what was sent before, and nothing new: else a backlog never settles."""

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.lane_transaction import SET_ASIDE_S, LaneTransaction, Leading
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.lifeline.messages import Grant

PRODUCER = Producer(7, 0)


def leading(target: TopicPartition) -> Leading:
    """The same one at all times."""
    return Leading(1, 0, 0)


def sending(count: int) -> tuple[LaneTransaction, SendSide]:
    """An open transaction, and a partition with so many batches to send in it."""
    pool = BufferPool(limit_bytes=1 << 20)
    window = SendWindow(position=0, leader_epoch=0)
    for number in range(count):
        data = batches.batch([(0, None, b"t/0/%d" % number, ())])
        lease = pool.lease(len(data))
        lease.view[:] = data
        batch = Batch(
            lease.view,
            lease=lease,
            first_offset=number,
            next_offset=number + 1,
            leader_epoch=0,
            records=1,
            max_timestamp_ms=0,
        )
        window.push(batch)
    beginning = StartPosition(0, 0, 0, "A", "x", "00000000-0000-0000-0000-000000000001")
    partition = Partition(Route("a", "b"), "t", 0)
    send = SendSide.begin(partition, Grant(OwnerEpoch(1), "t"), beginning, window)
    transaction = LaneTransaction("id")
    transaction.begin(PRODUCER)
    transaction.joined(transaction.number, frozenset({send.topic_partition}))
    return transaction, send


def sent(transaction: LaneTransaction, send: SendSide) -> Batch | None:
    """Batch that a turn of the loop sends first."""
    if not transaction.may_send(send) or not transaction.taking_part([send], leading, 0.0):
        return None
    return send.window.next()


def test_nothing_new_is_sent_while_batches_are_in_flight() -> None:
    transaction, send = sending(3)
    assert sent(transaction, send) is not None
    assert transaction.may_send(send)
    transaction.sealed = True
    assert not transaction.may_send(send)


def test_what_was_lost_is_sent_again() -> None:
    transaction, send = sending(3)
    batch = sent(transaction, send)
    assert batch is not None
    transaction.sealed = True
    send.window.lost(batch)
    again = sent(transaction, send)
    assert again is batch
    send.window.acknowledged(again, 0)
    assert not transaction.may_send(send)


def test_the_sequences_of_a_partition_that_returns_are_those_of_its_producer() -> None:
    transaction, send = sending(2)
    batch = sent(transaction, send)
    assert batch is not None
    send.window.acknowledged(batch, 0)
    transaction.leave(send)
    _, same = sending(1)
    assert transaction.taking_part([same], leading, 0.0)
    assert same.window.next_sequence == 1
    transaction.leave(same)
    transaction.begin(Producer(8, 0))
    transaction.joined(transaction.number, frozenset({send.topic_partition}))
    _, other = sending(1)
    assert transaction.taking_part([other], leading, 0.0)
    assert other.window.next_sequence == 0


def test_a_marker_follows_records_alone() -> None:
    """The transaction holds nothing of a partition whose record was skipped."""
    transaction, send = sending(1)
    transaction.copied[send].skipped += 1
    transaction.committed()
    assert send.window.markers == 0
    transaction.copied[send].records += 1
    transaction.committed()
    assert send.window.markers == 1


def test_all_windows_of_a_target_partition_set_it_aside_once() -> None:
    """Only a partition that returned, and did not settle again, waits for longer."""
    transaction, send = sending(1)
    transaction.begin(PRODUCER)
    target = send.topic_partition
    for _ in range(3):
        transaction.set_aside(target, node_id=1, now_s=100.0)
    assert not is_requested(transaction, send, 100.0 + SET_ASIDE_S[0] - 1)
    assert is_requested(transaction, send, 100.0 + SET_ASIDE_S[0])
    transaction.begin(PRODUCER)
    transaction.set_aside(target, node_id=1, now_s=200.0)
    assert not is_requested(transaction, send, 200.0 + SET_ASIDE_S[0])
    assert is_requested(transaction, send, 200.0 + SET_ASIDE_S[1])


def is_requested(transaction: LaneTransaction, send: SendSide, now_s: float) -> bool:
    """True if its coordinator is asked to have the partition take part."""
    assert not transaction.taking_part([send], leading, now_s)
    return send.topic_partition in transaction.take_joining()
