"""External view: the current states of the live workers, merged by partition.

A current state whose session is not its worker's live session is left over from a former process and
is ignored. `state.mismatches` compares the view with the ideal state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.contents import CurrentEntry, CurrentState, IdealEntry
from ureplicator_common.model import Partition, Route, TopicState, WorkerId
from ureplicator_controller.core.state.snapshot import Snapshot

ExternalView = Mapping[Partition, Mapping[WorkerId, CurrentEntry]]


def reported_state(snapshot: Snapshot, worker: WorkerId) -> CurrentState | None:
    """Current state that the worker's live session wrote; None without one."""
    stored = snapshot.current.get(worker)
    if stored is None or stored.owner != snapshot.sessions.get(worker):
        return None
    return stored.value


def external_view(
    snapshot: Snapshot, before: tuple[Snapshot, ExternalView] | None = None
) -> ExternalView:
    """Partition -> worker -> the entry that it reports, for all live workers.

    `before`: an earlier snapshot and its view. Only workers whose report differs are then merged again: in
    a big fleet one of them reports several times a second.
    """
    earlier, view = before or (Snapshot(snapshot.fleet, 0), {})
    merged: dict[Partition, Mapping[WorkerId, CurrentEntry]] = dict(view)
    for worker in sorted({*earlier.current, *snapshot.current}):
        old, new = reported_state(earlier, worker), reported_state(snapshot, worker)
        if old is not new:
            _replace(merged, worker, old.entries if old else {}, new.entries if new else {})
    return merged


def _replace(
    view: dict[Partition, Mapping[WorkerId, CurrentEntry]],
    worker: WorkerId,
    old: Mapping[Partition, CurrentEntry],
    new: Mapping[Partition, CurrentEntry],
) -> None:
    """Replace what a worker reports. Views that share entries with this one keep theirs."""
    for partition in old.keys() - new.keys():
        others = {each: entry for each, entry in view[partition].items() if each != worker}
        if others:
            view[partition] = others
        else:
            del view[partition]
    for partition, entry in new.items():
        if old.get(partition) != entry:
            kept = view.get(partition)
            both = {**kept, worker: entry} if kept else {worker: entry}
            view[partition] = dict(sorted(both.items())) if kept else both


def whitelisted_partitions(snapshot: Snapshot, route: Route | None = None) -> Iterable[Partition]:
    """Partitions of all topics that are not being deleted, in order; of one route or of all."""
    for key in sorted(snapshot.topics):
        intent = snapshot.topics[key].value
        if intent.state is TopicState.DELETING or route not in (None, key.route):
            continue
        for number in range(intent.partitions):
            yield Partition(key.route, key.topic, number)


def ideal_entry(snapshot: Snapshot, partition: Partition) -> IdealEntry | None:
    """Ideal state of a partition; None if the leader has not decided on it yet."""
    stored = snapshot.ideal.get(partition.key)
    return stored.value.entries.get(partition.number) if stored else None


def is_active(snapshot: Snapshot, partition: Partition) -> bool:
    """True if operators want it copied now: neither it nor its route is paused, blacklisted or being deleted.

    A stopped topic is active, yet not copied: that counts as a mismatch.
    """
    stored = snapshot.topics.get(partition.key)
    return (
        stored is not None
        and stored.value.state is TopicState.ACTIVE
        and partition.route not in snapshot.switches.paused_routes
        and partition.key not in snapshot.blacklist
        and partition.number < stored.value.partitions
        and partition.number not in stored.value.blacklisted
    )
