"""One tile per partition: the grid that shows the external view against the ideal state.

| state    | meaning |
|----------|---------|
| agree    | copied by its ideal worker, and by no other |
| moving   | ideal state and external view differ, and the reason says what it waits for |
| excluded | paused, blacklisted or waiting for a position that was requested; no worker has it |
| stuck    | it makes no progress (`planning.no_progress`), the leader leaves it alone, or its target harms |
| error    | a worker reports ERROR, or its topic is stopped |

A partition in several states is shown in the worst one, which is the last of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ureplicator_common.model import Partition, PartitionState, TopicKey, WorkerId
from ureplicator_controller.core.planning.no_progress import partitions_without_progress
from ureplicator_controller.core.state.exclusions import excluded_partitions
from ureplicator_controller.core.state.external_view import (
    ExternalView,
    ideal_entry,
    whitelisted_partitions,
)
from ureplicator_controller.core.state.mismatches import Mismatch, mismatches
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies


class TileState(StrEnum):
    """States in the order of their weight."""

    AGREE = "agree"
    MOVING = "moving"
    EXCLUDED = "excluded"
    STUCK = "stuck"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of one partition.

    `worker`: the ideal one, or without it the one that still has the partition. `reason` is "" and
    `since_ms` 0 if the state is agree; `since_ms` is that of the mismatch (wall clock).
    """

    partition: Partition
    state: TileState
    worker: WorkerId | None
    reason: str = ""
    since_ms: int = 0
    actual: Mapping[WorkerId, PartitionState] | None = None


def tiles(snapshot: Snapshot, view: ExternalView, tallies: Tallies) -> list[Tile]:
    """Tiles of all whitelisted partitions, in order, and of those that workers still hold."""
    differing = {mismatch.partition: mismatch for mismatch in mismatches(snapshot, view, tallies)}
    excluded = _excluded(snapshot)
    stalled = {
        stuck.partition: (stuck.reason, stuck.since_ms)
        for stuck in partitions_without_progress(snapshot, view)
    }
    every = dict.fromkeys(whitelisted_partitions(snapshot))
    every |= dict.fromkeys(differing)
    return [
        _tile(
            snapshot,
            view,
            partition,
            differing.get(partition),
            excluded.get(partition),
            stalled.get(partition),
        )
        for partition in sorted(every)
    ]


def counts_by_state(found: Iterable[Tile]) -> dict[TileState, int]:
    """Tiles of each state, 0 included."""
    counts = dict.fromkeys(TileState, 0)
    for tile in found:
        counts[tile.state] += 1
    return counts


def _excluded(snapshot: Snapshot) -> dict[Partition, tuple[TileState, str]]:
    found = {}
    for excluded in excluded_partitions(snapshot):
        state = TileState.ERROR if excluded.state == "stopped" else TileState.EXCLUDED
        for number in excluded.partitions:
            found[Partition(excluded.key.route, excluded.key.topic, number)] = (
                state,
                excluded.reason,
            )
    return found


def _tile(
    snapshot: Snapshot,
    view: ExternalView,
    partition: Partition,
    differing: Mismatch | None,
    excluded: tuple[TileState, str] | None,
    stalled: tuple[str, int] | None,
) -> Tile:
    entry = ideal_entry(snapshot, partition)
    actual = {worker: current.state for worker, current in view.of(partition).items()}
    worker = (entry.worker if entry else None) or min(actual, default=None)
    found = [(TileState.AGREE, "", 0)]
    if differing is not None:
        found.append((_state_of(snapshot, differing), differing.reason, differing.since_ms))
    if excluded is not None and (not actual or excluded[0] is TileState.ERROR):
        found.append((*excluded, entry.since_ms if entry else 0))
    if stalled is not None:
        found.append((TileState.STUCK, *stalled))
    state, reason, since_ms = max(found, key=lambda each: _WEIGHTS[each[0]])
    return Tile(partition, state, worker, reason, since_ms, actual)


def _state_of(snapshot: Snapshot, differing: Mismatch) -> TileState:
    if PartitionState.ERROR in differing.actual.values():
        return TileState.ERROR
    return TileState.STUCK if _is_left_alone(snapshot, differing) else TileState.MOVING


def _is_left_alone(snapshot: Snapshot, differing: Mismatch) -> bool:
    """True if no step of the leader makes the partition agree before operators repair something."""
    key: TopicKey = differing.partition.key
    involved = {*differing.ideal, *differing.actual}
    return (
        differing.is_copied
        or key in snapshot.unreadable_topics
        or not involved.isdisjoint(snapshot.unreadable_workers)
        or any(subject.what in (str(key), *involved) for subject in snapshot.isolated)
    )


_WEIGHTS = {state: weight for weight, state in enumerate(TileState)}
