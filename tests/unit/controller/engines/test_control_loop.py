"""The engines on in-memory ZooKeeper: elections, fences, lost responses, late watches."""

from __future__ import annotations

import logging

import pytest

from ureplicator_common.coordination import EXPIRY_ROUNDING_S, Create, Delete, Set
from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import Assignment
from ureplicator_common.znodes.routes import decode_route
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.planning.steps import WriteAssignment
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.vetting import vet
from ureplicator_controller.engines import control_loop as control_loop_module
from ureplicator_controller.engines.control_loop import MAX_IDLE_S
from ureplicator_controller.engines.leadership import IdTaken
from ureplicator_controller.engines.observer import MAX_VERIFIED, VERIFIED_PER_S
from ureplicator_controller.engines.plan_executor import BATCH_OPERATIONS, batches
from ureplicator_testkit.control.manual_controllers import (
    FLEET,
    KEY,
    PATHS,
    REBALANCE_S,
    ROUTE,
    SETTINGS,
    ControllerFleet,
    ManualController,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination


@pytest.fixture
def fleet() -> ControllerFleet:
    return ControllerFleet()


def epoch_version(fleet: ControllerFleet) -> int:
    node = fleet.client.get(PATHS.epoch)
    assert node is not None
    return node.stat.version


# Leadership


def test_one_of_two_leads_and_publishes_the_routes(fleet: ControllerFleet) -> None:
    fleet.one.run()
    fleet.two.run()
    assert (fleet.one.leads, fleet.two.leads) == (True, False)
    assert fleet.one.leadership.epoch() == epoch_version(fleet) == 1
    node = fleet.client.get(PATHS.route(ROUTE))
    assert node is not None
    assert decode_route(node.data) == SETTINGS
    assert fleet.client.children(PATHS.controllers) == ["one", "two"]
    assert fleet.one.figure("leading") == 1
    assert fleet.two.figure("leading") == 0


def test_a_lost_session_ends_the_leadership_at_once_and_another_is_elected(
    fleet: ControllerFleet,
) -> None:
    fleet.one.run()
    fleet.two.run()
    fleet.one.client.expire()
    assert not fleet.one.leads
    fleet.two.run()
    assert fleet.two.leads
    assert epoch_version(fleet) == 2
    fleet.one.client.restore()
    fleet.one.run()
    assert not fleet.one.leads
    assert fleet.client.children(PATHS.controllers) == ["one", "two"]


def test_a_suspended_leader_does_not_lead_until_its_session_is_confirmed(
    fleet: ControllerFleet,
) -> None:
    fleet.one.run()
    fleet.one.client.suspend()
    assert not fleet.one.leads
    fleet.one.run()
    fleet.two.run()
    assert not fleet.two.leads
    fleet.one.client.restore()
    assert fleet.one.leads
    assert epoch_version(fleet) == 1


def test_state_and_losses_of_the_session_are_metrics(fleet: ControllerFleet) -> None:
    client, loop = fleet.one.client, fleet.one.loop
    client.on_session(loop.session_changed)
    loop.session_changed(client.state())

    def figures() -> tuple[float, float]:
        return fleet.one.figure("session_connected"), fleet.one.figure("sessions_lost_total")

    assert figures() == (1, 0)
    client.suspend()
    assert figures() == (0, 0)
    client.restore()
    assert figures() == (1, 0)
    client.expire()
    assert figures() == (0, 1)


def test_a_former_leader_cannot_write(fleet: ControllerFleet) -> None:
    """The successor's leader node has version 0, like the one the former leader made."""
    fleet.one.run()
    fleet.one.client.suspend()
    fleet.store.expire(fleet.one.client._session)
    fleet.two.run()
    assert fleet.two.leads
    fleet.one.client.restore()
    stale = Snapshot(fleet=FLEET, epoch=1)
    step = WriteAssignment(WorkerId("w"), Assignment(), None, revokes_only=True)
    outcome = fleet.one.executor.execute(vet([step], stale, PATHS), epoch=1)
    assert outcome == "deposed"
    assert fleet.client.get(PATHS.assignment(WorkerId("w"))) is None


def test_an_election_with_unknown_outcome_is_read_back(fleet: ControllerFleet) -> None:
    fleet.one.identity.claim()
    fleet.one.identity.claim()
    fleet.one.client.lose_next_response(applied=True)
    assert fleet.one.leadership.attempt()
    assert fleet.one.leadership.epoch() == epoch_version(fleet)
    fleet.two.client.lose_next_response(applied=False)
    assert not fleet.two.leadership.attempt()


def test_an_election_that_was_not_applied_has_no_leader(fleet: ControllerFleet) -> None:
    fleet.one.client.lose_next_response(applied=False)
    assert not fleet.one.leadership.attempt()
    assert epoch_version(fleet) == 0
    assert fleet.one.leadership.attempt()


def test_an_epoch_changed_by_hand_deposes_the_leader_and_is_recovered(
    fleet: ControllerFleet,
) -> None:
    fleet.one.run()
    fleet.client.transact([Set(PATHS.epoch, b"", -1)])
    fleet.one.run(6)
    assert fleet.one.leads
    assert fleet.one.leadership.epoch() == epoch_version(fleet) == 3


def test_resigning_allows_an_election_at_once(fleet: ControllerFleet) -> None:
    fleet.one.run()
    fleet.one.loop.close()
    fleet.two.run()
    assert fleet.two.leads


def test_a_taken_id_is_an_error_after_the_session_timeout(
    fleet: ControllerFleet,
) -> None:
    fleet.one.run()
    twin = ManualController(MemoryCoordination(fleet.store), "one", fleet.clock)
    twin.run()
    assert not twin.identity.claim()
    fleet.clock.advance(10 + EXPIRY_ROUNDING_S - 1)
    assert not twin.identity.claim()
    fleet.clock.advance(2)
    with pytest.raises(IdTaken, match="the id one"):
        twin.loop.run_once()


def test_id_of_a_former_process_is_free_when_its_session_ends(fleet: ControllerFleet) -> None:
    fleet.one.run()
    twin = ManualController(MemoryCoordination(fleet.store), "one", fleet.clock)
    twin.run()
    fleet.one.client.expire()
    twin.run()
    assert twin.identity.claim()
    assert twin.leads


# The loop


def test_new_topic_is_assigned(fleet: ControllerFleet) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(3)
    fleet.one.run()
    assert len(fleet.assignment_of("a").entries) == 3
    assert fleet.one.figure("writes_total") >= 3


def test_a_quiet_round_plans_nothing(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker("a")
    fleet.topic(1)
    fleet.client.transact([Create(PATHS.measures.load(WorkerId("a")), b"{}")])
    fleet.one.run(5)

    def never(seen: Snapshot, now_s: float, indexer: FleetIndexer) -> Plan:
        raise AssertionError("nothing changed")

    monkeypatch.setattr(control_loop_module, "plan", never)
    fleet.one.run()
    fleet.client.transact([Set(PATHS.measures.load(WorkerId("a")), b" {}", -1)])
    fleet.one.run()
    assert fleet.one.figure("cycles_total", outcome="failed") == 0


def test_delay_that_ends_wakes_the_loop(fleet: ControllerFleet) -> None:
    a = fleet.worker("a")
    fleet.topic(1)
    fleet.one.run(5)
    fleet.report_online(a, "a")
    fleet.one.run()
    fleet.worker("b")
    a.expire()
    assert fleet.one.loop.run_once() <= 5
    fleet.clock.advance(19)
    fleet.one.run()
    assert not fleet.assignment_of("b").entries
    fleet.clock.advance(1)
    fleet.one.run(4)
    assert fleet.assignment_of("b").entries


def lose_the_owner(fleet: ControllerFleet) -> None:
    """Worker a owns the only partition and is missed; b is there."""
    a = fleet.worker("a")
    fleet.topic(1)
    fleet.one.run(5)
    fleet.report_online(a, "a")
    fleet.worker("b")
    a.expire()
    fleet.one.run()


def test_a_new_leader_restarts_the_delay(fleet: ControllerFleet) -> None:
    lose_the_owner(fleet)
    fleet.clock.advance(15)
    fleet.one.client.expire()
    fleet.two.run()
    fleet.clock.advance(15)
    fleet.two.run()
    assert not fleet.assignment_of("b").entries
    fleet.clock.advance(5)
    fleet.two.run(4)
    assert fleet.assignment_of("b").entries


def test_conflict_is_planned_again(fleet: ControllerFleet) -> None:
    """The tree cache misses a change of the node by another client."""
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.client.hold_watches()
    fleet.client.transact([Create(PATHS.assignment(WorkerId("a")), b"{}")])
    fleet.one.loop.run_once()
    assert fleet.one.figure("cycles_total", outcome="conflict") == 1
    fleet.one.run()
    assert len(fleet.assignment_of("a").entries) == 1


def test_nothing_is_decided_before_the_own_writes_are_seen(fleet: ControllerFleet) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.client.hold_watches()
    fleet.one.loop.run_once()
    assert len(fleet.assignment_of("a").entries) == 1
    cycles = fleet.one.figure("cycles_total", outcome="done")
    fleet.one.run()
    assert not fleet.one.observer.is_ready()
    assert fleet.one.figure("cycles_total", outcome="done") == cycles
    fleet.clock.advance(1.5)
    fleet.one.run()
    assert fleet.one.observer.is_ready(), "read again, since the watches are late"


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_with_unknown_outcome_is_read_back(fleet: ControllerFleet, applied: bool) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.client.lose_next_response(applied=applied)
    fleet.one.loop.run_once()
    assert fleet.one.figure("cycles_total", outcome="unknown") == 1
    fleet.one.run()
    assert len(fleet.assignment_of("a").entries) == 1
    assert fleet.one.figure("cycles_total", outcome="conflict") == 0


def test_a_lost_watch_is_found_by_comparing_nodes_in_turn(fleet: ControllerFleet) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.one.client.hold_watches()
    fleet.topic(1)
    fleet.one.client.drop_watches()
    fleet.one.run()
    assert not fleet.assignment_of("a").entries
    fleet.clock.advance(MAX_VERIFIED / VERIFIED_PER_S)
    fleet.one.run()
    assert fleet.assignment_of("a").entries


def test_a_lost_watch_on_the_leader_does_not_blind_a_standby(fleet: ControllerFleet) -> None:
    fleet.one.run()
    fleet.two.run()
    fleet.two.client.hold_watches()
    fleet.one.client.expire()
    fleet.two.client.drop_watches()
    fleet.two.run()
    assert not fleet.two.leads, "its tree cache still shows the leader"
    fleet.clock.advance(MAX_IDLE_S)
    fleet.two.run()
    assert fleet.two.leads


@pytest.mark.parametrize("standing_by_s", [0, 300.0])
def test_a_standby_waits_as_long_as_it_is_told_to(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch, standing_by_s: float
) -> None:
    """However long it has been one, and nothing changes."""
    fleet.one.run()
    fleet.two.run()
    fleet.clock.advance(standing_by_s)
    fleet.two.run()
    waited: list[float] = []
    monkeypatch.setattr(fleet.two.observer._wake, "wait", waited.append)
    fleet.two.observer.wait(fleet.two.loop.run_once())
    assert waited == [MAX_IDLE_S]


def test_a_standby_reads_the_leader_node_now_and_then(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not read it at each change of the tree."""
    fleet.one.run()
    fleet.two.run()
    attempts: list[float] = []
    monkeypatch.setattr(
        fleet.two.leadership, "attempt", lambda: attempts.append(fleet.clock.monotonic_s())
    )
    for _ in range(20):
        fleet.clock.advance(MAX_IDLE_S / 10)
        fleet.two.run(1)
    assert len(attempts) in (1, 2)


def test_nothing_is_decided_on_the_picture_from_before_an_outage(fleet: ControllerFleet) -> None:
    """The worker came back in time. The leader's connection is there before its tree cache knows."""
    lose_the_owner(fleet)
    fleet.one.client.suspend()
    fleet.worker("a")
    fleet.clock.advance(REBALANCE_S + 1)
    fleet.one.client.hold_watches()
    fleet.one.client.restore()
    fleet.one.run(4)
    assert not fleet.assignment_of("b").entries
    assert fleet.assignment_of("a").entries
    fleet.one.client.release_watches()
    fleet.one.run(4)
    assert fleet.assignment_of("a").entries


def test_a_failing_cycle_is_counted_and_the_loop_continues(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)

    def broken(seen: Snapshot, now_s: float, indexer: FleetIndexer) -> Plan:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patched:
        patched.setattr(control_loop_module, "plan", broken)
        waits = [fleet.one.loop.run_once() for _ in range(3)]
    assert waits == sorted(waits)
    assert waits[0] < waits[-1]
    assert fleet.one.figure("cycles_total", outcome="failed") == 3
    fleet.one.run()
    assert fleet.assignment_of("a").entries


def test_an_outage_is_retried(fleet: ControllerFleet) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.client.fail_next(1)
    assert fleet.one.loop.run_once() > 0
    fleet.one.run()
    assert fleet.assignment_of("a").entries


def test_a_step_that_violates_an_invariant_is_refused(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.worker("a")
    fleet.worker("b")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.run()

    def both(seen: Snapshot, now_s: float, indexer: FleetIndexer) -> Plan:
        owner = next(w for w, stored in seen.assignments.items() if stored.value.entries)
        other = WorkerId("b" if owner == "a" else "a")
        assignment = seen.assignments[owner].value
        stored = seen.assignments.get(other)
        step = WriteAssignment(
            other, assignment, stored.version if stored else None, revokes_only=False
        )
        return Plan((step,), None, ("a mistake",))

    monkeypatch.setattr(control_loop_module, "plan", both)
    fleet.one.observer.force_plan()
    with caplog.at_level(logging.ERROR):
        fleet.one.loop.run_once()
    assert "refused" in caplog.text
    assert fleet.one.figure("invariant_violations_total") >= 1
    assert len(fleet.assignment_of("a").entries) + len(fleet.assignment_of("b").entries) == 1


def test_invariants_are_checked_without_steps(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A violation by a manual write is reported, even if the plan cannot repair it."""
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.run()
    monkeypatch.setattr(control_loop_module, "plan", lambda *_: Plan((), None, ()))
    fleet.client.transact([Delete(PATHS.ideal_topic(KEY))])
    fleet.one.run()
    assert fleet.one.figure("invariant_violations_total") >= 1


def test_nodes_deleted_by_hand_do_not_stop_the_leader(fleet: ControllerFleet) -> None:
    fleet.worker("a")
    fleet.one.run()
    fleet.topic(1)
    fleet.one.run()
    fleet.client.transact([Delete(PATHS.ideal_topic(KEY))])
    fleet.clock.advance(2)
    fleet.one.run(6)
    assert fleet.client.get(PATHS.ideal_topic(KEY)) is not None


def test_plan_of_the_engines_is_the_plan(fleet: ControllerFleet) -> None:
    """Presence included: what the observer shows leads to the same decision as by hand."""
    fleet.worker("a")
    fleet.topic(2)
    fleet.one.run(5)
    seen = fleet.one.observer.latest
    assert seen is not None
    assert plan(seen, fleet.clock.monotonic_s()).steps == ()
    assert seen.present_since == {"a": fleet.clock.monotonic_s()}
    assert seen.absent_since == {}


def test_steps_share_transactions_up_to_a_limit() -> None:
    steps = [[Set(f"/{number}", b"x", 0)] for number in range(BATCH_OPERATIONS + 1)]
    assert [len(batch) for batch in batches(iter(steps))] == [BATCH_OPERATIONS, 1]
    big = [[Set("/a", bytes(300_000), 0)], [Set("/b", bytes(300_000), 0)]]
    assert [len(batch) for batch in batches(iter(big))] == [1, 1]
