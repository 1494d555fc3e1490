"""Decisions of a worker: `step(state, event) -> (state, instructions)`, without clock or I/O.

    event --> apply: the little that it changes by itself  --> reconcile: assignment against held
              (session, copiers, fencing, draining)            (instructions, for the engines)

The assignment says what should be held; what *is* held is decided here, for each partition:

       OFFLINE --> STARTING --> ONLINE --> STOPPING --> OFFLINE     any --> ERROR, retried by itself

(`partition` has the whole drawing and the table, `slots` the same for copiers.) OFFLINE is the same as
not held: the partition leaves the published current state, and the leader may then assign it to another
worker. So it goes OFFLINE only when no copier touches it (see `held_partitions`). A copier may also
keep a partition in ERROR and retry by itself (`sent` stays): then nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ureplicator_common.model import Partition
from ureplicator_worker.core import (
    capacity,
    copiers,
    draining,
    events,
    fencing,
    held_partitions,
    session,
)
from ureplicator_worker.core.events import Event
from ureplicator_worker.core.instructions import Instruction
from ureplicator_worker.core.partition_phases import PartitionPhase, invalid
from ureplicator_worker.core.reconcile import reconcile
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state import WorkerState


def step(before: WorkerState, event: Event) -> tuple[WorkerState, list[Instruction]]:
    """Raises InvalidTransition (a programming error), nothing else."""
    if before.exited:
        return before, []
    state = before.copy()
    instructions = apply(state, event)
    instructions += reconcile(state)
    check_invariants(state, state.to_visit)
    return state, instructions


def apply(state: WorkerState, event: Event) -> list[Instruction]:
    """Apply what the event changes by itself; `reconcile` draws the conclusions."""
    match event:
        case events.Tick(now_s):
            state.now_s = max(state.now_s, now_s)
            held_partitions.visit_unsent(state, state.held)
            return session.read_if_due(state)
        case events.AssignmentChanged():
            session.change_assignment(state, event)
        case events.CopierConnected(copier):
            copiers.connected(state, copier)
        case events.CopierPlaced():
            copiers.placed(state, event)
        case events.FromCopier(copier, notice):
            return copiers.received(state, copier, notice)
        case events.CopierClosed(copier):
            copiers.closed(state, copier)
        case events.CopierEnded():
            copiers.ended(state, event)
        case events.CapacityChanged(missing):
            capacity.change(state, missing)
        case events.CopierLost():
            copiers.lost(state, event)
        case events.Fenced(route, slot):
            fencing.fenced(state, route, slot)
        case events.FenceFailed():
            fencing.failed(state, event)
        case events.SessionSuspended():
            session.suspend(state)
        case events.SessionLost():
            session.lose(state)
        case events.SessionRestored(id):
            return session.restore(state, id)
        case events.LeaveRequested():
            return draining.leave(state, event)
        case events.DrainRequested(timeout_s):
            draining.request(state, timeout_s)
        case _:
            assert_never(event)
    return []


def check_invariants(state: WorkerState, partitions: Iterable[Partition]) -> None:
    """Raises InvalidTransition; runs after every step, in production too."""
    for partition in partitions:
        held = state.held.get(partition)
        if held is None:
            continue
        slot = state.slots[held.slot]
        if held.sent and slot.phase not in (SlotPhase.RUNNING, SlotPhase.CLOSING):
            raise invalid(partition, held, f"sent, but slot {held.slot} is {slot.phase.value}")
        if held.phase in (PartitionPhase.ONLINE, PartitionPhase.STOPPING) and not held.sent:
            raise invalid(partition, held, f"{held.phase} without a copier")
        if held.phase is PartitionPhase.OFFLINE:
            raise invalid(partition, held, "held and OFFLINE")
