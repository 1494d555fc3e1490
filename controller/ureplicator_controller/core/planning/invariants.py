"""Invariants that hold after every step, even if the leader dies then. Checked by tests and in production.

1. No partition is in two assignments, whether their workers live or not: a worker that comes back finds
   only its own partitions.
2. A worker that is assigned a partition is one of its holders: no worker copies without being fenced by
   the next owner.
3. A worker that is assigned a partition has to fence every other holder. (The slots that a holder had
   for this partition are not stored, only the most it ever had; so one id of each holder is required.)
4. No assignment has an owner epoch above that of the ideal state, and owner epochs never fall.

`check_invariants` checks a snapshot. In production an `InvariantChecker` checks each step before it is
written: a step that would violate an invariant is refused, which ends the cycle. The difference matters
where the tree was edited by hand: existing violations are reported, and the plan may repair them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.model import Partition, TopicKey, WorkerId, transactional_id
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, IdealEntry, IdealTopic
from ureplicator_controller.core.planning.steps import Retire, Step, WriteAssignment, WriteIdeal
from ureplicator_controller.core.state.by_topic import ByTopic
from ureplicator_controller.core.state.fleet_index import FleetIndex, assigned_by_topic
from ureplicator_controller.core.state.snapshot import Snapshot

WORKERS_IN_TURN = 2
"""Workers that are checked at a time: at 1,000 partitions each about ten milliseconds."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violated invariant, by its number above."""

    number: int
    partition: Partition
    reason: str

    def __str__(self) -> str:
        return f"{self.partition}: {self.reason} (invariant {self.number})"


def check_invariants(snapshot: Snapshot) -> list[Violation]:
    """Violations in a snapshot, without topics that have an unreadable node."""
    checker = InvariantChecker(snapshot)
    return [
        violation
        for worker, stored in sorted(snapshot.assignments.items())
        for violation in checker.check_assignment(worker, stored.value.entries)
    ]


class InvariantWatch:
    """Violations of one snapshot after the other: of all partitions at first, then of the topics that are not
    at rest, and of a few workers in turn.

    A partition of a topic at rest is assigned to its only holder, under its owner epoch: that violates
    nothing. The workers in turn are checked whatever the index says.
    """

    def __init__(self) -> None:
        self._is_first = True
        self._checked = WorkerId("")
        """The last worker whose turn it was."""

    def violations(self, snapshot: Snapshot, index: FleetIndex) -> list[Violation]:
        """`index`: that of the snapshot."""
        if self._is_first:
            self._is_first = False
            return check_invariants(snapshot)
        checker = InvariantChecker(snapshot, index.assigned)
        found = {
            violation: None
            for key in sorted(index.busy & index.assigned.keys())
            for number, assigned in sorted(index.assigned[key].items())
            for worker, entry in assigned.items()
            for violation in checker.check_assignment(
                worker, {Partition(key.route, key.topic, number): entry}
            )
        }
        for worker in self._next_workers(snapshot):
            entries = snapshot.assignments[worker].value.entries
            found |= dict.fromkeys(checker.check_assignment(worker, entries))
        return list(found)

    def _next_workers(self, snapshot: Snapshot) -> list[WorkerId]:
        workers = sorted(snapshot.assignments)
        begin = bisect_right(workers, self._checked)
        chosen = [*workers[begin:], *workers[:begin]][:WORKERS_IN_TURN]
        if chosen:
            self._checked = chosen[-1]
        return chosen


class InvariantChecker:
    """Ideal states and assignments, as they are after the steps admitted so far."""

    def __init__(
        self, snapshot: Snapshot, assigned: ByTopic[AssignmentEntry] | None = None
    ) -> None:
        """`assigned`: the snapshot's assignments by topic, if they are known already."""
        self._unreadable = snapshot.unreadable_topics
        self._fleet = snapshot.fleet
        self._ideal: dict[TopicKey, Mapping[int, IdealEntry]] = {
            key: stored.value.entries for key, stored in snapshot.ideal.items()
        }
        self._assignments: dict[WorkerId, Mapping[Partition, AssignmentEntry]] = {
            worker: stored.value.entries for worker, stored in snapshot.assignments.items()
        }
        self._assigned = assigned_by_topic(snapshot) if assigned is None else assigned
        self._assigned_to: dict[Partition, set[WorkerId]] = {}
        """Workers that a partition is assigned to after the steps; of those that were asked for."""

    def admit(self, step: Step) -> list[Violation]:
        """Violations that the step would cause; without any, the step counts as done."""
        match step:
            case WriteIdeal(key, ideal, _):
                return self._admit_ideal(key, ideal)
            case Retire(key, _, _, remains):
                return self._admit_ideal(key, remains or IdealTopic({}))
            case WriteAssignment(worker, assignment):
                return self._admit_assignment(worker, assignment)
            case _:
                return []

    def _assignees(self, partition: Partition) -> set[WorkerId]:
        found = self._assigned_to.get(partition)
        if found is None:
            stored = self._assigned.get(partition.key, {}).get(partition.number, {})
            found = self._assigned_to[partition] = set(stored)
        return found

    def _admit_ideal(self, key: TopicKey, ideal: IdealTopic) -> list[Violation]:
        violations = list(self._check_ideal(key, ideal))
        if not violations:
            self._ideal[key] = ideal.entries
        return violations

    def _check_ideal(self, key: TopicKey, ideal: IdealTopic) -> Iterator[Violation]:
        before = self._ideal.get(key, {})
        for number, entry in ideal.entries.items():
            old = before.get(number)
            if old is entry:
                continue
            partition = Partition(key.route, key.topic, number)
            if old is not None and entry.owner_epoch < old.owner_epoch:
                yield Violation(4, partition, f"epoch falls below {old.owner_epoch}")
            for worker in sorted(self._assignees(partition) - entry.holders.keys()):
                yield Violation(2, partition, f"{worker} is assigned it, but not a holder")
        for number in before.keys() - ideal.entries.keys():
            partition = Partition(key.route, key.topic, number)
            for worker in sorted(self._assignees(partition)):
                yield Violation(2, partition, f"{worker} is assigned it, but not a holder")

    def _admit_assignment(self, worker: WorkerId, assignment: Assignment) -> list[Violation]:
        before = self._assignments.get(worker, {})
        changed = {
            partition: entry
            for partition, entry in assignment.entries.items()
            if before.get(partition) != entry
        }
        violations = list(self.check_assignment(worker, changed))
        if not violations:
            for partition in before.keys() - assignment.entries.keys():
                self._assignees(partition).discard(worker)
            for partition in changed:
                self._assignees(partition).add(worker)
            self._assignments[worker] = assignment.entries
        return violations

    def check_assignment(
        self, worker: WorkerId, entries: Mapping[Partition, AssignmentEntry]
    ) -> Iterator[Violation]:
        """Violations of a worker's assignment, limited to these entries."""
        for partition, assigned in entries.items():
            key = partition.key
            if key in self._unreadable:
                continue
            others = sorted(self._assignees(partition) - {worker})
            if others:
                yield Violation(1, partition, f"assigned to both {worker} and {', '.join(others)}")
            ideal = self._ideal.get(key, {}).get(partition.number)
            if ideal is None or worker not in ideal.holders:
                yield Violation(2, partition, f"{worker} is assigned it, but not a holder")
                continue
            if assigned.owner_epoch > ideal.owner_epoch:
                yield Violation(4, partition, f"{worker} is assigned it under a future epoch")
            yield from self._check_fence(worker, partition, assigned, ideal)

    def _check_fence(
        self, worker: WorkerId, partition: Partition, assigned: AssignmentEntry, ideal: IdealEntry
    ) -> Iterator[Violation]:
        """Check an entry of the present owner epoch; one that is about to be revoked has fenced already."""
        if assigned.owner_epoch != ideal.owner_epoch or len(ideal.holders) == 1:
            return
        others = sorted(holder for holder in ideal.holders if holder != worker)
        for other in others:
            id = transactional_id(fleet=self._fleet, route=partition.route, worker=other, slot=0)
            if id not in assigned.fence:
                yield Violation(3, partition, f"{worker} does not fence {other}")
