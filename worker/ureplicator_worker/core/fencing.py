"""Fencing of routes and slots: the conditions for it; the only writer of `fences` and `slot_fences`.

Before the first Add on a route, all transactional ids of this worker there are initialised once
(`FenceRoute`): a former process of this worker, frozen and resumed, can then commit nothing, in
whichever slots the partitions are now. Copiers initialise their own ids only after an Add, so none of
the present ones is fenced. `engines.fencing` does it.

A copier whose process cannot be seen (on another host, or in another container) may outlive its job:
its executor may be cut off from the driver and not from Kafka. Its end is then not known, only assumed.
So the slot's own transactional id is initialised (`FenceSlot`) on each route that the copier was sent
partitions of and has not released. Until that is done these partitions stay held, whatever the
assignment says, since the next owner does not fence a worker that has released; and the slot's next
copier is sent none of the route, so that the fence is of the former copier and not of it. Partitions of
other routes go on at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ureplicator_common.model import Partition, Route
from ureplicator_worker.core import held_partitions
from ureplicator_worker.core.events import FenceFailed, SlotFenceFailed
from ureplicator_worker.core.instructions import FenceRoute, FenceSlot, Instruction
from ureplicator_worker.core.partition_phases import PartitionPhase
from ureplicator_worker.core.state import RouteFence, WorkerState

FENCE_RETRY_S = 1.0


def is_fenced(state: WorkerState, route: Route) -> bool:
    return state.fences.get(route, RouteFence()).done


def fence_configured_routes(state: WorkerState) -> list[Instruction]:
    """Fence them at the first session, so that a later assignment need not wait for it."""
    if state.session.id is None or state.drain:
        return []
    return [instruction for route in state.routes for instruction in fence_if_due(state, route)]


def fence_if_due(state: WorkerState, route: Route) -> list[Instruction]:
    fence = state.fences.get(route, RouteFence())
    if fence.done or fence.requested or fence.retry_at_s > state.now_s:
        return []
    state.fences[route] = replace(fence, requested=True)
    return [FenceRoute(route)]


def fenced(state: WorkerState, route: Route) -> None:
    state.fences[route] = RouteFence(done=True)
    held_partitions.visit_unsent(state, [p for p in state.held if p.route == route])


def failed(state: WorkerState, event: FenceFailed) -> None:
    """Partitions that wait for the fence become ERROR, with the reason."""
    state.fences[event.route] = RouteFence(retry_at_s=state.now_s + FENCE_RETRY_S)
    for partition, held in list(state.held.items()):
        waits = held.phase in (PartitionPhase.STARTING, PartitionPhase.ERROR) and not held.sent
        if partition.route == event.route and waits and held.reason != event.reason:
            held_partitions.interrupt(state, partition, event.reason)


# Slots whose last copier cannot be seen.


def doubt(state: WorkerState, slot: int, routes: Iterable[Route]) -> None:
    """A copier of the slot may still commit on these routes."""
    for route in routes:
        state.slot_fences[slot, route] = RouteFence()


def is_in_doubt(state: WorkerState, slot: int, route: Route) -> bool:
    return (slot, route) in state.slot_fences


def fence_slots(state: WorkerState) -> list[Instruction]:
    """Request the fences that are due, also while the worker drains."""
    due = [
        key
        for key, fence in state.slot_fences.items()
        if not fence.requested and fence.retry_at_s <= state.now_s
    ]
    for key in due:
        state.slot_fences[key] = RouteFence(requested=True)
    return [FenceSlot(slot, route) for slot, route in due]


def slot_fenced(state: WorkerState, slot: int, route: Route) -> None:
    """Nothing of a former copier is under way any more: its partitions may begin in any slot."""
    state.slot_fences.pop((slot, route), None)
    partitions = _of_slot(state, slot, route)
    held_partitions.visit(state, partitions)
    for partition in partitions:
        if state.held[partition].unclean:
            held_partitions.mark_clean(state, partition)


def slot_fence_failed(state: WorkerState, event: SlotFenceFailed) -> None:
    """Keep the slot's partitions held, with the reason."""
    key = (event.slot, event.route)
    state.slot_fences[key] = RouteFence(retry_at_s=state.now_s + FENCE_RETRY_S)
    reason = f"waits for the fence of a lost copier: {event.reason}"
    for partition in _of_slot(state, *key):
        if state.held[partition].reason != reason:
            held_partitions.interrupt(state, partition, reason)


def _of_slot(state: WorkerState, slot: int, route: Route) -> list[Partition]:
    return [p for p in held_partitions.in_slot(state, slot) if p.route == route]
