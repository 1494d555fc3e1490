"""At-least-once delivery: the times of commits, the positions in them, and the effect of a failure."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.at_least_once import (
    COMMIT_RETRY_S,
    RENEW_S,
    UNMAPPED_S,
    AtLeastOnce,
    DeliveryState,
)
from ureplicator_worker.copier.lane import Progress

ROUTE = Route("a", "b")
P0, P1 = Partition(ROUTE, "t", 0), Partition(ROUTE, "t", 1)
INTERVAL_S = 10.0


def made(offset: int) -> Progress:
    return Progress(offset, 0, exact=True)


def joined(*, found: bool = False) -> AtLeastOnce:
    """P0 and P1 at 5, at time 0."""
    delivery = AtLeastOnce(interval_s=INTERVAL_S)
    for partition in (P0, P1):
        delivery.join(partition, position=5, found=found, now_s=0.0)
    return delivery


def test_positions_that_moved_are_sealed_and_then_the_store_has_them() -> None:
    delivery = joined()
    assert delivery.seal({P0: made(7), P1: made(5)}, 1.0) == {P0: made(7)}
    assert (delivery.state, delivery.number) == (DeliveryState.SEALED, 1)
    delivery.committed(1, [(P0, 7)], 2.0)
    assert delivery.state is DeliveryState.OPEN
    assert (delivery.offset(P0), delivery.offset(P1)) == (7, 5)


def test_nothing_due_seals_nothing() -> None:
    delivery = joined()
    assert delivery.seal({P0: made(5)}, 1.0) == {}
    assert (delivery.state, delivery.number) == (DeliveryState.OPEN, 0)


def test_after_an_abort_the_same_positions_are_due() -> None:
    delivery = joined()
    delivery.seal({P0: made(7)}, 1.0)
    delivery.aborted(1, 2.0)
    assert delivery.offset(P0) == 5
    assert delivery.seal({P0: made(7)}, 3.0) == {P0: made(7)}
    assert delivery.number == 2


@pytest.mark.parametrize("outcome", ["committed", "aborted"])
def test_an_outcome_without_a_commit_is_refused(outcome: str) -> None:
    delivery = joined()
    with pytest.raises(InvalidTransition, match=f"{outcome} while OPEN"):
        settle(delivery, outcome, 0)


@pytest.mark.parametrize("outcome", ["committed", "aborted"])
def test_the_outcome_of_another_commit_is_refused(outcome: str) -> None:
    delivery = joined()
    delivery.seal({P0: made(7)}, 1.0)
    with pytest.raises(InvalidTransition, match="commit 2"):
        settle(delivery, outcome, 2)


def test_a_second_seal_is_refused_while_one_commit_is_under_way() -> None:
    delivery = joined()
    delivery.seal({P0: made(7)}, 1.0)
    with pytest.raises(InvalidTransition, match="seal while SEALED"):
        delivery.seal({P0: made(8)}, 1.0)


def settle(delivery: AtLeastOnce, outcome: str, number: int) -> None:
    if outcome == "committed":
        delivery.committed(number, [(P0, 7)], 2.0)
    else:
        delivery.aborted(number, 2.0)


def test_a_commit_is_due_every_interval() -> None:
    delivery = joined()
    due = [delivery.is_due(now_s, drained=False) for now_s in (0.0, 1.0, 9.9, 10.0, 10.1, 20.0)]
    assert due == [True, False, False, True, False, True]


def test_an_interval_that_ends_during_a_commit_is_left_out() -> None:
    delivery = joined()
    delivery.is_due(0.0, drained=False)
    delivery.seal({P0: made(7)}, 0.0)
    assert not delivery.is_due(10.0, drained=False)
    delivery.committed(1, [(P0, 7)], 11.0)
    assert not delivery.is_due(11.0, drained=False)
    assert delivery.is_due(20.0, drained=False)


def test_a_drained_partition_waits_for_no_interval_but_for_the_retry() -> None:
    delivery = joined()
    delivery.is_due(0.0, drained=False)
    assert delivery.is_due(1.0, drained=True)
    delivery.seal({P0: made(7)}, 1.0)
    delivery.aborted(1, 2.0)
    assert not delivery.is_due(2.0 + COMMIT_RETRY_S / 2, drained=True)
    assert delivery.is_due(2.0 + COMMIT_RETRY_S, drained=True)


def test_a_position_without_its_map_is_committed_again_after_a_while() -> None:
    """It does not go with the next commit: the map was refused a moment ago."""
    delivery = joined()
    delivery.complete_map([P0], 1.0)
    assert delivery.seal({P0: made(5), P1: made(5)}, UNMAPPED_S) == {}
    assert delivery.seal({P0: made(5), P1: made(5)}, 1.0 + UNMAPPED_S) == {P0: made(5)}


def test_an_unchanged_position_is_renewed_before_it_expires() -> None:
    delivery = joined()
    assert delivery.seal({P0: made(5)}, RENEW_S - 1) == {}
    assert delivery.seal({P0: made(5)}, RENEW_S) == {P0: made(5)}
    delivery.committed(1, [(P0, 5)], RENEW_S)
    assert delivery.seal({P0: made(5)}, 2 * RENEW_S - 1) == {}


def test_a_found_position_is_renewed_at_once_and_then_not_for_long() -> None:
    delivery = joined(found=True)
    assert delivery.seal({P0: made(5)}, 0.0) == {P0: made(5)}
    delivery.committed(1, [(P0, 5)], 1.0)
    assert delivery.seal({P0: made(5)}, 2.0) == {}


def test_a_partition_that_left_during_its_commit_is_ignored() -> None:
    delivery = joined()
    delivery.seal({P0: made(7)}, 1.0)
    delivery.leave(P0)
    delivery.committed(1, [(P0, 7)], 2.0)
    assert delivery.offset(P0) == -1


class Committing(RuleBasedStateMachine):
    """Random histories against a store: what delivery believes, the store has."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery = AtLeastOnce(interval_s=INTERVAL_S)
        self.positions: dict[Partition, int] = {}
        self.stored: dict[Partition, int] = {}
        self.sealed: dict[Partition, Progress] = {}
        self.now_s = 0.0

    @rule(number=st.integers(0, 3))
    def join(self, number: int) -> None:
        """Its position is read behind a commit that is under way: one thread does both."""
        partition = Partition(ROUTE, "t", number)
        if partition not in self.positions and partition not in self.sealed:
            position = self.positions[partition] = self.stored.setdefault(partition, 0)
            self.delivery.join(partition, position=position, found=True, now_s=self.now_s)

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.positions)))
        del self.positions[partition]
        self.delivery.leave(partition)

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), count=st.integers(1, 5))
    def copy(self, data: st.DataObject, count: int) -> None:
        self.positions[data.draw(st.sampled_from(sorted(self.positions)))] += count

    @rule(seconds=st.sampled_from([0.1, 1.0, INTERVAL_S, RENEW_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(drained=st.booleans())
    def commit(self, drained: bool) -> None:
        if self.delivery.is_due(self.now_s, drained=drained):
            assert not self.sealed
            progress = {part: made(position) for part, position in self.positions.items()}
            self.sealed = self.delivery.seal(progress, self.now_s)

    @precondition(lambda self: self.sealed)
    @rule(outcome=st.sampled_from(["committed", "refused", "unknown"]))
    def end(self, outcome: str) -> None:
        offsets = [(part, progress.next_offset) for part, progress in self.sealed.items()]
        self.sealed = {}
        if outcome != "refused":
            self.stored.update(offsets)
        if outcome == "committed":
            self.delivery.committed(self.delivery.number, offsets, self.now_s)
        else:
            self.delivery.aborted(self.delivery.number, self.now_s)

    @invariant()
    def one_commit_at_a_time(self) -> None:
        assert (self.delivery.state is DeliveryState.SEALED) == bool(self.sealed)

    @invariant()
    def nothing_is_believed_that_the_store_lacks(self) -> None:
        for partition in self.positions:
            assert self.delivery.offset(partition) <= self.stored[partition]

    def teardown(self) -> None:
        """Every position is committed once nothing fails any more."""
        if self.sealed:
            self.end("refused")
        self.wait(INTERVAL_S)
        self.commit(False)
        if self.sealed:
            self.end("committed")
        for partition, position in self.positions.items():
            assert self.delivery.offset(partition) == position == self.stored[partition]


TestCommitting = Committing.TestCase
TestCommitting.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
