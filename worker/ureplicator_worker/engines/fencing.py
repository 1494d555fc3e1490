"""Fencing of this worker's former processes: all transactional ids of its name are initialised.

Done once per route and process, before the first copier starts there (see `core.fencing`). A former
process may have had more slots, so the number of ids is that of the most slots the worker ever had. Where
that cannot be read, it is the most slots that any worker may have: an id too many costs a request.

Later one id at a time: that of a slot whose copier was lost where it cannot be seen.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence

from ureplicator_common import znodes
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.errors import ConfigurationError, OperatingError, PermanentError
from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.model import (
    MAX_SLOTS,
    Route,
    WorkerId,
    transactional_id,
    transactional_ids,
)
from ureplicator_worker.core.events import FenceFailed, RouteFenced, SlotFenced, SlotFenceFailed

logger = logging.getLogger(__name__)

FenceIds = Callable[[Route, Sequence[str]], None]
"""Initialises transactional ids on the route's target. Raises OperatingError."""


FenceResult = RouteFenced | FenceFailed | SlotFenced | SlotFenceFailed


class Fencer:
    """One thread per request: a target that is down delays no other."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: znodes.Paths,
        fleet: str,
        worker: WorkerId,
        slots: int,
        fence: FenceIds,
        put: Callable[[FenceResult], None],
    ) -> None:
        self._coordination = coordination
        self._path = paths.worker_known(worker)
        self._fleet, self._worker, self._slots = fleet, worker, slots
        self._fence, self._put = fence, put

    def request(self, route: Route) -> None:
        """Start fencing all former processes; the result is an event."""
        self._spawn(f"worker fence {route}", functools.partial(self.attempt, route))

    def request_slot(self, slot: int, route: Route) -> None:
        """Start fencing one slot; the result is an event."""
        attempt = functools.partial(self.attempt_slot, slot, route)
        self._spawn(f"worker fence {route} {slot}", attempt)

    def _spawn(self, name: str, attempt: Callable[[], None]) -> None:
        threading.Thread(target=attempt, name=name, daemon=True).start()

    def attempt(self, route: Route) -> None:
        """Fence the route and put the result."""
        problem = self._problem(route, self._all_ids)
        self._put(FenceFailed(route, problem) if problem else RouteFenced(route))

    def attempt_slot(self, slot: int, route: Route) -> None:
        """Fence the slot on the route and put the result."""
        problem = self._problem(route, functools.partial(self._id, slot))
        self._put(SlotFenceFailed(slot, route, problem) if problem else SlotFenced(slot, route))

    def _problem(self, route: Route, ids_of: Callable[[Route], Sequence[str]]) -> str:
        """Fence ids; why that failed, or nothing."""
        try:
            ids = ids_of(route)
            self._fence(route, ids)
        except Unavailable as error:
            return f"ZooKeeper unreachable: {error}"
        except PermanentError as error:
            return str(error)
        except OperatingError as error:
            return f"target unreachable: {error}"
        logger.info("%s: fenced former holders of %d transactional ids", route, len(ids))
        return ""

    def _all_ids(self, route: Route) -> Sequence[str]:
        """Raises Unavailable."""
        slots = self._max_slots()
        return transactional_ids(fleet=self._fleet, route=route, worker=self._worker, slots=slots)

    def _id(self, slot: int, route: Route) -> Sequence[str]:
        return (transactional_id(fleet=self._fleet, route=route, worker=self._worker, slot=slot),)

    def _max_slots(self) -> int:
        """Raises Unavailable."""
        node = self._coordination.get(self._path)
        try:
            known = 0 if node is None else znodes.decode_known_worker(node.data).max_slots
        except znodes.UnreadableContent as error:
            logger.warning("%s cannot be read, all possible slots count: %s", self._path, error)
            known = MAX_SLOTS
        return max(self._slots, known)


def kafka_fence(settings: Settings) -> FenceIds:
    """Fence on real clusters.

    The leader may know a route that is not in this worker's configuration yet: its partitions then
    wait, with the reason, before any copier is sent them.
    """

    def fence(route: Route, ids: Sequence[str]) -> None:
        for name in (route.source, route.target):
            if name not in settings.clusters:
                raise ConfigurationError(f"cluster {name} is not in this worker's configuration")
        client = open_client(route.target, settings.cluster(route.target))
        try:
            fence_ids(client, ids)
        finally:
            client.reset()

    return fence
