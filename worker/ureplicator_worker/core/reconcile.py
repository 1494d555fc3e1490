"""Reconcile step: the assignment compared with what is held, as a whole.

It runs after every event, for the partitions that the event concerns (`WorkerState.to_visit`): those
that were written, those that are assigned otherwise, and at each tick those that no copier was sent.
For any other partition it has no instruction, since nothing has changed. Parts run in this order: give
up what is not assigned, hold what is, see to the copiers and their slots, fence, send what waits to
copiers that run, publish.

A new owner epoch without a removal is Remove, Released, Add: the copier must prove the new epoch.
"""

from __future__ import annotations

from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_worker.core import (
    capacity,
    copiers,
    draining,
    fencing,
    held_partitions,
    publishing,
)
from ureplicator_worker.core.instructions import Instruction, ToCopier
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state import WorkerState
from ureplicator_worker.lifeline.messages import Add, CopierId, Remove


def reconcile(state: WorkerState) -> list[Instruction]:
    """Instructions that bring what is held closer to the assignment."""
    draining.drain_if_left(state)
    instructions = draining.stop_copiers(state)
    instructions += remove_unassigned(state)
    hold_assigned(state)
    instructions += copiers.start_and_watch(state)
    copiers.move_stranded(state)
    instructions += copiers.balance_slots(state)
    instructions += capacity.announce_if_changed(state)
    instructions += fencing.fence_due(state)
    instructions += add_waiting(state)
    instructions += draining.exit_if_drained(state)
    instructions += publishing.publish_if_due(state)
    return instructions


def remove_unassigned(state: WorkerState) -> list[Instruction]:
    """Release what no copier was sent, remove the rest from its copier."""
    removed: dict[CopierId, list[Partition]] = {}
    for partition in list(state.to_visit):
        held = state.held.get(partition)
        if held is None or _is_assigned(state, partition, held):
            continue
        if not held.sent:
            if not fencing.is_in_doubt(state, held.slot, partition.route):
                held_partitions.release(state, partition)
        elif held.phase is not PartitionPhase.STOPPING:
            reason = f"stopping: {_why_removed(state, partition)}"
            held_partitions.enter(state, partition, PartitionPhase.STOPPING, reason)
            slot = state.slots[held.slot]
            if slot.phase is SlotPhase.RUNNING:
                removed.setdefault(slot.copier, []).append(partition)
    return [ToCopier(copier, Remove(tuple(removed[copier]))) for copier in removed]


def _is_assigned(state: WorkerState, partition: Partition, held: HeldPartition) -> bool:
    """True if it is still assigned, under the owner epoch that it is held with."""
    entry = state.assigned.get(partition)
    return entry is not None and entry.owner_epoch == held.owner_epoch


def _why_removed(state: WorkerState, partition: Partition) -> str:
    if state.drain:
        return "the worker stops"
    entry = state.assigned.get(partition)
    return "not assigned any more" if entry is None else f"owner epoch is {entry.owner_epoch} now"


def hold_assigned(state: WorkerState) -> None:
    """Hold what is assigned and not held yet, each partition in a slot."""
    assigned = state.assigned
    missing = sorted(p for p in state.to_visit if p in assigned and p not in state.held)
    if not missing:
        return
    counts, without_copier = held_partitions.counts_per_slot(state), capacity.late_slots(state)
    for partition in missing:
        epoch = assigned[partition].owner_epoch
        held_partitions.hold(state, partition, epoch, counts, without_copier)


def add_waiting(state: WorkerState) -> list[Instruction]:
    """Send waiting partitions to running copiers, once their route is fenced."""
    fences: list[Instruction] = []
    added: dict[CopierId, dict[Partition, OwnerEpoch]] = {}
    for partition in list(state.to_visit):
        held = state.held.get(partition)
        if held is None or not _can_be_sent(state, held):
            continue
        if fencing.is_in_doubt(state, held.slot, partition.route):
            continue
        if not fencing.is_fenced(state, partition.route):
            fences += fencing.fence_if_due(state, partition.route)
            continue
        if held.phase is PartitionPhase.ERROR and not held.failure:
            reason = f"starting again after: {held.reason}"
            held_partitions.enter(state, partition, PartitionPhase.STARTING, reason)
        held_partitions.mark_sent(state, partition)
        added.setdefault(state.slots[held.slot].copier, {})[partition] = held.owner_epoch
    for copier in added:
        copiers.note_sent(state, copier)
    return [*fences, *(ToCopier(copier, Add(added[copier])) for copier in added)]


def _can_be_sent(state: WorkerState, held: HeldPartition) -> bool:
    if held.sent or state.slots[held.slot].phase is not SlotPhase.RUNNING:
        return False
    return held.phase is not PartitionPhase.ERROR or held.retry_at_s <= state.now_s
