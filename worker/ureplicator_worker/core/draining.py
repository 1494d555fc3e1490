"""The end of a worker: all partitions released within a time limit, then Exit.

Running copiers are stopped: each drains, commits and releases. After the limit what is left is killed,
and after another `KILL_TIMEOUT_S` the worker exits in any case.

    runs --(leave)--> leaving --(holds nothing, or too late)--> draining --> Exit
      |                                                            ^
      +------------------------(stop)------------------------------+

A worker that leaves says so in its live node, and goes on copying. The leader moves its partitions to others
at once, one by one: each is drained, committed and released before another worker gets it, so nothing is
repeated. A worker that only stops keeps its share until the rebalance delay ends. The only writer of `leave`,
`drain` and `exited`.
"""

from __future__ import annotations

from dataclasses import replace

from ureplicator_worker.core import copiers, held_partitions, publishing
from ureplicator_worker.core.events import LeaveRequested
from ureplicator_worker.core.instructions import AnnounceLeaving, Exit, Instruction, KillCopier
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state import Drain, Leave, WorkerState

KILL_TIMEOUT_S = 5.0
"""Time for killed processes to be gone."""


LEAVE_SETTLE_S = 2.0
"""A worker that leaves waits at least so long: the leader may have assigned a partition just before it saw
that the worker leaves."""


def leave(state: WorkerState, event: LeaveRequested) -> list[Instruction]:
    """Begin to leave, once, unless the worker stops already."""
    if state.leave is not None or state.drain is not None:
        return []
    state.leave = Leave(state.now_s, state.now_s + event.timeout_s, event.drain_s)
    return [AnnounceLeaving()]


def drain_if_left(state: WorkerState) -> None:
    """Drain when the leader has moved everything elsewhere, or when that takes too long."""
    leaving = state.leave
    if leaving is None or state.drain is not None:
        return
    has_left = not state.held and not state.assignment.entries
    if state.now_s >= leaving.until_s or (
        has_left and state.now_s >= leaving.since_s + LEAVE_SETTLE_S
    ):
        request(state, leaving.drain_s)


def request(state: WorkerState, timeout_s: float) -> None:
    """A second request may shorten the first, not prolong it."""
    until_s = state.now_s + timeout_s
    drain = state.drain or Drain(until_s)
    state.drain = replace(drain, until_s=min(until_s, drain.until_s))
    held_partitions.visit(state, state.held)


def stop_copiers(state: WorkerState) -> list[Instruction]:
    """Stop copiers while draining; kill, once, those that are late."""
    if state.drain is None:
        return []
    closing = [slot.copier for slot in state.slots if slot.phase is SlotPhase.CLOSING]
    instructions = copiers.stop_all(state)
    if state.now_s >= state.drain.until_s and not state.drain.killed:
        state.drain = replace(state.drain, killed=True, late=bool(state.held))
        instructions += [KillCopier(copier, "not drained in time") for copier in closing]
    return instructions


def exit_if_drained(state: WorkerState) -> list[Instruction]:
    """Exit when nothing is held and no copier runs, or when that takes too long."""
    if state.drain is None:
        return []
    late = state.drain.late
    if not state.held and all(slot.phase is SlotPhase.IDLE for slot in state.slots):
        return _exit(state, int(late), "not drained in time" if late else "drained")
    if state.now_s >= state.drain.until_s + KILL_TIMEOUT_S:
        return _exit(state, 1, "copiers did not end")
    return []


def _exit(state: WorkerState, code: int, reason: str) -> list[Instruction]:
    state.exited = True
    publishing.publish_now(state)
    return [*publishing.publish_if_due(state), Exit(code, reason)]
