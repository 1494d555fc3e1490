"""Fencing of this worker's former processes: all transactional ids of its name are initialised.

Done once per route and process, before the first copier starts there (see `core.fencing`). A former
process may have had more slots, so the number of ids is that of the most slots the worker ever had.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ureplicator_common import znodes
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.errors import ConfigurationError, OperatingError, PermanentError
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.fencing import fence_ids
from ureplicator_common.model import Route, WorkerId, transactional_ids
from ureplicator_worker.core.events import FenceFailed, RouteFenced

logger = logging.getLogger(__name__)

FenceIds = Callable[[Route, Sequence[str]], None]
"""Initialises transactional ids on the route's target. Raises OperatingError."""


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
        put: Callable[[RouteFenced | FenceFailed], None],
    ) -> None:
        self._coordination = coordination
        self._path = paths.worker_known(worker)
        self._fleet, self._worker, self._slots = fleet, worker, slots
        self._fence, self._put = fence, put

    def request(self, route: Route) -> None:
        """Start fencing; the result is an event."""
        name = f"worker fence {route}"
        threading.Thread(target=self.attempt, args=(route,), name=name, daemon=True).start()

    def attempt(self, route: Route) -> None:
        """Fence the route and put the result."""
        try:
            ids = transactional_ids(
                fleet=self._fleet, route=route, worker=self._worker, slots=self._max_slots()
            )
            self._fence(route, ids)
        except Unavailable as error:
            self._put(FenceFailed(route, f"ZooKeeper unreachable: {error}"))
        except PermanentError as error:
            self._put(FenceFailed(route, str(error)))
        except OperatingError as error:
            self._put(FenceFailed(route, f"target unreachable: {error}"))
        else:
            logger.info("%s: %d transactional ids of former processes fenced", route, len(ids))
            self._put(RouteFenced(route))

    def _max_slots(self) -> int:
        """Raises Unavailable, PermanentError."""
        node = self._coordination.get(self._path)
        try:
            known = 0 if node is None else znodes.decode_known_worker(node.data).max_slots
        except znodes.UnreadableContent as error:
            raise PermanentError(f"{self._path} cannot be read: {error}") from error
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
        bootstrap = settings.cluster(route.target)["bootstrap.servers"]
        client = ClusterClient(bootstrap)
        try:
            fence_ids(client, ids)
        finally:
            client.reset()

    return fence
