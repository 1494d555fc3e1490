"""Positions that operators set or forget: real plan, real engine, real ownership of the copiers.

In each history worker `a` copies `t/0` and has committed a position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.coordination import Conflict, Operation, Unavailable
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import RENEWER, TopicKey, TopicState, transactional_id
from ureplicator_common.znode_contents import PositionChange, TopicIntent
from ureplicator_controller.core.positions.changes import ChangeOutcome, due_changes, with_outcomes
from ureplicator_controller.core.positions.orphaned import orphaned_positions
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_controller.core.topics.topic_ids import adopt_topics
from ureplicator_controller.engines.position_changes import PositionChanger
from ureplicator_controller.engines.position_deletion import NO_POSITION
from ureplicator_controller.engines.position_renewal import Renewal
from ureplicator_testkit.control.fleet import ROUTE, ids_of, partition
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.ownership_fleet import OwnershipFleet, OwnershipWorker
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model

P = partition("t")
KEY = TopicKey(ROUTE, "t")
LEADER_ID = transactional_id(fleet="test", route=ROUTE, worker=RENEWER, slot=0)
REQUEST = "r7"


class Leader:
    """One leader's engine; `leads` and the epoch of its proof may be changed."""

    def __init__(self, fleet: OwnershipFleet) -> None:
        self._fleet = fleet
        self.leads = True
        self.epoch = fleet.snapshot().epoch
        self.coordination = MemoryCoordination(fleet.store)
        store = fleet.ledger.store(LEADER_ID)
        self.engine = PositionChanger(
            coordination=self.coordination,
            paths=fleet.paths,
            renewals={ROUTE: Renewal(ROUTE, store, fleet.target)},
            sources={ROUTE: fleet.source},
            seen=fleet.snapshot,
            proof=self.proof,
        )

    def proof(self) -> Snapshot | None:
        return replace(self._fleet.snapshot(), epoch=self.epoch) if self.leads else None

    def act(self) -> bool:
        return self.engine.run_once()


@pytest.fixture
def fleet() -> Iterator[OwnershipFleet]:
    fleet = OwnershipFleet()
    yield fleet
    fleet.close()


@pytest.fixture
def a(fleet: OwnershipFleet) -> OwnershipWorker:
    worker = fleet.worker("a")
    fleet.topic("t")
    fleet.settle()
    worker.commit(P)
    fleet.settle()
    assert fleet.offset(P) > 5
    assert fleet.owners("t") == {0: "a"}
    return worker


def intent(fleet: OwnershipFleet) -> TopicIntent:
    return fleet.snapshot().topics[KEY].value


def request(fleet: OwnershipFleet, offset: int) -> None:
    """Write what REST writes."""
    fleet.topic("t", positions={0: PositionChange(offset, REQUEST)})


def settle(fleet: OwnershipFleet, leader: Leader) -> None:
    """The fleet and the engine, until nothing changes any more."""
    for _ in range(3):
        fleet.settle()
        leader.act()
    fleet.settle()


def outcome(fleet: OwnershipFleet) -> tuple[str, int]:
    change = intent(fleet).positions[0]
    return change.outcome, change.replaced


@pytest.mark.usefixtures("a")
@pytest.mark.parametrize("offset", [5, 500])
def test_a_running_partition_goes_on_at_the_requested_position(
    fleet: OwnershipFleet, offset: int
) -> None:
    epoch = fleet.entry("t").owner_epoch
    request(fleet, offset)
    fleet.settle()
    assert fleet.owners("t") == {0: None}
    assert fleet.entry("t").reason == "position requested"
    released = fleet.offset(P)
    leader = Leader(fleet)
    assert leader.act()
    assert (fleet.offset(P), fleet.written_by(P)) == (offset, RENEWER)
    assert outcome(fleet) == ("done", released)
    fleet.settle()
    assert fleet.owners("t") == {0: "a"}
    assert fleet.entry("t").reason == "position changed"
    assert fleet.entry("t").owner_epoch > epoch
    assert fleet.process("a").begun[P].beginning.position == offset  # type: ignore[attr-defined]


@pytest.mark.usefixtures("a")
def test_nothing_is_written_while_a_worker_holds_the_partition(fleet: OwnershipFleet) -> None:
    request(fleet, 5)
    leader = Leader(fleet)
    assert leader.act(), "nothing is due"
    fleet.cycle()
    before = fleet.offset(P)
    assert leader.act(), "taken, not released"
    assert (outcome(fleet), fleet.offset(P)) == (("", -1), before)
    fleet.settle()
    leader.act()
    assert fleet.offset(P) == 5


@pytest.mark.usefixtures("a")
def test_a_position_names_the_topics_and_no_end_of_the_targets_log(fleet: OwnershipFleet) -> None:
    request(fleet, 5)
    settle(fleet, Leader(fleet))
    fleet.topic("t", state=TopicState.PAUSED)
    request(fleet, 6)
    settle(fleet, Leader(fleet))
    stored = fleet.ledger.positions["t", 0]
    epoch = fleet.entry("t").owner_epoch
    assert stored.leader_epoch == -1
    assert Provenance.decode(stored.metadata) == Provenance(
        "A", "A-t", "B-t", RENEWER, 0, epoch, target_end=-1
    )


@pytest.mark.usefixtures("a")
@pytest.mark.parametrize("offset", [5, -1])
def test_the_number_of_chunks_in_the_offset_map_outlives_the_position(
    fleet: OwnershipFleet, offset: int
) -> None:
    """A later owner adopts them by that number."""
    request(fleet, offset)
    fleet.settle()
    before = fleet.ledger.positions["t", 0]
    written = Provenance.decode(before.metadata)
    assert written is not None
    mapped = replace(written, target_end=9, mapped=7, map_chunks=70, markers=1)
    fleet.ledger.positions["t", 0] = replace(before, metadata=mapped.encode())
    Leader(fleet).act()
    stored = fleet.ledger.positions["t", 0]
    found = Provenance.decode(stored.metadata)
    assert found is not None
    assert (stored.offset, found.map_chunks) == (offset, 70)
    assert (found.target_end, found.mapped, found.markers) == (-1, -1, 0)
    fleet.settle()
    assert fleet.process("a").begun[P].beginning.map_chunks == 70  # type: ignore[attr-defined]


@pytest.mark.usefixtures("a")
def test_a_forgotten_position_is_not_a_lost_one(fleet: OwnershipFleet) -> None:
    assert intent(fleet).had_position == {0}
    fleet.source.model.hold(start=3, end=40)
    request(fleet, -1)
    fleet.settle()
    Leader(fleet).act()
    assert (fleet.offset(P), intent(fleet).had_position) == (-1, frozenset())
    assert fleet.ledger.positions["t", 0] == NO_POSITION
    assert orphaned_positions(fleet.snapshot(), ROUTE) == {}
    fleet.settle()
    assert fleet.process("a").begun[P].beginning.position == 3  # type: ignore[attr-defined]
    assert intent(fleet).had_position == {0}, "the new position was committed"


@pytest.mark.parametrize("had", [frozenset(), frozenset({0})], ids=["never", "lost"])
def test_a_position_that_is_not_there_can_be_set(
    fleet: OwnershipFleet, had: frozenset[int]
) -> None:
    """A lost one stops its partition otherwise. From now on it would be lost if it were missing."""
    fleet.topic("t", had_position=had)
    request(fleet, 5)
    settle(fleet, Leader(fleet))
    assert intent(fleet).had_position == {0}
    worker = fleet.worker("a")
    fleet.settle()
    assert worker.begun[P].beginning.position == 5


# Former owners and former leaders.


def test_a_frozen_owner_never_overwrites_the_position(
    fleet: OwnershipFleet, a: OwnershipWorker
) -> None:
    fleet.freeze(a)
    request(fleet, 5)
    fleet.settle()
    epoch = fleet.ledger.epochs["test.source.target.a.0"]
    assert due_changes(fleet.snapshot())[KEY].fence == tuple(ids_of("a", 1))
    settle(fleet, Leader(fleet))
    assert fleet.ledger.epochs["test.source.target.a.0"] > epoch
    fleet.thaw(a)
    a.commit(P)
    assert P not in a.begun
    assert (fleet.offset(P), fleet.written_by(P)) == (5, RENEWER)


def test_a_worker_that_never_releases_is_evicted(fleet: OwnershipFleet, a: OwnershipWorker) -> None:
    """Its session lives and its loop hangs: the request would wait for ever."""
    fleet.delays = Delays(handover_s=30.0)
    fleet.hang(a)
    request(fleet, 5)
    fleet.cycle()
    fleet.cycle()
    fleet.wait(31)
    fleet.cycle()
    leader = Leader(fleet)
    leader.act()
    assert fleet.offset(P) == 5
    a.commit(P)
    assert fleet.offset(P) == 5


@pytest.mark.usefixtures("a")
def test_another_leader_repeats_what_a_leader_left_undone(fleet: OwnershipFleet) -> None:
    """The first one commits and dies before it writes the outcome."""
    request(fleet, 5)
    fleet.settle()
    dying = Leader(fleet)
    dying.coordination.suspend()
    with pytest.raises(Unavailable):
        dying.act()
    assert (fleet.offset(P), outcome(fleet)) == (5, ("", -1))
    fleet.settle()
    assert fleet.owners("t") == {0: None}, "it stays with no worker meanwhile"
    fleet.elect()
    settle(fleet, Leader(fleet))
    assert outcome(fleet) == ("done", 5)
    assert fleet.owners("t") == {0: "a"}


@pytest.mark.usefixtures("a")
def test_a_frozen_leader_overwrites_no_position_of_the_next_owner(fleet: OwnershipFleet) -> None:
    """It freezes between its proof and its commit; another leader does it, and the partition runs."""
    request(fleet, 5)
    fleet.settle()
    frozen = Leader(fleet)
    proof, proofs = frozen.proof, list[Snapshot | None]()

    def freeze() -> Snapshot | None:
        proofs.append(proof())
        if len(proofs) == 1:
            fleet.elect()
            settle(fleet, Leader(fleet))
            fleet.process("a").commit(P)
        return proofs[-1]

    frozen.engine._proof = freeze
    frozen.act()
    assert len(proofs) == 2, "it was fenced, and looked again"
    assert fleet.offset(P) > 5
    assert fleet.written_by(P) == "a"


@pytest.mark.usefixtures("a")
def test_a_deposed_leader_writes_no_outcome(fleet: OwnershipFleet) -> None:
    request(fleet, 5)
    fleet.settle()
    leader = Leader(fleet)
    fleet.elect()
    with pytest.raises(Conflict):
        leader.act()
    assert outcome(fleet) == ("", -1)


@pytest.mark.usefixtures("a")
def test_nothing_is_done_without_leadership(fleet: OwnershipFleet) -> None:
    request(fleet, 5)
    fleet.settle()
    leader = Leader(fleet)
    leader.leads = False
    leader.act()
    assert outcome(fleet) == ("", -1)


# Refusals and failures.


@pytest.mark.usefixtures("a")
def test_what_the_target_refuses_has_an_outcome(fleet: OwnershipFleet) -> None:
    """The partition is given back and goes on at its old position."""
    request(fleet, 5)
    fleet.settle()
    before = fleet.offset(P)
    fleet.ledger.refused["t", 0] = "TOPIC_AUTHORIZATION_FAILED"
    assert Leader(fleet).act()
    assert outcome(fleet) == ("refused by the target: TOPIC_AUTHORIZATION_FAILED", before)
    del fleet.ledger.refused["t", 0]
    fleet.settle()
    assert fleet.owners("t") == {0: "a"}
    assert fleet.process("a").begun[P].beginning.position == before  # type: ignore[attr-defined]


def test_what_the_target_refuses_holds_up_no_other(fleet: OwnershipFleet) -> None:
    wanted = {0: PositionChange(5, REQUEST), 1: PositionChange(6, REQUEST)}
    fleet.topic("t", 2, positions=wanted)
    fleet.ledger.refused["t", 0] = "TOPIC_AUTHORIZATION_FAILED"
    assert Leader(fleet).act()
    assert (fleet.offset(P), fleet.offset(partition("t", 1))) == (-1, 6)
    changes = intent(fleet).positions
    assert changes[0].outcome.startswith("refused by the target")
    assert changes[1].outcome == "done"


@pytest.mark.usefixtures("a")
def test_a_position_that_the_target_does_not_show_is_left(fleet: OwnershipFleet) -> None:
    """The number of its chunks in the offset map is not known. Other topics are changed."""
    request(fleet, 5)
    fleet.topic("u", positions={0: PositionChange(6, REQUEST)})
    fleet.settle()
    before = fleet.offset(P)
    fleet.source = MemoryCluster(cluster_model("A", {"t": 1, "u": 1}))
    fleet.ledger.unreadable["t"] = "TOPIC_AUTHORIZATION_FAILED"
    assert Leader(fleet).act()
    assert outcome(fleet) == ("refused by the target: t/0: TOPIC_AUTHORIZATION_FAILED", -1)
    assert (fleet.offset(P), fleet.offset(partition("u"))) == (before, 6)


def test_a_topic_that_is_missing_at_the_source_holds_up_no_other(fleet: OwnershipFleet) -> None:
    fleet.topic("missing", positions={0: PositionChange(6, REQUEST)})
    request(fleet, 5)
    assert not Leader(fleet).act()
    assert (fleet.offset(P), fleet.offset(partition("missing"))) == (5, -1)


def test_nothing_is_committed_to_forget_what_is_not_there(fleet: OwnershipFleet) -> None:
    fleet.topic("t")
    request(fleet, -1)
    assert Leader(fleet).act()
    assert outcome(fleet) == ("done", -1)
    assert "commit" not in fleet.ledger.done


@pytest.mark.usefixtures("a")
def test_former_owners_are_fenced_before_the_position_is_read(fleet: OwnershipFleet) -> None:
    """A position that is shown as replaced, or is not there to forget, may otherwise be overwritten."""
    request(fleet, 5)
    fleet.settle()
    fleet.ledger.calls.clear()
    assert Leader(fleet).act()
    assert fleet.ledger.done == ["initialise", "fence", "read", "commit"]


@pytest.mark.usefixtures("a")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_a_response_is_repeated(fleet: OwnershipFleet, when: str) -> None:
    request(fleet, 5)
    fleet.settle()
    leader = Leader(fleet)
    fleet.ledger.fail_next("commit", when)
    assert not leader.act()
    assert outcome(fleet) == ("", -1)
    assert leader.act()
    assert (fleet.offset(P), outcome(fleet)[0]) == (5, "done")


@pytest.mark.usefixtures("a")
@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_whose_write_is_unknown_is_read_back(
    fleet: OwnershipFleet, applied: bool
) -> None:
    request(fleet, 5)
    fleet.settle()
    leader = Leader(fleet)
    leader.coordination.lose_next_response(applied=applied)
    assert leader.act()
    assert outcome(fleet)[0] == "done"


@pytest.mark.usefixtures("a")
def test_a_request_made_while_an_outcome_is_written_is_kept(
    fleet: OwnershipFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    request(fleet, 5)
    fleet.settle()
    leader = Leader(fleet)
    later = PositionChange(9, "r8")
    transact = leader.coordination.transact

    def raced(operations: Sequence[Operation]) -> Any:
        monkeypatch.setattr(leader.coordination, "transact", transact)
        fleet.topic("t", positions={0: later})
        return transact(operations)

    monkeypatch.setattr(leader.coordination, "transact", raced)
    assert leader.act()
    assert intent(fleet).positions == {0: later}


@pytest.mark.usefixtures("a")
def test_a_recreated_source_topic_gets_no_position(fleet: OwnershipFleet) -> None:
    """The leader will stop the topic; until then the request waits."""
    fleet.topic("t", source_topic_id="x9KQ0gXLQBCZkvuVpW5y3g")
    fleet.source.model.topic_ids["t"] = "00000000-0000-0000-0000-000000000001"
    request(fleet, 5)
    fleet.settle()
    assert not Leader(fleet).act()
    assert outcome(fleet) == ("", -1)


@pytest.mark.parametrize(
    "changes",
    [{"stopped": "source topic was recreated"}, {"state": TopicState.DELETING}],
)
def test_topics_of_which_no_position_is_written(
    fleet: OwnershipFleet, changes: dict[str, Any]
) -> None:
    fleet.topic("t")
    request(fleet, 5)
    assert due_changes(fleet.snapshot())
    fleet.topic("t", **changes)
    assert due_changes(fleet.snapshot()) == {}


def test_nothing_is_written_while_ids_of_a_former_owner_are_unknown(
    fleet: OwnershipFleet, a: OwnershipWorker
) -> None:
    """It could not be fenced, and would overwrite the position."""
    fleet.freeze(a)
    request(fleet, 5)
    fleet.settle()
    seen = fleet.snapshot()
    assert due_changes(seen)
    assert due_changes(replace(seen, known={})) == {}


def test_only_what_is_pending_is_done(fleet: OwnershipFleet) -> None:
    """Partitions with an outcome are left, and so are those that the topic does not have."""
    done, pending = PositionChange(5, "r1", outcome="done"), PositionChange(6, "r2")
    fleet.topic("t", 2, positions={0: done, 1: pending, 2: pending})
    assert due_changes(fleet.snapshot())[KEY].changes == {1: pending}


# The intent.


def test_a_later_request_is_not_taken_for_the_earlier_one() -> None:
    former, later = PositionChange(5, "r1"), PositionChange(9, "r2")
    pending = TopicIntent(1, 1, positions={0: later}, target_topic="orders")
    assert with_outcomes(pending, {0: ChangeOutcome(former, 30)}) == pending


def test_a_recreated_topic_drops_the_requests() -> None:
    pending = TopicIntent(
        1, 1, positions={0: PositionChange(5)}, stopped="x", target_topic="orders"
    )
    assert adopt_topics(pending, TopicInfo(1, "id"), "").positions == {}
