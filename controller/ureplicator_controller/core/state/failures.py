"""Partitions that fail at each try, by what their owners report, and since when.

The time of the first failure is in the ideal state: it outlives moves, restarts and leaders. A new owner is
ONLINE until its first try fails, so the time is removed only once the position has moved there
(`planning.no_progress`). A partition that loses its owner (paused, or its position changed) begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from ureplicator_common.model import Partition
from ureplicator_common.znode_contents import CurrentEntry, Failing, IdealEntry
from ureplicator_controller.core.state.by_topic import ByWorker
from ureplicator_controller.core.state.snapshot import Snapshot


def failing_at(entry: IdealEntry | None, reported: ByWorker[CurrentEntry]) -> Failing:
    """The failure that the owner reports."""
    found = reported.get(entry.worker) if entry is not None and entry.worker is not None else None
    return Failing.NO if found is None else found.failing


def begins_to_fail(entry: IdealEntry | None, reported: ByWorker[CurrentEntry]) -> bool:
    """True if a failure is not recorded yet."""
    return (
        entry is not None
        and not entry.failing_since_ms
        and failing_at(entry, reported) is not Failing.NO
    )


def failing_partitions(snapshot: Snapshot) -> Set[Partition]:
    """Partitions that their workers report as failing."""
    return {partition for partition, _ in _failing(snapshot)}


def failing_anywhere(snapshot: Snapshot) -> Set[Partition]:
    """Partitions of them that fail on every worker."""
    return {partition for partition, failing in _failing(snapshot) if failing is Failing.ANYWHERE}


def _failing(snapshot: Snapshot) -> Iterator[tuple[Partition, Failing]]:
    for worker, stored in snapshot.current.items():
        if stored.owner == snapshot.sessions.get(worker):
            for partition, entry in stored.value.entries.items():
                if entry.failing is not Failing.NO:
                    yield partition, entry.failing
