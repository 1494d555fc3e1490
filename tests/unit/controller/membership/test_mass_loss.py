"""Brake on mass loss: when most workers are lost, nothing moves off them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from ureplicator_common.model import WorkerId
from ureplicator_controller.core.planning.plan import Plan
from ureplicator_controller.core.reporting.events import fleet_events
from ureplicator_controller.core.state.mass_loss import lost_workers, mass_loss
from ureplicator_controller.core.state.snapshot import BalanceLimits
from ureplicator_testkit.control.fleet import ControlFleet


def fleet_of(workers: int, *, max_lost_share: float = 0.5) -> ControlFleet:
    """A settled fleet of workers `w0`, `w1`, and so on, with four partitions each."""
    fleet = ControlFleet()
    fleet.limits = BalanceLimits(max_lost_share=max_lost_share)
    for number in range(workers):
        fleet.worker(f"w{number}")
    fleet.topic("t", workers * 4)
    fleet.settle()
    fleet.wait(20)
    fleet.settle()
    return fleet


def lose(fleet: ControlFleet, count: int) -> None:
    for number in range(count):
        fleet.kill(fleet.process(f"w{number}"))
    fleet.settle()


def confirm(fleet: ControlFleet) -> None:
    lost = lost_workers(fleet.snapshot())
    fleet.switch(replace(fleet.switches(), confirmed_lost=lost))


def let_delay_end(fleet: ControlFleet) -> Plan:
    fleet.wait(fleet.delays.rebalance_s + 1)
    plan = fleet.cycle()
    fleet.settle()
    return plan


@pytest.mark.parametrize(
    ("workers", "lost", "share", "moves"),
    [
        (1, 1, 0.5, False),
        (2, 1, 0.5, True),
        (2, 2, 0.5, False),
        (3, 1, 0.5, True),
        (3, 2, 0.5, False),
        (4, 2, 0.5, True),
        (4, 3, 0.5, False),
        (4, 3, 0.75, True),
        (4, 1, 0.0, False),
        (4, 3, 1.0, True),
    ],
)
def test_share_of_lost_workers(workers: int, lost: int, share: float, moves: bool) -> None:
    fleet = fleet_of(workers, max_lost_share=share)
    before = fleet.owners("t")
    lose(fleet, lost)
    let_delay_end(fleet)
    assert (fleet.owners("t") != before) is moves
    let_delay_end(fleet)
    assert (fleet.owners("t") != before) is moves, "no delay ends the brake"


def test_brake_has_nothing_to_hold_without_living_workers() -> None:
    fleet = fleet_of(2)
    lose(fleet, 2)
    let_delay_end(fleet)
    assert mass_loss(fleet.snapshot()) is None
    assert not fleet.observe().is_braked


def test_losses_at_different_times_count_together() -> None:
    fleet = fleet_of(4)
    before = fleet.owners("t")
    for name in ("w0", "w1", "w2"):
        fleet.kill(fleet.process(name))
        fleet.cycle()
        fleet.wait(50)
    let_delay_end(fleet)
    assert fleet.owners("t") == before


def test_losses_that_were_failed_over_count_no_more() -> None:
    fleet = fleet_of(4)
    for lost in ("w0", "w1", "w2"):
        fleet.kill(fleet.process(lost))
        fleet.settle()
        let_delay_end(fleet)
        assert lost not in fleet.owners("t").values()


def test_brake_ends_when_enough_are_back_and_the_rest_has_the_delay_again() -> None:
    fleet = fleet_of(4)
    before = fleet.owners("t")
    lose(fleet, 3)
    let_delay_end(fleet)
    fleet.worker("w0")
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    assert not fleet.observe().is_braked
    assert fleet.owners("t") == before, "the others may be on their way"
    fleet.worker("w1")
    fleet.settle()
    let_delay_end(fleet)
    owners = set(fleet.owners("t").values())
    assert owners == {"w0", "w1", "w3"}, "one of four is an ordinary loss"


def test_living_workers_get_new_partitions_and_what_operators_drain() -> None:
    fleet = fleet_of(5)
    lose(fleet, 3)
    let_delay_end(fleet)
    fleet.topic("new", 2)
    fleet.settle()
    assert set(fleet.owners("new").values()) <= {"w3", "w4"}
    fleet.tag("w3", draining=True)
    fleet.settle()
    assert fleet.counts().get("w3") is None


def test_drained_workers_are_no_loss() -> None:
    fleet = fleet_of(4)
    fleet.tag("w0", draining=True)
    fleet.tag("w1", draining=True)
    fleet.settle()
    lose(fleet, 2)
    fleet.kill(fleet.process("w2"))
    fleet.settle()
    let_delay_end(fleet)
    assert set(fleet.owners("t").values()) == {"w3"}


def test_confirmed_loss_moves_at_once_and_ends_with_the_move() -> None:
    fleet = fleet_of(4)
    lose(fleet, 3)
    let_delay_end(fleet)
    confirm(fleet)
    fleet.settle()
    assert set(fleet.owners("t").values()) == {"w3"}
    assert fleet.switches().confirmed_lost == frozenset()
    assert fleet.switches().frozen is False, "the brake is not written as a switch"


def test_confirmed_loss_is_over_when_the_worker_is_back() -> None:
    fleet = fleet_of(4)
    lose(fleet, 3)
    confirm(fleet)
    fleet.cycle()
    fleet.worker("w0")
    fleet.settle()
    assert fleet.switches().confirmed_lost == {WorkerId("w1"), WorkerId("w2")}


def test_another_leader_holds_the_brake() -> None:
    fleet = fleet_of(4)
    before = fleet.owners("t")
    lose(fleet, 3)
    let_delay_end(fleet)
    fleet.elect()
    fleet.settle()
    let_delay_end(fleet)
    assert fleet.owners("t") == before
    assert fleet.observe().is_braked


def test_rebalance_needs_the_confirmation() -> None:
    fleet = fleet_of(4)
    before = fleet.owners("t")
    lose(fleet, 3)
    fleet.request_rebalance("r1")
    fleet.settle()
    assert fleet.switches().rebalance_done == "r1"
    assert fleet.owners("t") == before
    confirm(fleet)
    fleet.request_rebalance("r2")
    fleet.settle()
    assert set(fleet.owners("t").values()) == {"w3"}


def test_start_and_end_are_one_event_each() -> None:
    fleet = fleet_of(4)
    lose(fleet, 3)
    seen = [fleet.observe()]
    for _ in range(3):
        fleet.wait(100)
        seen.append(fleet.observe())
    fleet.worker("w0")
    seen += [fleet.observe(), fleet.observe()]
    pairs = pairwise(seen)
    events = [event for pair in pairs for event in fleet_events(*pair, (), leader="c1")]
    told = [event.reason for event in events if event.reason.startswith("brake")]
    assert told == [
        "brake held: mass loss: 3 of 4 workers are lost (w0, w1, w2); their partitions stay with them"
        " until enough are back or operators confirm the loss",
        "brake released: enough workers are back",
    ]
