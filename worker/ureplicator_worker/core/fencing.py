"""Fencing of routes and slots: the conditions for it; the only writer of `fences`.

Before the first Add on a route, all transactional ids of this worker there are initialised once
(`Fence` without a slot): a former process of this worker, frozen and resumed, can then commit nothing, in
whichever slots the partitions are now. Copiers initialise their own ids only after an Add, so none of
the present ones is fenced. `engines.fencing` does it.

A copier whose process cannot be seen (on another host, or in another container) may outlive its job:
its executor may be cut off from the driver and not from Kafka. Its end is then not known, only assumed.
So the slot's own transactional id is initialised (`Fence` with it) on each route that the copier was sent
partitions of and has not released. Until that is done these partitions stay held, whatever the
assignment says, since the next owner does not fence a worker that has released; and the slot's next
copier is sent none of the route, so that the fence is of the former copier and not of it. Partitions of
other routes go on at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from ureplicator_common.model import Partition, Route
from ureplicator_worker.core import held_partitions
from ureplicator_worker.core.events import FenceFailed
from ureplicator_worker.core.instructions import Fence, Instruction
from ureplicator_worker.core.state import FenceProgress, WorkerState

FENCE_RETRY_S = 1.0


def is_fenced(state: WorkerState, route: Route) -> bool:
    return state.fences.get((route, None), FenceProgress()).done


def doubt(state: WorkerState, slot: int, routes: Iterable[Route]) -> None:
    """A copier of the slot may still commit on these routes."""
    for route in routes:
        state.fences[route, slot] = FenceProgress()


def is_in_doubt(state: WorkerState, slot: int, route: Route) -> bool:
    return (route, slot) in state.fences


def fence_due(state: WorkerState) -> list[Instruction]:
    """Fence slots in doubt, also while the worker drains, and configured routes from the first session on,
    so that a later assignment need not wait for it."""
    begins = state.session.id is not None and not state.drain
    configured = state.routes if begins else ()
    in_doubt = [key for key in state.fences if key[1] is not None]
    keys = [*((route, None) for route in configured), *in_doubt]
    return [instruction for key in keys for instruction in fence_if_due(state, *key)]


def fence_if_due(state: WorkerState, route: Route, slot: int | None = None) -> list[Instruction]:
    progress = state.fences.get((route, slot), FenceProgress())
    if progress.done or progress.requested or progress.retry_at_s > state.now_s:
        return []
    state.fences[route, slot] = FenceProgress(requested=True)
    return [Fence(route, slot)]


def fenced(state: WorkerState, route: Route, slot: int | None) -> None:
    """Nothing of a former process or copier is under way any more: its partitions may begin in any slot."""
    if slot is None:
        state.fences[route, slot] = FenceProgress(done=True)
    else:
        state.fences.pop((route, slot), None)
    partitions = _partitions(state, route, slot)
    held_partitions.visit(state, partitions)
    for partition in partitions:
        if state.held[partition].unclean:
            held_partitions.mark_clean(state, partition)


def failed(state: WorkerState, event: FenceFailed) -> None:
    """Partitions that wait for the fence become ERROR, with the reason."""
    retry_at_s = state.now_s + FENCE_RETRY_S
    state.fences[event.route, event.slot] = FenceProgress(retry_at_s=retry_at_s)
    of_copier = event.slot is not None
    reason = f"waits for the fence of a lost copier: {event.reason}" if of_copier else event.reason
    for partition in _partitions(state, event.route, event.slot):
        held = state.held[partition]
        if not held.sent and held.reason != reason:
            held_partitions.interrupt(state, partition, reason)


def _partitions(state: WorkerState, route: Route, slot: int | None) -> list[Partition]:
    """Partitions held on the route, in the slot or in any."""
    return [p for p, held in state.held.items() if p.route == route and slot in (None, held.slot)]
