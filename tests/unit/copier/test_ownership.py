"""The order of taking a partition over is always gone through, and nothing is committed outside of it."""

import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import Provenance
from ureplicator_common.model import GapPolicy, OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.kafka.ledger import MemoryPositions, ScriptedLedger
from ureplicator_worker.copier.ownership.protocol import (
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
    OwnershipRefused,
    ProducerReady,
    ProofRequested,
    Start,
    StartFailed,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.lifeline.messages import Grant, ProofResponse

ROUTE = Route("a", "b")
P0, P1 = Partition(ROUTE, "t", 0), Partition(ROUTE, "t", 1)
K0, K1 = ("t", 0), ("t", 1)
FENCE = ("f.a.b.former.0", "f.a.b.former.1")

E = TypeVar("E")


def grant(epoch: int = 1, **more: object) -> Grant:
    return Grant(OwnerEpoch(epoch), "t", **{"fence": FENCE, **more})  # type: ignore[arg-type]


def commitment(position: int, begun: Begun) -> Commitment:
    return Commitment(position, 0, begun.grant, begun.beginning)


@dataclass
class Desk:
    """An ownership thread, its clusters and ledger, and the events that it posts."""

    ledger: ScriptedLedger = field(default_factory=ScriptedLedger)
    source: MemoryCluster = field(
        default_factory=lambda: MemoryCluster(cluster_model("A", {"t": 2}))
    )
    target: MemoryCluster = field(
        default_factory=lambda: MemoryCluster(cluster_model("B", {"t": 2}))
    )
    events: "queue.SimpleQueue[OwnershipEvent]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self.source.model.hold(start=100, end=900)
        self.ownership = Ownership(
            name="a.b",
            worker="w",
            slot=0,
            store=MemoryPositions(self.ledger, "own"),
            source=self.source,
            target=self.target,
            post=self.events.put,
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

    def start(self, *partitions: Partition, epoch: int = 1) -> ProofRequested:
        self.ownership.put(Start(dict.fromkeys(partitions, OwnerEpoch(epoch))))
        return self.next(ProofRequested)

    def own(self, *partitions: Partition) -> list[Begun]:
        """ProofResponse through the order with positions 10, 11, ... stored."""
        for partition in partitions:
            key = (partition.topic, partition.number)
            self.ledger.positions[key] = Position(10 + partition.number, 0)
        request = self.start(*partitions)
        self.ownership.put(
            ProofResponse(request.request, dict.fromkeys(request.partitions, grant()), {})
        )
        return [self.next(Begun) for _ in partitions]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.ownership.close()
    assert desk.source.closed
    assert desk.target.closed


def test_the_order(desk: Desk) -> None:
    request = desk.start(P0)
    assert request.partitions == {P0: 1}
    assert desk.ledger.calls == [("initialise", "own")]
    desk.ledger.positions[K0] = Position(10, 3)
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    begun = desk.next(Begun)
    assert desk.ledger.done == ["initialise", "fence", "read"]
    assert desk.ledger.calls[1] == ("fence", *FENCE)
    assert (begun.beginning.position, begun.beginning.leader_epoch) == (10, 3)


def test_a_first_position_is_committed_before_the_first_byte(desk: Desk) -> None:
    request = desk.start(P0)
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    desk.next(Committed)
    assert desk.next(Begun).beginning.position == 100
    stored = desk.ledger.positions[K0]
    assert stored.offset == 100
    assert Provenance.decode(stored.metadata) == Provenance(
        source_cluster="A",
        source_topic="A-t",
        target_topic="B-t",
        worker="w",
        slot=0,
        owner_epoch=1,
    )


def test_a_partition_that_joins_needs_no_new_initialisation(desk: Desk) -> None:
    desk.own(P0)
    desk.ledger.positions[K1] = Position(20)
    request = desk.start(P1)
    assert request.partitions == {P1: 1}
    desk.ownership.put(ProofResponse(request.request, {P1: grant()}, {}))
    assert desk.next(Begun).partition == P1
    assert desk.ledger.done == ["initialise", "fence", "read", "fence", "read"]


def test_a_refused_partition_is_released(desk: Desk) -> None:
    request = desk.start(P0, P1)
    desk.ledger.positions[K1] = Position(20)
    desk.ownership.put(ProofResponse(request.request, {P1: grant()}, {P0: "taken away"}))
    assert desk.next(OwnershipRefused) == OwnershipRefused(P0, "taken away")
    assert desk.next(Begun).partition == P1
    desk.nothing_more()


def test_a_response_to_another_request_is_no_proof(desk: Desk) -> None:
    request = desk.start(P0)
    desk.ownership.put(ProofResponse(request.request + 1, {P0: grant()}, {}))
    desk.nothing_more()
    assert desk.ledger.done == ["initialise"]


@pytest.mark.parametrize("granted", [True, False])
def test_a_partition_added_again_meanwhile_is_proven_again(desk: Desk, granted: bool) -> None:
    request = desk.start(P0)
    desk.ownership.put(Forget(P0))
    desk.next(Forgotten)
    desk.ownership.put(Start({P0: OwnerEpoch(3)}))
    go = (
        ProofResponse(request.request, {P0: grant(1)}, {})
        if granted
        else ProofResponse(request.request, {}, {P0: "epoch 3"})
    )
    desk.ownership.put(go)
    assert desk.next(ProofRequested).partitions == {P0: 3}


def test_a_commit(desk: Desk) -> None:
    (begun,) = desk.own(P0)
    desk.ownership.put(Commit({P0: commitment(15, begun)}))
    assert desk.next(Committed).positions[P0].position == 15
    assert desk.ledger.positions[K0].offset == 15


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_doubt_nothing_is_committed_until_the_proof(desk: Desk, when: str) -> None:
    (begun,) = desk.own(P0)
    desk.ledger.fail_next("commit", when)
    desk.ownership.put(Commit({P0: commitment(15, begun)}))
    desk.next(CommitFailed)
    assert desk.next(ClusterError).reason.startswith("target: ")
    request = desk.next(ProofRequested)
    assert request.partitions == {P0: 1}
    desk.ownership.put(Commit({P0: commitment(16, begun)}))
    assert "proof" in desk.next(CommitFailed).reason
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    assert desk.next(OwnershipConfirmed).partition == P0
    desk.ownership.put(Commit({P0: commitment(17, begun)}))
    desk.next(Committed)
    order = ["initialise", "fence", "read"]
    assert desk.ledger.done == [*order, "commit", *order, "commit"]


def test_a_fence_is_reported_and_a_position_that_moved_starts_again(desk: Desk) -> None:
    begun = {each.partition: each for each in desk.own(P0, P1)}
    desk.ledger.initialise("own")
    desk.ledger.positions[K0] = Position(50)
    desk.ownership.put(Commit({P0: commitment(15, begun[P0]), P1: commitment(16, begun[P1])}))
    desk.next(FencedOut)
    request = desk.next(ProofRequested)
    assert set(request.partitions) == {P0, P1}
    desk.ownership.put(
        ProofResponse(request.request, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = desk.next(StartFailed)
    assert (failed.partition, failed.temporary) == (P0, True)
    assert desk.next(OwnershipConfirmed).partition == P1
    assert desk.ledger.positions[K0].offset == 50


def test_what_was_refused_is_never_committed_afterwards(desk: Desk) -> None:
    """The loop may have queued the commit before it received the refusal."""
    begun = {each.partition: each for each in desk.own(P0, P1)}
    desk.ledger.fail_next("commit")
    desk.ownership.put(Commit({P0: commitment(15, begun[P0])}))
    request = desk.until(ProofRequested)
    desk.ownership.put(ProofResponse(request.request, {P1: grant()}, {P0: "taken away"}))
    both = {P0: commitment(16, begun[P0]), P1: commitment(17, begun[P1])}
    desk.ownership.put(Commit(both))
    desk.next(OwnershipRefused)
    desk.next(OwnershipConfirmed)
    assert set(desk.next(Committed).positions) == {P1}
    assert desk.ledger.positions[K0].offset == 10
    desk.ownership.put(Commit({P0: commitment(18, begun[P0])}))
    assert desk.next(Committed).positions == {}
    assert desk.ledger.positions[K0].offset == 10


def test_a_refused_position_fails_its_partition_alone(desk: Desk) -> None:
    begun = {each.partition: each for each in desk.own(P0, P1)}
    desk.ledger.refused[K0] = "UNKNOWN_TOPIC_OR_PARTITION"
    desk.ownership.put(Commit({P0: commitment(15, begun[P0]), P1: commitment(16, begun[P1])}))
    assert desk.next(StartFailed).partition == P0
    desk.next(CommitFailed)
    request = desk.next(ProofRequested)
    assert request.partitions == {P1: 1}
    desk.ownership.put(ProofResponse(request.request, {P1: grant()}, {}))
    assert desk.next(OwnershipConfirmed).partition == P1


@pytest.mark.parametrize("step", ["initialise", "fence", "read"])
def test_a_step_that_fails_is_tried_again_with_a_new_proof(desk: Desk, step: str) -> None:
    desk.ledger.positions[K0] = Position(10)
    desk.ledger.fail_next(step)
    desk.ownership.put(Start({P0: OwnerEpoch(1)}))
    while True:
        event = desk.events.get(timeout=30)
        if isinstance(event, Begun):
            break
        if isinstance(event, ProofRequested):
            desk.ownership.put(ProofResponse(event.request, {P0: grant()}, {}))
    assert desk.ledger.done[-2:] == ["fence", "read"]
    assert desk.ledger.done.count(step) == 2


def test_a_first_position_that_is_not_committed_begins_nothing(desk: Desk) -> None:
    desk.ledger.fail_next("commit")
    request = desk.start(P0)
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    desk.next(CommitFailed)
    request = desk.until(ProofRequested)
    assert request.partitions == {P0: 1}
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    desk.next(Committed)
    desk.next(Begun)


def test_what_cannot_start_is_reported_with_its_reason(desk: Desk) -> None:
    desk.target.model.create("t", 1)
    request = desk.start(P0, P1)
    desk.ledger.positions[K0] = Position(10)
    desk.ownership.put(
        ProofResponse(request.request, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = desk.next(StartFailed)
    assert (failed.partition, failed.temporary) == (P1, True)
    assert desk.next(Begun).partition == P0


def test_a_new_partition_without_a_leader_holds_up_no_other(desk: Desk) -> None:
    desk.source.leaderless.add(K0)
    request = desk.start(P0, P1)
    desk.ownership.put(
        ProofResponse(request.request, dict.fromkeys(request.partitions, grant()), {})
    )
    failed = desk.next(StartFailed)
    reason = "source: t/0 has no leader"
    assert (failed.partition, failed.reason, failed.temporary) == (P0, reason, True)
    assert desk.until(Begun).partition == P1
    desk.nothing_more()


@pytest.mark.parametrize("end", ["source", "target"])
def test_an_error_at_the_start_names_the_cluster(desk: Desk, end: str) -> None:
    request = desk.start(P0)
    cluster = desk.source if end == "source" else desk.target
    cluster.failures = 1
    desk.ownership.put(ProofResponse(request.request, {P0: grant()}, {}))
    assert desk.next(ClusterError).reason.startswith(f"{end}: ")


def test_a_new_producer_is_requested_until_there_is_one(desk: Desk) -> None:
    desk.target.failures = 1
    desk.ownership.put(NewProducer())
    assert desk.next(ClusterError).reason.startswith("target: ")
    assert desk.next(ProducerReady).producer.id == 1


def test_locate_follows_the_policy(desk: Desk) -> None:
    for policy, offset in ((GapPolicy.EARLIEST, 100), (GapPolicy.LATEST, 900)):
        desk.ownership.put(Locate(P0, grant(settings=RouteSettings(on_gap=policy))))
        assert desk.next(Located).offset == offset
    desk.source.failures = 1
    desk.ownership.put(Locate(P0, grant(settings=RouteSettings(on_gap=GapPolicy.LATEST))))
    assert desk.next(StartFailed).temporary


def test_an_unexpected_error_is_reported(desk: Desk) -> None:
    desk.ledger.fail_next("initialise", "broken")
    desk.ownership.put(Start({P0: OwnerEpoch(1)}))
    assert isinstance(desk.next(OwnershipCrashed).error, ZeroDivisionError)
