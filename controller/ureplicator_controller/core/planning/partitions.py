"""Per-partition view: intent, ideal state, assignments and current states joined by partition.

Ideal states are stored by topic, assignments and current states by worker, and a plan decides
partition by partition. `state.fleet_index` joins them. A plan opens views of the topics that it decides on:
usually of those that are not at rest, and of all where the shares of workers change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.model import Partition, PartitionState, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import AssignmentEntry, CurrentEntry, IdealEntry, TopicIntent
from ureplicator_controller.core.balance.placement import Move
from ureplicator_controller.core.state.by_topic import ByWorker
from ureplicator_controller.core.state.fleet_index import (
    FleetIndex,
    FleetIndexer,
    RouteWorker,
    is_settled,
)
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
    assigned: ByWorker[AssignmentEntry]
    reported: ByWorker[CurrentEntry]
    stale_reports: Sequence[WorkerId]
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
        return self.assigned.get(worker)

    def is_assigned(self, worker: WorkerId, entry: IdealEntry) -> bool:
        """True if the worker's assignment has the partition under the entry's owner epoch."""
        assignment = self.assignment_of(worker)
        return assignment is not None and assignment.owner_epoch == entry.owner_epoch

    def is_reported_by(self, worker: WorkerId) -> bool:
        """True if any current state of the worker lists it, of its live session or a former one."""
        return worker in self.stale_reports or worker in self.reported

    def is_online(self, worker: WorkerId, entry: IdealEntry) -> bool:
        """True if the worker reports it ONLINE under the entry's owner epoch."""
        reported = self.reported.get(worker)
        return (
            reported is not None
            and reported.state is PartitionState.ONLINE
            and reported.owner_epoch == entry.owner_epoch
        )

    def is_settled(self) -> bool:
        """Test for the usual case: assigned to its owner, which is the only holder; nothing to fence."""
        return self.before is not None and is_settled(self.before, self.assigned)


TopicViews = dict[int, PartitionView]


class PartitionViews:
    """Views of topics that are not at rest, and of others once they are opened. `by_topic` is in order.

    `counts`: partitions of all other topics by route and owner.
    """

    def __init__(self, snapshot: Snapshot, index: FleetIndex | None = None) -> None:
        """Join the facts. Without an index, all topics are opened."""
        self.by_topic: dict[TopicKey, TopicViews] = {}
        self.counts: Counter[RouteWorker] = Counter()
        self._snapshot = snapshot
        self._index = index or FleetIndexer().of(snapshot)
        if index is None:
            self._add({*self._index.busy, *self._index.at_rest})
        else:
            self.counts.update(index.counts)
            self._add(index.busy)
            self.open(snapshot.unreadable_topics)

    def open(self, keys: Iterable[TopicKey]) -> list[PartitionView]:
        """Add the views of those of these topics that are at rest; return them."""
        at_rest = self._index.at_rest
        added = [key for key in keys if key in at_rest and key not in self.by_topic]
        for key in added:
            self.counts.subtract((key.route, worker) for worker in at_rest[key])
        self._add(added)
        return [view for key in added for view in self.by_topic[key].values()]

    def open_all(self) -> list[PartitionView]:
        """Add the views of all topics at rest; return them."""
        return self.open(self._index.at_rest)

    def open_unowned(self) -> list[PartitionView]:
        """Add the views of topics that wait for an eligible worker; return them."""
        return self.open(self._index.unowned)

    def open_owned(self, by: Callable[[RouteWorker], bool]) -> list[PartitionView]:
        """Add the views of topics at rest of which one of these workers owns a partition; return them."""
        pairs = {pair for pair in self.counts if by(pair)}
        owned = (
            key
            for key, owners in self._index.at_rest.items()
            if pairs and any((key.route, worker) in pairs for worker in owners)
        )
        return self.open(list(owned))

    def owned_at_rest(self) -> dict[WorkerId, list[Partition]]:
        """Partitions of the topics that are not opened, by owner."""
        closed = self._index.at_rest.keys() - self.by_topic.keys()
        return {
            worker: [partition for partition in stored.value.entries if partition.key in closed]
            for worker, stored in self._snapshot.assignments.items()
        }

    def each(self) -> Iterator[PartitionView]:
        """All views, in order."""
        return (view for topic in self.by_topic.values() for view in topic.values())

    def _add(self, keys: Collection[TopicKey]) -> None:
        found = {key: self._topic(key) for key in keys}
        if found:
            listed = (self._snapshot.topics.keys(), self._snapshot.ideal.keys())
            both = {**self.by_topic, **found}
            self.by_topic = {
                key: both[key]
                for key in sorted(both)
                if both[key] or any(key in known for known in listed)
            }

    def _topic(self, key: TopicKey) -> TopicViews:
        """Views of the partitions that appear in an intent, ideal, assignment or current node; in order."""
        snapshot, index = self._snapshot, self._index
        intent, ideal = snapshot.topics.get(key), snapshot.ideal.get(key)
        entries = ideal.value.entries if ideal else {}
        assigned, reported = index.assigned.get(key, {}), index.view.topic(key)
        stale = index.stale.get(key, {})
        listed = range(intent.value.partitions if intent else 0)
        views = {
            number: PartitionView(
                Partition(key.route, key.topic, number),
                key,
                intent.value if intent else None,
                entries.get(number),
                assigned.get(number, {}),
                reported.get(number, {}),
                stale.get(number, ()),
            )
            for number in sorted({*listed, *entries, *assigned, *reported, *stale})
        }
        if snapshot.unreadable_topics or snapshot.unreadable_workers:
            for view in views.values():
                view.is_unreadable = key in snapshot.unreadable_topics or not _involved(
                    view
                ).isdisjoint(snapshot.unreadable_workers)
        return views


def _involved(view: PartitionView) -> set[WorkerId]:
    """Workers that own the partition, hold it or have it assigned."""
    involved = {*view.assigned, *view.holders_before}
    return involved | {view.owner} if view.owner is not None else involved
