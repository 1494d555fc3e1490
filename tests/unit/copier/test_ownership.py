"""The order of taking a partition over is always gone through, and nothing is committed outside of it."""

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from ureplicator_common.clock import Clock
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import GapPolicy, OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.kafka.ledger import MemoryPositions, ScriptedLedger
from ureplicator_worker.copier.messages import (
    Begun,
    ClusterError,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
    Forget,
    Forgotten,
    Locate,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipCrashed,
    OwnershipEvent,
    ProducerReady,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline.messages import Add, Failed, Grant, ProofRequest, ProofResponse

ROUTE = Route("a", "b")
P0, P1 = Partition(ROUTE, "t", 0), Partition(ROUTE, "t", 1)
U0 = Partition(ROUTE, "u", 0)
K0, K1 = ("t", 0), ("t", 1)
FENCE = ("f.a.b.former.0", "f.a.b.former.1")

E = TypeVar("E")


def grant(epoch: int = 1, **more: object) -> Grant:
    return Grant(OwnerEpoch(epoch), "t", **{"fence": FENCE, **more})  # type: ignore[arg-type]


def commitment(position: int, begun: Begun) -> Commitment:
    return Commitment(position, 0, begun.grant, begun.beginning)


@dataclass
class OwnershipFixture:
    """An ownership thread, its clusters and ledger, and the events that it posts."""

    ledger: ScriptedLedger = field(default_factory=ScriptedLedger)
    source: MemoryCluster = field(
        default_factory=lambda: MemoryCluster(cluster_model("A", {"t": 2, "u": 1}))
    )
    target: MemoryCluster = field(
        default_factory=lambda: MemoryCluster(cluster_model("B", {"t": 2, "u": 1}))
    )
    events: "queue.SimpleQueue[OwnershipEvent]" = field(default_factory=queue.SimpleQueue)
    clock: Clock | None = None

    def __post_init__(self) -> None:
        self.source.model.hold(start=100, end=900)
        store = MemoryPositions(self.ledger, "own")
        self.ownership = Ownership(
            name="a.b",
            worker="w",
            slot=0,
            store=store,
            source=self.source,
            target=self.target,
            post=self.events.put,
            count=Takeovers(store, source=self.source, target=self.target),
            clock=self.clock,
        )
        self.ownership.start()

    def next(self, kind: type[E]) -> E:
        event = self.events.get(timeout=30)
        assert isinstance(event, kind), event
        return event

    def until(self, kind: type[E]) -> E:
        while True:
            event = self.events.get(timeout=30)
            if isinstance(event, kind):
                return event

    def nothing_more(self) -> None:
        """Forgotten is posted after every event of earlier commands."""
        self.ownership.put(Forget(Partition(ROUTE, "unknown", 0)))
        assert isinstance(self.events.get(timeout=30), Forgotten)

    def start(self, *partitions: Partition, epoch: int = 1) -> ProofRequest:
        self.ownership.put(Add(dict.fromkeys(partitions, OwnerEpoch(epoch))))
        return self.next(ProofRequest)

    def own(self, *partitions: Partition) -> list[Begun]:
        """ProofResponse through the order with positions 10, 11, ... stored."""
        for partition in partitions:
            key = (partition.topic, partition.number)
            self.ledger.positions[key] = Position(10 + partition.number, 0)
        request = self.start(*partitions)
        self.ownership.put(
            ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant()), {})
        )
        return [self.next(Begun) for _ in partitions]


@pytest.fixture
def ownership_fixture() -> Iterator[OwnershipFixture]:
    ownership_fixture = OwnershipFixture()
    yield ownership_fixture
    ownership_fixture.ownership.close()
    assert ownership_fixture.source.closed
    assert ownership_fixture.target.closed


def test_the_order(ownership_fixture: OwnershipFixture) -> None:
    request = ownership_fixture.start(P0)
    assert request.partitions == {P0: 1}
    assert ownership_fixture.ledger.calls == [("initialise", "own")]
    ownership_fixture.ledger.positions[K0] = Position(10, 3)
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    begun = ownership_fixture.next(Begun)
    assert ownership_fixture.ledger.done == ["initialise", "fence", "read"]
    assert ownership_fixture.ledger.calls[1] == ("fence", *FENCE)
    assert (begun.beginning.position, begun.beginning.leader_epoch) == (10, 3)


def test_a_first_position_is_committed_before_the_first_byte(
    ownership_fixture: OwnershipFixture,
) -> None:
    request = ownership_fixture.start(P0)
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    ownership_fixture.next(Committed)
    assert ownership_fixture.next(Begun).beginning.position == 100
    stored = ownership_fixture.ledger.positions[K0]
    assert stored.offset == 100
    assert Provenance.decode(stored.metadata) == Provenance(
        source_cluster="A",
        source_topic="A-t",
        target_topic="B-t",
        worker="w",
        slot=0,
        owner_epoch=1,
    )


def test_a_partition_that_joins_needs_no_new_initialisation(
    ownership_fixture: OwnershipFixture,
) -> None:
    ownership_fixture.own(P0)
    ownership_fixture.ledger.positions[K1] = Position(20)
    request = ownership_fixture.start(P1)
    assert request.partitions == {P1: 1}
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P1: grant()}, {}))
    assert ownership_fixture.next(Begun).partition == P1
    assert ownership_fixture.ledger.done == ["initialise", "fence", "read", "fence", "read"]


def test_the_former_owners_of_every_partition_are_fenced(
    ownership_fixture: OwnershipFixture,
) -> None:
    request = ownership_fixture.start(P0, P1)
    fences = {P0: grant(fence=("b", "leader")), P1: grant(fence=("a", "leader"))}
    ownership_fixture.ownership.put(ProofResponse(request.request_id, fences, {}))
    ownership_fixture.until(Begun)
    assert ownership_fixture.ledger.calls[1] == ("fence", "a", "b", "leader")


def test_a_refused_partition_is_released(ownership_fixture: OwnershipFixture) -> None:
    request = ownership_fixture.start(P0, P1)
    ownership_fixture.ledger.positions[K1] = Position(20)
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, {P1: grant()}, {P0: "taken away"})
    )
    assert ownership_fixture.next(Failed) == Failed(P0, "released: taken away", temporary=True)
    assert ownership_fixture.next(Begun).partition == P1
    ownership_fixture.nothing_more()


def test_a_response_to_another_request_is_no_proof(ownership_fixture: OwnershipFixture) -> None:
    request = ownership_fixture.start(P0)
    ownership_fixture.ownership.put(ProofResponse(request.request_id + 1, {P0: grant()}, {}))
    ownership_fixture.nothing_more()
    assert ownership_fixture.ledger.done == ["initialise"]


@pytest.mark.parametrize("granted", [True, False])
def test_a_partition_added_again_meanwhile_is_proven_again(
    ownership_fixture: OwnershipFixture, granted: bool
) -> None:
    request = ownership_fixture.start(P0)
    ownership_fixture.ownership.put(Forget(P0))
    ownership_fixture.next(Forgotten)
    ownership_fixture.ownership.put(Add({P0: OwnerEpoch(3)}))
    response = (
        ProofResponse(request.request_id, {P0: grant(1)}, {})
        if granted
        else ProofResponse(request.request_id, {}, {P0: "epoch 3"})
    )
    ownership_fixture.ownership.put(response)
    assert ownership_fixture.next(ProofRequest).partitions == {P0: 3}


def test_a_commit(ownership_fixture: OwnershipFixture) -> None:
    (begun,) = ownership_fixture.own(P0)
    ownership_fixture.ownership.put(Commit({P0: commitment(15, begun)}))
    assert ownership_fixture.next(Committed).positions[P0].position == 15
    assert ownership_fixture.ledger.positions[K0].offset == 15


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_doubt_nothing_is_committed_until_the_proof(
    ownership_fixture: OwnershipFixture, when: str
) -> None:
    (begun,) = ownership_fixture.own(P0)
    ownership_fixture.ledger.fail_next("commit", when)
    ownership_fixture.ownership.put(Commit({P0: commitment(15, begun)}))
    ownership_fixture.next(CommitFailed)
    assert ownership_fixture.next(ClusterError).reason.startswith("target: ")
    request = ownership_fixture.next(ProofRequest)
    assert request.partitions == {P0: 1}
    ownership_fixture.ownership.put(Commit({P0: commitment(16, begun)}))
    assert "proof" in ownership_fixture.next(CommitFailed).reason
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    assert ownership_fixture.next(OwnershipConfirmed).partition == P0
    ownership_fixture.ownership.put(Commit({P0: commitment(17, begun)}))
    ownership_fixture.next(Committed)
    order = ["initialise", "fence", "read"]
    assert ownership_fixture.ledger.done == [*order, "commit", *order, "commit"]


class SilentCoordinator(ScriptedLedger):
    """A commit gets no response, and is given up after some time."""

    def __init__(self, clock: ManualClock, silence_s: float) -> None:
        super().__init__()
        self.fail_next("commit")
        self._clock, self._silence_s = clock, silence_s

    def perform(self, name: str, *details: Any, effect: Callable[[], None]) -> None:
        if name == "commit":
            self._clock.advance(self._silence_s)
        super().perform(name, *details, effect=effect)


def test_a_commit_that_fails_says_how_long_it_was_under_way() -> None:
    clock = ManualClock()
    fixture = OwnershipFixture(ledger=SilentCoordinator(clock, 5.0), clock=clock)
    (begun,) = fixture.own(P0)
    fixture.ownership.put(Commit({P0: commitment(15, begun)}, 1))
    assert fixture.next(CommitFailed) == CommitFailed("target: commit failed before", 1, 5.0)
    fixture.ownership.close()


def test_a_fence_is_reported_and_a_position_that_moved_starts_again(
    ownership_fixture: OwnershipFixture,
) -> None:
    begun = {event.partition: event for event in ownership_fixture.own(P0, P1)}
    ownership_fixture.ledger.initialise("own")
    ownership_fixture.ledger.positions[K0] = Position(50)
    ownership_fixture.ownership.put(
        Commit({P0: commitment(15, begun[P0]), P1: commitment(16, begun[P1])})
    )
    ownership_fixture.next(FencedOut)
    request = ownership_fixture.next(ProofRequest)
    assert set(request.partitions) == {P0, P1}
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = ownership_fixture.next(Failed)
    assert (failed.partition, failed.temporary) == (P0, True)
    assert ownership_fixture.next(OwnershipConfirmed).partition == P1
    assert ownership_fixture.ledger.positions[K0].offset == 50


def test_what_was_refused_is_never_committed_afterwards(
    ownership_fixture: OwnershipFixture,
) -> None:
    """The loop may have queued the commit before it received the refusal."""
    begun = {event.partition: event for event in ownership_fixture.own(P0, P1)}
    ownership_fixture.ledger.fail_next("commit")
    ownership_fixture.ownership.put(Commit({P0: commitment(15, begun[P0])}))
    request = ownership_fixture.until(ProofRequest)
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, {P1: grant()}, {P0: "taken away"})
    )
    both = {P0: commitment(16, begun[P0]), P1: commitment(17, begun[P1])}
    ownership_fixture.ownership.put(Commit(both))
    ownership_fixture.next(Failed)
    ownership_fixture.next(OwnershipConfirmed)
    assert set(ownership_fixture.next(Committed).positions) == {P1}
    assert ownership_fixture.ledger.positions[K0].offset == 10
    ownership_fixture.ownership.put(Commit({P0: commitment(18, begun[P0])}))
    assert ownership_fixture.next(Committed).positions == {}
    assert ownership_fixture.ledger.positions[K0].offset == 10


def test_a_refused_position_fails_its_partition_alone(ownership_fixture: OwnershipFixture) -> None:
    begun = {event.partition: event for event in ownership_fixture.own(P0, P1)}
    ownership_fixture.ledger.refused[K0] = "UNKNOWN_TOPIC_OR_PARTITION"
    both = {P0: commitment(15, begun[P0]), P1: commitment(16, begun[P1])}
    ownership_fixture.ownership.put(Commit(both))
    failed = ownership_fixture.next(Failed)
    assert (failed.partition, failed.temporary) == (P0, True)
    assert failed.reason == f"target topic {K0[0]} was deleted, or lacks this partition"
    assert set(ownership_fixture.next(Committed).positions) == {P1}
    stored = ownership_fixture.ledger.positions
    assert (stored[K0].offset, stored[K1].offset) == (10, 16)


@pytest.mark.parametrize("step", ["initialise", "fence", "read"])
def test_a_step_that_fails_is_tried_again_with_a_new_proof(
    ownership_fixture: OwnershipFixture, step: str
) -> None:
    ownership_fixture.ledger.positions[K0] = Position(10)
    ownership_fixture.ledger.fail_next(step)
    ownership_fixture.ownership.put(Add({P0: OwnerEpoch(1)}))
    while True:
        event = ownership_fixture.events.get(timeout=30)
        if isinstance(event, Begun):
            break
        if isinstance(event, ProofRequest):
            ownership_fixture.ownership.put(ProofResponse(event.request_id, {P0: grant()}, {}))
    assert ownership_fixture.ledger.done[-2:] == ["fence", "read"]
    assert ownership_fixture.ledger.done.count(step) == 2


def test_a_first_position_that_is_not_committed_begins_nothing(
    ownership_fixture: OwnershipFixture,
) -> None:
    ownership_fixture.ledger.fail_next("commit")
    request = ownership_fixture.start(P0)
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    ownership_fixture.next(CommitFailed)
    request = ownership_fixture.until(ProofRequest)
    assert request.partitions == {P0: 1}
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    ownership_fixture.next(Committed)
    ownership_fixture.next(Begun)


def test_what_cannot_start_is_reported_with_its_reason(ownership_fixture: OwnershipFixture) -> None:
    ownership_fixture.target.model.create("t", 1)
    request = ownership_fixture.start(P0, P1)
    ownership_fixture.ledger.positions[K0] = Position(10)
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = ownership_fixture.next(Failed)
    assert (failed.partition, failed.temporary) == (P1, True)
    assert ownership_fixture.next(Begun).partition == P0


def test_a_new_partition_without_a_leader_holds_up_no_other(
    ownership_fixture: OwnershipFixture,
) -> None:
    ownership_fixture.source.leaderless.add(K0)
    request = ownership_fixture.start(P0, P1)
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = ownership_fixture.next(Failed)
    reason = "source: t/0 has no leader, or does not exist"
    assert (failed.partition, failed.reason, failed.temporary) == (P0, reason, True)
    assert ownership_fixture.until(Begun).partition == P1
    ownership_fixture.nothing_more()


def test_a_target_that_lost_records_fails_its_partition_alone(
    ownership_fixture: OwnershipFixture,
) -> None:
    (begun,) = ownership_fixture.own(P0)
    item = Commitment(15, 0, begun.grant, begun.beginning, target_end=20)
    ownership_fixture.ownership.put(Commit({P0: item}))
    ownership_fixture.next(Committed)
    ownership_fixture.ownership.put(Forget(P0))
    ownership_fixture.next(Forgotten)
    ownership_fixture.target.model.hold(start=0, end=18)
    request = ownership_fixture.start(P0, P1)
    ownership_fixture.ledger.positions[K1] = Position(10)
    ownership_fixture.ownership.put(
        ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = ownership_fixture.next(Failed)
    reason = "target lost offsets 18 to 19 (on_gap: stop)"
    assert (failed.partition, failed.reason, failed.temporary) == (P0, reason, False)
    assert ownership_fixture.next(Begun).partition == P1


def test_a_position_that_is_not_shown_ends_its_partition_alone(
    ownership_fixture: OwnershipFixture,
) -> None:
    """A partition that is held ends, too: another owner may have moved its position. It starts once the right
    is there."""
    fixture, ledger = ownership_fixture, ownership_fixture.ledger
    granted = {P0: grant(), U0: Grant(OwnerEpoch(1), "u")}
    ledger.positions = {K0: Position(110), ("u", 0): Position(120)}
    failed = Failed(U0, "target: u/0: TOPIC_AUTHORIZATION_FAILED", temporary=True)
    ledger.unreadable["u"] = "TOPIC_AUTHORIZATION_FAILED"
    request = fixture.start(P0, U0).request_id
    fixture.ownership.put(ProofResponse(request, granted, {}))
    assert fixture.next(Failed) == failed
    begun = fixture.next(Begun)
    del ledger.unreadable["u"]
    fixture.ownership.put(ProofResponse(fixture.start(U0).request_id, {U0: granted[U0]}, {}))
    assert fixture.next(Begun).beginning.position == 120
    ledger.unreadable["u"] = "TOPIC_AUTHORIZATION_FAILED"
    ledger.fail_next("commit")
    fixture.ownership.put(Commit({P0: commitment(115, begun)}))
    request = fixture.until(ProofRequest).request_id
    fixture.ownership.put(ProofResponse(request, granted, {}))
    assert fixture.next(Failed) == failed
    assert fixture.next(OwnershipConfirmed).partition == P0


def test_a_loss_that_the_policy_passes_over_is_counted_once(
    ownership_fixture: OwnershipFixture,
) -> None:
    (begun,) = ownership_fixture.own(P0)
    item = Commitment(15, 0, begun.grant, begun.beginning, target_end=20)
    ownership_fixture.ownership.put(Commit({P0: item}))
    ownership_fixture.next(Committed)
    passing = grant(settings=RouteSettings(on_gap=GapPolicy.LATEST))
    for expected in ("target lost offsets 0 to 19", ""):
        ownership_fixture.ownership.put(Forget(P0))
        ownership_fixture.until(Forgotten)
        request = ownership_fixture.start(P0)
        ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: passing}, {}))
        beginning = ownership_fixture.until(Begun).beginning
        assert (beginning.position, beginning.gap) == (15, expected)


@pytest.mark.parametrize("end", ["source", "target"])
def test_an_error_at_the_start_names_the_cluster(
    ownership_fixture: OwnershipFixture, end: str
) -> None:
    request = ownership_fixture.start(P0)
    cluster = ownership_fixture.source if end == "source" else ownership_fixture.target
    cluster.failures = 1
    ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
    assert ownership_fixture.next(ClusterError).reason.startswith(f"{end}: ")


def test_a_new_producer_is_requested_until_there_is_one(
    ownership_fixture: OwnershipFixture,
) -> None:
    ownership_fixture.target.failures = 1
    ownership_fixture.ownership.put(NewProducer())
    assert ownership_fixture.next(ClusterError).reason.startswith("target: ")
    assert ownership_fixture.next(ProducerReady).producer.id == 1


def test_locate_follows_the_policy(ownership_fixture: OwnershipFixture) -> None:
    for policy, offset in ((GapPolicy.EARLIEST, 100), (GapPolicy.LATEST, 900)):
        ownership_fixture.ownership.put(Locate(P0, grant(settings=RouteSettings(on_gap=policy))))
        assert ownership_fixture.next(Located).offset == offset
    ownership_fixture.source.failures = 1
    ownership_fixture.ownership.put(
        Locate(P0, grant(settings=RouteSettings(on_gap=GapPolicy.LATEST)))
    )
    assert ownership_fixture.next(Failed).temporary


def test_an_unexpected_error_is_reported(ownership_fixture: OwnershipFixture) -> None:
    ownership_fixture.ledger.fail_next("initialise", "broken")
    ownership_fixture.ownership.put(Add({P0: OwnerEpoch(1)}))
    assert isinstance(ownership_fixture.next(OwnershipCrashed).error, ZeroDivisionError)


def test_a_position_that_was_tried_and_is_not_the_stored_one_counts_no_more(
    ownership_fixture: OwnershipFixture,
) -> None:
    """Proven again, the stored position is the only one that is ours."""
    (begun,) = ownership_fixture.own(P0)
    for tried, stored, kind in ((100, 10, OwnershipConfirmed), (200, 100, Failed)):
        ownership_fixture.ledger.fail_next("commit")
        ownership_fixture.ownership.put(Commit({P0: commitment(tried, begun)}, 1))
        request = ownership_fixture.until(ProofRequest)
        ownership_fixture.ledger.positions[K0] = Position(stored, 0)
        ownership_fixture.ownership.put(ProofResponse(request.request_id, {P0: grant()}, {}))
        ownership_fixture.until(kind)
