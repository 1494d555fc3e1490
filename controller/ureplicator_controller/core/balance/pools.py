"""Pools: the workers that may copy a route, and the routes whose partitions are divided among them together.

    routes[].workers        pool
    (nothing)               all workers, with all other such routes
    tags                    the workers that have these tags, with all other routes that ask for the same
    min or max              a pool of its own: the route's partitions are divided evenly among its workers,
                            whatever these copy of other routes. With `max` the workers that have most of its
                            partitions, and then those that have least to copy

A worker with tags takes part in the pools of routes that ask for nothing, too. A live worker that is not in
the pool of a partition's route gives the partition away, as soon as the pool has a worker.

A worker that is absent within its delay stays in its pools (`KnownWorker` has what it offered).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ureplicator_common.model import Route, WorkerId, WorkerSelection
from ureplicator_controller.core.state.snapshot import Snapshot

Owner = tuple[Route, WorkerId]


@dataclass(frozen=True, slots=True)
class Offer:
    """Slots and tags of a worker, and the zone that it is in ("": unknown)."""

    slots: int = 1
    tags: Set[str] = frozenset()
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """`eligible` may get partitions; `counted` have a share, with those that are absent within the delay.

    `is_alone`: of one route, whose partitions are divided evenly by themselves.
    """

    eligible: tuple[WorkerId, ...]
    counted: tuple[WorkerId, ...]
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Pools:
    """All pools, narrow ones first: what is left to wide ones evens out the total.

    `numbers`: pool of each route that is not in the last one.
    """

    each: Sequence[Pool]
    numbers: Mapping[Route, int] = field(default_factory=dict)
    offers: Mapping[WorkerId, Offer] = field(default_factory=dict)

    def number_of(self, route: Route) -> int:
        return self.numbers.get(route, len(self.each) - 1) if self.numbers else len(self.each) - 1

    def of(self, route: Route) -> Pool:
        return self.each[self.number_of(route)]

    def offer(self, worker: WorkerId) -> Offer:
        return self.offers.get(worker, _NOTHING_KNOWN)


_NOTHING_KNOWN = Offer()


def one_pool(eligible: Sequence[WorkerId], counted: Iterable[WorkerId] = ()) -> Pools:
    """The pool of a fleet whose routes ask for nothing; all workers alike."""
    return Pools([Pool(tuple(eligible), tuple(dict.fromkeys((*eligible, *counted))))])


def offers(snapshot: Snapshot, workers: Iterable[WorkerId]) -> dict[WorkerId, Offer]:
    """Offer of each worker, or the last one of a worker that is away."""
    found = {}
    for worker in workers:
        live, known = snapshot.live.get(worker), snapshot.known.get(worker)
        if live is not None:
            value = live.value
            found[worker] = Offer(max(1, value.slots), frozenset(value.tags), value.zone)
        elif known is not None:
            slots = known.value.slots or known.value.max_slots
            found[worker] = Offer(max(1, slots), frozenset(known.value.tags))
    return found


def lacks_tags(snapshot: Snapshot, worker: WorkerId, route: Route) -> bool:
    """True if the route asks for tags that the worker does not have."""
    settings = snapshot.routes.get(route)
    wanted = frozenset(settings.value.workers.tags) if settings else frozenset[str]()
    offer = offers(snapshot, [worker]).get(worker, _NOTHING_KNOWN)
    return not wanted <= offer.tags


@dataclass(frozen=True, slots=True)
class RouteWorkers:
    """Workers of a route as operators see them. `available`: live ones with the tags that are not drained."""

    selection: WorkerSelection
    available: int

    @property
    def wanted(self) -> int:
        """The minimum; one where tags are asked for."""
        return max(self.selection.min, 1 if self.selection.tags else 0)

    @property
    def shortage(self) -> str:
        """Missing workers in words; "" if none are missing."""
        if self.available >= self.wanted:
            return ""
        tags = ", ".join(self.selection.tags)
        workers = f"{self.available} of at least {self.wanted} workers"
        return workers + (f" with the tags {tags}" if tags else "")


def route_workers(snapshot: Snapshot, route: Route) -> RouteWorkers:
    """Workers that may copy the route."""
    settings = snapshot.routes.get(route)
    selection = settings.value.workers if settings else WorkerSelection()
    found = offers(snapshot, snapshot.sessions)
    fitting = (worker for worker, offer in found.items() if offer.tags >= frozenset(selection.tags))
    drained = {worker for worker, known in snapshot.known.items() if known.value.is_drained}
    return RouteWorkers(selection, len(set(fitting) - drained))


def shortages(snapshot: Snapshot) -> list[str]:
    """Routes that lack workers, each with what is missing."""
    found = ((route, route_workers(snapshot, route).shortage) for route in sorted(snapshot.routes))
    return [f"route {route} has {shortage}" for route, shortage in found if shortage]


def select_pools(
    snapshot: Snapshot,
    *,
    preferred: Sequence[WorkerId],
    counted: Sequence[WorkerId],
    owners: Callable[[], Iterable[Owner]],
) -> Pools:
    """Pools of the configured routes.

    `preferred` may get partitions; `counted` are the eligible and the delayed workers. `owners`: route and
    owner of each partition, called only if a route has a maximum.
    """
    return _Selection(snapshot, preferred, counted, owners).pools()


class _Selection:
    """Working state of one selection."""

    def __init__(
        self,
        snapshot: Snapshot,
        preferred: Sequence[WorkerId],
        counted: Sequence[WorkerId],
        owners: Callable[[], Iterable[Owner]],
    ) -> None:
        self._selections = {
            route: stored.value.workers
            for route, stored in snapshot.routes.items()
            if stored.value.workers != WorkerSelection()
        }
        self._preferred, self._counted = preferred, counted
        self._offers = offers(snapshot, counted)
        self._owned: Counter[Owner] = Counter()
        self._loads: Counter[WorkerId] = Counter()
        if any(selection.max for selection in self._selections.values()):
            for route, worker in owners():
                self._owned[route, worker] += 1
                self._loads[worker] += 1

    def pools(self) -> Pools:
        by_selection: dict[tuple[Route | None, WorkerSelection], list[Route]] = {}
        for route, selection in sorted(self._selections.items()):
            alone = route if selection.is_alone else None
            by_selection.setdefault((alone, selection), []).append(route)
        found = [
            (self._pool(selection, alone), routes)
            for (alone, selection), routes in by_selection.items()
        ]
        found.sort(key=lambda each: (len(each[0].counted), each[1]))
        numbers = {route: n for n, (_, routes) in enumerate(found) for route in routes}
        everyone = Pool(tuple(self._preferred), tuple(self._counted))
        return Pools([*(pool for pool, _ in found), everyone], numbers, self._offers)

    def _pool(self, selection: WorkerSelection, alone: Route | None) -> Pool:
        wanted = frozenset(selection.tags)
        counted = [w for w in self._counted if wanted <= self._offers.get(w, _NOTHING_KNOWN).tags]
        if selection.max and alone is not None:
            counted = sorted(self._most_fitting(counted, alone)[: selection.max])
        members = frozenset(counted)
        eligible = tuple(worker for worker in self._preferred if worker in members)
        return Pool(eligible, tuple(counted), is_alone=alone is not None)

    def _most_fitting(self, workers: Sequence[WorkerId], route: Route) -> list[WorkerId]:
        def order(worker: WorkerId) -> tuple[int, float, WorkerId]:
            slots = self._offers.get(worker, _NOTHING_KNOWN).slots
            return -self._owned[route, worker], self._loads[worker] / slots, worker

        return sorted(workers, key=order)
