"""Holder over a lane without records: which messages, calls and transitions follow from which events."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import (
    Gap,
    GapPolicy,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
)
from ureplicator_testkit.copier.commands import Commands
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_worker.copier.commit_failures import COMMITS_WAIT_S, CommitFailures
from ureplicator_worker.copier.commits import Commits
from ureplicator_worker.copier.gaps import Gaps
from ureplicator_worker.copier.holder import DRAIN_S, Holder
from ureplicator_worker.copier.lifecycle import CopyState
from ureplicator_worker.copier.messages import (
    Begun,
    ClusterError,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
    Forget,
    Forgotten,
    GapFound,
    Locate,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipEvent,
    ProducerReady,
)
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import (
    Add,
    Failed,
    GapPassed,
    Grant,
    Message,
    ProofRequest,
    Released,
)

ROUTE = Route("a", "b")
P0, P1 = Partition(ROUTE, "t", 0), Partition(ROUTE, "t", 1)
WALL_MS = 60_000_000


class HolderFixture:
    """A holder, its lane, and both ends that it talks to."""

    def __init__(self, policy: GapPolicy = GapPolicy.STOP) -> None:
        self.lane = StubLane()
        self.commands = Commands()
        self.sent: list[Message] = []
        self.settings = RouteSettings(on_gap=policy)
        self.holder = Holder(
            ROUTE,
            lane=self.lane,
            commits=Commits(
                ROUTE,
                lane=self.lane,
                ownership=self.commands,
                commit_interval_s=0.0,
                transaction_interval_s=0.0,
                failures=CommitFailures(ROUTE, wall_ms=lambda: WALL_MS),
            ),
            ownership=self.commands,
            send=self.sent.append,
            gaps=Gaps(
                lane=self.lane,
                ownership=self.commands,
                send=self.sent.append,
                wall_ms=lambda: WALL_MS,
            ),
        )
        self.now_s = 0.0

    def work(self, *, skip_s: float = 1.0) -> None:
        self.now_s += skip_s
        self.holder.now_s = self.now_s
        self.holder.work()

    def begun(self, partition: Partition, position: int = 5) -> Begun:
        grant = Grant(OwnerEpoch(1), "t", settings=self.settings)
        return Begun(partition, grant, StartPosition(position, 0, position, "A", "x", "y"))

    def state(self, partition: Partition) -> CopyState | None:
        owned = self.holder.owned.get(partition)
        return owned.state if owned else None

    def copying(self, partition: Partition) -> None:
        self.holder.add({partition: OwnerEpoch(1)})
        self.holder.on_ownership(self.begun(partition))
        self.work()
        (_, commit) = self.commands.take()
        assert isinstance(commit, Commit)
        self.holder.on_ownership(Committed(commit.positions, commit.number))


def test_a_partition_from_add_to_released() -> None:
    fixture = HolderFixture()
    fixture.holder.add({P0: OwnerEpoch(1)})
    assert fixture.commands.take() == [Add({P0: OwnerEpoch(1)})]
    fixture.holder.on_ownership(ProofRequest(1, {P0: OwnerEpoch(1)}))
    assert fixture.sent.pop() == ProofRequest(1, {P0: OwnerEpoch(1)})
    fixture.holder.on_ownership(fixture.begun(P0))
    fixture.lane.end[P0] = fixture.lane.position[P0] = 8
    fixture.holder.remove(P0)
    assert P0 in fixture.lane.finished
    fixture.work()
    (commit,) = fixture.commands.take()
    assert isinstance(commit, Commit)
    assert commit.positions[P0].position == 8
    assert fixture.state(P0) is CopyState.DRAINING
    fixture.holder.on_ownership(Committed(commit.positions, commit.number))
    fixture.work()
    assert fixture.commands.take() == [Forget(P0)]
    assert fixture.lane.position == {}
    assert fixture.sent == []
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == [Released((P0,))]
    assert fixture.holder.owned == {}


@pytest.mark.parametrize(("acknowledged", "committed"), [(-1, 30), (45, 45)])
def test_a_commit_holds_the_targets_end(acknowledged: int, committed: int) -> None:
    """The end is that of the start before the first acknowledgement."""
    fixture = HolderFixture()
    fixture.holder.add({P0: OwnerEpoch(1)})
    beginning = StartPosition(5, 0, 5, "A", "x", "y", target_end=30)
    grant = Grant(OwnerEpoch(1), "t", settings=fixture.settings)
    fixture.holder.on_ownership(Begun(P0, grant, beginning))
    fixture.lane.target_end = acknowledged
    fixture.work()
    (_, commit) = fixture.commands.take()
    assert isinstance(commit, Commit)
    stored = Provenance.decode(commit.positions[P0].record(worker="w", slot=0).metadata)
    assert stored is not None
    assert stored.target_end == committed


def test_a_failing_partition_is_committed_and_then_failed() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.holder.on_lane(Failed(P0, "no records", False))
    fixture.work()
    assert fixture.commands.take() == [Forget(P0)]
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == [Failed(P0, "no records", False)]


@pytest.mark.parametrize("removed_first", [True, False])
def test_a_removed_partition_is_released_though_it_fails(removed_first: bool) -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    if removed_first:
        fixture.holder.remove(P0)
    fixture.holder.on_lane(Failed(P0, "no records", False))
    if not removed_first:
        fixture.holder.remove(P0)
    fixture.work()
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == [Released((P0,))]


def test_a_refused_proof_releases_without_a_last_commit() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.lane.end[P0] = 9
    fixture.holder.on_ownership(Failed(P0, "released: taken away", temporary=True))
    assert fixture.lane.position == {}
    assert fixture.commands.take() == [Forget(P0)]
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == [Failed(P0, "released: taken away", True)]


def test_a_fence_suspends_everything_and_each_proof_resumes_its_partition() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.copying(P1)
    fixture.holder.remove(P1)
    fixture.holder.on_ownership(FencedOut())
    assert fixture.lane.suspended == {P0, P1}
    assert fixture.state(P1) is CopyState.DRAINING_SUSPENDED
    for partition in (P0, P1):
        fixture.lane.end[partition] = fixture.lane.position[partition] = 9
    fixture.work()
    assert not any(isinstance(command, Commit) for command in fixture.commands.take())
    assert "fenced" in fixture.holder.report()[P0].reason
    fixture.holder.on_ownership(OwnershipConfirmed(P0, Position(0)))
    assert fixture.lane.suspended <= {P1}
    fixture.work()
    assert any(isinstance(command, Commit) for command in fixture.commands.take())


def test_a_drain_ends_in_time() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.lane.end[P0] = 9
    fixture.holder.remove(P0)
    fixture.work(skip_s=DRAIN_S)
    assert fixture.state(P0) is CopyState.DRAINING
    fixture.work()
    assert fixture.state(P0) is CopyState.RELEASING


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_a_gap_follows_the_policy(policy: GapPolicy) -> None:
    fixture = HolderFixture(policy)
    fixture.copying(P0)
    fixture.holder.on_lane(GapFound(P0, "out of range", 5))
    if policy is GapPolicy.STOP:
        assert fixture.state(P0) is CopyState.DRAINING
        assert fixture.commands.take() == []
        assert fixture.sent == []
        return
    (command,) = fixture.commands.take()
    assert isinstance(command, Locate)
    assert fixture.sent == []
    fixture.holder.on_ownership(Located(command, 42))
    assert fixture.lane.position[P0] == 42
    reason = "out of range: deleted there, by retention or DeleteRecords"
    assert fixture.sent == [GapPassed(P0, Gap(reason, 5, 42, wall_ms=WALL_MS))]


def test_a_gap_with_a_known_end_is_reported_with_its_offsets() -> None:
    fixture = HolderFixture(GapPolicy.EARLIEST)
    fixture.copying(P0)
    fixture.holder.on_lane(GapFound(P0, "truncated", 9, next_offset=7))
    assert fixture.sent == [GapPassed(P0, Gap("truncated", 9, 7, wall_ms=WALL_MS))]


def test_a_gap_at_the_start_is_reported_with_its_offsets() -> None:
    fixture = HolderFixture(GapPolicy.EARLIEST)
    fixture.holder.add({P0: OwnerEpoch(1)})
    begun = fixture.begun(P0, position=42)
    beginning = replace(begun.beginning, gap="recreated", gap_offset=5)
    fixture.holder.on_ownership(replace(begun, beginning=beginning))
    assert fixture.sent == [GapPassed(P0, Gap("recreated", 5, 42, wall_ms=WALL_MS))]


def test_a_located_offset_for_a_draining_partition_is_ignored() -> None:
    fixture = HolderFixture(GapPolicy.EARLIEST)
    fixture.copying(P0)
    fixture.holder.on_lane(GapFound(P0, "out of range", 5))
    (command,) = fixture.commands.take()
    assert isinstance(command, Locate)
    fixture.holder.remove(P0)
    fixture.holder.on_ownership(Located(command, 42))
    assert fixture.lane.position[P0] == 5
    assert fixture.sent == []


def test_a_producer_is_requested_and_handed_over() -> None:
    fixture = HolderFixture()
    fixture.holder.on_lane(NewProducer())
    assert fixture.commands.take() == [NewProducer()]
    fixture.holder.on_ownership(ProducerReady(Producer(7, 0)))
    assert fixture.lane.producers == [(7, 0)]


def test_an_add_before_the_release_is_a_mistake_of_the_driver() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.holder.on_ownership(Failed(P0, "released: taken away", temporary=True))
    with pytest.raises(InvalidTransition, match="added before it was released"):
        fixture.holder.add({P0: OwnerEpoch(2)})


def test_a_start_that_comes_after_the_remove_begins_nothing() -> None:
    fixture = HolderFixture()
    fixture.holder.add({P0: OwnerEpoch(1)})
    fixture.holder.remove(P0)
    fixture.holder.on_ownership(fixture.begun(P0))
    assert fixture.lane.position == {}
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == [Released((P0,))]


def test_an_error_of_the_ownership_thread_concerns_what_waits_for_it() -> None:
    """A partition whose own brokers are well is copied meanwhile."""
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.holder.add({P1: OwnerEpoch(1)})
    assert fixture.holder.report()[P1].reason == "starting"
    fixture.holder.on_ownership(ClusterError("target: away"))
    reports = fixture.holder.report()
    assert (reports[P0].state, reports[P0].reason) == (PartitionState.ONLINE, "")
    assert (reports[P1].state, reports[P1].reason) == (PartitionState.ERROR, "target: away")
    fixture.lane.error = "source: broker away"
    assert fixture.holder.report()[P0].reason == "source: broker away"


def test_an_error_of_the_source_lasts_while_commits_go_through() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.holder.add({P1: OwnerEpoch(1)})
    fixture.holder.on_ownership(ClusterError("source: away", "source"))
    fixture.holder.on_ownership(ClusterError("target: away"))
    fixture.holder.on_ownership(Committed({}))
    assert fixture.holder.report()[P1].reason == "source: away"
    fixture.holder.on_ownership(fixture.begun(P1))
    assert fixture.holder.report()[P1].state is PartitionState.ONLINE


def test_commits_that_wait_too_long_are_an_error() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    for _ in range(2):
        for reason in (
            "target: b1 did not respond",
            "the proof that we are still the owner is due",
        ):
            fixture.holder.on_ownership(CommitFailed(reason))
            fixture.work(skip_s=COMMITS_WAIT_S / 2)
            assert fixture.holder.report()[P0].state is PartitionState.ONLINE
        fixture.work()
        report = fixture.holder.report()[P0]
        expected = "target: commits wait for the coordinator since 16:40:00 UTC: b1 did not respond"
        assert (report.state, report.reason) == (PartitionState.ERROR, expected)
        fixture.holder.on_ownership(Committed({}))
        assert fixture.holder.report()[P0].state is PartitionState.ONLINE


def test_give_up_drops_everything() -> None:
    fixture = HolderFixture()
    fixture.copying(P0)
    fixture.holder.add({P1: OwnerEpoch(1)})
    fixture.holder.give_up()
    assert fixture.lane.position == {}
    assert fixture.holder.owned == {}
    fixture.holder.on_ownership(Forgotten(P0))
    assert fixture.sent == []


class Holding(RuleBasedStateMachine):
    """Random events in any order the driver and the ownership thread can send them."""

    def __init__(self) -> None:
        super().__init__()
        self.fixture = HolderFixture(GapPolicy.EARLIEST)
        self.added: set[Partition] = set()
        self.removed: set[Partition] = set()
        self.proven: dict[Partition, str] = {}
        self.commits: deque[Commit] = deque()

    @rule(number=st.integers(0, 2))
    def add(self, number: int) -> None:
        partition = Partition(ROUTE, "t", number)
        if partition not in self.added and partition not in self.removed:
            self.added.add(partition)
            self.fixture.holder.add({partition: OwnerEpoch(1)})

    @rule(number=st.integers(0, 2))
    def remove(self, number: int) -> None:
        """Remove until Released, once; also what has failed or was never added."""
        partition = Partition(ROUTE, "t", number)
        if partition not in self.removed:
            self.removed.add(partition)
            self.fixture.holder.remove(partition)

    @rule(data=st.data())
    def thread(self, data: st.DataObject) -> None:
        """The ownership thread performs what was put, with any outcome."""
        for command in self.fixture.commands.take():
            match command:
                case Add(partitions):
                    self.proven |= dict.fromkeys(partitions, "waiting")
                case Commit():
                    self.commits.append(command)
                case Forget(partition):
                    self.proven.pop(partition, None)
                    self.fixture.holder.on_ownership(Forgotten(partition))
                case Locate():
                    self.fixture.holder.on_ownership(Located(command, 50))
        for partition, state in list(self.proven.items()):
            outcome = data.draw(st.sampled_from(["begun", "refused", "failed", "later"]))
            if outcome == "begun":
                event = self.fixture.begun(partition)
                waiting = state == "waiting"
                self.proven[partition] = "held"
                self.fixture.holder.on_ownership(
                    event if waiting else OwnershipConfirmed(partition, Position(0))
                )
            elif outcome != "later":
                del self.proven[partition]
                self.fixture.holder.on_ownership(
                    Failed(partition, "released: taken away", temporary=True)
                    if outcome == "refused"
                    else Failed(partition, "no topic", True)
                )

    @precondition(lambda self: self.commits)
    @rule(outcome=st.sampled_from(["committed", "failed", "fenced"]))
    def commit_ends(self, outcome: str) -> None:
        commit = self.commits.popleft()
        events: dict[str, OwnershipEvent] = {
            "committed": Committed(commit.positions, commit.number),
            "failed": CommitFailed("no response", commit.number),
            "fenced": FencedOut(commit.number),
        }
        self.fixture.holder.on_ownership(events[outcome])

    @rule(data=st.data(), kind=st.sampled_from(["fetch", "acknowledge", "fail", "gap"]))
    def lane_works(self, data: st.DataObject, kind: str) -> None:
        lane = self.fixture.lane
        if not lane.position:
            return
        partition = data.draw(st.sampled_from(sorted(lane.position)))
        free = partition not in lane.suspended
        match kind:
            case "fetch" if free and partition not in lane.finished:
                lane.end[partition] += 3
            case "acknowledge" if free:
                lane.position[partition] = lane.end[partition]
            case "fail":
                self.fixture.holder.on_lane(Failed(partition, "corrupt", False))
            case "gap":
                self.fixture.holder.on_lane(GapFound(partition, "out of range", 5))

    @rule(skip_s=st.sampled_from([0.0, 1.0, DRAIN_S]))
    def work(self, skip_s: float) -> None:
        self.fixture.work(skip_s=skip_s)

    @invariant()
    def each_partition_has_one_last_message(self) -> None:
        for message in self.fixture.sent:
            match message:
                case Released(partitions):
                    for partition in partitions:
                        self.removed.remove(partition)
                        self.added.discard(partition)
                case Failed(partition):
                    assert partition not in self.removed
                    self.added.remove(partition)
        self.fixture.sent.clear()
        assert set(self.fixture.holder.owned) == self.added | self.removed

    @invariant()
    def the_lane_knows_what_the_states_say(self) -> None:
        lane, owned = self.fixture.lane, self.fixture.holder.owned
        suspended = (CopyState.SUSPENDED, CopyState.DRAINING_SUSPENDED)
        draining = (CopyState.DRAINING, CopyState.DRAINING_SUSPENDED)
        known = {part for part, copy in owned.items() if copy.grant is not None}
        in_lane = {part for part in known if owned[part].state is not CopyState.RELEASING}
        assert set(lane.position) == in_lane
        assert lane.suspended == {part for part in in_lane if owned[part].state in suspended}
        assert lane.finished == {part for part in in_lane if owned[part].state in draining}


TestHolding = Holding.TestCase
TestHolding.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
