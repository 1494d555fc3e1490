"""Tail of the target's log: what lies behind a position."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import emptied, patched
from ureplicator_worker.batches.header import SEQUENCE_MODULUS
from ureplicator_worker.copier.behind import Behind, TargetLost, Uncountable
from ureplicator_worker.copier.takeover.target_tail import TargetTail
from ureplicator_worker.copier.takeover.witness import STAMPED_MS, witness_of

OURS, OTHER = 7, 8
FENCE = Producer(OURS, 1)
LIMIT_BYTES = 150
"""A fetch returns a batch or two."""


def content(number: int) -> bytes:
    return witness_of(0, None, b"%d" % number).content


def produce(log: BatchLog, count: int, sequence: int, *, producer: int = OURS) -> None:
    """A batch whose records name their sequences."""
    rows = [(1, None, b"%d" % (sequence + n), ()) for n in range(count)]
    batch = batches.batch(rows, producer_id=producer)
    log.put(patched(batch, base_sequence=sequence % SEQUENCE_MODULUS))


def fence(log: BatchLog, *, producer: int = OURS, epoch: int = 1) -> None:
    marker = batches.marker(base_offset=0, producer_id=producer, producer_epoch=epoch, commit=False)
    log.put(marker)


def tail_of(
    log: BatchLog,
    *,
    sequence: int,
    target_end: int,
    end: int | None = None,
    collects: bool = False,
) -> TargetTail:
    return TargetTail(
        sent=DataProducer("w.0.run", OURS, 0, sequence),
        target_end=target_end,
        fence=FENCE,
        end=log.end if end is None else end,
        collects=collects,
    )


def read(log: BatchLog, tail: TargetTail) -> Behind:
    """Read as brokers respond, until the result is known."""
    for _ in range(200):
        if tail.behind is not None:
            return tail.behind
        if not log.start <= tail.offset <= log.end:
            tail.out_of_range(log.start)
        else:
            found = log.fetch(tail.offset, LIMIT_BYTES, stable=False)
            tail.add(b"".join(found))
    raise AssertionError("the control record was not found")


@pytest.mark.parametrize("others", [0, 1, 40])
def test_records_behind_the_position_are_counted_by_their_sequences(others: int) -> None:
    log = BatchLog()
    produce(log, 3, 0)
    produce(log, 4, 3)
    produce(log, 2, 7)
    for number in range(others):
        produce(log, 1, number, producer=OTHER)
    fence(log)
    behind = read(log, tail_of(log, sequence=3, target_end=3))
    assert (behind.count, behind.first, behind.end) == (6, 3, log.end)
    assert behind.last.content == content(8)


def test_nothing_is_behind_the_position() -> None:
    log = BatchLog()
    produce(log, 3, 0)
    fence(log)
    assert read(log, tail_of(log, sequence=3, target_end=3)) == Behind(0, 4)


def test_a_producer_that_sent_nothing() -> None:
    log = BatchLog()
    produce(log, 5, 0, producer=OTHER)
    fence(log)
    assert read(log, tail_of(log, sequence=0, target_end=5)) == Behind(0, 6)


def test_the_end_is_the_control_record_of_the_fence() -> None:
    """Control records of former fences, of lower epochs, and of other producers end nothing."""
    log = BatchLog()
    produce(log, 3, 0)
    fence(log, epoch=0)
    fence(log, producer=OTHER, epoch=9)
    produce(log, 2, 3)
    tail = tail_of(log, sequence=3, target_end=3, end=5)
    while tail.offset < log.end:
        tail.add(b"".join(log.fetch(tail.offset, LIMIT_BYTES, stable=False)))
    assert tail.behind is None
    fence(log)
    behind = read(log, tail)
    assert (behind.count, behind.first, behind.end) == (2, -1, log.end)


def test_what_follows_the_control_record_does_not_count() -> None:
    log = BatchLog()
    produce(log, 3, 0)
    fence(log)
    produce(log, 2, 3)
    assert read(log, tail_of(log, sequence=3, target_end=3, end=4)) == Behind(0, 4)


def test_sequences_that_begin_again_at_0() -> None:
    log = BatchLog()
    produce(log, 3, SEQUENCE_MODULUS - 3)
    produce(log, 3, SEQUENCE_MODULUS)
    fence(log)
    behind = read(log, tail_of(log, sequence=SEQUENCE_MODULUS - 3, target_end=0))
    assert behind.count == 6


def test_compaction_changes_no_count() -> None:
    """The cleaner leaves an empty batch as the last one of a producer."""
    log = BatchLog()
    produce(log, 3, 0)
    produce(log, 4, 3)
    log.taken[-1] = emptied(log.taken[-1])
    fence(log)
    behind = read(log, tail_of(log, sequence=3, target_end=3))
    assert (behind.count, behind.last) == (4, None)


def test_a_log_that_lost_what_it_acknowledged() -> None:
    log = BatchLog()
    produce(log, 3, 0)
    fence(log)
    with pytest.raises(TargetLost, match="lost 2 records"):
        read(log, tail_of(log, sequence=5, target_end=3))
    with pytest.raises(TargetLost):
        read(log, tail_of(log, sequence=0, target_end=9))


def test_a_hole_before_the_position() -> None:
    """A broker that has forgotten the producer takes what follows over records that an election has lost."""
    log = BatchLog()
    produce(log, 3, 0)
    produce(log, 2, 9)
    fence(log)
    with pytest.raises(TargetLost):
        read(log, tail_of(log, sequence=9, target_end=9))


def test_a_tail_that_retention_has_taken() -> None:
    log = BatchLog()
    produce(log, 3, 0)
    fence(log)
    log.start = 3
    log.taken = log.taken[1:]
    with pytest.raises(Uncountable, match="begins at 3"):
        read(log, tail_of(log, sequence=0, target_end=0))


def test_copies_are_collected_from_the_position_on() -> None:
    log = BatchLog()
    produce(log, 3, 0)
    produce(log, 2, 0, producer=OTHER)
    produce(log, 4, 3)
    produce(log, 2, 7)
    fence(log)
    behind = read(log, tail_of(log, sequence=3, target_end=3, collects=True))
    assert behind.copies is not None
    assert [copy.content for copy in behind.copies] == [content(n) for n in range(3, 9)]


def test_a_target_that_stamps_records_shows_no_time_of_the_source() -> None:
    log = BatchLog()
    produce(log, 1, 0)
    log.taken[-1] = patched(log.taken[-1], attributes=batches.LOG_APPEND_TIME)
    fence(log)
    assert read(log, tail_of(log, sequence=0, target_end=0)).last.time_ms == STAMPED_MS


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("sequence", [0, 3])
def test_control_records_of_many_tries_hide_no_loss(lost: int, sequence: int) -> None:
    """Each try adds one: in time they reach the end of what was lost."""
    log = BatchLog()
    produce(log, 3, 0, producer=OTHER)
    for _ in range(2 * lost):
        fence(log)
        with pytest.raises(TargetLost, match="target lost"):
            read(log, tail_of(log, sequence=sequence, target_end=3 + lost, end=log.end - 1))


def test_a_log_that_lost_what_a_former_owner_sent() -> None:
    """Nothing of the producer itself was there."""
    log = BatchLog()
    produce(log, 3, 0, producer=OTHER)
    fence(log)
    fence(log)
    with pytest.raises(TargetLost, match="offsets 3 to 3"):
        read(log, tail_of(log, sequence=0, target_end=4, end=4))


def test_a_position_that_was_moved_by_hand() -> None:
    """Nothing is counted, but the control record is awaited all the same."""
    log = BatchLog()
    produce(log, 3, 0)
    tail = tail_of(log, sequence=UNCOUNTED, target_end=-1)
    tail.add(b"".join(log.fetch(tail.offset, LIMIT_BYTES, stable=False)))
    assert tail.behind is None
    fence(log)
    assert read(log, tail) == Behind(0, 4)


def test_a_transactional_id_that_its_coordinator_has_forgotten() -> None:
    """The control record is another producer's then: what the former one sent is counted none the less."""
    log = BatchLog()
    produce(log, 3, 0)
    fence(log, producer=OTHER, epoch=1)
    tail = TargetTail(
        sent=DataProducer("w.0.run", OURS, 0, 1), target_end=1, fence=Producer(OTHER, 1), end=3
    )
    assert read(log, tail).count == 2


def test_records_of_old_formats_are_none_of_a_producer() -> None:
    """Others wrote them before the topic was upgraded. They are shorter than a header of today."""
    log = BatchLog()
    produce(log, 3, 0)
    old = batches.old_batch([(1, None, b"v")], magic=1, base_offset=3)
    tail = tail_of(log, sequence=3, target_end=3, end=4)
    tail.add(old)
    assert tail.offset == 4
