"""Random histories of sending against a log that follows Kafka's rules of idempotence."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.raw import send_window as raw_window
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.send_window import SendWindow, acknowledged_end
from ureplicator_worker.wire.produce_api import Produced

POISON_BYTES = 400
"""The log refuses what is longer, for good."""


@dataclass
class Request:
    batch: Batch
    data: bytes
    response: int | None = None
    offset: int = -1


def ids(log: BatchLog) -> list[int]:
    """Each batch of a test carries its number as its time."""
    return [batches.field(data, "max_timestamp") for data in log.taken]


class Sending(RuleBasedStateMachine):
    """One partition, one connection at a time. What was sent on a broken one may arrive later still.

    `forgot`: the log lost its producers at some time, as brokers do with old data. From then on a
    batch may be there twice; none may be missing, ever.
    """

    limits_watched = True

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(limit_bytes=1 << 20)
        self.log = BatchLog(max_bytes=POISON_BYTES)
        self.window = SendWindow(position=0, leader_epoch=0)
        self.expected: list[int] = []
        self.ends: dict[int, int] = {}
        self.skipped: set[int] = set()
        self.pipe: deque[Request] = deque()
        self.late_requests: deque[Request] = deque()
        self.offset = self.position = 0
        self.number = 0
        self.producers = 0
        self.proven = False
        self.forgot = False
        self.new_producer_due = False

    @initialize(sequence=st.sampled_from([0, 2**31 - 4, 2**31 - 1]))
    def begin(self, sequence: int) -> None:
        self.restart()
        self.window.next_sequence = sequence

    def restart(self) -> None:
        self.producers += 1
        self.window.restart(self.producers, 0)
        self.proven = self.new_producer_due = False

    def make(self, count: int, *, poison: bool = False) -> Batch:
        self.number += 1
        value = b"x" * (POISON_BYTES if poison else 5)
        data = batches.batch([(self.number, None, value, ())] * count)
        lease = self.pool.lease(len(data))
        lease.view[:] = data
        first, self.offset = self.offset, self.offset + count
        self.ends[self.number] = self.offset
        return Batch(
            lease.view,
            lease=lease,
            first_offset=first,
            next_offset=self.offset,
            leader_epoch=0,
            records=count,
            max_timestamp_ms=self.number,
        )

    @rule(count=st.integers(1, 3), poison=st.sampled_from([False, False, False, True]))
    def push(self, count: int, poison: bool) -> None:
        batch = self.make(count, poison=poison)
        self.expected.append(self.number)
        self.window.push(batch)

    @rule(size=st.integers(1, 3))
    def nothing_to_send_here(self, size: int) -> None:
        self.offset += size
        self.window.pass_over(self.offset, 0)

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        for _ in range(count):
            batch = None if self.new_producer_due else self.window.next()
            if batch is None:
                return
            self.pipe.append(Request(batch, bytes(batch.view)))
            if self.limits_watched:
                assert len(self.pipe) <= (5 if self.proven else 1)

    def arrive(self, request: Request, refusal: int) -> None:
        """The log takes it, or not; after some refusals it has it none the less."""
        error = int(refusal)
        if error in (0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            produced, request.offset = self.log.produce(request.data)
            error = int(produced) or error
        request.response = error

    @precondition(lambda self: any(request.response is None for request in self.pipe))
    @rule(
        refusal=st.sampled_from(
            [
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ]
        )
    )
    def the_log_gets_a_request(self, refusal: int) -> None:
        self.arrive(next(r for r in self.pipe if r.response is None), refusal)

    @precondition(lambda self: self.pipe and self.pipe[0].response is not None)
    @rule()
    def a_response_comes(self) -> None:
        request = self.pipe.popleft()
        batch, error = request.batch, request.response
        if error == 0:
            assert self.window.acknowledged(batch, request.offset) is None
            self.proven = not self.window._disturbed
        else:
            if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.new_producer_due |= self.window.is_head(batch)
            elif error == ErrorCode.MESSAGE_TOO_LARGE and self.window.is_head(batch):
                batch.refusal = Produced((b"\x02t", 0), error, -1)
            self.window.lost(batch)
            self.proven = False
        self.settle()

    @precondition(lambda self: self.pipe)
    @rule(data=st.data())
    def the_connection_breaks(self, data: st.DataObject) -> None:
        unread = [request for request in self.pipe if request.response is None]
        kept = data.draw(st.integers(0, len(unread)), label="still on their way")
        if not self.forgot:
            self.late_requests += unread[:kept]
        for request in self.pipe:
            self.window.lost(request.batch)
        self.window.detach()
        self.pipe.clear()
        self.proven = False
        self.settle()

    @precondition(lambda self: self.late_requests)
    @rule()
    def a_request_of_a_broken_connection_arrives(self) -> None:
        self.arrive(self.late_requests.popleft(), 0)

    @precondition(lambda self: not self.late_requests)
    @rule()
    def the_log_forgets_its_producers(self) -> None:
        self.log.forget_producers()
        self.forgot = True

    @rule()
    def give_the_buffers_back(self) -> None:
        self.window.detach()

    def settle(self) -> None:
        """The target's reaction when nothing is in flight."""
        head = self.window.head if not self.window.in_flight else None
        if head is not None and head.refusal is not None:
            self.replace(head)
        if self.new_producer_due and self.window.in_flight == 0:
            assert self.forgot, "the log knows our sequences"
            self.restart()

    def replace(self, head: Batch) -> None:
        """A poison of one record is left out, one of several is cut in two (harmless) ones."""
        number = head.max_timestamp_ms
        place = self.expected.index(number)
        if head.records == 1:
            self.expected.pop(place)
            self.window.replace_head([], next_offset=head.next_offset)
            return
        end, self.offset = self.offset, head.first_offset
        pieces = [self.make(1), self.make(head.records - 1)]
        self.offset = end
        pieces[-1].next_offset = head.next_offset
        self.expected[place : place + 1] = [piece.max_timestamp_ms for piece in pieces]
        self.window.replace_head(pieces, next_offset=head.next_offset)

    @invariant()
    def once_and_in_order(self) -> None:
        if not self.forgot:
            assert ids(self.log) == self.expected[: len(self.log.taken)]

    @invariant()
    def the_position_passes_nothing_that_is_not_there(self) -> None:
        waiting = [*self.window._in_flight, *self.window._queue]
        assert all(self.window.position <= batch.first_offset for batch in waiting)
        assert self.window.position >= self.position
        self.position = self.window.position
        there = set(ids(self.log))
        for number in self.expected:
            if self.ends[number] <= self.window.position:
                assert number in there, number

    @invariant()
    def the_targets_end_is_behind_the_last_that_was_acknowledged(self) -> None:
        passed = [number for number in self.expected if self.ends[number] <= self.window.position]
        if passed and not self.forgot:
            ends = (
                batches.field(data, "base_offset") + batches.field(data, "records")
                for data in self.log.taken
                if batches.field(data, "max_timestamp") == passed[-1]
            )
            assert self.window.target_end == next(ends)

    @invariant()
    def the_books_balance(self) -> None:
        waiting = [*self.window._queue, *self.window._in_flight]
        assert self.window.queued_bytes == sum(len(batch.view) for batch in waiting)
        leases = {id(batch.lease) for batch in waiting if batch.lease is not None}
        assert (self.pool.used_bytes == 0) == (not leases)

    def teardown(self) -> None:
        """Everything arrives once nothing fails any more."""
        for _ in range(20 * (len(self.expected) + 5)):
            if self.window.empty:
                break
            self.send(6)
            for request in self.pipe:
                if request.response is None:
                    self.arrive(request, 0)
            while self.pipe:
                self.a_response_comes()
        assert self.window.empty
        assert self.window.position == self.offset
        assert set(ids(self.log)) == set(self.expected)
        self.once_and_in_order()
        assert self.pool.used_bytes == 0


TestSending = Sending.TestCase
TestSending.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def fails() -> bool:
    """True if the machine finds something; it ends as soon as it has.

    Which histories it makes also depends on the modules that are loaded, so there are plenty of them.
    """
    plan = settings(
        max_examples=500,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Sending, settings=plan)
    except AssertionError:
        return True
    return False


def test_the_position_waits_for_a_refused_batch_whose_followers_were_taken() -> None:
    """The log may have it none the less (not enough replicas *after* the append)."""
    sending = Sending()
    sending.restart()
    for _ in range(4):
        sending.push(1, False)
    sending.send(1)
    sending.the_log_gets_a_request(0)
    sending.a_response_comes()
    sending.send(3)
    sending.the_log_gets_a_request(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    sending.the_log_gets_a_request(0)
    sending.the_log_gets_a_request(0)
    for _ in range(3):
        sending.a_response_comes()
        assert sending.window.position == 1
    assert sending.window.in_flight == 0
    sending.teardown()


@pytest.mark.parametrize("end", ["detach", "discard"])
def test_what_a_socket_may_still_send_is_left_alone(end: str) -> None:
    """The connection has the bytes by reference; its buffer must not be filled with others."""
    sending = Sending()
    sending.restart()
    sending.push(1, False)
    batch = sending.window.next()
    assert batch is not None
    on_the_socket, bytes_then = batch.view, bytes(batch.view)
    getattr(sending.window, end)()
    assert sending.pool.used_bytes == (len(batch.view) if end == "detach" else 0)
    other = sending.pool.lease(len(on_the_socket))
    other.view[:] = b"\0" * len(on_the_socket)
    assert on_the_socket == bytes_then
    if end == "detach":
        assert batch.view == bytes_then


def test_more_than_one_unproven_batch_in_flight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_window, "MAX_IN_FLIGHT_NEW_PRODUCER", 5)
    assert fails()


@pytest.mark.parametrize("unproven", [1, 2])
def test_a_second_unproven_batch_would_overtake_a_refused_one(
    monkeypatch: pytest.MonkeyPatch, unproven: int
) -> None:
    """A log that does not know a producer yet takes any sequence for its first."""
    monkeypatch.setattr(raw_window, "MAX_IN_FLIGHT_NEW_PRODUCER", unproven)
    monkeypatch.setattr(Sending, "limits_watched", False)
    sending = Sending()
    sending.restart()
    for _ in range(2):
        sending.push(1, False)
    sending.send(2)
    for refusal in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE)[: len(sending.pipe)]:
        sending.the_log_gets_a_request(refusal)
    assert ids(sending.log) == ([] if unproven == 1 else [2])
    if unproven == 1:
        sending.teardown()


def test_more_than_five_in_flight_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_window, "MAX_IN_FLIGHT_BATCHES", 8)
    assert fails()


def test_a_discarded_batch_is_in_flight_no_more() -> None:
    """Its late response says nothing about what the window holds since."""
    sending = Sending()
    sending.restart()
    sending.push(1, False)
    batch = sending.window.next()
    assert batch is not None
    assert sending.window.is_in_flight(batch)
    sending.window.discard()
    assert not sending.window.is_in_flight(batch)


def proven(count: int) -> Sending:
    """A window in which so many batches of one record wait behind one that was acknowledged."""
    sending = Sending()
    sending.restart()
    for _ in range(1 + count):
        sending.push(1, False)
    acknowledge(sending)
    return sending


def acknowledge(sending: Sending) -> None:
    sending.send(1)
    sending.the_log_gets_a_request(0)
    sending.a_response_comes()


def sent(sending: Sending) -> list[Batch]:
    """All batches that may be sent now."""
    return [batch for batch in iter(sending.window.next, None) if batch is not None]


def test_what_needs_no_sending_is_passed_behind_the_last_batch_in_flight() -> None:
    sending = proven(2)
    sending.send(2)
    sending.nothing_to_send_here(7)
    for position in (2, 10):
        sending.the_log_gets_a_request(0)
        sending.a_response_comes()
        assert sending.window.position == position


def test_another_producer_begins_with_one_batch_in_flight() -> None:
    sending = proven(3)
    sending.restart()
    assert len(sent(sending)) == 1
    assert sending.window.in_flight == 1


def test_after_a_disturbance_one_batch_is_in_flight_whichever_was_settled_last() -> None:
    sending = proven(3)
    first, *others = sent(sending)
    sending.window.lost(first)
    for base, batch in enumerate(others, 2):
        sending.window.acknowledged(batch, base)
    assert sending.window.in_flight == 0
    assert sent(sending) == [first]


@pytest.mark.parametrize(("appended_ms", "in_flight_ms"), [(9, 99), (99, 9)])
def test_next_to_an_old_batch_nothing_is_in_flight(appended_ms: int, in_flight_ms: int) -> None:
    """The broker may have forgotten the producer after the former one."""
    sending = proven(0)
    times_ms = (appended_ms, in_flight_ms, 99)
    for time_ms in times_ms:
        batch = sending.make(1)
        batch.max_timestamp_ms = time_ms
        sending.window.push(batch)
    first = sending.window.next(50)
    assert first is not None
    sending.window.acknowledged(first, 1)
    assert sending.window.next(50) is not None
    assert not sending.window.can_send(50)
    assert sending.window.can_send(9)


def test_a_batch_under_a_new_sequence_was_never_tried() -> None:
    sending = proven(1)
    (batch,) = sent(sending)
    batch.may_be_there = True
    sending.window.lost(batch)
    assert batch.may_be_there
    assert sent(sending) == [batch]
    assert batch.may_be_there, "the same sequence"
    sending.window.lost(batch)
    sending.restart()
    assert sent(sending) == [batch]
    assert not batch.may_be_there


def test_one_offset_that_the_target_lost_is_found() -> None:
    sending = proven(3)
    assert sending.window.target_end == 1
    first, second, third = sent(sending)
    assert sending.window.acknowledged(first, 1) is None
    assert sending.window.acknowledged(second, 1) == range(1, 2)
    assert (sending.window.missing, sending.window.target_end) == (1, 2)
    assert sending.window.acknowledged(third, 2) is None


def test_a_batch_behind_markers_ends_the_log() -> None:
    sending = proven(1)
    sending.window.markers = 1
    assert acknowledged_end(sending.window) == (1, 1)
    acknowledge(sending)
    assert acknowledged_end(sending.window) == (2, 0)


def test_what_was_sent_before_is_not_given_up() -> None:
    """Fetched again it might have other boundaries, and the broker would not recognise it."""
    sending = proven(2)
    for batch in sent(sending):
        sending.window.lost(batch)
    assert sending.window.shed() is None
    sending.push(1, False)
    sending.push(1, False)
    assert sending.window.shed() == (3, 0)
    assert [batch.first_offset for batch in sending.window._queue] == [1, 2]


def test_what_follows_a_refused_batch_has_its_sequence() -> None:
    sending = proven(3)
    head, *others = sent(sending)
    for batch in (head, *others):
        sending.window.lost(batch)
    sending.window.replace_head([], next_offset=head.next_offset)
    sequence = head.sequence
    assert sent(sending) == others[:1]
    assert others[0].sequence == sequence
