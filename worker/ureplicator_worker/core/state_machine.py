"""A worker's decisions: `step(state, event) -> (state, instructions)`, without clock or I/O.

What is *wanted* comes from the assignment; what is *held* is decided here:

       OFFLINE --> STARTING --> ONLINE --> STOPPING --> OFFLINE     any --> ERROR and back by itself

(`partition` has the whole drawing and the table; `slots` the same for copiers.) OFFLINE is the
same as not held: the partition leaves the published current state, and by that word the leader may
give it to somebody else. The word is given in three cases only: no copier was ever told of the
partition, the copier itself let go of it, or the copier's process is gone.

* Remove is said once, and answered by one Released, also for what the copier had already failed;
  what the copier lets go unasked it says by Failed. Words may cross: a partition that fails while
  it is STOPPING stays so until there is that answer. So no Released is ever left over, to meet the
  next Add and be taken for its end.
* A new owner epoch without removal is Remove, Released, Add: the copier must prove the new one.
* ERROR comes back by itself. A copier may also keep a partition in ERROR and try by itself (`sent`
  stays): then there is nothing to retry here.
* A copier's end makes an ERROR of all it touched; they start again with the next run of the slot.
* Before the first Add on a route, all transactional ids of this worker there are initialised once
  (`FenceRoute`): a former process of this worker, frozen and thawed, can then commit nothing,
  whichever slots the partitions are on now. Copiers take their own ids only after an Add, so none
  of ours is hit.
* ZooKeeper is not on the data path: a session that is suspended or lost changes nothing but what is
  published. The new session publishes everything again and reads the assignment.

Each event changes little by itself; `turn` then compares wanted with held as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ureplicator_common.coordination import SessionState
from ureplicator_common.model import Partition, PartitionState
from ureplicator_worker.core import events
from ureplicator_worker.core.partition import PartitionPhase, broken
from ureplicator_worker.core.reconcile import READ_EVERY_S, Fence, Turn, WorkerState
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.lifeline.messages import PartitionReport

FENCE_RETRY_S = 1.0


def step(state: WorkerState, event: events.Event) -> tuple[WorkerState, list[events.Instruction]]:
    """Raises InvalidTransition (a programmer's error), nothing else."""
    if state.exited:
        return state, []
    turn = Turn(state)
    _HANDLERS[type(event)](turn, event)
    turn.reconcile()
    after = turn.frozen()
    check_invariants(after)
    return after, turn.instructions


def check_invariants(state: WorkerState) -> None:
    """Raises InvalidTransition; runs after every step, in production too."""
    for partition, held in state.held.items():
        slot = state.slots[held.slot]
        if held.sent and slot.phase not in (SlotPhase.RUNNING, SlotPhase.CLOSING):
            raise broken(partition, held, f"sent, but slot {held.slot} is {slot.phase.value}")
        if held.phase in (PartitionPhase.ONLINE, PartitionPhase.STOPPING) and not held.sent:
            raise broken(partition, held, f"{held.phase} without a copier")
        if held.phase is PartitionPhase.OFFLINE:
            raise broken(partition, held, "held and OFFLINE")


# What each event changes by itself; `reconcile` draws the conclusions.


def _tick(turn: Turn, event: events.Tick) -> None:
    turn.now_s = max(turn.now_s, event.now_s)
    due = turn.now_s - turn.read_at_s >= READ_EVERY_S
    if due and turn.session_state is SessionState.CONNECTED:
        turn.read_assignment()


def _assignment_changed(turn: Turn, event: events.AssignmentChanged) -> None:
    """An older version (a server that lags, after a reconnect) is not news."""
    if event.zxid != -1 and event.zxid < turn.seen_zxid:
        return
    turn.wanted = event.entries
    if event.zxid > turn.seen_zxid:
        turn.seen_zxid = event.zxid
        turn.urgent = True


def _copier_connected(turn: Turn, event: events.CopierConnected) -> None:
    slot = turn.present(event.copier)
    if slot is not None and slot.phase is SlotPhase.STARTING:
        turn.slots[slot.number] = slot.connected(turn.now_s)


def _copier_reported(turn: Turn, event: events.CopierReported) -> None:
    slot = turn.present(event.copier)
    if slot is None:
        return
    turn.slots[slot.number] = replace(slot, heard_s=turn.now_s)
    for partition, report in event.report.partitions.items():
        held = turn.held.get(partition)
        if held is None or not held.sent or held.slot != slot.number:
            continue
        if report.committed >= 0 and not held.committed:
            turn.put(partition, replace(held, committed=True))
        if slot.phase is SlotPhase.RUNNING and held.phase is not PartitionPhase.STOPPING:
            _apply_report(turn, partition, report)


_REPORTED = {
    PartitionState.ONLINE: PartitionPhase.ONLINE,
    PartitionState.OFFLINE: PartitionPhase.STARTING,
    PartitionState.ERROR: PartitionPhase.ERROR,
}


def _apply_report(turn: Turn, partition: Partition, report: PartitionReport) -> None:
    held = turn.held[partition]
    phase = _REPORTED[report.state]
    reason = report.reason if phase is not PartitionPhase.STARTING else _starting(report.reason)
    if phase is not held.phase:
        turn.move(partition, phase, reason)
    elif reason != held.reason and (phase is not PartitionPhase.STARTING or report.reason):
        turn.put(partition, replace(held, reason=reason))


def _starting(reason: str) -> str:
    return f"starting: {reason}" if reason else "starting"


def _copier_released(turn: Turn, event: events.CopierReleased) -> None:
    slot = turn.present(event.copier)
    if slot is None:
        return
    turn.slots[slot.number] = replace(slot, heard_s=turn.now_s)
    for partition in event.partitions:
        held = turn.held.get(partition)
        if held is None or not held.sent or held.slot != slot.number:
            continue
        if held.phase is not PartitionPhase.STOPPING:
            raise broken(partition, held, "released, and nobody asked for it")
        turn.put(partition, replace(held, unclean=False))
        turn.let_go(partition)


def _copier_failed(turn: Turn, event: events.CopierFailed) -> None:
    slot = turn.present(event.copier)
    held = turn.held.get(event.partition)
    if slot is None or held is None or not held.sent or held.slot != slot.number:
        return
    turn.slots[slot.number] = replace(slot, heard_s=turn.now_s)
    if held.phase is PartitionPhase.STOPPING:
        turn.put(event.partition, replace(held, reason=f"stopping: {event.reason}"))
    else:
        turn.fail(event.partition, event.reason, temporary=event.temporary)


def _copier_closed(turn: Turn, event: events.CopierClosed) -> None:
    slot = turn.present(event.copier)
    if slot is not None and slot.phase is SlotPhase.RUNNING:
        turn.close(event.copier, "copier ended: its lifeline closed")


def _copier_ended(turn: Turn, event: events.CopierEnded) -> None:
    slot = turn.present(event.copier)
    if slot is None:
        return
    for partition, held in list(turn.held.items()):
        if held.slot != slot.number:
            continue
        if held.sent:
            turn.put(partition, replace(held, unclean=True))
        if held.phase is PartitionPhase.STOPPING:
            turn.let_go(partition)
        elif held.sent or held.phase is PartitionPhase.STARTING:
            reason = f"copier ended: {event.reason}"
            turn.move(partition, PartitionPhase.ERROR, reason, sent=False, retry_at_s=turn.now_s)
    turn.slots[slot.number] = slot.ended(turn.now_s)


def _route_fenced(turn: Turn, event: events.RouteFenced) -> None:
    turn.fences[event.route] = Fence(done=True)


def _fence_failed(turn: Turn, event: events.FenceFailed) -> None:
    turn.fences[event.route] = Fence(retry_at_s=turn.now_s + FENCE_RETRY_S)
    for partition, held in list(turn.held.items()):
        waits = held.phase in (PartitionPhase.STARTING, PartitionPhase.ERROR) and not held.sent
        if partition.route == event.route and waits and held.reason != event.reason:
            turn.move(partition, PartitionPhase.ERROR, event.reason, retry_at_s=turn.now_s)


def _session_suspended(turn: Turn, event: events.SessionSuspended) -> None:
    turn.session_state = SessionState.SUSPENDED


def _session_lost(turn: Turn, event: events.SessionLost) -> None:
    turn.session_state = SessionState.LOST


def _session_restored(turn: Turn, event: events.SessionRestored) -> None:
    """Also for the same session: what was written while it was away may or may not have arrived."""
    if turn.session != event.session:
        turn.instructions.append(events.Register(event.session))
    turn.session, turn.session_state = event.session, SessionState.CONNECTED
    turn.published, turn.urgent = None, True
    turn.read_assignment()


def _drain(turn: Turn, event: events.Drain) -> None:
    until_s = turn.now_s + event.timeout_s
    turn.drain_until_s = min(until_s, turn.drain_until_s or until_s)


_HANDLERS: Mapping[type, Callable[[Turn, Any], None]] = {
    events.Tick: _tick,
    events.AssignmentChanged: _assignment_changed,
    events.CopierConnected: _copier_connected,
    events.CopierReported: _copier_reported,
    events.CopierReleased: _copier_released,
    events.CopierFailed: _copier_failed,
    events.CopierClosed: _copier_closed,
    events.CopierEnded: _copier_ended,
    events.RouteFenced: _route_fenced,
    events.FenceFailed: _fence_failed,
    events.SessionSuspended: _session_suspended,
    events.SessionLost: _session_lost,
    events.SessionRestored: _session_restored,
    events.Drain: _drain,
}
