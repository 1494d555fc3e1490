"""Per-partition view: intent, ideal state, assignments and current states joined by partition.

Ideal states are stored by topic, assignments and current states by worker, and a plan decides
partition by partition. So they are joined once, at the start of a plan. In a big fleet the join is most
of the plan's cost, and afterwards nothing is looked up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ureplicator_common.contents import AssignmentEntry, CurrentEntry, IdealEntry, TopicIntent
from ureplicator_common.model import Partition, PartitionState, SessionId, TopicKey, WorkerId
from ureplicator_controller.core.balance.placement import Move
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(slots=True)
class PartitionView:
    """One partition: first what the snapshot has about it, then what the plan decides.

    `assigned`: stored assignments that list it, of live and of dead workers. `reported`: current
    states that list it, written by the live session of their worker. `stale_reports`: live workers
    whose current state lists it but was written by a former session. `is_unreadable`: a relevant node
    is unreadable, so the partition is left unchanged.
    """

    partition: Partition
    key: TopicKey
    intent: TopicIntent | None
    before: IdealEntry | None
    assigned: list[tuple[WorkerId, AssignmentEntry]] = field(default_factory=list)
    reported: list[tuple[WorkerId, CurrentEntry]] = field(default_factory=list)
    stale_reports: list[WorkerId] = field(default_factory=list)
    is_unreadable: bool = False

    move: Move | None = None
    after: IdealEntry | None = None

    @property
    def owner(self) -> WorkerId | None:
        """Ideal owner before this plan."""
        return self.before.worker if self.before else None

    @property
    def holders_before(self) -> Mapping[WorkerId, SessionId]:
        """Holders before this plan."""
        return self.before.holders if self.before else {}

    def assignment_of(self, worker: WorkerId) -> AssignmentEntry | None:
        """Entry in the worker's stored assignment; None if it is not assigned."""
        for assignee, entry in self.assigned:
            if assignee == worker:
                return entry
        return None

    def is_assigned(self, worker: WorkerId, entry: IdealEntry) -> bool:
        """True if the worker's assignment has the partition under the entry's owner epoch."""
        assignment = self.assignment_of(worker)
        return assignment is not None and assignment.owner_epoch == entry.owner_epoch

    def is_reported_by(self, worker: WorkerId) -> bool:
        """True if any current state of the worker lists it, of its live session or a former one."""
        return worker in self.stale_reports or any(each == worker for each, _ in self.reported)

    def is_online(self, worker: WorkerId, entry: IdealEntry) -> bool:
        """True if the worker reports it ONLINE under the entry's owner epoch."""
        return any(
            each == worker
            and reported.state is PartitionState.ONLINE
            and reported.owner_epoch == entry.owner_epoch
            for each, reported in self.reported
        )

    def is_settled(self) -> bool:
        """Test for the usual case: assigned to its owner, which is the only holder; nothing to fence."""
        entry = self.before
        if entry is None or len(self.assigned) != 1 or len(entry.holders) != 1:
            return False
        worker, assignment = self.assigned[0]
        return (
            worker == entry.worker
            and assignment.owner_epoch == entry.owner_epoch
            and worker in entry.holders
            and not assignment.fence
        )


PartitionViews = Mapping[TopicKey, Mapping[int, PartitionView]]


def partition_views(snapshot: Snapshot) -> PartitionViews:
    """Join all partitions that appear in an intent, ideal, assignment or current node; in order."""
    join = _Join(snapshot)
    join.add_topics()
    join.add_assignments()
    join.add_current_states()
    join.add_unlisted()
    join.mark_unreadable()
    return join.by_topic


class _Join:
    """Working state of one join."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.by_topic: dict[TopicKey, dict[int, PartitionView]] = {}
        self._snapshot = snapshot
        self._found: dict[Partition, PartitionView] = {}
        self._unlisted: list[PartitionView] = []

    def add_topics(self) -> None:
        """Views of all partitions that have an intent or an ideal state."""
        found = self._found
        for key in sorted({*self._snapshot.topics, *self._snapshot.ideal}):
            intent = self._intent(key)
            ideal = self._snapshot.ideal.get(key)
            entries = ideal.value.entries if ideal else {}
            topic = self.by_topic[key] = {}
            for number in sorted({*entries, *range(intent.partitions if intent else 0)}):
                partition = Partition(key.route, key.topic, number)
                view = PartitionView(partition, key, intent, entries.get(number))
                found[partition] = topic[number] = view

    def _intent(self, key: TopicKey) -> TopicIntent | None:
        stored = self._snapshot.topics.get(key)
        return stored.value if stored else None

    def add_assignments(self) -> None:
        found = self._found
        for worker, assignment in self._snapshot.assignments.items():
            for partition, entry in assignment.value.entries.items():
                view = found.get(partition) or self._add_unlisted(partition)
                view.assigned.append((worker, entry))

    def add_current_states(self) -> None:
        found, sessions = self._found, self._snapshot.sessions
        for worker, current in self._snapshot.current.items():
            if worker not in sessions:
                continue
            is_live_session = current.owner == sessions[worker]
            for partition, entry in current.value.entries.items():
                view = found.get(partition) or self._add_unlisted(partition)
                if is_live_session:
                    view.reported.append((worker, entry))
                else:
                    view.stale_reports.append(worker)

    def _add_unlisted(self, partition: Partition) -> PartitionView:
        """View of a partition that has neither an intent nor an ideal state."""
        view = PartitionView(partition, partition.key, self._intent(partition.key), None)
        self._found[partition] = view
        self._unlisted.append(view)
        return view

    def add_unlisted(self) -> None:
        for view in sorted(self._unlisted, key=lambda view: view.partition):
            self.by_topic.setdefault(view.key, {})[view.partition.number] = view

    def mark_unreadable(self) -> None:
        snapshot = self._snapshot
        if snapshot.unreadable_topics or snapshot.unreadable_workers:
            for view in self._found.values():
                view.is_unreadable = view.key in snapshot.unreadable_topics or not _involved(
                    view
                ).isdisjoint(snapshot.unreadable_workers)


def _involved(view: PartitionView) -> set[WorkerId]:
    """Workers that own the partition, hold it or have it assigned."""
    involved = {worker for worker, _ in view.assigned} | set(view.holders_before)
    return involved | {view.owner} if view.owner is not None else involved
