"""Holders that deleted topics have left behind: fenced by the leader and removed when they are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from ureplicator_common.coordination import Conflict, Set
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.model import TopicKey, WorkerId
from ureplicator_controller.core.planning.bookkeeping import needed_workers
from ureplicator_controller.core.positions.remains import removable_remains
from ureplicator_controller.engines.position_renewal import RemainsRemover, Renewal
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, ids_of, two_workers
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.worker_process import InvariantViolated, Process

A, KEY = WorkerId("a"), TopicKey(ROUTE, "t")


class LedgerStore(PositionStore):
    """Fences in the ledger of the fleet; `then` happens after it."""

    def __init__(self, fleet: ControlFleet, then: Callable[[], None] = lambda: None) -> None:
        self.fleet, self.then = fleet, then
        self.fenced: set[str] = set()

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for id in transactional_ids:
            self.fleet.ledger.initialise(id)
        self.fenced.update(transactional_ids)
        self.then()


def deleted_while_frozen() -> tuple[ControlFleet, Process]:
    """a freezes with partitions of a topic that is deleted then."""
    fleet = two_workers(2)
    frozen = fleet.process("a")
    fleet.freeze(frozen)
    fleet.delete("t")
    fleet.settle()
    assert KEY not in fleet.snapshot().topics
    assert A in needed_workers(fleet.snapshot(), [A])
    return fleet, frozen


def remove(fleet: ControlFleet, store: PositionStore) -> int:
    remover = RemainsRemover(
        coordination=MemoryCoordination(fleet.store),
        paths=fleet.paths,
        seen=fleet.snapshot,
        proof=fleet.snapshot,
    )
    return remover.remove(Renewal(ROUTE, store, cast(ClusterClient, None)))


def copied_again(fleet: ControlFleet) -> None:
    """Have b copy the partitions again, under later owner epochs."""
    fleet.elect()
    fleet.topic("t", 2)
    fleet.settle()
    assert set(fleet.owners("t").values()) == {"b"}


def test_the_holders_are_fenced_and_their_list_is_removed() -> None:
    fleet, frozen = deleted_while_frozen()
    store = LedgerStore(fleet)
    assert remove(fleet, store) == 1
    assert store.fenced == ids_of("a")
    assert KEY not in fleet.snapshot().ideal
    assert needed_workers(fleet.snapshot(), [A]) == {}, "it can be forgotten"
    copied_again(fleet)
    fleet.thaw(frozen)
    frozen.commit_all()
    assert remove(fleet, store) == 0


def test_without_the_fence_a_frozen_holder_could_commit() -> None:
    fleet, frozen = deleted_while_frozen()
    store = LedgerStore(fleet)
    store.fence = lambda transactional_ids: None  # type: ignore[method-assign]
    remove(fleet, store)
    copied_again(fleet)
    fleet.thaw(frozen)
    with pytest.raises(InvariantViolated):
        frozen.commit_all()


def test_a_topic_that_is_copied_again_meanwhile_keeps_its_holders() -> None:
    fleet, _ = deleted_while_frozen()

    def whitelisted() -> None:
        fleet.topic("t", 2)
        fleet.settle()

    with pytest.raises(Conflict):
        remove(fleet, LedgerStore(fleet, then=whitelisted))
    assert set(fleet.owners("t").values()) == {"b"}


def test_a_deposed_leader_removes_nothing() -> None:
    fleet, _ = deleted_while_frozen()
    with pytest.raises(Conflict):
        remove(fleet, LedgerStore(fleet, then=fleet.elect))
    assert KEY in fleet.snapshot().ideal


def test_holders_that_are_back_are_left_to_the_plan() -> None:
    fleet, _ = deleted_while_frozen()
    fleet.worker("a")
    assert removable_remains(fleet.snapshot(), ROUTE) == {}


def test_topics_that_are_not_deleted_are_no_remains() -> None:
    fleet = two_workers(2)
    fleet.freeze(fleet.process("a"))
    fleet.settle()
    assert removable_remains(fleet.snapshot(), ROUTE) == {}


@pytest.mark.parametrize("kind", ["assignment", "topic", "known"])
def test_nothing_is_removed_that_an_unreadable_node_may_name(kind: str) -> None:
    fleet, _ = deleted_while_frozen()
    paths = fleet.paths
    path = {
        "assignment": paths.assignment(WorkerId("b")),
        "topic": paths.topic(KEY),
        "known": paths.worker_known(A),
    }[kind]
    fleet._make(path)
    fleet.store.apply(fleet._session, [Set(path, b"{", -1)])
    assert removable_remains(fleet.snapshot(), ROUTE) == {}
