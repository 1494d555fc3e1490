"""Everything that is known about one partition, side by side.

Ideal states are stored by topic, assignments and current states by worker. A plan looks at one
partition after the other, so they are joined once, at its start: the join is most of the plan's
cost in a big fleet, and after it nothing is looked up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.model import (
    AssignmentEntry,
    CurrentEntry,
    IdealEntry,
    Partition,
    PartitionState,
    TopicIntent,
    TopicKey,
    WorkerId,
)
from ureplicator_controller.core.planning.placement import Move
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(slots=True)
class PartitionView:
    """One partition. The first part are facts, the second what the plan makes of them.

    `told` are the stored assignments that list it (of live and of dead workers), `said` the current
    states that list it and come from the live session of their worker, `former` those that do not.
    `unclear`: a node that matters here cannot be read, so the case is left as it is.
    """

    partition: Partition
    key: TopicKey
    intent: TopicIntent | None
    before: IdealEntry | None
    told: list[tuple[WorkerId, AssignmentEntry]] = field(default_factory=list)
    said: list[tuple[WorkerId, CurrentEntry]] = field(default_factory=list)
    former: list[WorkerId] = field(default_factory=list)
    unclear: bool = False

    move: Move | None = None
    after: IdealEntry | None = None

    def told_to(self, worker: WorkerId) -> AssignmentEntry | None:
        for teller, entry in self.told:
            if teller == worker:
                return entry
        return None

    def is_listed_by(self, worker: WorkerId) -> bool:
        return worker in self.former or any(sayer == worker for sayer, _ in self.said)

    def is_online(self, worker: WorkerId, entry: IdealEntry) -> bool:
        """The worker says it copies the partition, under this very ideal entry."""
        return any(
            sayer == worker
            and said.state is PartitionState.ONLINE
            and said.owner_epoch == entry.owner_epoch
            for sayer, said in self.said
        )

    def is_settled(self) -> bool:
        """Only the owner was given it and is told to hold it: the usual case, nothing to mend."""
        entry = self.before
        if entry is None or len(self.told) != 1 or len(entry.holders) != 1:
            return False
        worker, told = self.told[0]
        return (
            worker == entry.worker
            and told.owner_epoch == entry.owner_epoch
            and worker in entry.holders
            and not told.fence
        )


PartitionViews = Mapping[TopicKey, Mapping[int, PartitionView]]


def partition_views(snapshot: Snapshot) -> PartitionViews:
    """All partitions that anybody wants, owns, is told to hold, or says it holds; in order."""
    found: dict[Partition, PartitionView] = {}
    by_topic: dict[TopicKey, dict[int, PartitionView]] = {}
    for key in sorted({*snapshot.topics, *snapshot.ideal}):
        by_topic[key] = _topic(snapshot, key, found)
    strays: list[PartitionView] = []
    for worker, assignment in snapshot.assignments.items():
        for partition, told in assignment.value.entries.items():
            case = found.get(partition) or _stray(snapshot, partition, found, strays)
            case.told.append((worker, told))
    for worker, current in snapshot.current.items():
        if worker not in snapshot.sessions:
            continue
        answers = current.owner == snapshot.sessions[worker]
        for partition, said in current.value.entries.items():
            case = found.get(partition) or _stray(snapshot, partition, found, strays)
            if answers:
                case.said.append((worker, said))
            else:
                case.former.append(worker)
    for case in sorted(strays, key=lambda case: case.partition):
        by_topic.setdefault(case.key, {})[case.partition.number] = case
    if snapshot.unreadable_topics or snapshot.unreadable_workers:
        _mark_unclear(snapshot, found.values())
    return by_topic


def _topic(
    snapshot: Snapshot, key: TopicKey, found: dict[Partition, PartitionView]
) -> dict[int, PartitionView]:
    stored_intent = snapshot.topics.get(key)
    intent = stored_intent.value if stored_intent else None
    stored_ideal = snapshot.ideal.get(key)
    entries = stored_ideal.value.entries if stored_ideal else {}
    topic: dict[int, PartitionView] = {}
    for number in sorted({*entries, *range(intent.partitions if intent else 0)}):
        partition = Partition(key.route, key.topic, number)
        case = PartitionView(partition, key, intent, entries.get(number))
        found[partition] = topic[number] = case
    return topic


def _stray(
    snapshot: Snapshot,
    partition: Partition,
    found: dict[Partition, PartitionView],
    strays: list[PartitionView],
) -> PartitionView:
    """A partition that nobody wants and nobody decided about."""
    key = partition.key
    stored = snapshot.topics.get(key)
    case = PartitionView(partition, key, stored.value if stored else None, None)
    found[partition] = case
    strays.append(case)
    return case


def _mark_unclear(snapshot: Snapshot, found: Iterable[PartitionView]) -> None:
    for case in found:
        involved = {worker for worker, _ in case.told}
        if case.before is not None:
            involved |= set(case.before.holders)
            involved |= {case.before.worker} if case.before.worker is not None else set()
        case.unclear = case.key in snapshot.unreadable_topics or not involved.isdisjoint(
            snapshot.unreadable_workers
        )
