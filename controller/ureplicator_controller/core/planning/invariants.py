"""What must hold after every step, whoever dies then. Checked by tests and in production.

1. No partition is in two assignments, whether their workers live or not: one that comes back finds
   only what is its own.
2. Whoever is told to hold a partition is one of its holders: nobody copies unknown to the fence.
3. Whoever is told to hold a partition is told to fence every other holder. (With how many slots a
   holder was given it is not written down, only the most it ever had; so one id each is asked for.)
4. Nobody is told an owner epoch above that of the ideal state, and owner epochs never fall.

`check_invariants` judges a snapshot. In production a `InvariantChecker` judges each step before it is
written: a step that would break what holds is refused, which ends the cycle. The difference
matters where the tree was edited by hand: what is broken already is told, and the plan may mend
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.model import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    Partition,
    TopicKey,
    WorkerId,
    transactional_id,
)
from ureplicator_controller.core.planning.steps import Retire, Step, WriteAssignment, WriteIdeal
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant, by its number above."""

    number: int
    partition: Partition
    why: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.why} (invariant {self.number})"


def check_invariants(snapshot: Snapshot) -> list[Violation]:
    """All that is broken in a snapshot; what cannot be read is not judged."""
    ledger = InvariantChecker(snapshot)
    return [
        violation
        for worker, stored in sorted(snapshot.assignments.items())
        for violation in ledger.check_assignment(worker, stored.value.entries)
    ]


class InvariantChecker:
    """Ideal states and assignments as they are after the steps admitted so far."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._unclear = snapshot.unreadable_topics
        self._fleet = snapshot.fleet
        self._ideal: dict[TopicKey, Mapping[int, IdealEntry]] = {
            key: stored.value.entries for key, stored in snapshot.ideal.items()
        }
        self._assignments: dict[WorkerId, Mapping[Partition, AssignmentEntry]] = {
            worker: stored.value.entries for worker, stored in snapshot.assignments.items()
        }
        self._told: dict[Partition, set[WorkerId]] = {}
        for worker, entries in self._assignments.items():
            for partition in entries:
                self._told.setdefault(partition, set()).add(worker)

    def admit(self, step: Step) -> list[Violation]:
        """What the step would break; if nothing, it is booked as done."""
        match step:
            case WriteIdeal(key, ideal, _):
                return self._admit_ideal(key, ideal)
            case Retire(key, _, _, remains):
                return self._admit_ideal(key, remains or IdealTopic({}))
            case WriteAssignment(worker, assignment):
                return self._admit_assignment(worker, assignment)
            case _:
                return []

    def _admit_ideal(self, key: TopicKey, ideal: IdealTopic) -> list[Violation]:
        broken = list(self._check_ideal(key, ideal))
        if not broken:
            self._ideal[key] = ideal.entries
        return broken

    def _check_ideal(self, key: TopicKey, ideal: IdealTopic) -> Iterator[Violation]:
        before = self._ideal.get(key, {})
        for number, entry in ideal.entries.items():
            old = before.get(number)
            if old is entry:
                continue
            partition = Partition(key.route, key.topic, number)
            if old is not None and entry.owner_epoch < old.owner_epoch:
                yield Violation(4, partition, f"epoch falls below {old.owner_epoch}")
            for worker in sorted(self._told.get(partition, set()) - entry.holders.keys()):
                yield Violation(2, partition, f"{worker} is told to hold it, but forgotten")
        for number in before.keys() - ideal.entries.keys():
            partition = Partition(key.route, key.topic, number)
            for worker in sorted(self._told.get(partition, set())):
                yield Violation(2, partition, f"{worker} is told to hold it, but forgotten")

    def _admit_assignment(self, worker: WorkerId, assignment: Assignment) -> list[Violation]:
        before = self._assignments.get(worker, {})
        changed = {
            partition: entry
            for partition, entry in assignment.entries.items()
            if before.get(partition) != entry
        }
        broken = list(self.check_assignment(worker, changed))
        if not broken:
            for partition in before.keys() - assignment.entries.keys():
                self._told[partition].discard(worker)
            for partition in changed:
                self._told.setdefault(partition, set()).add(worker)
            self._assignments[worker] = assignment.entries
        return broken

    def check_assignment(
        self, worker: WorkerId, entries: Mapping[Partition, AssignmentEntry]
    ) -> Iterator[Violation]:
        """What is wrong with telling a worker these."""
        for partition, told in entries.items():
            key = partition.key
            if key in self._unclear:
                continue
            others = sorted(self._told.get(partition, set()) - {worker})
            if others:
                yield Violation(1, partition, f"both {worker} and {', '.join(others)} are told it")
            ideal = self._ideal.get(key, {}).get(partition.number)
            if ideal is None or worker not in ideal.holders:
                yield Violation(2, partition, f"{worker} is told it, but is not a holder")
                continue
            if told.owner_epoch > ideal.owner_epoch:
                yield Violation(4, partition, f"{worker} is told an epoch of the future")
            yield from self._check_fence(worker, partition, told, ideal)

    def _check_fence(
        self, worker: WorkerId, partition: Partition, told: AssignmentEntry, ideal: IdealEntry
    ) -> Iterator[Violation]:
        """Only of the entry that counts: one that is about to be taken fences whom it had to."""
        if told.owner_epoch != ideal.owner_epoch or len(ideal.holders) == 1:
            return
        others = sorted(holder for holder in ideal.holders if holder != worker)
        for other in others:
            id = transactional_id(fleet=self._fleet, route=partition.route, worker=other, slot=0)
            if id not in told.fence:
                yield Violation(3, partition, f"{worker} does not fence {other}")
