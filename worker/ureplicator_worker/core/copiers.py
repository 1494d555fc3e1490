"""Life of the copiers, and what each of their messages changes; the only writer of `slots`.

* A copier whose lifeline closed may still drain and commit: what it was sent stays held, as ERROR,
  until its process is gone, or fenced where it cannot be seen. A copier that dies makes an ERROR of all
  it touched; these partitions start again with the next run of the same slot.
* A copier whose process or executor is to end is stopped over its lifeline: it drains and commits, and
  what it releases starts again at once, in another slot or with the next run of its own. One that has
  not connected yet is killed instead: it was sent nothing.
* A copier that has partitions and sends nothing for `silence_s` is killed, and so is one that does not
  end `END_TIMEOUT_S` after its lifeline closed.
* Remove is sent once and has one Released as its response, also for what the copier had failed already;
  what the copier releases without a Remove is a Failed. Messages may cross: a partition that fails
  while it is STOPPING stays so until that response. So no Released is ever left over, to arrive after
  the next Add and be taken for its end.
* Slots that stay uneven, as after one of them had no core for long, are balanced by such Removes: what is
  released while it is assigned starts again at once, in the slot with the fewest partitions. No record is
  repeated, but each move interrupts a partition, so they are few at a time, and none for a short unevenness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from ureplicator_common.model import Partition, PartitionState
from ureplicator_worker.core import capacity, fencing, held_partitions
from ureplicator_worker.core.events import CopierEnded, CopierLost, CopierPlaced
from ureplicator_worker.core.instructions import Instruction, KillCopier, StartCopier, ToCopier
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase, invalid
from ureplicator_worker.core.slots import STEADY_S, Slot, SlotPhase, surplus
from ureplicator_worker.core.state import Balance, WorkerState
from ureplicator_worker.lifeline.messages import (
    CopierId,
    CopierReport,
    Failed,
    GapPassed,
    Notice,
    PartitionReport,
    Released,
    Remove,
    Stop,
    StopRequest,
)

END_TIMEOUT_S = 60.0
"""A copier whose lifeline closed drains for 15 s, then waits for its threads, some 30 s with both
clusters unreachable. One that is still there is killed, and again after as long: it may be frozen."""
BALANCE_EVERY_S = 10.0
"""Slots that are uneven at two such moments in a row are balanced: the leader's own moves end sooner."""
MOVED_AT_ONCE = 4
MOVED_AT_ONCE_SHARE = 0.05
"""Share of all partitions of the worker; the larger of both limits counts."""

_REPORTED = {
    PartitionState.ONLINE: PartitionPhase.ONLINE,
    PartitionState.OFFLINE: PartitionPhase.STARTING,
    PartitionState.ERROR: PartitionPhase.ERROR,
}


# Messages of copiers.


def connected(state: WorkerState, copier: CopierId) -> None:
    slot = _slot_of(state, copier)
    if slot is not None and slot.phase is SlotPhase.STARTING:
        state.slots[slot.number] = slot.connected(state.now_s)
        held_partitions.visit_unsent(state, state.held)  # also those of stranded slots


def placed(state: WorkerState, event: CopierPlaced) -> None:
    slot = _slot_of(state, event.copier)
    if slot is not None:
        state.slots[slot.number] = replace(slot, executor=event.executor)


def received(state: WorkerState, copier: CopierId, notice: Notice) -> list[Instruction]:
    """Raises InvalidTransition for a partition released that the copier was not sent a Remove for."""
    slot = _slot_of(state, copier)
    if slot is None:
        return []
    slot = _note_message(state, slot)
    match notice:
        case CopierReport(partitions):
            _reported(state, slot, partitions)
        case Released(partitions):
            _released(state, slot, partitions)
        case Failed():
            _failed(state, slot, notice)
        case GapPassed(partition, gap):
            if _sent(state, slot, partition) is not None:
                held_partitions.set_gap(state, partition, gap)
        case StopRequest(reason):
            return _stop(state, slot, reason)
        case _:
            assert_never(notice)
    return []


def _reported(
    state: WorkerState, slot: Slot, partitions: Mapping[Partition, PartitionReport]
) -> None:
    for partition, report in partitions.items():
        held = _sent(state, slot, partition)
        if held is None:
            continue
        if report.committed >= 0 and not held.committed:
            held_partitions.mark_committed(state, partition)
        if slot.phase is SlotPhase.RUNNING and held.phase is not PartitionPhase.STOPPING:
            _apply_report(state, partition, report)


def _apply_report(state: WorkerState, partition: Partition, report: PartitionReport) -> None:
    if state.held[partition].failure:
        held_partitions.note_retry(state, partition, report)
    held = state.held[partition]
    phase = _REPORTED[report.state]
    reason = report.reason
    if held.failure and phase is not PartitionPhase.ERROR:
        phase, reason = PartitionPhase.ERROR, held.failure
    if phase is PartitionPhase.STARTING:
        reason = f"starting: {reason}" if reason else "starting"
    if phase is not held.phase:
        held_partitions.enter(state, partition, phase, reason)
    elif reason != held.reason and (phase is not PartitionPhase.STARTING or report.reason):
        held_partitions.set_reason(state, partition, reason)


def _released(state: WorkerState, slot: Slot, partitions: Iterable[Partition]) -> None:
    for partition in partitions:
        held = _sent(state, slot, partition)
        if held is None:
            continue
        if held.phase is not PartitionPhase.STOPPING:
            raise invalid(partition, held, "released without a Remove")
        held_partitions.mark_clean(state, partition)
        held_partitions.release(state, partition)


def _failed(state: WorkerState, slot: Slot, failure: Failed) -> None:
    held = _sent(state, slot, failure.partition)
    if held is None:
        return
    if held.phase is PartitionPhase.STOPPING:
        held_partitions.set_reason(state, failure.partition, f"stopping: {failure.reason}")
    else:
        held_partitions.fail(state, failure)


def _stop(state: WorkerState, slot: Slot, reason: str) -> list[Instruction]:
    """Stop it while its slot's partitions stay assigned: they start again with the next run, elsewhere."""
    if slot.phase is SlotPhase.CLOSING:
        return []
    state.slots[slot.number] = slot.enter(SlotPhase.CLOSING, state.now_s)
    if slot.phase is SlotPhase.STARTING:
        return [KillCopier(slot.copier, reason)]
    for partition in held_partitions.sent_to(state, slot.copier):
        if state.held[partition].phase is not PartitionPhase.STOPPING:
            held_partitions.enter(state, partition, PartitionPhase.STOPPING, f"stopping: {reason}")
    return [ToCopier(slot.copier, Stop())]


# Ends of copiers.


def closed(state: WorkerState, copier: CopierId) -> None:
    """The lifeline closed."""
    slot = _slot_of(state, copier)
    if slot is not None and slot.phase is SlotPhase.RUNNING:
        _close(state, slot, "copier ended: its lifeline closed")


def lost(state: WorkerState, event: CopierLost) -> None:
    """The process cannot be seen: what it was sent stays held until it is fenced."""
    slot = _slot_of(state, event.copier)
    if slot is not None:
        sent = held_partitions.sent_to(state, event.copier)
        fencing.doubt(state, slot.number, {partition.route for partition in sent})
        ended(state, CopierEnded(event.copier, event.reason))


def ended(state: WorkerState, event: CopierEnded) -> None:
    """The process is gone, or what it was sent is in doubt."""
    slot = _slot_of(state, event.copier)
    if slot is None:
        return
    partitions = held_partitions.in_slot(state, slot.number)
    held_partitions.visit(state, partitions)
    for partition in partitions:
        held = state.held[partition]
        if held.sent:
            held_partitions.mark_unclean(state, partition)
        in_doubt = fencing.is_in_doubt(state, slot.number, partition.route)
        if held.phase is PartitionPhase.STOPPING and not in_doubt:
            held_partitions.release(state, partition)
        elif held.sent or held.phase is PartitionPhase.STARTING:
            held_partitions.interrupt(state, partition, f"copier ended: {event.reason}")
    state.slots[slot.number] = slot.ended(state.now_s, event.reason)


def _close(state: WorkerState, slot: Slot, reason: str) -> None:
    """No message reaches the copier any more; what it was sent stays held until its process is gone."""
    state.slots[slot.number] = slot.enter(SlotPhase.CLOSING, state.now_s)
    for partition in held_partitions.sent_to(state, slot.copier):
        if state.held[partition].phase is not PartitionPhase.STOPPING:
            held_partitions.enter(state, partition, PartitionPhase.ERROR, reason)


# Starts, stops and timeouts.


def start_and_watch(state: WorkerState) -> list[Instruction]:
    """Start copiers of idle slots, kill those that exceed a timeout."""
    return [instruction for slot in list(state.slots) for instruction in _watch(state, slot)]


def _watch(state: WorkerState, slot: Slot) -> list[Instruction]:
    since_s = state.now_s - slot.since_s
    match slot.phase:
        case SlotPhase.IDLE:
            _explain(state, slot, capacity.reason_not_started(state, slot))
            due = not state.drain and slot.start_at_s <= state.now_s
            return _start(state, slot) if due else []
        case SlotPhase.STARTING:
            _explain(state, slot, capacity.reason_not_started(state, slot))
            return []
        case SlotPhase.RUNNING:
            return _kill_if_silent(state, slot)
        case SlotPhase.CLOSING:
            if since_s < END_TIMEOUT_S:
                return []
            state.slots[slot.number] = slot.enter(SlotPhase.CLOSING, state.now_s)
            return [KillCopier(slot.copier, f"not ended after {END_TIMEOUT_S:.0f} s")]


def _start(state: WorkerState, slot: Slot) -> list[Instruction]:
    started = state.slots[slot.number] = slot.started(state.now_s)
    waiting = tuple(sorted(held_partitions.in_slot(state, slot.number)))
    return [StartCopier(started.copier, waiting)]


def _explain(state: WorkerState, slot: Slot, reason: str) -> None:
    """Have the slot's partitions say why they have no copier, whatever interrupted them before."""
    for partition in held_partitions.in_slot(state, slot.number) if reason else ():
        if state.held[partition].reason != reason:
            held_partitions.interrupt(state, partition, reason)


def move_stranded(state: WorkerState) -> None:
    """Move partitions of slots that have no copier for long to slots that have one.

    What a former copier of the slot may still commit is fenced first, as for a copier that is lost.
    """
    stranded = capacity.stranded_slots(state)
    if not stranded:
        return
    counts = held_partitions.counts_per_slot(state)
    without_copier = {s.number for s in state.slots if s.phase is not SlotPhase.RUNNING}
    for partition in list(state.to_visit):  # a tick visits all that no copier was sent
        held = state.held.get(partition)
        if held is None or held.slot not in stranded:
            continue
        if fencing.is_in_doubt(state, held.slot, partition.route):
            continue
        if held.unclean:
            fencing.doubt(state, held.slot, [partition.route])
        else:
            held_partitions.change_slot(state, partition, counts, without_copier)


def balance_slots(state: WorkerState) -> list[Instruction]:
    """Have slots that stay fuller than others release some of their partitions."""
    if state.now_s - state.balance.checked_s < BALANCE_EVERY_S:
        return []
    leaving = _surplus(state) if _is_calm(state) else {}
    is_due = state.balance.uneven
    state.balance = Balance(state.now_s, uneven=bool(leaving))
    moved = leaving if is_due else {}
    return [
        instruction for n in moved for instruction in _make_leave(state, state.slots[n], moved[n])
    ]


def _is_calm(state: WorkerState) -> bool:
    """Nothing else moves, and what a slot releases finds a copier in any other slot."""
    if not state.session.connected:
        return False
    late = capacity.late_slots(state)
    if not all(slot.number in late or slot.ran_s(state.now_s) >= STEADY_S for slot in state.slots):
        return False
    return not any(held.phase is PartitionPhase.STOPPING for held in state.held.values())


def _surplus(state: WorkerState) -> Mapping[int, int]:
    running = [slot.number for slot in state.slots if slot.phase is SlotPhase.RUNNING]
    counts = held_partitions.counts_per_slot(state)
    limit = max(MOVED_AT_ONCE, int(len(state.held) * MOVED_AT_ONCE_SHARE))
    return surplus({number: counts[number] for number in running}, limit)


def _make_leave(state: WorkerState, slot: Slot, many: int) -> list[Instruction]:
    """Release partitions, only those that are copied: others gain nothing by another slot."""
    sent = held_partitions.sent_to(state, slot.copier)
    leaving = sorted(p for p in sent if state.held[p].phase is PartitionPhase.ONLINE)[:many]
    for partition in leaving:
        reason = "stopping: it moves to a slot with fewer partitions"
        held_partitions.enter(state, partition, PartitionPhase.STOPPING, reason)
    return [ToCopier(slot.copier, Remove(tuple(leaving)))] if leaving else []


def _kill_if_silent(state: WorkerState, slot: Slot) -> list[Instruction]:
    silent_s = state.now_s - slot.last_message_s
    if silent_s <= state.silence_s or not held_partitions.sent_to(state, slot.copier):
        return []
    reason = f"copier silent for {silent_s:.0f} s"
    _close(state, slot, reason)
    return [KillCopier(slot.copier, reason)]


def stop_all(state: WorkerState) -> list[Instruction]:
    """Stop the running copiers, kill those that have not connected yet."""
    instructions: list[Instruction] = []
    for slot in list(state.slots):
        if slot.phase is SlotPhase.RUNNING:
            instructions.append(ToCopier(slot.copier, Stop()))
        elif slot.phase is SlotPhase.STARTING:
            instructions.append(KillCopier(slot.copier, "the worker stops"))
        else:
            continue
        state.slots[slot.number] = slot.enter(SlotPhase.CLOSING, state.now_s)
    return instructions


def note_sent(state: WorkerState, copier: CopierId) -> None:
    """Silence counts from the last Add: an idle copier is not watched for it."""
    _note_message(state, state.slots[copier.slot])


# Lookups.


def _slot_of(state: WorkerState, copier: CopierId) -> Slot | None:
    """The copier's slot; None for a former run, whose messages have no effect."""
    slot = state.slots[copier.slot]
    return slot if slot.run == copier.run and slot.phase is not SlotPhase.IDLE else None


def _sent(state: WorkerState, slot: Slot, partition: Partition) -> HeldPartition | None:
    """The partition, if this slot's copier was sent it and has not released it."""
    held = state.held.get(partition)
    return held if held is not None and held.sent and held.slot == slot.number else None


def _note_message(state: WorkerState, slot: Slot) -> Slot:
    noted = state.slots[slot.number] = replace(slot, last_message_s=state.now_s)
    return noted
