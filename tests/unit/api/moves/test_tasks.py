"""`/tasks`: what was requested, how far it is, and its cancellation; on in-memory clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ureplicator_common.model import (
    EventKind,
    OwnerEpoch,
    Partition,
    PartitionState,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    IdealEntry,
    IdealTopic,
    KnownWorker,
    PastEvent,
    Switches,
    TopicIntent,
)
from ureplicator_common.znodes.fleet import decode_switches, encode_history, encode_switches
from ureplicator_common.znodes.topics import encode_ideal
from ureplicator_common.znodes.workers import decode_known_worker, encode_known_worker
from ureplicator_controller.core.planning.switches import PLAN_HAS_CHANGED
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

W1, W2 = WorkerId("w1"), WorkerId("w2")


def move(
    number: int, request: str, *, to: WorkerId | None = W2, took: int | None = None
) -> PastEvent:
    return PastEvent(
        number,
        EventKind.MOVE,
        "worker w1 drained",
        1_000 + number,
        request=request,
        partition=Partition(ROUTE, "orders", number),
        source=W1,
        target=to,
        owner_epoch=OwnerEpoch(number + 1),
        took_ms=took,
    )


@pytest.fixture
def fleet(rest: RestFixture) -> RestFixture:
    """Four partitions, two workers, and a leader."""
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    for worker in ("w1", "w2"):
        rest.add_worker(worker)
    rest.put_leader()
    return rest


def happened(rest: RestFixture, *events: PastEvent) -> None:
    rest.put(rest.paths.history_block(0), encode_history(list(events)))


def owned(rest: RestFixture, owners: Sequence[WorkerId | None], *, first_epoch: int = 1) -> None:
    entries = {
        number: IdealEntry(owner, OwnerEpoch(first_epoch + number), 5, "placed")
        for number, owner in enumerate(owners)
    }
    path = rest.paths.ideal_topic(TopicKey(ROUTE, "orders"))
    rest.put(path, encode_ideal(IdealTopic(entries)))


def switched(rest: RestFixture) -> Switches:
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    return decode_switches(node.data)


def shown(rest: RestFixture, task: str) -> Any:
    return rest.call("GET", f"/tasks/{task}").get_json()


def drain(rest: RestFixture, request: str = "d1/olga") -> None:
    known = KnownWorker(2, blacklisted=True, draining=True, request_id=request)
    rest.put(rest.paths.worker_known(W1), encode_known_worker(known))


def test_a_drain_counts_what_has_moved_and_what_is_to_come(fleet: RestFixture) -> None:
    drain(fleet)
    happened(fleet, move(0, "d1/olga", took=300), move(1, "d1/olga"))
    owned(fleet, [W2, W2, W1, W1])
    assert shown(fleet, "d1") == {
        "task": "d1",
        "by": "olga",
        "what": "drain w1",
        "state": "running",
        "began": "1970-01-01T00:00:01.000+00:00",
        "moves": 4,
        "moved": 1,
        "outcome": "",
    }
    happened(fleet, *(move(number, "d1/olga", took=3) for number in range(4)))
    owned(fleet, [W2] * 4)
    assert (shown(fleet, "d1")["state"], shown(fleet, "d1")["moved"]) == ("done", 4)


def test_cancelling_a_drain_gives_the_worker_partitions_again(fleet: RestFixture) -> None:
    drain(fleet)
    owned(fleet, [W1] * 4)
    assert shown(fleet, "d1")["moves"] == 4
    assert fleet.call("DELETE", "/tasks/d1").get_json() == {"task": "d1", "cancelled": True}
    node = fleet.other_client.get(fleet.paths.worker_known(W1))
    assert node is not None
    assert not decode_known_worker(node.data).is_drained


def test_a_rebalance_waits_for_the_leader_and_can_be_withdrawn(fleet: RestFixture) -> None:
    task = fleet.call("POST", "/rebalance").get_json()["request"]
    assert (shown(fleet, task)["what"], shown(fleet, task)["state"]) == ("rebalance", "waiting")
    assert fleet.call("DELETE", f"/tasks/{task}").status_code == 200
    assert switched(fleet).rebalance_done == task
    assert shown(fleet, task)["state"] == "cancelled"
    problem = problem_of(fleet.call("DELETE", f"/tasks/{task}"), 409)
    assert problem["detail"] == f"task {task} is cancelled"


def test_moves_that_are_decided_cannot_be_withdrawn(fleet: RestFixture) -> None:
    switches = Switches(rebalance_requested="r1", rebalance_done="r1")
    fleet.put(fleet.paths.settings, encode_switches(switches))
    happened(fleet, move(0, "r1"))
    owned(fleet, [W2, W1, W1, W1])
    assert shown(fleet, "r1")["state"] == "running"
    problem = problem_of(fleet.call("DELETE", "/tasks/r1"), 409)
    assert problem["detail"] == "all moves of task r1 are decided"
    assert switched(fleet) == switches


def test_a_refused_rebalance_says_why(fleet: RestFixture) -> None:
    switches = Switches(
        rebalance_requested="r1", rebalance_done="r1", rebalance_outcome=PLAN_HAS_CHANGED
    )
    fleet.put(fleet.paths.settings, encode_switches(switches))
    found = shown(fleet, "r1")
    assert (found["state"], found["outcome"]) == ("refused", PLAN_HAS_CHANGED)


@pytest.mark.parametrize("held", [True, False])
def test_a_partition_without_a_new_owner_has_moved_when_it_is_released(
    fleet: RestFixture, held: bool
) -> None:
    happened(fleet, move(0, "p1", to=None))
    owned(fleet, [None, W1, W1, W1])
    if held:
        fleet.put_states("w1", "orders", {0: PartitionState.ONLINE})
    assert shown(fleet, "p1")["moved"] == (0 if held else 1)


def test_a_move_that_another_one_replaced_is_over(fleet: RestFixture) -> None:
    happened(fleet, move(0, "r1"))
    owned(fleet, [W1], first_epoch=9)
    assert shown(fleet, "r1")["state"] == "done"


def test_the_list_has_the_newest_first_and_nothing_that_moved_nothing(fleet: RestFixture) -> None:
    frozen = PastEvent(3, EventKind.SWITCH, "frozen", 1_003, request="f1")
    happened(fleet, move(0, "r1", took=1), move(1, "r2", took=1), frozen)
    tasks = fleet.call("GET", "/tasks").get_json()["tasks"]
    assert [task["task"] for task in tasks] == ["r2", "r1"]
    assert tasks[0]["what"] == f"{ROUTE}/orders: worker w1 drained"
    problem_of(fleet.call("GET", "/tasks/f1"), 404)


def test_a_plan_that_is_not_due_any_more_is_not_even_requested(fleet: RestFixture) -> None:
    shown_plan = fleet.call("POST", "/rebalance?dry_run=true").get_json()
    assert len(shown_plan["moves"]) == 4
    fleet.put_intent("more", TopicIntent(1, 1, target_topic="more"))
    problem = problem_of(fleet.call("POST", f"/rebalance?plan={shown_plan['planId']}"), 409)
    assert shown_plan["planId"] in problem["detail"]
    now = fleet.call("POST", "/rebalance?dry_run=true").get_json()["planId"]
    assert fleet.call("POST", f"/rebalance?plan={now}").status_code == 200
    assert switched(fleet).rebalance_plan == now
