r"""Vetting of a plan before it is written: each step is encoded, and the invariants must admit it.

    plan -> vet -> all admitted                     -> written
             |  \-> some refused -> isolate -> plan again, on a snapshot that leaves them alone
             +-- after MAX_ROUNDS: only the steps before the first refused one are written

A step is refused if a node would be too big, or if it would violate an invariant. What it is about is
isolated: its topic or its worker is treated as if its node were unreadable, so the next plan changes
nothing of it and decides nothing that depends on it. Everything else goes on. Nothing is remembered:
each cycle tries again, and a cause that an operator removes is gone with the next cycle. For operators the
leader writes to `isolated` what it left alone in its last cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ureplicator_common.coordination import Operation
from ureplicator_common.model import Partition, TopicKey, WorkerId
from ureplicator_common.znode_contents import AssignmentEntry, IsolatedSubject
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.planning.invariants import InvariantChecker, Violation
from ureplicator_controller.core.planning.plan import Plan
from ureplicator_controller.core.planning.steps import (
    Evict,
    ForgetWorker,
    MarkPositions,
    RegisterWorker,
    Retire,
    Step,
    WriteAssignment,
    WriteIdeal,
    WriteShares,
    WriteSwitches,
    operations,
)
from ureplicator_controller.core.state.by_topic import ByTopic
from ureplicator_controller.core.state.snapshot import Snapshot

MAX_ROUNDS = 8
"""Plans of one cycle. One isolates all that is refused; more are needed if that shows others."""


MAX_SUBJECTS = 200
MAX_REASON = 500
"""Bounds of the node `isolated`: subjects, and characters of each reason."""


@dataclass(frozen=True, slots=True)
class Isolated:
    """Subject of a refused step. Neither topics nor workers: no other step depends on it."""

    reason: str
    topics: frozenset[TopicKey] = frozenset()
    workers: frozenset[WorkerId] = frozenset()
    violations: int = 0

    def __str__(self) -> str:
        names = ", ".join((*map(str, sorted(self.topics)), *sorted(self.workers)))
        return f"{names or 'no topic'}: {self.reason}"


def subjects(isolated: Sequence[Isolated]) -> tuple[IsolatedSubject, ...]:
    """Content of the node `isolated`."""
    found: dict[str, str] = {}
    for subject in isolated:
        names = (*map("topic {}".format, subject.topics), *map("worker {}".format, subject.workers))
        for name in names or ("step",):
            found.setdefault(name, subject.reason)
    bounded = islice(sorted(found.items()), MAX_SUBJECTS)
    return tuple(IsolatedSubject(what, reason[:MAX_REASON]) for what, reason in bounded)


@dataclass(frozen=True, slots=True)
class VettedSteps:
    """Admitted steps before the first refused one, each with its operations."""

    steps: tuple[Step, ...] = ()
    operations: tuple[tuple[Operation, ...], ...] = ()
    refused: tuple[Isolated, ...] = ()


@dataclass(frozen=True, slots=True)
class VettedPlan:
    """The plan to be written, and what it leaves alone since a step for it was refused."""

    plan: Plan
    vetted: VettedSteps
    isolated: tuple[Isolated, ...] = ()


def vetted_plan(
    snapshot: Snapshot,
    *,
    plan: Callable[[Snapshot], Plan],
    paths: Paths,
    assigned: ByTopic[AssignmentEntry] | None = None,
) -> VettedPlan:
    """Plan until every step is admitted, each time around what was refused before.

    `assigned`: the snapshot's assignments by topic, if they are known already.
    """
    around = snapshot
    isolated: list[Isolated] = []
    for _ in range(MAX_ROUNDS):
        decided = plan(around)
        vetted = vet(decided.steps, snapshot, paths, assigned)
        isolated += vetted.refused
        before, around = around, _without(around, vetted.refused)
        if before is around:
            break
    return VettedPlan(decided, vetted, tuple(isolated))


def vet(
    steps: Sequence[Step],
    snapshot: Snapshot,
    paths: Paths,
    assigned: ByTopic[AssignmentEntry] | None = None,
) -> VettedSteps:
    """Encode the steps and ask the invariants; steps that nothing depends on may be left out."""
    if not steps:
        return VettedSteps()
    vetting = _Vetting(snapshot, paths, InvariantChecker(snapshot, assigned))
    for step in steps:
        vetting.vet(step)
    return VettedSteps(tuple(vetting.steps), tuple(vetting.operations), tuple(vetting.refused))


class _Vetting:
    """Working state of one vetting."""

    def __init__(self, snapshot: Snapshot, paths: Paths, checker: InvariantChecker) -> None:
        self.steps: list[Step] = []
        self.operations: list[tuple[Operation, ...]] = []
        self.refused: list[Isolated] = []
        self._snapshot = snapshot
        self._paths = paths
        self._checker = checker
        self._is_cut = False

    def vet(self, step: Step) -> None:
        try:
            encoded = operations(step, self._paths)
        except ValueError as error:
            self._refuse(_too_big(step, str(error), self._snapshot))
            return
        violations = self._checker.admit(step)
        if violations:
            self._refuse(self._violating(violations))
        elif not self._is_cut:
            self.steps.append(step)
            self.operations.append(encoded)

    def _refuse(self, refused: Isolated) -> None:
        self.refused.append(refused)
        self._is_cut = self._is_cut or bool(refused.topics or refused.workers)

    def _violating(self, violations: Sequence[Violation]) -> Isolated:
        """Violations of topics that are refused already are their consequence, and do not count."""
        known = {key for isolated in self.refused for key in isolated.topics}
        own = [violation for violation in violations if violation.partition.key not in known]
        return Isolated(
            f"invariant violated: {(own or violations)[0]}",
            topics=frozenset(violation.partition.key for violation in violations),
            violations=len(own),
        )


def _too_big(step: Step, reason: str, snapshot: Snapshot) -> Isolated:
    """Subject to isolate if a node of this step cannot be written."""
    match step:
        case WriteIdeal() | MarkPositions() | Retire():
            return Isolated(reason, topics=frozenset({step.key}))
        case WriteAssignment():
            topics = _biggest_additions(step, snapshot)
            workers = frozenset() if topics else frozenset({step.worker})
            return Isolated(reason, topics=topics, workers=workers)
        case RegisterWorker() | Evict() | ForgetWorker():
            return Isolated(reason, workers=frozenset({step.worker}))
        case WriteShares() | WriteSwitches():
            return Isolated(f"{type(step).__name__}: {reason}")


def _biggest_additions(step: WriteAssignment, snapshot: Snapshot) -> frozenset[TopicKey]:
    """Topics of the new entries with the most ids to fence: only these make an assignment too big."""
    stored = snapshot.assignments.get(step.worker)
    before = stored.value.entries if stored else {}
    added: dict[Partition, AssignmentEntry] = {
        partition: entry
        for partition, entry in step.assignment.entries.items()
        if before.get(partition) != entry
    }
    most = max((len(entry.fence) for entry in added.values()), default=0)
    return frozenset(
        partition.key for partition, entry in added.items() if len(entry.fence) == most
    )


def _without(snapshot: Snapshot, refused: Sequence[Isolated]) -> Snapshot:
    topics = frozenset(key for subject in refused for key in subject.topics)
    workers = frozenset(worker for subject in refused for worker in subject.workers)
    if topics <= snapshot.unreadable_topics and workers <= snapshot.unreadable_workers:
        return snapshot
    return replace(
        snapshot,
        unreadable_topics=snapshot.unreadable_topics | topics,
        unreadable_workers=snapshot.unreadable_workers | workers,
    )
