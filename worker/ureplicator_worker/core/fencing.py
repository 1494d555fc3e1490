"""Fencing of routes: the condition for it; the only writer of `fences`.

Before the first Add on a route, all transactional ids of this worker there are initialised once
(`FenceRoute`): a former process of this worker, frozen and resumed, can then commit nothing, in
whichever slots the partitions are now. Copiers initialise their own ids only after an Add, so none of
the present ones is fenced. `engines.fencing` does it.
"""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.model import Route
from ureplicator_worker.core import held_partitions
from ureplicator_worker.core.events import FenceFailed
from ureplicator_worker.core.instructions import FenceRoute, Instruction
from ureplicator_worker.core.partition import PartitionPhase
from ureplicator_worker.core.state import RouteFence, WorkerState

FENCE_RETRY_S = 1.0


def is_fenced(state: WorkerState, route: Route) -> bool:
    return state.fences.get(route, RouteFence()).done


def fence_configured_routes(state: WorkerState) -> list[Instruction]:
    """Fence them at the first session, so that a later assignment need not wait for it."""
    if state.session.id is None or state.drain:
        return []
    return [each for route in state.routes for each in fence_if_due(state, route)]


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
