"""Tasks: requests of operators that take a while, and how far each of them is. Pure.

    waiting --> running --> done
       |           |
       +-----------+--> cancelled, refused

A task is not stored by itself. It is what the fleet knows of a request: the moves that it caused, from the
history; a rebalance that is due; a worker that it drains. So it outlives controllers, and is forgotten with
the history.

A move counts as moved when its new owner is ONLINE, when another move has replaced it, or when a partition
that gets no owner is released. Of a drained worker the partitions are counted, too, that no move is
decided for yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ureplicator_common.model import EventKind, WorkerId
from ureplicator_common.znode_contents import PastEvent, Switches
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.reporting.event_history import past_events
from ureplicator_controller.core.reporting.events import REBALANCE_REQUESTED
from ureplicator_controller.core.state.external_view import (
    ideal_entries,
    ideal_entry,
    reported_state,
)
from ureplicator_controller.core.state.snapshot import Snapshot

REBALANCE = "rebalance"
CANCELLED = "cancelled before the leader began"


class TaskState(StrEnum):
    """State of a task, as drawn above."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Task:
    """`request`: its reference, as stored. `began_ms`: of its first event; 0: none yet. `moves`: decided so
    far, and of a drained worker those to come. `drained`: the worker, if it drains one."""

    request: str
    what: str
    state: TaskState
    began_ms: int = 0
    moves: int = 0
    moved: int = 0
    drained: WorkerId | None = None
    outcome: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in (TaskState.WAITING, TaskState.RUNNING)


def tasks(snapshot: Snapshot) -> Iterator[Task]:
    """All tasks that are remembered, the newest first, each made when it is asked for."""
    events: dict[str, list[PastEvent]] = {}
    for past in sorted(past_events(snapshot.history), key=lambda past: past.number):
        if past.request:
            events.setdefault(past.request, []).append(past)
    drains = _drains(snapshot)
    requests = dict.fromkeys([*events, *drains])
    if rebalance := snapshot.switches.rebalance_requested:
        requests.setdefault(rebalance)
    for request in reversed(requests):
        task = _task(snapshot, request, events.get(request, []), drains.get(request))
        if task is not None:
            yield task


def _drains(snapshot: Snapshot) -> Mapping[str, WorkerId]:
    """Request -> the worker that it drains."""
    return {
        known.value.request_id: worker
        for worker, known in sorted(snapshot.known.items())
        if known.value.is_drained and known.value.request_id
    }


def _task(
    snapshot: Snapshot, request: str, events: Sequence[PastEvent], drained: WorkerId | None
) -> Task | None:
    """None: the request moved nothing, and was not to."""
    moves = [past for past in events if past.kind is EventKind.MOVE]
    switches = snapshot.switches
    is_rebalance = switches.rebalance_requested == request or any(
        past.reason == REBALANCE_REQUESTED for past in events
    )
    if not (moves or drained or is_rebalance):
        return None
    moved = sum(_is_over(snapshot, past) for past in moves)
    total = len(moves) + (_owned(snapshot, drained) if drained else 0)
    state, outcome = _state(snapshot, request, is_done=moved == total)
    return Task(
        request=request,
        what=_what(moves, drained, is_rebalance=is_rebalance),
        state=state,
        began_ms=events[0].wall_ms if events else 0,
        moves=total,
        moved=moved,
        drained=drained,
        outcome=outcome,
    )


def _state(snapshot: Snapshot, request: str, *, is_done: bool) -> tuple[TaskState, str]:
    switches = snapshot.switches
    if switches.rebalance_requested == request:
        if is_rebalance_due(snapshot):
            return TaskState.WAITING, ""
        if switches.rebalance_outcome:
            return _ended(switches), switches.rebalance_outcome
    return (TaskState.DONE if is_done else TaskState.RUNNING), ""


def _ended(switches: Switches) -> TaskState:
    is_cancelled = switches.rebalance_outcome == CANCELLED
    return TaskState.CANCELLED if is_cancelled else TaskState.REFUSED


def _what(moves: Sequence[PastEvent], drained: WorkerId | None, *, is_rebalance: bool) -> str:
    if drained is not None:
        return f"drain {drained}"
    if is_rebalance:
        return REBALANCE
    partition = moves[0].partition
    assert partition is not None
    others = len({past.partition.key for past in moves if past.partition}) - 1
    return f"{partition.key}: {moves[0].reason}" + (f", {others} more topics" if others else "")


def _is_over(snapshot: Snapshot, past: PastEvent) -> bool:
    """True if nothing of the move is to come."""
    assert past.partition is not None
    entry = ideal_entry(snapshot, past.partition)
    if past.took_ms is not None or entry is None or entry.owner_epoch != past.owner_epoch:
        return True
    if past.target is not None or past.source is None:
        return False
    reported = reported_state(snapshot, past.source)
    return reported is None or past.partition not in reported.entries


def _owned(snapshot: Snapshot, worker: WorkerId) -> int:
    """Partitions whose ideal owner is the worker."""
    return sum(entry.worker == worker for entry in ideal_entries(snapshot))
