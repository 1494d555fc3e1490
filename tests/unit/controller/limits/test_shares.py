"""Shares of byte limits that the leader publishes, from limits and measured loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import Limited, Partition, WorkerId
from ureplicator_common.znode_contents import PartitionLoad, Switches
from ureplicator_common.znodes.workers import encode_loads
from ureplicator_controller.core.planning.limit_shares import DIVISION_INTERVAL_S
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import WriteAssignment, WriteShares
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, partition, two_workers

OF_ROUTE = Limited.route(ROUTE)
OF_TOPIC = Limited.topic(partition("t").key)
OF_A = Limited.worker(WorkerId("a"))


def limit(fleet: ControlFleet, limits: Mapping[Limited, int]) -> None:
    fleet.switch(Switches(limits=limits))
    fleet.settle()


def shares(fleet: ControlFleet, limited: Limited) -> dict[tuple[str, int], int]:
    return {
        (worker, slot): rates[limited]
        for worker, stored in fleet.snapshot().shares.items()
        for slot, rates in stored.value.items()
        if limited in rates
    }


def report(fleet: ControlFleet, worker: str, loads: dict[Partition, tuple[int, float]]) -> None:
    """A worker reports slot and rate of each partition."""
    content = {
        part: PartitionLoad(slot=slot, bytes_per_s=rate) for part, (slot, rate) in loads.items()
    }
    path = fleet.paths.measures.load(WorkerId(worker))
    session = fleet.process(worker).session
    data = encode_loads(content)
    known = fleet.store.node(path) is not None
    operation = Set(path, data, -1) if known else Create(path, data, ephemeral=True)
    fleet.store.apply(session, [operation])


def test_a_limit_is_divided_among_all_slots_before_there_is_any_load() -> None:
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000, OF_A: 300_000})
    assert set(shares(fleet, OF_ROUTE).values()) == {250_000}
    assert shares(fleet, OF_A) == {("a", 0): 150_000, ("a", 1): 150_000}


def test_shares_follow_the_measured_load_and_are_never_above_the_limit() -> None:
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000, OF_TOPIC: 400_000})
    report(fleet, "a", {partition("t"): (1, 250_000.0)})
    report(fleet, "b", {partition("t", 1): (0, 0.0)})
    fleet.wait(DIVISION_INTERVAL_S)
    fleet.settle()
    found = shares(fleet, OF_ROUTE)
    assert found["a", 1] > 600_000
    assert sum(found.values()) <= 1_000_000
    assert 0 < found["a", 0] < 20_000
    assert sum(shares(fleet, OF_TOPIC).values()) <= 400_000


def test_loads_that_hardly_change_change_no_share() -> None:
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000})
    report(fleet, "a", {partition("t"): (0, 500_000.0)})
    fleet.settle()
    fleet.wait(DIVISION_INTERVAL_S)
    fleet.settle()
    report(fleet, "a", {partition("t"): (0, 510_000.0)})
    assert fleet.cycle().steps == ()


def test_a_limit_that_is_lowered_a_little_holds_at_once() -> None:
    """No share differs much from the wanted one, but their sum is above the limit."""
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000, OF_A: 300_000})
    limit(fleet, {OF_ROUTE: 900_000, OF_A: 299_999})
    assert sum(shares(fleet, OF_ROUTE).values()) == 900_000
    assert sum(shares(fleet, OF_A).values()) <= 299_999


def test_the_next_division_is_due_while_there_are_limits() -> None:
    fleet = two_workers()
    fleet.wait(500)
    fleet.settle()
    assert fleet.cycle().wake_at_s is None
    limit(fleet, {OF_ROUTE: 1_000_000})
    assert fleet.cycle().wake_at_s == fleet.now_s + DIVISION_INTERVAL_S


def test_a_removed_limit_leaves_no_share() -> None:
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000, OF_TOPIC: 50_000})
    limit(fleet, {OF_TOPIC: 50_000})
    assert shares(fleet, OF_ROUTE) == {}
    assert sum(shares(fleet, OF_TOPIC).values()) == 50_000
    limit(fleet, {})
    assert [stored.value for stored in fleet.snapshot().shares.values()] == [{}, {}]


def test_a_worker_has_its_shares_before_its_first_partition() -> None:
    fleet = ControlFleet()
    fleet.switch(Switches(limits={OF_ROUTE: 1_000_000}))
    fleet.worker("a")
    fleet.topic("t", 1)
    order: list[Any] = []
    for _ in range(3):
        order += [type(step) for step in fleet.cycle().steps]
    assert order.index(WriteShares) < order.index(WriteAssignment)


def test_a_lost_worker_leaves_its_share_to_the_others() -> None:
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000})
    fleet.kill(fleet.process("b"))
    fleet.settle()
    found = shares(fleet, OF_ROUTE)
    assert sum(rate for (worker, _), rate in found.items() if worker == "a") == 1_000_000


@pytest.mark.parametrize("node", ["settings", "shares"])
def test_unreadable_nodes(node: str) -> None:
    """Unreadable limits change no share; unreadable shares are written again."""
    fleet = two_workers()
    limit(fleet, {OF_ROUTE: 1_000_000})
    before = shares(fleet, OF_ROUTE)
    if node == "settings":
        fleet.switch_to(b"{")
    else:
        path = fleet.paths.slot_shares(WorkerId("a"))
        fleet.store.apply(fleet.store.open_session(), [Set(path, b"{", -1)])
        assert any(isinstance(step, WriteShares) for step in plan(fleet.observe(), 0.0).steps)
    fleet.settle()
    assert shares(fleet, OF_ROUTE) == before
