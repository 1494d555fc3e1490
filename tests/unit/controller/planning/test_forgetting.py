"""Workers that are gone: what belongs to them is removed as soon as nothing rests on it."""

from __future__ import annotations

import pytest

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import SessionId, TopicState, WorkerId
from ureplicator_common.znodes.workers import encode_registration
from ureplicator_controller.core.planning.bookkeeping import FORGET_AFTER_S, MAX_FORGOTTEN
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import ForgetWorker
from ureplicator_testkit.control.fleet import ControlFleet, ids_of, two_workers

A = WorkerId("a")


def after_a_loss() -> ControlFleet:
    """b has taken everything from a, which was killed."""
    fleet = two_workers(2)
    fleet.kill(fleet.process("a"))
    fleet.cycle()
    fleet.wait(200)
    fleet.settle()
    return fleet


def nodes_of(fleet: ControlFleet, worker: WorkerId) -> list[str]:
    paths = fleet.paths
    all_paths = (
        paths.worker_known(worker),
        paths.worker_registration(worker),
        paths.assignment(worker),
        paths.slot_shares(worker),
    )
    return [path for path in all_paths if fleet.store.node(path) is not None]


def test_all_nodes_of_a_worker_that_is_gone_for_a_day_are_removed() -> None:
    fleet = after_a_loss()
    path = fleet.paths.worker_registration(A)
    fleet.store.apply(fleet._session, [Create(path, encode_registration(SessionId(7)))])
    due = plan(fleet.observe(), fleet.now_s).wake_at_s
    assert due is not None
    fleet.now_s = due - 1
    fleet.settle()
    assert len(nodes_of(fleet, A)) == 3
    fleet.now_s = due
    fleet.settle()
    assert nodes_of(fleet, A) == []
    assert len(nodes_of(fleet, WorkerId("b"))) == 2


def test_operators_forget_a_worker_at_once_though_it_was_drained() -> None:
    fleet = after_a_loss()
    fleet.tag("a", draining=True)
    fleet.wait(10 * FORGET_AFTER_S)
    fleet.settle()
    assert len(nodes_of(fleet, A)) == 2, "the tag is for its return"
    fleet.tag("a", draining=True, forgotten=True)
    fleet.settle()
    assert nodes_of(fleet, A) == []


def test_a_worker_whose_slots_the_next_owner_has_to_fence_stays() -> None:
    """It may resume, and commit what nobody has taken over from it since."""
    fleet = two_workers(2)
    a = fleet.process("a")
    fleet.freeze(a)
    fleet.topic("t", 2, state=TopicState.PAUSED)
    fleet.wait(200)
    fleet.settle()
    fleet.tag("a", forgotten=True)
    fleet.wait(2 * FORGET_AFTER_S)
    fleet.settle()
    assert fleet.paths.worker_known(A) in nodes_of(fleet, A)
    fleet.topic("t", 2, state=TopicState.ACTIVE)
    fleet.cycle()
    assert any(fleet.fences("b", "t", number) == ids_of("a") for number in range(2))
    fleet.settle()
    assert nodes_of(fleet, A) == [], "b has fenced it"


def test_a_worker_that_is_back_is_not_forgotten() -> None:
    fleet = after_a_loss()
    fleet.tag("a", forgotten=True)
    fleet.worker("a", slots=3)
    fleet.settle()
    known = fleet.snapshot().known[A].value
    assert (known.forgotten, known.max_slots) == (False, 3)


def test_a_worker_that_registers_meanwhile_keeps_its_nodes() -> None:
    fleet = after_a_loss()
    path = fleet.paths.worker_registration(A)
    fleet.store.apply(fleet._session, [Create(path, encode_registration(SessionId(7)))])
    fleet.tag("a", forgotten=True)
    seen = fleet.observe()
    (step,) = plan(seen, fleet.now_s).steps
    assert isinstance(step, ForgetWorker)
    fleet.store.apply(fleet._session, [Set(path, encode_registration(SessionId(8)), 0)])
    assert not fleet._apply(step, seen)
    assert len(nodes_of(fleet, A)) == 3


@pytest.mark.parametrize("node", ["workers_known", "ideal"])
def test_nothing_is_forgotten_that_an_unreadable_node_may_name(node: str) -> None:
    fleet = after_a_loss()
    fleet.tag("a", forgotten=True)
    paths = fleet.paths
    path = {
        "workers_known": paths.worker_known(A),
        "ideal": f"{paths.ideal}/source.target/t",
    }[node]
    fleet.store.apply(fleet._session, [Set(path, b"{", -1)])
    fleet.settle()
    assert len(nodes_of(fleet, A)) == 2


def test_a_few_are_forgotten_at_a_time() -> None:
    fleet = two_workers(1)
    processes = [fleet.worker(f"c{number}") for number in range(MAX_FORGOTTEN + 2)]
    fleet.settle()
    for process in processes:
        fleet.kill(process)
    fleet.wait(500)
    fleet.settle()
    fleet.wait(FORGET_AFTER_S)
    forgotten = [step for step in fleet.cycle().steps if isinstance(step, ForgetWorker)]
    assert len(forgotten) == MAX_FORGOTTEN
    fleet.settle()
    assert fleet.snapshot().known.keys() == {"a", "b"}
