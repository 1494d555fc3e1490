"""A leader that dies after transaction k of what it was doing, for every k; the real engines.

`test_plan_ownership` has the same for the plan's steps. Here the steps are really sent, each in a
transaction of its own, and a successor goes on from whatever the store then holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ureplicator_common.coordination import Operation, Set, Unavailable
from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_controller.engines import plan_executor as executor
from ureplicator_testkit.control.manual_controllers import (
    PATHS,
    REBALANCE_S,
    ControllerFleet,
    ManualController,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination

TOPICS, PARTITIONS = ("t", "u"), 3
MAX_TRANSACTIONS = 60


class DyingClient(MemoryCoordination):
    """Dies instead of its next transaction when none is left to it."""

    left = MAX_TRANSACTIONS

    def transact(self, operations: Sequence[Operation]) -> None:
        if self.left == 0:
            self.expire()
            raise Unavailable("dead")
        self.left -= 1
        super().transact(operations)


class History:
    """`a` is lost and `b` is drained while `c` is live: every partition moves to `c`."""

    def __init__(self) -> None:
        self.fleet = ControllerFleet()
        self.dying = DyingClient(self.fleet.store)
        self.leader: ManualController[DyingClient] = ManualController(
            self.dying, "mortal", self.fleet.clock
        )
        self.workers = {id: self.fleet.worker(id) for id in "abc"}
        self.leader.run()
        for topic in TOPICS:
            self.fleet.topic(PARTITIONS, topic)
        self.work(self.leader)
        self.former = self.owner_epochs()
        assert self.holders() == set(self.workers)

    def work(
        self,
        leader: ManualController[DyingClient] | ManualController[MemoryCoordination],
        rounds: int = 6,
    ) -> None:
        """The workers report their assignments as copied, the leader acts on it."""
        for _ in range(rounds):
            leader.run()
            for id, client in self.workers.items():
                if self.fleet.client.get(PATHS.assignment(WorkerId(id))) is not None:
                    self.fleet.report_online(client, id)
        leader.run()

    def disturb(self) -> None:
        self.workers.pop("a").close()
        drained = KnownWorker(max_slots=2, blacklisted=True, draining=True)
        path = PATHS.worker_known(WorkerId("b"))
        self.fleet.client.transact([Set(path, encode_known_worker(drained), -1)])

    def holders(self) -> set[str]:
        return {id for id in "abc" if self.fleet.assignment_of(id).entries}

    def owner_epochs(self) -> dict[Partition, int]:
        return {
            partition: entry.owner_epoch
            for id in "abc"
            for partition, entry in self.fleet.assignment_of(id).entries.items()
        }


def test_a_successor_completes_an_interrupted_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "BATCH_OPERATIONS", 1)
    for survived in range(MAX_TRANSACTIONS):
        history = History()
        history.dying.left = survived
        history.disturb()
        history.work(history.leader)
        history.fleet.clock.advance(REBALANCE_S)
        history.work(history.leader)
        died = not history.leader.leads
        successor = history.fleet.one if died else history.leader
        history.work(successor)
        history.fleet.clock.advance(REBALANCE_S)
        history.work(successor)
        assert history.holders() == {"c"}, survived
        now = history.owner_epochs()
        assert len(now) == len(TOPICS) * PARTITIONS
        moved = [p for p, epoch in now.items() if epoch != history.former[p]]
        assert all(now[p] > history.former[p] for p in moved)
        assert successor.figure("invariant_violations_total") == 0
        if not died:
            assert survived >= 10, "the leader had many a transaction to die after"
            return
    pytest.fail("the leader never came to its end")
