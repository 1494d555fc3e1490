"""Starts of many partitions over real clients in virtual time: a few round trips, and nothing waits for
what fails."""

from collections import deque
from typing import TypeVar

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.cluster import ClusterModel, Log
from ureplicator_testkit.kafka.control_network import ControlNetwork
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.copier.messages import (
    Begun,
    ClusterError,
    Commit,
    Committed,
    Forget,
    Locate,
    Located,
    NewProducer,
    OwnershipEvent,
    ProducerReady,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline.messages import Add, Failed, Grant, ProofRequest, ProofResponse

E = TypeVar("E")

ROUTE = Route("a", "b")
FENCE = ("f.a.b.w2.0", "f.a.b.w2.1", "f.a.b.@leader.0")
LEDGER_KEY = ("t", 0)


class Starts:
    """An ownership thread whose steps the test performs, between two networks in memory."""

    def __init__(self, partitions: int, *, latency_s: float = 0.0, nodes: int = 2) -> None:
        self.clock = ManualClock()
        self.source = self._network("A", partitions, nodes, latency_s)
        self.target = self._network("B", partitions, nodes, latency_s)
        self.source.model.hold(start=100, end=900)
        self.events: deque[OwnershipEvent] = deque()
        source, client = self.source.client(), self.target.client()
        store = PositionStore(client, group="g", transactional_id="own")
        self.ownership = Ownership(
            name="a.b",
            worker="w",
            slot=0,
            store=store,
            source=source,
            target=client,
            post=self.events.append,
            count=Takeovers(store, source=source, target=client),
            clock=self.clock,
        )
        self.partitions = [Partition(ROUTE, "t", number) for number in range(partitions)]
        self.settings = RouteSettings()

    def _network(self, name: str, partitions: int, nodes: int, latency_s: float) -> ControlNetwork:
        model = ClusterModel(name, {"t": partitions}, log=Log, nodes=nodes)
        return ControlNetwork(model, clock=self.clock, latency_s=latency_s)

    def step(self, *commands: object) -> None:
        """The thread of the ownership, with what is in its queue."""
        self.ownership.step(*commands)  # type: ignore[arg-type]
        while not self.ownership._commands.empty():
            self.ownership.step(self.ownership._commands.get())

    def find(self) -> None:
        """The thread of the source's side, then the other again."""
        while self.ownership.source_side.pending:
            self.ownership.source_side.step()
        self.step()

    def prove(self, *partitions: Partition) -> None:
        """Start them, up to what the source must say."""
        self.step(Add(dict.fromkeys(partitions, OwnerEpoch(1))))
        self.step(self.proof())

    def proof(self) -> ProofResponse:
        (request,) = self.take(ProofRequest)
        grant = Grant(OwnerEpoch(1), "t", fence=FENCE, settings=self.settings)
        return ProofResponse(request.request_id, dict.fromkeys(request.partitions, grant), {})

    def take(self, kind: type[E]) -> list[E]:
        """The events of this kind; all of them are taken."""
        found: list[E] = [event for event in self.events if isinstance(event, kind)]
        self.events.clear()
        return found

    def begun(self) -> list[Begun]:
        return self.take(Begun)

    def store(self, number: int, *, target_end: int = -1, offset: int = 10) -> None:
        """A position of an earlier owner."""
        ids = (self.source.model.topic_ids["t"], self.target.model.topic_ids["t"])
        metadata = Provenance("A", *ids, "w2", 0, 0, target_end).encode()
        self.target.ledger.positions["t", number] = Position(offset, 0, metadata)


@pytest.mark.parametrize("stored", [True, False])
def test_a_thousand_partitions_start_in_a_few_round_trips(stored: bool) -> None:
    """They take seconds at 100 ms, where a request for each took minutes."""
    starts = Starts(1_000, latency_s=0.1, nodes=3)
    if stored:
        for partition in starts.partitions:
            starts.store(partition.number, target_end=0)
    began_s = starts.clock.monotonic_s()
    starts.prove(*starts.partitions)
    starts.find()
    assert {event.partition for event in starts.begun()} == set(starts.partitions)
    assert starts.clock.monotonic_s() - began_s < 4.0


def test_a_commit_does_not_wait_for_the_source() -> None:
    starts = Starts(2)
    first, second = starts.partitions
    starts.prove(first)
    starts.find()
    (begun,) = starts.begun()
    starts.source.frozen = {1, 2}
    starts.prove(second)
    before_s = starts.clock.monotonic_s()
    starts.step(Commit({first: Commitment(150, 0, begun.grant, begun.beginning)}, 1))
    assert [event.number for event in starts.take(Committed)] == [1]
    assert starts.clock.monotonic_s() == before_s
    starts.find()
    (error,) = starts.take(ClusterError)
    assert (error.end, error.reason.split(":")[0]) == ("source", "source")


def test_a_source_that_falls_silent_midway_loses_nothing_that_was_found() -> None:
    """A partition of the other broker, and one whose position is stored, begin."""
    starts = Starts(3)
    starts.store(2)
    starts.prove(*starts.partitions)
    view = starts.source.client().view(["t"])
    assert {number: view.leaders["t", number].node_id for number in range(3)} == {0: 1, 1: 2, 2: 1}
    starts.source.model.leaders["t", 1] = 1
    starts.source.model.leaders["t", 0] = 2
    starts.source.frozen = {2}
    starts.find()
    failed = [event for event in starts.events if isinstance(event, Failed)]
    assert [(found.partition.number, found.temporary) for found in failed] == [(0, True)]
    assert failed[0].reason.startswith("source: A2:9092")
    assert {found.partition.number for found in starts.begun()} == {1, 2}


def test_a_source_that_is_away_is_requested_again_with_a_new_proof() -> None:
    starts = Starts(1)
    starts.prove(*starts.partitions)
    starts.source.down = {1, 2}
    starts.find()
    assert starts.take(ClusterError)
    starts.source.down = set()
    starts.clock.advance(starts.ownership.timeout_s() or 0.0)
    starts.step()
    starts.step(starts.proof())
    starts.find()
    assert [event.beginning.position for event in starts.begun()] == [100]


def test_a_result_that_comes_after_the_forget_begins_nothing() -> None:
    starts = Starts(1)
    starts.prove(*starts.partitions)
    starts.step(Forget(starts.partitions[0]))
    starts.find()
    assert starts.begun() == []
    assert starts.target.ledger.positions == {}


def test_an_offset_located_for_a_partition_that_was_forgotten_is_dropped() -> None:
    starts = Starts(1)
    starts.settings = RouteSettings(on_gap=starts.settings.on_gap.LATEST)
    starts.prove(*starts.partitions)
    starts.find()
    (begun,) = starts.begun()
    first = Locate(begun.partition, begun.grant)
    starts.step(first, Forget(begun.partition))
    starts.find()
    assert starts.take(Located) == []
    second = Locate(begun.partition, begun.grant)
    starts.step(second)
    starts.find()
    assert starts.take(Located) == [Located(second, 900)]


def test_a_position_whose_partition_cannot_start_is_renewed() -> None:
    """Otherwise it expires on the target while operators decide."""
    starts = Starts(1)
    starts.store(0, target_end=50)
    stored = starts.target.ledger.positions[LEDGER_KEY]
    for after_s, renewed in ((0.0, 1), (60.0, 0), (RENEW_S, 1)):
        starts.clock.advance(after_s)
        starts.target.requests.clear()
        starts.prove(*starts.partitions)
        starts.find()
        (failed,) = starts.take(Failed)
        assert failed.reason.startswith("target lost offsets 0 to 49")
        assert starts.target.count("EndTxn") == renewed
        assert starts.target.ledger.positions[LEDGER_KEY] == stored


def test_a_position_of_a_topic_that_is_gone_is_not_renewed() -> None:
    """The target would refuse it, and with it the commits of others."""
    starts = Starts(1)
    starts.store(0)
    starts.target.model.delete("t")
    starts.prove(*starts.partitions)
    starts.find()
    assert starts.take(Failed)
    assert starts.target.count("EndTxn") == 0


def test_no_commit_waits_while_no_broker_gives_out_producer_ids() -> None:
    starts = Starts(1)
    starts.prove(*starts.partitions)
    starts.find()
    (begun,) = starts.begun()
    starts.target.down = {1, 2}
    starts.step(NewProducer())
    assert starts.take(ClusterError)
    delay_s = starts.ownership.timeout_s()
    assert delay_s is not None
    starts.target.down = set()
    starts.step(Commit({begun.partition: Commitment(150, 0, begun.grant, begun.beginning)}, 1))
    assert starts.take(ProducerReady) == []
    starts.clock.advance(delay_s)
    starts.step()
    assert starts.take(ProducerReady)
    assert starts.ownership.timeout_s() is None


def test_the_leader_epoch_of_a_position_comes_back_at_the_next_start() -> None:
    """No leader could report without it that its log was truncated between two owners (KIP-595)."""
    starts = Starts(1)
    (partition,) = starts.partitions
    starts.prove(partition)
    starts.find()
    (begun,) = starts.begun()
    starts.step(Commit({partition: Commitment(150, 7, begun.grant, begun.beginning)}, 1))
    stored = starts.target.ledger.positions[LEDGER_KEY]
    assert (stored.offset, stored.leader_epoch) == (150, 7)
    starts.step(Forget(partition))
    starts.events.clear()
    starts.prove(partition)
    starts.find()
    (again,) = starts.begun()
    assert (again.beginning.position, again.beginning.leader_epoch) == (150, 7)
