"""Producers that are shared with their former owner: which are, and what lies behind a position."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.producer_states import ProducerState, StatesOrError
from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import patched
from ureplicator_worker.batches.header import SEQUENCE_MODULUS
from ureplicator_worker.copier.takeover import takeovers
from ureplicator_worker.copier.takeover.shared_tail import SharedTail

OURS = 7
SENT = DataProducer("w.0.run", OURS, 0, 5)
OLDEST_MS = 1_000


def state(last: int, *, epoch: int = 0, time_ms: int = OLDEST_MS, open: int = -1) -> StatesOrError:
    return {OURS: ProducerState(epoch, last, time_ms, open)}


@pytest.mark.parametrize(
    ("sequence", "states", "following"),
    [
        (5, state(4), 5),
        (5, state(8), 9),
        (5, state(SEQUENCE_MODULUS - 1), 0),
        (5, state(8, time_ms=OLDEST_MS - 1), -1),
        (5, state(8, epoch=1), -1),
        (5, state(8, open=3), -1),
        (5, state(-1), -1),
        (5, {}, -1),
        (0, {}, 0),
        (0, state(-1), 0),
        (UNCOUNTED, state(8), -1),
        (5, PartitionUnavailable("no leader"), -1),
    ],
)
def test_a_producer_is_used_on_while_its_leader_surely_knows_it(
    sequence: int, states: StatesOrError, following: int
) -> None:
    sent = SENT._replace(sequence=sequence)
    assert takeovers.next_shared(sent, states, oldest_ms=OLDEST_MS) == following


def log_of(*sequences: int) -> BatchLog:
    log = BatchLog()
    for sequence in sequences:
        row = (1, None, b"%d" % sequence, ())
        log.put(patched(batches.batch([row], producer_id=OURS), base_sequence=sequence))
    return log


def read(log: BatchLog, *, sequence: int, following: int, known: bool) -> SharedTail:
    tail = SharedTail(
        sent=SENT._replace(sequence=sequence),
        target_end=sequence,
        end=log.end,
        following=following,
        known=known,
    )
    for _ in range(10):
        if tail.behind is None:
            tail.add(b"".join(log.fetch(tail.offset, 150, stable=False)))
    return tail


def test_what_its_owner_sent_is_counted() -> None:
    tail = read(log_of(0, 1, 2), sequence=1, following=3, known=True)
    assert tail.behind is not None
    assert (tail.behind.count, tail.behind.end) == (2, 3)
    assert tail.behind.shared == SENT._replace(sequence=3)


def test_one_that_is_unknown_and_has_sent_nothing_is_used_on() -> None:
    tail = read(BatchLog(), sequence=0, following=0, known=False)
    assert tail.behind is not None
    assert tail.behind.shared == SENT._replace(sequence=0)


def test_one_that_is_unknown_and_has_sent_something_is_not() -> None:
    tail = read(log_of(0), sequence=0, following=0, known=takeovers.is_known(SENT, {}))
    assert tail.behind is not None
    assert tail.behind.shared is None
