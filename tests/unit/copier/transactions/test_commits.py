"""Both committers of a route: which one requests a commit, and when data may be sent in a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.copier.commands import Commands
from ureplicator_testkit.copier.mixed_fleet import BOTH, HANDLED, RAW
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_worker.copier.commits import Commits
from ureplicator_worker.copier.lifecycle import CopyState, OwnedPartition
from ureplicator_worker.copier.messages import Abort, Begun, Commit, CommitFailed, Committed
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import Grant

ROUTE = Route("a", "b")
PLAIN, WITHIN = Partition(ROUTE, RAW, 0), Partition(ROUTE, HANDLED, 0)
P1, P2 = Producer(7, 0), Producer(7, 1)
START = 5


class Committing:
    """Commits of a route with a partition of either lane."""

    def __init__(self, settings: RouteSettings = BOTH) -> None:
        self.lane, self.commands = StubLane(), Commands()
        self.commits = Commits(
            ROUTE,
            lane=self.lane,
            ownership=self.commands,
            commit_interval_s=0.0,
            transaction_interval_s=0.0,
        )
        self._settings = settings
        self.now_s = 0.0
        self.owned: dict[Partition, OwnedPartition] = {}

    def join(self, *partitions: Partition) -> None:
        for partition in partitions:
            grant = Grant(OwnerEpoch(1), partition.topic, settings=self._settings)
            beginning = StartPosition(START, 0, START, "A", "x", "y")
            self.lane.begin(partition, grant, beginning)
            self.commits.join(Begun(partition, grant, beginning), self.now_s)
            self.owned[partition] = OwnedPartition(partition, CopyState.COPYING)

    def leave(self, partition: Partition) -> None:
        self.commits.leave(partition, self.now_s)
        self.lane.drop(partition)
        del self.owned[partition]

    def copy(self, partition: Partition, position: int) -> None:
        self.lane.position[partition] = self.lane.end[partition] = position

    def work(self) -> list[Commit]:
        """Commits that are requested."""
        self.now_s += 1.0
        self.commits.work(self.owned.values(), drained=False, now_s=self.now_s)
        taken = self.commands.take()
        assert all(isinstance(command, Commit) for command in taken)
        return [command for command in taken if isinstance(command, Commit)]

    def commit(self) -> Commit:
        (commit,) = self.work()
        return commit

    def committed(self, commit: Commit, following: Producer | None) -> None:
        event = Committed(commit.positions, commit.number, following)
        self.commits.on_committed(event, self.now_s)

    @property
    def begun(self) -> list[tuple[int, int]]:
        """Producers of the lane's transactions."""
        return self.lane.producers


def offsets(commit: Commit) -> Mapping[Partition, int]:
    return {partition: item.position for partition, item in commit.positions.items()}


def test_positions_of_both_lanes_are_in_one_commit() -> None:
    committing = Committing()
    committing.join(PLAIN, WITHIN)
    assert committing.work() == []
    committing.commits.on_begun(P1, 0.0)
    committing.copy(PLAIN, 8)
    committing.copy(WITHIN, 9)
    commit = committing.commit()
    assert offsets(commit) == {PLAIN: 8, WITHIN: 9}
    assert committing.work() == []
    committing.committed(commit, P2)
    assert (committing.commits.offset(PLAIN), committing.commits.offset(WITHIN)) == (8, 9)
    committing.copy(PLAIN, 10)
    assert offsets(committing.commit()) == {PLAIN: 10}
    assert committing.begun == [(7, 0), (7, 1)]


def test_data_waits_for_a_commit_without_data_that_ends_the_transaction() -> None:
    """The thread has that commit before it, and has begun a partition with transactions meanwhile."""
    committing = Committing()
    committing.join(PLAIN)
    commit = committing.commit()
    committing.commits.on_begun(P1, 0.0)
    committing.join(WITHIN)
    assert committing.begun == []
    committing.committed(commit, P2)
    assert committing.begun == [(7, 1)]


def test_data_waits_for_the_proof_after_a_commit_without_data_that_failed() -> None:
    committing = Committing()
    committing.join(PLAIN)
    commit = committing.commit()
    committing.commits.on_begun(P1, 0.0)
    committing.join(WITHIN)
    committing.commits.on_failed(CommitFailed("no response", commit.number), 0.0)
    assert committing.begun == []
    committing.commits.on_begun(P2, 0.0)
    assert committing.begun == [(7, 1)]
    assert START in offsets(committing.commit()).values()


def test_a_producer_counts_no_more_after_a_commit_without_data() -> None:
    """It was announced for a partition that never joined."""
    committing = Committing()
    committing.join(PLAIN)
    committing.commits.on_begun(P1, 0.0)
    commit = committing.commit()
    committing.join(WITHIN)
    assert committing.begun == []
    committing.committed(commit, P2)
    assert committing.begun == [(7, 1)]


def test_without_partitions_in_transactions_positions_are_committed_alone_again() -> None:
    committing = Committing()
    committing.join(PLAIN, WITHIN)
    committing.commits.on_begun(P1, 0.0)
    committing.committed(committing.commit(), P2)
    committing.leave(WITHIN)
    assert not committing.lane.transactions.open
    committing.copy(PLAIN, 8)
    commit = committing.commit()
    assert offsets(commit) == {PLAIN: 8}
    committing.join(WITHIN)
    assert not committing.lane.transactions.open, "the commit ends the producer's transaction"
    committing.committed(commit, Producer(7, 2))
    assert committing.begun[-1] == (7, 2)
    assert committing.commits.counts.aborted == 0


def test_a_partition_that_returns_at_once_goes_on_under_the_same_producer() -> None:
    """The thread announces none: it holds another one of its kind, which has not joined yet."""
    committing = Committing()
    committing.join(PLAIN, WITHIN)
    committing.commits.on_begun(P1, 0.0)
    committing.committed(committing.commit(), P2)
    committing.leave(WITHIN)
    committing.join(WITHIN)
    assert committing.begun[-1] == (7, 1)


def test_positions_of_an_aborted_transaction_are_due_again() -> None:
    committing = Committing()
    committing.join(PLAIN, WITHIN)
    committing.commits.on_begun(P1, 0.0)
    committing.copy(PLAIN, 8)
    committing.lane.transactions.settled = False
    assert committing.work() == []
    committing.commits.abort("a batch was refused", committing.now_s)
    assert committing.commands.take() == [Abort(P1)]
    committing.lane.transactions.settled = True
    committing.commits.on_begun(P2, committing.now_s)
    committing.now_s += 1.0
    assert offsets(committing.commit())[PLAIN] == 8


def test_a_confirmation_of_what_has_left_is_none() -> None:
    """A lane and the ownership thread can speak of one partition in the same turn."""
    committing = Committing()
    committing.join(PLAIN)
    committing.leave(PLAIN)
    committing.commits.confirm(PLAIN)
    assert committing.work() == []
