"""The machine of transactions: states, positions that are due, and the interval."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.kafka.positions import COMMAND_S
from ureplicator_common.model import (
    MAX_TRANSACTION_INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
    Partition,
    Route,
)
from ureplicator_worker.copier.at_least_once import RENEW_S, UNMAPPED_S
from ureplicator_worker.copier.exactly_once import (
    PARTITIONS_PER_INTERVAL,
    SETTLE_S,
    ExactlyOnce,
    TransactionState,
)
from ureplicator_worker.copier.lane import Progress

P0 = Partition(Route("a", "b"), "t", 0)
P1 = Partition(Route("a", "b"), "t", 1)


def machine(*, committed: int = 5, now_s: float = 100.0) -> ExactlyOnce:
    """A delivery with P0, in an open transaction."""
    delivery = ExactlyOnce(interval_s=0.1)
    delivery.join(P0, committed=committed, now_s=now_s)
    delivery.begin(now_s)
    return delivery


def at(offset: int) -> dict[Partition, Progress]:
    return {P0: Progress(offset, 1, exact=True)}


def test_a_transaction_from_begin_to_committed() -> None:
    delivery = machine()
    assert not delivery.is_due(100.05, drained=False)
    assert delivery.is_due(100.05, drained=True)
    assert delivery.is_due(100.1, drained=False)
    delivery.seal(100.1)
    assert not delivery.is_due(200.0, drained=True)
    assert delivery.commit(at(8), 100.11)
    delivery.committed(1, [(P0, 8)], 100.12)
    assert delivery.offset(P0) == 8
    assert delivery.state is TransactionState.OPEN
    assert not delivery.is_due(100.19, drained=False), "a single commit changes nothing"
    assert delivery.is_due(100.201, drained=False), "it counts from the seal"


def transact(
    delivery: ExactlyOnce, *, sealed_s: float, commit_s: float, backlog: bool = True
) -> None:
    delivery.seal(sealed_s)
    assert delivery.commit(at(delivery.number), sealed_s)
    delivery.committed(delivery.number, [], sealed_s + commit_s, backlog=backlog)


@pytest.mark.parametrize("count", [1, 200, 3_000, 100_000])
@pytest.mark.parametrize("backlog", [False, True])
def test_a_transaction_ends_before_its_time_out(count: int, backlog: bool) -> None:
    """However many partitions there are, however slow commits were."""
    delivery = ExactlyOnce(interval_s=MAX_TRANSACTION_INTERVAL_MS / 1_000)
    for number in range(count):
        delivery.join(Partition(Route("a", "b"), "t", number), committed=0, now_s=0.0)
    delivery.begin(0.0)
    now_s = 0.0
    for _ in range(20):
        now_s += MAX_TRANSACTION_INTERVAL_MS / 1_000
        assert delivery.is_due(now_s, drained=False)
        delivery.seal(now_s)
        assert delivery.commit(at(delivery.number), now_s)
        now_s += COMMAND_S
        delivery.committed(delivery.number, [], now_s, backlog=backlog)
    open_ms = MAX_TRANSACTION_INTERVAL_MS + 1_000 * (SETTLE_S + COMMAND_S)
    assert open_ms < TRANSACTION_TIMEOUT_MS


def test_only_a_transaction_that_is_open_expires() -> None:
    delivery = machine(now_s=100.0)
    assert not delivery.has_expired(159.0)
    assert delivery.has_expired(160.0)
    delivery.put_off(150.0, empty=False)
    assert delivery.has_expired(160.0)
    assert delivery.is_due(151.0, drained=False)
    delivery.put_off(150.0, empty=True)
    assert not delivery.has_expired(160.0)
    delivery.abort()
    assert not delivery.has_expired(1_000.0)


def test_commits_take_at_most_a_twentieth_of_the_time_of_a_backlog() -> None:
    """Their mean counts: some take three times as long as others."""
    delivery = machine()
    for sealed_s in range(101, 161):
        transact(delivery, sealed_s=sealed_s, commit_s=0.015 if sealed_s % 2 else 0.045)
    assert not delivery.is_due(160.5, drained=False)
    assert delivery.is_due(160.7, drained=False)
    transact(delivery, sealed_s=161.0, commit_s=5.0)
    assert delivery.is_due(166.0, drained=False)
    for sealed_s in range(170, 200):
        transact(delivery, sealed_s=sealed_s, commit_s=0.005)
    assert delivery.is_due(199.11, drained=False)


def test_a_single_slow_commit_changes_little() -> None:
    delivery = machine()
    transact(delivery, sealed_s=101.0, commit_s=0.02)
    assert delivery.is_due(101.101, drained=False)
    transact(delivery, sealed_s=102.0, commit_s=0.5)
    assert delivery.is_due(102.51, drained=False)
    transact(delivery, sealed_s=103.0, commit_s=0.005)
    assert delivery.is_due(103.3, drained=False)


def test_without_a_backlog_a_record_is_visible_within_the_interval() -> None:
    delivery = machine()
    for sealed_s in range(101, 131):
        transact(delivery, sealed_s=sealed_s, commit_s=0.02, backlog=False)
    assert not delivery.is_due(130.07, drained=False)
    assert delivery.is_due(130.081, drained=False)
    for sealed_s in range(131, 161):
        transact(delivery, sealed_s=sealed_s, commit_s=0.09, backlog=False)
    assert delivery.is_due(160.09, drained=False), "the interval is over with the commit"


def test_slow_commits_halve_the_interval_at_most() -> None:
    delivery = machine()
    for sealed_s in range(101, 131):
        transact(delivery, sealed_s=sealed_s, commit_s=0.2, backlog=False)
    delivery.put_off(131.0, empty=True)
    assert not delivery.is_due(131.049, drained=False)
    assert delivery.is_due(131.051, drained=False)


def test_the_slowest_commits_make_a_transaction_ten_intervals_long() -> None:
    delivery = machine()
    for sealed_s in range(110, 410, 10):
        transact(delivery, sealed_s=sealed_s, commit_s=5.0)
    assert delivery.is_due(405.0, drained=False), "the interval is over with the commit"
    transact(delivery, sealed_s=410.0, commit_s=0.5)
    assert not delivery.is_due(410.98, drained=False)
    assert delivery.is_due(411.0, drained=False)


def test_positions_are_due_when_they_differ_or_are_old() -> None:
    delivery = machine()
    assert delivery.due(at(5), 100.0) == at(5), "its age is unknown"
    delivery.restore(P0, offset=5, now_s=100.0)
    assert delivery.due(at(5), 101.0) == {}
    assert delivery.due(at(6), 101.0) == at(6)
    assert delivery.due(at(5), 100.0 + RENEW_S) == at(5)


def test_a_position_without_its_map_is_due_again_after_a_while() -> None:
    delivery = machine()
    delivery.restore(P0, offset=5, now_s=100.0)
    delivery.complete_map([P0, P1], 100.0)
    assert delivery.due(at(5), 99.0 + UNMAPPED_S) == {}
    assert delivery.due(at(5), 100.0 + UNMAPPED_S) == at(5)


def test_a_seal_without_a_commit_postpones_nothing() -> None:
    """The interval counts from the seal, however long the batches in flight took."""
    delivery = machine()
    delivery.seal(100.1)
    assert not delivery.commit({}, 100.15)
    assert not delivery.is_due(100.19, drained=False)
    assert delivery.is_due(100.201, drained=False)


def test_an_abort_is_counted_once() -> None:
    delivery = machine()
    delivery.abort()
    delivery.abort()
    assert delivery.counts.aborted == 1
    delivery.begin(101.0)
    delivery.abort()
    assert delivery.counts.aborted == 2


def test_with_nothing_to_commit_the_transaction_goes_on() -> None:
    delivery = machine()
    delivery.seal(100.1)
    assert not delivery.commit({}, 100.1)
    assert delivery.state is TransactionState.OPEN
    assert delivery.number == 0


@pytest.mark.parametrize("state", list(TransactionState))
def test_an_abort_from_any_state_keeps_what_is_stored(state: TransactionState) -> None:
    delivery = machine()
    if state in (TransactionState.SEALING, TransactionState.COMMITTING):
        delivery.seal(100.1)
    if state is TransactionState.COMMITTING:
        delivery.commit(at(9), 100.0)
    if state is TransactionState.WAITING:
        delivery.abort()
    delivery.abort()
    assert delivery.state is TransactionState.WAITING
    assert delivery.offset(P0) == 5
    assert not delivery.is_due(1e9, drained=True)
    delivery.restore(P0, offset=9, now_s=101.0)
    delivery.begin(101.0)
    assert delivery.offset(P0) == 9


def test_what_is_no_transition_is_refused() -> None:
    delivery = machine()
    with pytest.raises(InvalidTransition, match="OPEN -> COMMITTING"):
        delivery.commit(at(6), 100.0)
    delivery.seal(100.1)
    delivery.commit(at(6), 100.0)
    with pytest.raises(InvalidTransition, match="transaction 7"):
        delivery.committed(7, [], 100.0)


def test_a_partition_that_left_is_not_restored() -> None:
    delivery = machine()
    delivery.leave(P0)
    delivery.restore(P0, offset=9, now_s=100.0)
    assert delivery.offset(P0) == -1


def test_the_interval_grows_with_the_partitions() -> None:
    delivery = machine()
    for number in range(3 * PARTITIONS_PER_INTERVAL):
        partition = Partition(P0.route, "many", number)
        delivery.join(partition, committed=0, now_s=100.0)
    delivery.abort()
    delivery.begin(100.0)
    assert not delivery.is_due(100.29, drained=False)
    assert delivery.is_due(100.31, drained=False)


def test_a_sealed_transaction_is_overdue_after_a_while() -> None:
    delivery = machine()
    assert not delivery.is_overdue(1e9)
    delivery.seal(100.1)
    assert not delivery.is_overdue(100.1 + SETTLE_S - 0.01)
    assert delivery.is_overdue(100.1 + SETTLE_S)
    delivery.abort()
    assert not delivery.is_overdue(1e9)


class Transactions(RuleBasedStateMachine):
    """Random histories against a store that has data and positions of a transaction, or neither.

    `sent`: where the records of a partition in the open transaction begin and end. `visible`: end of what
    readers of committed records see.
    """

    def __init__(self) -> None:
        super().__init__()
        self.delivery = ExactlyOnce(interval_s=0.1)
        self.sent: dict[Partition, tuple[int, int]] = {}
        self.stored: dict[Partition, int] = {}
        self.visible: dict[Partition, int] = {}
        self.committing: dict[Partition, Progress] = {}
        self.now_s = 100.0

    @property
    def state(self) -> TransactionState:
        return self.delivery.state

    @rule(number=st.integers(0, 2))
    def join(self, number: int) -> None:
        """Positions are read while no commit is under way: one thread does both."""
        partition = Partition(Route("a", "b"), "t", number)
        if partition not in self.sent and self.state is not TransactionState.COMMITTING:
            position = self.stored.get(partition, -1)
            self.delivery.join(partition, committed=position, now_s=self.now_s)
            self.sent[partition] = (max(0, position), max(0, position))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Have a partition leave. The transaction is aborted if something of it is uncommitted."""
        partition = data.draw(st.sampled_from(sorted(self.sent)))
        first, end = self.sent[partition]
        if first < end or partition in self.committing:
            self.end(data.draw(st.sampled_from(["refused", "unknown"])))
        del self.sent[partition]
        self.delivery.leave(partition)

    @precondition(lambda self: self.sent and self.state is TransactionState.OPEN)
    @rule(data=st.data(), count=st.integers(1, 3))
    def send(self, data: st.DataObject, count: int) -> None:
        partition = data.draw(st.sampled_from(sorted(self.sent)))
        first, end = self.sent[partition]
        self.sent[partition] = (first, end + count)

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, SETTLE_S, RENEW_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(drained=st.booleans())
    def seal(self, drained: bool) -> None:
        if self.delivery.is_due(self.now_s, drained=drained):
            if self.due():
                self.delivery.seal(self.now_s)
            else:
                self.delivery.put_off(self.now_s, empty=True)

    @precondition(lambda self: self.state is TransactionState.SEALING)
    @rule()
    def settle(self) -> None:
        if self.delivery.is_overdue(self.now_s):
            self.end("refused")
            return
        due = self.due()
        if self.delivery.commit(due, self.now_s):
            self.committing = due

    @precondition(lambda self: self.state is not TransactionState.WAITING)
    @rule(outcome=st.sampled_from(["committed", "refused", "unknown"]), backlog=st.booleans())
    def end(self, outcome: str, backlog: bool = False) -> None:
        """The coordinator's outcome of a commit, or an abort before it."""
        committing, self.committing = self.committing, {}
        stored = bool(committing) and outcome != "refused"
        if stored:
            for partition, (first, end) in self.sent.items():
                assert self.visible.get(partition, 0) == first, "a repeat, or a hole"
                self.visible[partition] = end
            self.stored |= {part: progress.next_offset for part, progress in committing.items()}
        if stored and outcome == "committed":
            offsets = [(part, progress.next_offset) for part, progress in committing.items()]
            self.sent = {part: (end, end) for part, (_, end) in self.sent.items()}
            number = self.delivery.number
            self.delivery.committed(number, offsets, self.now_s, backlog=backlog)
        elif self.state is not TransactionState.WAITING:
            self.delivery.abort()

    @precondition(lambda self: self.state is TransactionState.OPEN)
    @rule()
    def transact(self) -> None:
        """Commit what is sent, in one step: most transactions are committed."""
        self.wait(1.0)
        self.seal(False)
        if self.state is TransactionState.SEALING:
            self.settle()
            self.end("committed")

    @precondition(lambda self: self.state is TransactionState.WAITING)
    @rule()
    def begin(self) -> None:
        """Begin from what the store shows then."""
        for partition in self.sent:
            position = self.stored.get(partition, -1)
            self.delivery.restore(partition, offset=position, now_s=self.now_s)
            self.sent[partition] = (max(0, position), max(0, position))
        self.delivery.begin(self.now_s)

    def due(self) -> dict[Partition, Progress]:
        progress = {part: Progress(end, 1, exact=True) for part, (_, end) in self.sent.items()}
        return self.delivery.due(progress, self.now_s)

    @invariant()
    def readers_see_what_the_positions_say(self) -> None:
        assert {part: end for part, end in self.visible.items() if end} == {
            part: offset for part, offset in self.stored.items() if offset
        }

    @invariant()
    def one_commit_at_a_time(self) -> None:
        assert (self.state is TransactionState.COMMITTING) == bool(self.committing)

    @invariant()
    def nothing_is_believed_that_the_store_lacks(self) -> None:
        for partition in self.sent:
            assert self.delivery.offset(partition) <= self.stored.get(partition, -1)

    def teardown(self) -> None:
        """Everything is committed once nothing fails any more."""
        if self.state is not TransactionState.WAITING:
            self.end("refused")
        self.begin()
        for partition in list(self.sent):
            self.sent[partition] = (self.sent[partition][0], self.sent[partition][1] + 1)
        self.wait(RENEW_S)
        self.transact()
        for partition, (_, end) in self.sent.items():
            assert self.delivery.offset(partition) == end == self.stored[partition]


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
