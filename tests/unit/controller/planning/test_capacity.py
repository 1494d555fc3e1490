"""Workers without Spark capacity: their share goes to workers that have some, and comes back."""

from __future__ import annotations

import pytest

from ureplicator_common.znode_contents import Switches
from ureplicator_testkit.control.fleet import ControlFleet, two_workers

LACKS = "no Spark capacity: Spark master 10.0.0.1:7077 is away"


@pytest.fixture
def fleet() -> ControlFleet:
    return two_workers(4)


def test_share_goes_to_the_worker_that_has_capacity_and_comes_back_as_after_a_join(
    fleet: ControlFleet,
) -> None:
    a = fleet.process("a")
    a.announce(no_capacity=LACKS)
    fleet.settle()
    assert fleet.counts() == {"b": 4}
    assert fleet.entry("t").reason in ("worker a has no capacity", "new topic")
    a.announce()
    fleet.settle()
    assert fleet.counts() == {"b": 4}, "the join delay runs"
    wake_at_s = fleet.cycle().wake_at_s
    assert wake_at_s == fleet.now_s + fleet.delays.join_s
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}


def test_a_worker_without_capacity_that_restarts_within_the_delay_counts_as_joined(
    fleet: ControlFleet,
) -> None:
    """Its new process does not know yet what it lacks; it got partitions that it could not copy."""
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(1)
    a = fleet.worker("a")
    fleet.settle()
    assert fleet.counts() == {"b": 4}
    a.announce(no_capacity=LACKS)
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"b": 4}
    a.announce()
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}


def test_moved_partitions_name_the_cause(fleet: ControlFleet) -> None:
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.settle()
    reasons = {fleet.entry("t", number).reason for number in range(4)}
    assert "worker a has no capacity" in reasons


def test_new_partitions_go_elsewhere(fleet: ControlFleet) -> None:
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.settle()
    fleet.topic("u", 2)
    fleet.settle()
    assert fleet.owners("u") == {0: "b", 1: "b"}


def test_nothing_moves_while_no_worker_has_capacity(fleet: ControlFleet) -> None:
    before = fleet.owners("t")
    for id in ("a", "b"):
        fleet.process(id).announce(no_capacity=LACKS)
    fleet.settle()
    assert fleet.owners("t") == before
    fleet.topic("u", 2)
    fleet.settle()
    assert None not in fleet.owners("u").values(), "it starts as soon as one has capacity"
    fleet.process("b").announce()
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 3}, "others may follow at once"
    assert fleet.cycle().wake_at_s == fleet.now_s + fleet.delays.join_s
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"b": 6}


def test_workers_that_have_capacity_again_one_after_the_other_keep_their_shares(
    fleet: ControlFleet,
) -> None:
    """A cluster comes back, or a fleet starts on one that is slow."""
    before = fleet.owners("t")
    for id in ("a", "b"):
        fleet.process(id).announce(no_capacity=LACKS)
    fleet.settle()
    for id in ("b", "a"):
        fleet.process(id).announce()
        fleet.settle()
        fleet.wait(fleet.delays.join_s / 2)
        assert fleet.owners("t") == before
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.owners("t") == before


def test_the_only_other_worker_is_absent(fleet: ControlFleet) -> None:
    before = fleet.owners("t")
    fleet.kill(fleet.process("b"))
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.settle()
    assert fleet.owners("t") == before, "an absent worker may be back, but copies nothing now"


@pytest.mark.parametrize("held", [Switches(auto_balancing=False), Switches(frozen=True)])
def test_switches_keep_its_partitions(fleet: ControlFleet, held: Switches) -> None:
    fleet.switch(held)
    before = fleet.owners("t")
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.settle()
    assert fleet.owners("t") == before


def test_a_drained_worker_stays_drained_whatever_its_capacity(fleet: ControlFleet) -> None:
    fleet.tag("a", draining=True)
    fleet.settle()
    a = fleet.process("a")
    a.announce(no_capacity=LACKS)
    fleet.settle()
    a.announce()
    fleet.wait(100)
    fleet.settle()
    assert fleet.counts() == {"b": 4}


def test_a_new_leader_sees_it_after_the_join_delay(fleet: ControlFleet) -> None:
    fleet.process("a").announce(no_capacity=LACKS)
    fleet.elect()
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"b": 4}
