"""Switches that stop moves, and requested rebalances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.planning.owner_changes import owner_changes, plan_id
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import WriteIdeal, WriteSwitches
from ureplicator_controller.core.planning.switches import PLAN_HAS_CHANGED
from ureplicator_testkit.control.fleet import ControlFleet, two_workers

HELD = [Switches(auto_balancing=False), Switches(frozen=True)]


@pytest.fixture(params=HELD, ids=["auto-balancing off", "frozen"])
def held(request: pytest.FixtureRequest) -> ControlFleet:
    fleet = two_workers(4)
    fleet.switch(request.param)
    fleet.settle()
    return fleet


def test_lost_worker_moves_nothing(held: ControlFleet) -> None:
    held.kill(held.process("a"))
    held.settle()
    held.wait(500)
    assert held.cycle().steps == ()
    assert held.counts() == {"a": 2, "b": 2}
    held.worker("a")
    held.settle()
    assert held.counts() == {"a": 2, "b": 2}, "it comes back to what was its own"


def test_joined_worker_gets_no_partitions_of_others(held: ControlFleet) -> None:
    held.worker("c")
    held.settle()
    held.wait(500)
    held.settle()
    assert held.counts() == {"a": 2, "b": 2}
    assert held.cycle().wake_at_s is None


def test_new_and_resumed_topics_are_placed(held: ControlFleet) -> None:
    held.worker("c")
    held.topic("new", 2)
    held.settle()
    assert held.owners("new") == {0: "c", 1: "c"}
    held.topic("t", 5, blacklisted=frozenset({0}))
    held.settle()
    held.topic("t", 5, blacklisted=frozenset())
    held.settle()
    assert None not in held.owners("t").values()


def test_drained_worker_releases_its_partitions(held: ControlFleet) -> None:
    held.tag("a", draining=True, blacklisted=True)
    held.settle()
    assert held.counts() == {"b": 4}
    held.tag("a")
    held.settle()
    held.wait(500)
    held.settle()
    assert held.counts() == {"b": 4}, "taken back, it gets nothing without a rebalance request"


def test_rebalance_is_done_at_once_and_only_once(held: ControlFleet) -> None:
    held.kill(held.process("a"))
    held.worker("c")
    held.settle()
    held.request_rebalance("r1")
    held.settle()
    assert held.counts() == {"b": 2, "c": 2}
    assert held.switches().rebalance_done == "r1"
    held.kill(held.process("c"))
    held.settle()
    held.wait(500)
    held.settle()
    assert held.counts() == {"b": 2, "c": 2}, "only once"


def test_pending_moves_happen_after_switching_back(held: ControlFleet) -> None:
    held.kill(held.process("a"))
    held.settle()
    held.wait(500)
    held.settle()
    held.switch(Switches())
    held.settle()
    assert held.counts() == {"b": 4}


@pytest.mark.parametrize(("switches", "owner"), [(HELD[0], "b"), (HELD[1], "a")])
def test_owner_lost_before_it_was_assigned_the_partition(switches: Switches, owner: str) -> None:
    """The difference between the switches: the owner was never assigned the partition."""
    fleet = two_workers(2)
    fleet.kill(fleet.process("a"))
    fleet.kill(fleet.process("b"))
    fleet.settle()
    fleet.wait(200)
    fleet.worker("b")
    fleet.hang(fleet.process("b"))
    fleet.worker("a")
    fleet.topic("new", 1)
    fleet.cycle(die_after=1)
    assert fleet.owners("new") == {0: "a"}
    fleet.kill(fleet.process("a"))
    fleet.switch(switches)
    fleet.cycle()
    assert fleet.owners("new") == {0: owner}


def test_rebalance_skips_the_delays() -> None:
    fleet = two_workers(4)
    fleet.kill(fleet.process("a"))
    fleet.worker("c")
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}
    fleet.request_rebalance("r1")
    decided = fleet.cycle()
    assert decided.reasons[0] == "rebalance requested"
    assert isinstance(decided.steps[-1], WriteSwitches)
    fleet.settle()
    assert fleet.counts() == {"b": 2, "c": 2}


@pytest.mark.parametrize("step", range(4))
def test_requested_rebalance_survives_its_leader(step: int) -> None:
    fleet = two_workers(4)
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.request_rebalance("r1")
    fleet.cycle(die_after=step)
    fleet.settle()
    assert fleet.counts() == {"b": 4}
    assert fleet.switches().rebalance_done == "r1"


def dry_run_id(fleet: ControlFleet) -> str:
    """Id of the plan of a rebalance now, as REST computes it: without the leader's times."""
    seen = fleet.snapshot()
    wanted = replace(seen, switches=Switches(rebalance_requested="dry"), switches_version=None)
    return plan_id(owner_changes(seen, plan(wanted, 0.0).steps))


def test_rebalance_carries_out_exactly_the_plan_that_was_shown() -> None:
    fleet = two_workers(4)
    fleet.kill(fleet.process("a"))
    fleet.worker("c")
    fleet.settle()
    fleet.switch(Switches(rebalance_requested="r1", rebalance_plan=dry_run_id(fleet)))
    fleet.settle()
    assert fleet.counts() == {"b": 2, "c": 2}
    assert fleet.switches() == Switches(rebalance_requested="r1", rebalance_done="r1")


def test_rebalance_moves_nothing_if_the_fleet_has_changed_since_its_plan() -> None:
    fleet = two_workers(4)
    fleet.kill(fleet.process("a"))
    fleet.worker("c")
    fleet.settle()
    shown = dry_run_id(fleet)
    fleet.worker("d")
    fleet.settle()
    assert dry_run_id(fleet) != shown
    fleet.switch(Switches(rebalance_requested="r1", rebalance_plan=shown))
    decided = fleet.cycle()
    assert decided.reasons[0].startswith("rebalance refused: the fleet has changed")
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}, "the delay runs"
    after = fleet.switches()
    assert (after.rebalance_done, after.rebalance_plan) == ("r1", "")
    assert after.rebalance_outcome == PLAN_HAS_CHANGED


def test_second_request_is_another_rebalance() -> None:
    fleet = two_workers(2)
    for id in ("r1", "r2"):
        fleet.request_rebalance(id)
        assert [type(step) for step in fleet.cycle().steps] == [WriteSwitches]
        assert fleet.cycle().steps == ()


def test_unreadable_switches_stop_automatic_moves() -> None:
    fleet = two_workers(4)
    fleet.switch_to(b"{")
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(500)
    decided = fleet.cycle()
    assert not [step for step in decided.steps if isinstance(step, WriteIdeal)]
    seen = fleet.snapshot()
    assert [finding.path for finding in seen.unreadable_nodes] == [fleet.paths.settings]
    assert WorkerId("a") not in seen.sessions
