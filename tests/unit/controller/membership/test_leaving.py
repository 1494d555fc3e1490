"""Workers that leave: their share moves at once, and nothing else does."""

from __future__ import annotations

import pytest

from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.reporting.events import fleet_events
from ureplicator_controller.core.state.mass_loss import mass_loss
from ureplicator_testkit.control.fleet import ControlFleet, two_workers


@pytest.fixture
def fleet() -> ControlFleet:
    return two_workers(4)


def test_share_moves_at_once_and_is_taken_before_it_is_given(fleet: ControlFleet) -> None:
    before = fleet.owners("t")
    fleet.process("a").announce(leaving=True)
    fleet.cycle()
    assert fleet.snapshot().assignments["b"].value.entries.keys() == {  # type: ignore[index]
        partition for partition in fleet.process("b").copies
    }, "nothing is given while the former owner holds it"
    fleet.settle()
    assert fleet.counts() == {"b": 4}
    moved = [number for number, owner in before.items() if owner == "a"]
    assert {fleet.entry("t", number).reason for number in moved} == {"worker a leaves"}


def test_worker_that_leaves_gets_nothing(fleet: ControlFleet) -> None:
    fleet.process("a").announce(leaving=True)
    fleet.topic("u", 2)
    fleet.settle()
    assert fleet.owners("u") == {0: "b", 1: "b"}


@pytest.mark.parametrize("switches", [Switches(frozen=True), Switches(auto_balancing=False)])
def test_leaving_is_a_request_of_operators(fleet: ControlFleet, switches: Switches) -> None:
    fleet.switch(switches)
    fleet.process("a").announce(leaving=True)
    fleet.settle()
    assert fleet.counts() == {"b": 4}


def test_last_worker_is_relieved_and_its_partitions_wait(fleet: ControlFleet) -> None:
    for id in ("a", "b"):
        fleet.process(id).announce(leaving=True)
    fleet.settle()
    assert fleet.counts() == {}
    assert set(fleet.owners("t").values()) == {None}
    fleet.worker("c")
    fleet.settle()
    assert fleet.counts() == {"c": 4}


def test_process_that_follows_under_the_same_id_takes_part(fleet: ControlFleet) -> None:
    fleet.process("a").announce(leaving=True)
    fleet.settle()
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.worker("a")
    fleet.settle()
    fleet.wait(20)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}


def test_workers_that_leave_are_no_mass_loss() -> None:
    fleet = two_workers(6)
    fleet.worker("c")
    fleet.settle()
    fleet.wait(20)
    fleet.settle()
    for id in ("a", "b"):
        fleet.process(id).announce(leaving=True)
        fleet.settle()
        fleet.kill(fleet.process(id))
    fleet.settle()
    assert mass_loss(fleet.snapshot()) is None
    assert fleet.counts() == {"c": 6}


def test_leaving_is_an_event(fleet: ControlFleet) -> None:
    before = fleet.observe()
    fleet.process("a").announce(leaving=True)
    [event] = fleet_events(before, fleet.observe(), (), leader="c1")
    assert (event.worker, event.reason) == ("a", "leaves: its partitions move")
