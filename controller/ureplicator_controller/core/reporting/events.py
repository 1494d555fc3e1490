"""What an on-call person asks after an incident: who led, who came and went, what was switched, what
moved, and at whose word.

    chronicle(before, now, steps) -> events      `before` is what was told of last, None: a new leader

A move names the request that it goes back to, which is found by what the move did rather than by
its reason's wording: a partition taken from a worker that operators empty goes back to who emptied
it; one that got its first owner, or lost its owner for good, to the last request about its topic;
any other, while a rebalance is due, to who asked for that. What the fleet did by itself goes back
to nobody.

Nothing happens here but comparing two snapshots, so what a leader did not see, it does not tell: a
worker that came and went between two looks, or a switch while nobody led. The first event of each
leadership says how it found the fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ureplicator_common.model import EventKind, KnownWorker, PastEvent, Switches, WorkerId
from ureplicator_controller.core.planning.eviction import NOT_EVICTED
from ureplicator_controller.core.planning.steps import Evict, Step
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.reporting.owner_changes import OwnerChange, owner_changes
from ureplicator_controller.core.state.external_view import (
    is_active,
)
from ureplicator_controller.core.state.snapshot import Snapshot


def fleet_events(
    before: Snapshot | None, now: Snapshot, steps: Sequence[Step], *, leader: str
) -> list[PastEvent]:
    """In the order in which people want to read it; not numbered yet."""
    changes = (
        [_leads(now, leader)]
        if before is None
        else [*_workers(before, now), *_switched(before, now)]
    )
    return [*changes, *_evicted(now, steps), *_moved(now, steps)]


def log_line(event: PastEvent) -> str:
    """For the log: the id first, so that one word finds it in every log."""
    by = f" (request {event.request})" if event.request else ""
    if event.kind is EventKind.MOVE:
        return f"move {event.id}: {event.source} -> {event.target}: {event.reason}{by}"
    return f"{event.kind} {event.worker}: {event.reason}{by}" if event.worker else event.reason + by


def _event(
    now: Snapshot,
    kind: EventKind,
    reason: str,
    *,
    worker: WorkerId | None = None,
    request: str = "",
) -> PastEvent:
    return PastEvent(0, kind, reason, now.wall_ms, request=request, worker=worker)


def _leads(now: Snapshot, leader: str) -> PastEvent:
    switches = now.switches
    state = (
        "frozen"
        if switches.frozen
        else "balancing"
        if switches.auto_balancing
        else "auto-balancing off"
    )
    found = f"{len(now.sessions)} workers, {len(now.topics)} topics, {state}"
    return _event(now, EventKind.LEADER, f"{leader} leads with epoch {now.epoch}: {found}")


def _workers(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for worker in sorted({*before.sessions, *now.sessions, *before.known, *now.known}):
        was, known = (_known(seen, worker) for seen in (before, now))
        why = _came_or_went(before, now, worker, evicted=known.evicted_session != NOT_EVICTED)
        if why:
            yield _event(now, EventKind.WORKER, why, worker=worker)
        leaving = known.draining or known.blacklisted
        if leaving != (was.draining or was.blacklisted):
            why = "emptied, and given nothing more" if leaving else "takes part again"
            yield _event(now, EventKind.WORKER, why, worker=worker, request=known.request_id)


def _known(seen: Snapshot, worker: WorkerId) -> KnownWorker:
    stored = seen.known.get(worker)
    return stored.value if stored else KnownWorker(max_slots=0)


def _came_or_went(before: Snapshot, now: Snapshot, worker: WorkerId, *, evicted: bool) -> str:
    was, session = before.sessions.get(worker), now.sessions.get(worker)
    if was == session:
        return ""
    if session is None:
        return "" if evicted else "gone"
    if was is not None:
        return "restarted: its session is another one"
    return "back" if worker in before.absent_since else "joined"


def _switched(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for what in _differences(before.switches, now.switches):
        yield _event(now, EventKind.SWITCH, what, request=now.switches.request_id)


def _differences(before: Switches, now: Switches) -> Iterator[str]:
    if before.auto_balancing != now.auto_balancing:
        yield f"auto-balancing switched {'on' if now.auto_balancing else 'off'}"
    if before.frozen != now.frozen:
        yield "frozen" if now.frozen else "no longer frozen"
    if before.rebalance_asked != now.rebalance_asked:
        yield "rebalance asked for"


def _evicted(now: Snapshot, steps: Sequence[Step]) -> Iterator[PastEvent]:
    for step in steps:
        if isinstance(step, Evict):
            why = f"evicted: it did not let go within {now.delays.handover_s:g} s"
            yield _event(now, EventKind.WORKER, why, worker=step.worker)


def _moved(now: Snapshot, steps: Sequence[Step]) -> Iterator[PastEvent]:
    for moved in owner_changes(now, steps):
        yield PastEvent(
            0,
            EventKind.MOVE,
            moved.reason,
            now.wall_ms,
            request=_asked_by(now, moved),
            partition=moved.partition,
            source=moved.source,
            target=moved.target,
            owner_epoch=moved.owner_epoch,
        )


def _asked_by(now: Snapshot, moved: OwnerChange) -> str:
    """Id of the request that a move goes back to."""
    if moved.source is None or not is_active(now, moved.partition):
        intent = now.topics.get(moved.partition.key)
        return intent.value.request_id if intent else ""
    source = _known(now, moved.source)
    if source.draining or source.blacklisted:
        return source.request_id
    return now.switches.rebalance_asked if is_rebalance_due(now) else ""
