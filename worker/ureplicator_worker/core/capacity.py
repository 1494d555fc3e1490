"""Room for copiers, and the lack of it; the only writer of `capacity`.

A copier needs a free core of the Spark cluster. The cluster may have none: its master is away, other
applications have the cores, or executors end as soon as they start. The engine observes what Spark lacks
(`CapacityChanged`), and which executor a copier was given (`CopierPlaced`); whether copiers run is known
from their slots.

One slot without a copier costs its partitions, and they say why. After `timeout_s` they move to slots of
this worker whose copiers run (`stranded`, `copiers.move_stranded`). The time counts from the end of the
last copier that had connected: one that crashes and is started again is no copier. A worker without any
copier for as long says so in its live node: the leader then gives its partitions to workers that have
capacity. The first copier that runs again takes that back. A copier that still drains counts: its
partitions are not free before it has ended.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from ureplicator_worker.core.instructions import AnnounceCapacity, Instruction
from ureplicator_worker.core.slots import CRASH_LOOP, Slot, SlotPhase
from ureplicator_worker.core.state import WorkerState

START_TIMEOUT_S = 15.0
"""A copier that has not connected by then finds no Spark capacity: Spark starts one in 1-2 s, 5 s on
a busy machine."""
MISSING_TIMEOUT_S = 5.0
"""The time-out while Spark is known to lack something: it replaces a lost executor within that time."""


def change(state: WorkerState, missing: str) -> None:
    """Note what Spark lacks now."""
    state.capacity = replace(state.capacity, missing=missing)


def late_slots(state: WorkerState) -> Set[int]:
    """Slots whose copier is not on its way."""
    return {slot.number for slot in state.slots if reason_not_started(state, slot)}


def reason_not_started(state: WorkerState, slot: Slot) -> str:
    """Reason why a slot that is to have a copier has none; "" while it may still be on its way."""
    if slot.phase not in (SlotPhase.IDLE, SlotPhase.STARTING):
        return ""
    late = _reason_late(state, slot) if slot.phase is SlotPhase.STARTING else ""
    return late or _crash_loop(slot)


def _reason_late(state: WorkerState, slot: Slot) -> str:
    """Reason why the copier that was started last has not connected in time."""
    missing, since_s = state.capacity.missing, state.now_s - slot.since_s
    if since_s >= START_TIMEOUT_S and slot.executor:
        return (
            f"slot {slot.number} has no copier: its executor {slot.executor} has a core for it, and it has"
            f" not connected after {START_TIMEOUT_S:.0f} s"
        )
    if missing and since_s >= MISSING_TIMEOUT_S and not slot.executor:
        return f"no Spark capacity: {missing}"
    if since_s >= START_TIMEOUT_S:
        return f"no Spark capacity: slot {slot.number} has no copier after {START_TIMEOUT_S:.0f} s"
    return ""


def _crash_loop(slot: Slot) -> str:
    if slot.crashes < CRASH_LOOP:
        return ""
    number, why = slot.number, slot.last_end
    return f"slot {number} has no copier: each one ends before it connects, the last one: {why}"


def stranded_slots(state: WorkerState) -> Set[int]:
    """Slots without a copier for so long that their partitions move to slots that have one."""
    if state.drain or not any(slot.phase is SlotPhase.RUNNING for slot in state.slots):
        return frozenset()
    late = late_slots(state)
    return {
        n for n in late if state.now_s - state.slots[n].vacant_since_s >= state.capacity.timeout_s
    }


def announce_if_changed(state: WorkerState) -> list[Instruction]:
    """Have the live node say when no copier runs for too long, and when one runs again."""
    before = state.capacity
    since_s = before.without_copier_since_s
    if any(slot.phase in (SlotPhase.RUNNING, SlotPhase.CLOSING) for slot in state.slots):
        since_s = None
    elif since_s is None:
        since_s = state.now_s
    lacks = since_s is not None and state.now_s - since_s >= before.timeout_s
    text = _what_is_missing(state) if lacks else ""
    if (since_s, text) == (before.without_copier_since_s, before.announced):
        return []
    state.capacity = replace(before, without_copier_since_s=since_s, announced=text)
    return [AnnounceCapacity(text)] if text != before.announced else []


def _what_is_missing(state: WorkerState) -> str:
    """The reason of a worker without any copier: Spark has no room, or copiers have cores and end or do
    not connect."""
    for slot in state.slots:
        if crashes := _crash_loop(slot):
            return crashes
    placed = [slot.executor for slot in state.slots if slot.executor]
    if placed:
        return f"copiers on executors {', '.join(sorted(placed))} do not connect to the worker"
    timeout_s = state.capacity.timeout_s
    return state.capacity.missing or f"no copier has run for {timeout_s:.0f} s"
