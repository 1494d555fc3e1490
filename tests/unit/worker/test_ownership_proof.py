"""The driver's proof over coordination in memory: what is granted, refused, and what must wait."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from ureplicator_common.coordination import Create, Delete, Set, Unavailable
from ureplicator_common.model import (
    RENEWER,
    Limited,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    KnownWorker,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import (
    encode_assignment,
    encode_known_worker,
    encode_live_worker,
    encode_shares,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.engines.ownership_proof import OwnershipProver
from ureplicator_worker.lifeline.messages import (
    CopierId,
    Grant,
    ProofRequest,
    ProofResponse,
    PublishedShares,
)

ROUTE = Route("a", "b")
WORKER = WorkerId("w")
PATHS = Paths("f")
COPIER = CopierId(0, 1)


def part(number: int, topic: str = "t") -> Partition:
    return Partition(ROUTE, topic, number)


class Stage:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.client = MemoryCoordination(self.store)
        self.leader = MemoryCoordination(self.store)
        self.responses: queue.SimpleQueue[tuple[CopierId, Any]] = queue.SimpleQueue()
        self.own_sessions: set[SessionId] = set()
        for path in PATHS.skeleton:
            self.leader.ensure(path)
        self.register()
        self.note(2)
        self.assign({part(0): AssignmentEntry(OwnerEpoch(3), ("f.a.b.other.0",))})
        self.settings = RouteSettings(prefix="copy-")
        self.put(PATHS.route(ROUTE), encode_route(self.settings))
        intent = TopicIntent(
            partitions=4, initial_partitions=2, had_position=frozenset({0}), target_topic="copy-t"
        )
        self.put(PATHS.topic(part(0).key), encode_intent(intent))
        self.prover = OwnershipProver(
            coordination=self.client,
            paths=PATHS,
            worker=WORKER,
            slots=2,
            own_sessions=lambda: self.own_sessions,
            respond=lambda copier, response: self.responses.put((copier, response)),
        )

    def register(self) -> None:
        live = encode_live_worker(LiveWorker(slots=1))
        self.client.transact([Create(PATHS.worker_live(WORKER), live, ephemeral=True)])

    def note(self, slots: int) -> None:
        known = KnownWorker(max_slots=slots)
        self.put(PATHS.worker_known(WORKER), encode_known_worker(known))

    def assign(self, entries: dict[Partition, AssignmentEntry]) -> None:
        self.put(PATHS.assignment(WORKER), encode_assignment(Assignment(entries)))

    def put(self, path: str, data: bytes) -> None:
        self.leader.ensure(path)
        self.leader.transact([Set(path, data, -1)])

    def zxid_of(self, path: str) -> int:
        node = self.leader.get(path)
        assert node is not None
        return node.stat.mzxid

    def prove(self, *partitions: Partition, epoch: int = 3) -> ProofResponse:
        return self.prover.prove(ProofRequest(7, dict.fromkeys(partitions, OwnerEpoch(epoch))))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.prover.close()


def test_an_assigned_partition_is_granted_with_all_that_its_start_needs(stage: Stage) -> None:
    expected = Grant(
        owner_epoch=OwnerEpoch(3),
        target_topic="copy-t",
        fence=("f.a.b.other.0", f"f.a.b.{RENEWER}.0"),
        initial=True,
        had_position=True,
        settings=stage.settings,
        settings_version=stage.zxid_of(PATHS.route(ROUTE)),
    )
    assert stage.prove(part(0)) == ProofResponse(7, {part(0): expected}, {})


def test_shares_of_byte_limits_are_sent_before_the_response(stage: Stage) -> None:
    request = ProofRequest(7, {part(0): OwnerEpoch(3)})
    shares = {1: {Limited.route(ROUTE): 5_000}}
    stage.put(PATHS.slot_shares(WORKER), encode_shares(shares))
    stage.prover.request(CopierId(1, 1), request)
    assert stage.prover.process_next()
    (_, first), (_, second) = stage.responses.get_nowait(), stage.responses.get_nowait()
    assert first == PublishedShares(stage.zxid_of(PATHS.slot_shares(WORKER)), shares)
    assert isinstance(second, ProofResponse)
    assert second.granted.keys() == {part(0)}


def test_nothing_starts_while_the_shares_cannot_be_read(stage: Stage) -> None:
    stage.put(PATHS.slot_shares(WORKER), b"{")
    stage.prover.request(CopierId(1, 1), ProofRequest(7, {part(0): OwnerEpoch(3)}))
    assert not stage.prover.process_next()
    assert stage.responses.empty()


def test_a_proof_is_of_the_present_though_the_server_lags_behind(stage: Stage) -> None:
    """A follower may show an assignment that was taken away long ago."""
    stage.client.fall_behind()
    stage.assign({})
    assert stage.prove(part(0)).refused == {part(0): "not assigned to this worker any more"}
    stage.assign({part(0): AssignmentEntry(OwnerEpoch(4))})
    assert stage.prove(part(0), epoch=4).granted.keys() == {part(0)}


def test_more_slots_than_the_leader_has_recorded_wait_for_it(stage: Stage) -> None:
    stage.note(1)
    with pytest.raises(Unavailable, match="recorded 1 of 2 slots"):
        stage.prove(part(0))
    stage.note(3)
    assert stage.prove(part(0)).granted.keys() == {part(0)}


def test_later_partitions_are_not_initial_and_the_intent_may_name_the_target(stage: Stage) -> None:
    stage.assign({part(2): AssignmentEntry(OwnerEpoch(3))})
    intent = TopicIntent(partitions=4, initial_partitions=2, target_topic="elsewhere")
    stage.put(PATHS.topic(part(2).key), encode_intent(intent))
    grant = stage.prove(part(2)).granted[part(2)]
    assert (grant.initial, grant.had_position, grant.target_topic) == (False, False, "elsewhere")


def test_each_refusal_has_its_reason_and_the_rest_is_granted(stage: Stage) -> None:
    stage.assign(
        {part(0): AssignmentEntry(OwnerEpoch(3)), part(0, "u"): AssignmentEntry(OwnerEpoch(3))}
    )
    response = stage.prove(part(0), part(1), part(0, "u"))
    assert response.granted.keys() == {part(0)}
    assert response.refused == {
        part(1): "not assigned to this worker any more",
        part(0, "u"): "topic a.b/u is not whitelisted any more, or unreadable",
    }
    assert stage.prove(part(0), epoch=2).refused == {part(0): "the owner epoch is 3, not 2"}


def test_a_route_that_is_not_published_is_refused(stage: Stage) -> None:
    stage.leader.transact([Delete(PATHS.route(ROUTE))])
    assert stage.prove(part(0)).refused == {part(0): "route a.b is not published, or unreadable"}


def test_no_assignment_at_all(stage: Stage) -> None:
    stage.leader.transact([Delete(PATHS.assignment(WORKER))])
    assert stage.prove(part(0)).refused.keys() == {part(0)}


def test_another_process_with_our_name_refuses_everything(stage: Stage) -> None:
    path = PATHS.worker_live(WORKER)
    stage.leader.transact([Delete(path), Create(path, b"{}", ephemeral=True)])
    assert "is another process" in stage.prove(part(0)).refused[part(0)]


def test_a_live_node_not_written_yet_is_no_proof_and_no_refusal(stage: Stage) -> None:
    path = PATHS.worker_live(WORKER)
    stage.leader.transact([Delete(path)])
    with pytest.raises(Unavailable):
        stage.prove(part(0))
    stage.leader.transact([Create(path, b"{}", ephemeral=True)])
    former = stage.leader.session()
    assert former is not None
    stage.own_sessions = {former}
    with pytest.raises(Unavailable):
        stage.prove(part(0))


def test_requests_wait_for_zookeeper_and_are_served_in_order(stage: Stage) -> None:
    stage.client.suspend()
    stage.prover.start()
    for number in range(5):
        stage.prover.request(COPIER, ProofRequest(number, {part(0): OwnerEpoch(3)}))
    with pytest.raises(queue.Empty):
        stage.responses.get(timeout=0.3)
    stage.client.restore()
    assert [stage.responses.get(timeout=30)[1].request_id for _ in range(5)] == [0, 1, 2, 3, 4]


def test_requests_of_an_ended_copier_are_dropped(stage: Stage) -> None:
    stage.client.suspend()
    stage.prover.start()
    other = CopierId(1, 1)
    stage.prover.request(COPIER, ProofRequest(1, {part(0): OwnerEpoch(3)}))
    stage.prover.request(other, ProofRequest(2, {part(0): OwnerEpoch(3)}))
    stage.prover.cancel(COPIER)
    stage.client.restore()
    copier, response = stage.responses.get(timeout=30)
    assert (copier, response.request_id) == (other, 2)
    assert stage.responses.empty()


def test_a_proof_that_was_under_way_when_its_copier_ended_is_not_sent(stage: Stage) -> None:
    stage.prover.start()
    stage.client.fail_next(3)
    stage.prover.request(COPIER, ProofRequest(1, {part(0): OwnerEpoch(3)}))
    assert stage.responses.get(timeout=30)[1].request_id == 1


@pytest.mark.parametrize("path", [PATHS.route(ROUTE), PATHS.topic(part(0).key)])
@pytest.mark.parametrize("data", [b"garbage", b"[1]", b'{"on_gap": "of a newer version"}'])
def test_a_node_that_cannot_be_read_grants_nothing(stage: Stage, path: str, data: bytes) -> None:
    stage.put(path, data)
    (reason,) = stage.prove(part(0)).refused.values()
    assert reason.endswith("unreadable")


@pytest.mark.parametrize("data", [b"garbage", b'{"maxSlots": 1000000000}'])
def test_an_unreadable_record_of_our_slots_refuses_with_what_to_do(
    stage: Stage, data: bytes
) -> None:
    stage.put(PATHS.worker_known(WORKER), data)
    (reason,) = stage.prove(part(0)).refused.values()
    assert "workers/known/w cannot be read" in reason
    assert "drain or restore the worker" in reason
    stage.note(2)
    assert stage.prove(part(0)).granted.keys() == {part(0)}


def test_an_assignment_that_cannot_be_read_is_waited_for(stage: Stage) -> None:
    stage.put(PATHS.assignment(WORKER), b"garbage")
    with pytest.raises(Unavailable, match="cannot be read"):
        stage.prove(part(0))
