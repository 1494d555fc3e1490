"""Events of the fleet: leaders, workers, switches, positions, audits, gaps and moves, each with the request
that caused it.

    fleet_events(before, now, steps) -> events      `before`: last snapshot logged, None: a new leader

A move has the id of the request that caused it. The request is found by what moved, not by the wording
of the reason: a move from a drained worker was caused by the request that drained it; a partition that
got its first owner, or lost its owner for good, by the last request about its topic; one whose route was
paused or resumed, by the last request about the switches; one that lost its owner for a change of its
position, by the request for that; any other move, while a rebalance is due, by the request for the
rebalance. Automatic moves have no request.

Events are differences between two snapshots. What no leader observed is not logged: a worker that came
and went between two snapshots, or a switch while there was no leader. The first event of each leadership
describes the fleet as the leader found it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ureplicator_common.model import EventKind, OwnerEpoch, Partition, WorkerId
from ureplicator_common.znode_contents import CHANGED, PastEvent, PositionChange, Switches
from ureplicator_controller.core.planning.eviction import NOT_EVICTED
from ureplicator_controller.core.planning.membership import (
    announces_leaving,
    known_worker,
    lacks_capacity,
)
from ureplicator_controller.core.planning.owner_changes import OwnerChange, owner_changes
from ureplicator_controller.core.planning.steps import Evict, Step
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.reporting.audit_events import audit_events
from ureplicator_controller.core.reporting.authorship import cause
from ureplicator_controller.core.reporting.cutover_events import cutover_events
from ureplicator_controller.core.reporting.gap_events import gap_events
from ureplicator_controller.core.state.exclusions import ROUTE_PAUSED, ROUTE_RESUMED
from ureplicator_controller.core.state.external_view import ideal_entry, is_active
from ureplicator_controller.core.state.mass_loss import lost_workers, mass_loss
from ureplicator_controller.core.state.snapshot import Snapshot

REBALANCE_REQUESTED = "rebalance requested"


def fleet_events(
    before: Snapshot | None, now: Snapshot, steps: Sequence[Step], *, leader: str
) -> list[PastEvent]:
    """Events since `before`, in reading order: changes of the fleet, evictions, moves; unnumbered."""
    changes = (
        [_leader_event(now, leader)]
        if before is None
        else [
            *_worker_events(before, now),
            *_switch_events(before, now),
            *_position_events(before, now),
            *audit_events(before, now),
            *cutover_events(before, now),
        ]
    )
    moves = _move_events(now, steps)
    changes += _brake_events(before, now)
    gaps = gap_events(before, now, changes)
    return [*changes, *gaps, *_eviction_events(now, steps), *moves]


def log_line(event: PastEvent) -> str:
    """Log line of an event, with its id, so that one search finds it in the logs of all processes."""
    by = cause(event.request)
    if event.kind is EventKind.GAP:
        offsets = f"{event.first_offset} -> {event.next_offset}"
        return f"gap {event.id}: went on at another offset, {offsets}: {event.reason}"
    if event.kind is EventKind.MOVE:
        return f"move {event.id}: {event.source} -> {event.target}: {event.reason}{by}"
    about = f"{event.kind} {event.worker}" if event.worker else event.partition
    return f"{about}: {event.reason}{by}" if about else event.reason + by


def _event(
    now: Snapshot,
    kind: EventKind,
    reason: str,
    *,
    worker: WorkerId | None = None,
    request: str = "",
) -> PastEvent:
    return PastEvent(0, kind, reason, now.wall_ms, request=request, worker=worker)


def _leader_event(now: Snapshot, leader: str) -> PastEvent:
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


def _worker_events(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for worker in sorted({*before.sessions, *now.sessions, *before.known, *now.known}):
        known = known_worker(now, worker)
        is_evicted = known.evicted_session != NOT_EVICTED
        change = _session_change(before, now, worker, is_evicted=is_evicted)
        if change:
            yield _event(now, EventKind.WORKER, change, worker=worker)
        if worker in before.sessions and worker in now.sessions:
            yield from _capacity_events(before, now, worker)
        if announces_leaving(now, worker) and not announces_leaving(before, worker):
            yield _event(now, EventKind.WORKER, "leaves: its partitions move", worker=worker)
        if known.is_drained != known_worker(before, worker).is_drained:
            change = "drained: gets no partitions" if known.is_drained else "eligible again"
            yield _event(now, EventKind.WORKER, change, worker=worker, request=known.request_id)


def _capacity_events(before: Snapshot, now: Snapshot, worker: WorkerId) -> Iterator[PastEvent]:
    if lacks_capacity(now, worker) and not lacks_capacity(before, worker):
        reason = f"has no capacity: {now.live[worker].value.no_capacity}"
        yield _event(now, EventKind.WORKER, reason, worker=worker)
    if lacks_capacity(before, worker) and not lacks_capacity(now, worker):
        yield _event(now, EventKind.WORKER, "has capacity again", worker=worker)


def _session_change(before: Snapshot, now: Snapshot, worker: WorkerId, *, is_evicted: bool) -> str:
    """Change of a worker's session; "" if there is none. An eviction is an event of its own."""
    former, session = before.sessions.get(worker), now.sessions.get(worker)
    if former == session:
        return ""
    if session is None:
        return "" if is_evicted else "gone"
    if former is not None:
        return "restarted: it has another session"
    return "back" if worker in before.absent_since else "joined"


def _switch_events(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for what in _switch_changes(before.switches, now.switches):
        yield _event(now, EventKind.SWITCH, what, request=now.switches.request_id)
    ended = now.switches.rebalance_done != before.switches.rebalance_done
    if ended and now.switches.rebalance_outcome:
        why = f"rebalance not carried out: {now.switches.rebalance_outcome}"
        yield _event(now, EventKind.SWITCH, why, request=now.switches.rebalance_done)


def _switch_changes(before: Switches, now: Switches) -> Iterator[str]:
    if before.auto_balancing != now.auto_balancing:
        yield f"auto-balancing switched {'on' if now.auto_balancing else 'off'}"
    if before.frozen != now.frozen:
        yield "frozen" if now.frozen else "no longer frozen"
    for route in sorted(now.paused_routes - before.paused_routes):
        yield f"route {route} paused"
    for route in sorted(before.paused_routes - now.paused_routes):
        yield f"route {route} resumed"
    for limited in sorted(before.limits.keys() | now.limits.keys()):
        rate = now.limits.get(limited)
        if rate != before.limits.get(limited):
            limit = "removed" if rate is None else f"set to {rate} bytes/s"
            yield f"byte limit of {limited.kind} {limited.name} {limit}"
    for route in sorted(before.route_settings.keys() | now.route_settings.keys()):
        text = now.route_settings.get(route, "")
        if text != before.route_settings.get(route, ""):
            yield f"settings of route {route} changed: {text or 'those of the file count again'}"
    if before.rebalance_requested != now.rebalance_requested:
        yield REBALANCE_REQUESTED


def _brake_events(before: Snapshot | None, now: Snapshot) -> Iterator[PastEvent]:
    """Start and end of the brake on mass loss."""
    if now.is_braked and not (before is not None and before.is_braked):
        yield _event(now, EventKind.SWITCH, f"brake held: {mass_loss(now)}")
    if before is not None and before.is_braked and not now.is_braked:
        lost = lost_workers(now)
        is_confirmed = bool(lost & now.switches.confirmed_lost)
        why = "operators confirmed the loss" if is_confirmed else "enough workers are back"
        request = now.switches.request_id if is_confirmed else ""
        yield _event(now, EventKind.SWITCH, f"brake released: {why}", request=request)


def _position_events(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    """Outcomes of requested positions."""
    for key, stored in now.topics.items():
        if not stored.value.positions or stored is before.topics.get(key):
            continue
        known = before.topics[key].value.positions if key in before.topics else {}
        for number, change in sorted(stored.value.positions.items()):
            if not change.is_pending and change != known.get(number):
                yield _position_event(now, Partition(key.route, key.topic, number), change)


def _position_event(now: Snapshot, partition: Partition, change: PositionChange) -> PastEvent:
    entry = ideal_entry(now, partition)
    return PastEvent(
        0,
        EventKind.POSITION,
        describe_change(change),
        now.wall_ms,
        request=change.request,
        partition=partition,
        owner_epoch=entry.owner_epoch if entry else OwnerEpoch(0),
    )


def describe_change(change: PositionChange) -> str:
    """`position set from 50 to 10`."""
    done = change.outcome == CHANGED
    before = "none" if change.replaced < 0 else str(change.replaced)
    is_set = change.offset >= 0
    what = f"set from {before} to {change.offset}" if is_set else f"forgotten, was {before}"
    return f"position {what}" if done else f"position not {what}: {change.outcome}"


def _eviction_events(now: Snapshot, steps: Sequence[Step]) -> Iterator[PastEvent]:
    for step in steps:
        if isinstance(step, Evict):
            why = f"evicted: did not release a partition within {now.delays.handover_s:g} s"
            yield _event(now, EventKind.WORKER, why, worker=step.worker)


def _move_events(now: Snapshot, steps: Sequence[Step]) -> Iterator[PastEvent]:
    for moved in owner_changes(now, steps):
        yield PastEvent(
            0,
            EventKind.MOVE,
            moved.reason,
            now.wall_ms,
            request=_request_of(now, moved),
            partition=moved.partition,
            source=moved.source,
            target=moved.target,
            owner_epoch=moved.owner_epoch,
        )


def _pending_change(now: Snapshot, partition: Partition) -> PositionChange | None:
    stored = now.topics.get(partition.key)
    change = stored.value.positions.get(partition.number) if stored else None
    return change if change is not None and change.is_pending else None


def _request_of(now: Snapshot, moved: OwnerChange) -> str:
    """Id of the request that caused a move; "" for an automatic move."""
    change = _pending_change(now, moved.partition)
    if change is not None and moved.target is None:
        return change.request
    if moved.reason in (ROUTE_PAUSED, ROUTE_RESUMED):
        return now.switches.request_id
    if moved.source is None or not is_active(now, moved.partition):
        intent = now.topics.get(moved.partition.key)
        return intent.value.request_id if intent else ""
    source = known_worker(now, moved.source)
    if source.is_drained:
        return source.request_id
    return now.switches.rebalance_requested if is_rebalance_due(now) else ""
