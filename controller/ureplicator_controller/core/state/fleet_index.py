"""Index of a fleet by topic, for one plan after the other: which topics are at rest, and what workers have of
the others.

A topic is at rest if a plan has nothing to do for it at any time, as long as its owners keep what they have:

    all its partitions are wanted       whitelisted, and nothing excludes any of them
    each is settled                     its ideal owner has it assigned, is its only holder, and fences nobody
    nothing is to be recorded           every position was committed once; none moved for lack of progress, or
                                        begins to fail
    nobody has any other of its partitions

And as long as no worker is eligible, a plan has nothing to do for a topic that nobody owns, holds or has
assigned, once that is the reason of its partitions.

The owners of such a topic are all that a plan needs of it. Of 100,000 partitions all but a few are at rest at
any time, and an index is made from the one before: what did not change is not looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import AssignmentEntry, CurrentEntry, IdealEntry
from ureplicator_controller.core.state.by_topic import (
    ByTopic,
    ByWorker,
    Merge,
    TopicEntries,
    TopicMemo,
)
from ureplicator_controller.core.state.exclusions import (
    Exclusions,
    exclusions_of_topics,
    partition_exclusion,
)
from ureplicator_controller.core.state.external_view import ExternalView, external_view
from ureplicator_controller.core.state.failures import begins_to_fail
from ureplicator_controller.core.state.snapshot import Snapshot

RouteWorker = tuple[Route, WorkerId]
Owners = tuple[WorkerId, ...]
"""Owners of a topic's partitions, by number; none of a topic that waits for an eligible worker."""
NO_WORKER = "no eligible worker"
_NOBODY: ByWorker[CurrentEntry] = {}


@dataclass(frozen=True, slots=True)
class FleetIndex:
    """Index of one snapshot.

    `assigned`: stored assignments, of live and of dead workers. `view`: what live sessions report. `stale`:
    live workers whose current state lists a partition but was written by a former session. `at_rest`:
    owners of the topics at rest; `unowned`: those that wait for an eligible worker; `busy`: all other
    topics that anything is stored about; `counts`: partitions at rest by route and owner. A later index of
    the same indexer leaves this one as it is.
    """

    assigned: ByTopic[AssignmentEntry] = field(default_factory=dict)
    view: ExternalView = field(default_factory=ExternalView)
    stale: Mapping[TopicKey, Mapping[int, tuple[WorkerId, ...]]] = field(default_factory=dict)
    at_rest: Mapping[TopicKey, Owners] = field(default_factory=dict)
    unowned: Set[TopicKey] = frozenset()
    busy: Set[TopicKey] = frozenset()
    counts: Mapping[RouteWorker, int] = field(default_factory=dict)


class FleetIndexer:
    """Indexes of one snapshot after the other. Not thread-safe."""

    def __init__(self) -> None:
        self._snapshot = Snapshot(fleet="", epoch=0)
        self._index = FleetIndex()
        self._memo: TopicMemo[Owners | None] = TopicMemo()
        self._exclusions: Exclusions | None = None
        self._counts: Counter[RouteWorker] = Counter()

    def of(self, snapshot: Snapshot) -> FleetIndex:
        """The index of a snapshot."""
        if snapshot is self._snapshot:
            return self._index
        assigned = assigned_by_topic(snapshot, (self._snapshot, self._index.assigned))
        view = external_view(snapshot, (self._snapshot, self._index.view))
        before, owners = self._memo.results, self._owners(snapshot, assigned, view)
        self._recount(before, owners)
        at_rest = {key: resting for key, resting in owners.items() if resting is not None}
        stale = _stale_reports(snapshot)
        busy = _busy(owners.keys(), at_rest, stale)
        unowned = {key for key, resting in at_rest.items() if not resting}
        self._index = FleetIndex(assigned, view, stale, at_rest, unowned, busy, dict(self._counts))
        self._snapshot = snapshot
        return self._index

    def _owners(
        self, snapshot: Snapshot, assigned: ByTopic[AssignmentEntry], view: ExternalView
    ) -> Mapping[TopicKey, Owners | None]:
        """Owners of the topics at rest; None for the others."""
        exclusions = exclusions_of_topics(snapshot)
        if exclusions != self._exclusions:
            self._memo.clear()
        self._exclusions = exclusions
        inputs = (snapshot.topics, snapshot.ideal, assigned, view.by_topic)
        return self._memo.update(
            inputs,
            lambda key: _owners_at_rest(snapshot, key, assigned.get(key, {}), view.topic(key)),
            topics=inputs,
        )

    def _recount(
        self,
        before: Mapping[TopicKey, Owners | None],
        after: Mapping[TopicKey, Owners | None],
    ) -> None:
        """Count what came to rest and what no longer is."""
        if not before:
            self._counts.clear()
        for key in self._memo.changed:
            old, new = before.get(key), after.get(key)
            if old is not new:
                self._counts.subtract((key.route, worker) for worker in old or ())
                self._counts.update((key.route, worker) for worker in new or ())
        self._counts = +self._counts


def assigned_by_topic(
    snapshot: Snapshot, before: tuple[Snapshot, ByTopic[AssignmentEntry]] | None = None
) -> ByTopic[AssignmentEntry]:
    """Assignments by topic. `before`: an earlier snapshot and its result."""
    earlier, found = before or (Snapshot(snapshot.fleet, 0), {})
    merge = Merge(found)
    for worker in sorted({*earlier.assignments, *snapshot.assignments}):
        old, new = earlier.assignments.get(worker), snapshot.assignments.get(worker)
        if old is not new:
            merge.replace(
                worker, old.value.entries if old else {}, new.value.entries if new else {}
            )
    return merge.merged()


def _stale_reports(snapshot: Snapshot) -> dict[TopicKey, dict[int, tuple[WorkerId, ...]]]:
    found: dict[TopicKey, dict[int, tuple[WorkerId, ...]]] = {}
    for worker, current in sorted(snapshot.current.items()):
        if snapshot.sessions.get(worker, current.owner) != current.owner:
            for partition in current.value.entries:
                topic = found.setdefault(partition.key, {})
                topic[partition.number] = (*topic.get(partition.number, ()), worker)
    return found


def _busy(
    keys: Set[TopicKey],
    at_rest: Mapping[TopicKey, Owners],
    stale: Mapping[TopicKey, Mapping[int, tuple[WorkerId, ...]]],
) -> Set[TopicKey]:
    """Topics that are not at rest, or of which a stale report lists a partition that is not whitelisted."""
    unlisted = {
        key
        for key, topic in stale.items()
        if not all(number < len(at_rest.get(key, ())) for number in topic)
    }
    return (keys - at_rest.keys()) | unlisted


def _owners_at_rest(
    snapshot: Snapshot,
    key: TopicKey,
    assigned: TopicEntries[AssignmentEntry],
    reported: TopicEntries[CurrentEntry],
) -> Owners | None:
    """Owners of a topic that is at rest; None if it is not. Needs nothing that `TopicMemo` does not see."""
    intent, ideal = snapshot.topics.get(key), snapshot.ideal.get(key)
    if intent is None or ideal is None:
        return None
    entries, numbers = ideal.value.entries, range(intent.value.partitions)
    listed = frozenset(numbers)
    if entries.keys() != listed:
        return None
    waits = not assigned and not reported and all(map(_waits_for_worker, entries.values()))
    is_kept = (
        assigned.keys() == listed
        and reported.keys() <= listed <= intent.value.had_position
        and all(
            _is_at_rest(entries[number], assigned[number], reported.get(number, _NOBODY))
            for number in numbers
        )
    )
    if not (waits or is_kept) or any(
        partition_exclusion(snapshot, Partition(key.route, key.topic, number)) for number in numbers
    ):
        return None
    owners = (entries[number].worker for number in numbers)
    return tuple(owner for owner in owners if owner is not None)


def _waits_for_worker(entry: IdealEntry) -> bool:
    """True if nobody owns or holds a partition, and the reason says already that no worker is eligible."""
    return entry.worker is None and not entry.holders and entry.reason.endswith(f"; {NO_WORKER}")


def _is_at_rest(
    entry: IdealEntry, assigned: ByWorker[AssignmentEntry], reported: ByWorker[CurrentEntry]
) -> bool:
    """True if a partition is settled, has not moved for lack of progress and does not begin to fail."""
    if entry.no_progress_moves or entry.suspect_session or begins_to_fail(entry, reported):
        return False
    return is_settled(entry, assigned)


def is_settled(entry: IdealEntry, assigned: ByWorker[AssignmentEntry]) -> bool:
    """True if a partition is assigned to its owner alone, which is its only holder; nothing to fence."""
    if len(assigned) != 1 or len(entry.holders) != 1 or entry.worker not in entry.holders:
        return False
    found = assigned.get(entry.worker) if entry.worker is not None else None
    return found is not None and found.owner_epoch == entry.owner_epoch and not found.fence
