"""The committer of transactions: what it asks of the lane and of the ownership thread, step by step."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.copier.commands import Commands
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_worker.copier.at_least_once import AtLeastOnce
from ureplicator_worker.copier.commit_failures import TRANSACTIONS_WAIT_S, CommitFailures
from ureplicator_worker.copier.committer import Committer, Riders
from ureplicator_worker.copier.exactly_once import ExactlyOnce, TransactionState
from ureplicator_worker.copier.lifecycle import CopyState, OwnedPartition
from ureplicator_worker.copier.messages import Abort, Begun, Commit, CommitFailed
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.transaction_committer import TransactionCommitter
from ureplicator_worker.lifeline.messages import Grant

ROUTE = Route("a", "b")
P0 = Partition(ROUTE, "t", 0)
PRODUCER = Producer(7, 0)
OWNED = [OwnedPartition(P0, CopyState.COPYING)]


class Committing:
    """A committer with P0 at offset 5, in an open transaction."""

    def __init__(self) -> None:
        self.lane, self.commands = StubLane(), Commands()
        self.delivery = ExactlyOnce(interval_s=0.1)
        self.failures = CommitFailures(ROUTE, wall_ms=lambda: 60_000_000)
        self.committer = TransactionCommitter(
            ROUTE,
            delivery=self.delivery,
            lane=self.lane,
            ownership=self.commands,
            failures=self.failures,
            riders=Riders(
                Committer(
                    delivery=AtLeastOnce(interval_s=0.0), lane=self.lane, ownership=self.commands
                )
            ),
        )
        grant, beginning = Grant(OwnerEpoch(1), "t"), StartPosition(5, 0, 5, "A", "x", "y")
        self.lane.begin(P0, grant, beginning)
        self.committer.join(Begun(P0, grant, beginning), 0.0)
        self.delivery.restore(P0, offset=5, now_s=0.0)
        self.committer.on_begun(PRODUCER, 0.0)

    def copy(self, position: int) -> None:
        self.lane.position[P0] = self.lane.end[P0] = position

    def work(self) -> None:
        self.committer.work(OWNED, drained=True, now_s=0.0)


def test_a_partition_that_leaves_a_sealed_transaction_aborts_it() -> None:
    """The commit would have its records without its position."""
    committing = Committing()
    committing.copy(8)
    committing.lane.transactions.settled = False
    committing.work()
    assert committing.delivery.state is TransactionState.SEALING
    committing.committer.leave(P0, 0.0)
    assert committing.commands.take() == [Abort(PRODUCER)]


@pytest.mark.parametrize(("stored", "committed"), [(8, True), (5, False)])
def test_what_the_store_shows_says_whether_the_last_commit_took_effect(
    stored: int, committed: bool
) -> None:
    committing = Committing()
    committing.copy(8)
    committing.work()
    (commit,) = committing.commands.take()
    assert isinstance(commit, Commit)
    committing.committer.on_failed(CommitFailed("no response", commit.number), 0.0)
    committing.committer.on_confirmed(P0, Position(stored), 0.0)
    assert committing.lane.transactions.rewound == [(P0, stored, committed)]


def error(committing: Committing, now_s: float) -> str:
    return committing.failures.error(now_s, wait_s=TRANSACTIONS_WAIT_S)


def test_only_a_commit_shows_that_commits_succeed_after_one_that_failed() -> None:
    """The next transaction does not show it, nor does an abort of our own before the failure was known."""
    committing = Committing()
    committing.committer.abort("a batch was refused", 0.0)
    committing.committer.on_begun(PRODUCER, 1.0)
    assert not error(committing, 2.0 + TRANSACTIONS_WAIT_S), "an abort needs no commit"
    committing.committer.abort("a batch was refused", 10.0)
    committing.committer.on_failed(CommitFailed("no response"), 11.0)
    committing.committer.on_begun(PRODUCER, 12.0)
    assert error(committing, 13.0 + TRANSACTIONS_WAIT_S)
