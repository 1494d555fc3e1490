"""The end of this worker's former process: all transactional ids of its name are initialised.

Needed once per route and process, before the first copier begins there (see `core.state`). Slots may
have been more in a former life, so it is the most slots that the worker ever had.
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
from ureplicator_common.kafka.positions import fence_ids
from ureplicator_common.model import Route, WorkerId, transactional_ids
from ureplicator_worker.core.events import FenceFailed, RouteFenced

logger = logging.getLogger(__name__)

Fence = Callable[[Route, Sequence[str]], None]
"""Initialises ids on the route's target. Raises OperatingError."""


class Fencer:
    """Each request has a thread of its own: one target that is down holds up no other."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: znodes.Paths,
        fleet: str,
        worker: WorkerId,
        slots: int,
        fence: Fence,
        happened: Callable[[RouteFenced | FenceFailed], None],
    ) -> None:
        self._coordination = coordination
        self._path = paths.worker_known(worker)
        self._fleet, self._worker, self._slots = fleet, worker, slots
        self._fence, self._happened = fence, happened

    def request(self, route: Route) -> None:
        """The answer is an event."""
        name = f"worker fence {route}"
        threading.Thread(target=self.attempt, args=(route,), name=name, daemon=True).start()

    def attempt(self, route: Route) -> None:
        """What the thread does."""
        try:
            ids = transactional_ids(
                fleet=self._fleet, route=route, worker=self._worker, slots=self._most_slots()
            )
            self._fence(route, ids)
        except Unavailable as error:
            self._happened(FenceFailed(route, f"ZooKeeper unreachable: {error}"))
        except PermanentError as error:
            self._happened(FenceFailed(route, str(error)))
        except OperatingError as error:
            self._happened(FenceFailed(route, f"target unreachable: {error}"))
        else:
            logger.info("%s: %d ids of former processes of ours are fenced", route, len(ids))
            self._happened(RouteFenced(route))

    def _most_slots(self) -> int:
        """Raises Unavailable, PermanentError."""
        node = self._coordination.get(self._path)
        try:
            known = 0 if node is None else znodes.decode_known_worker(node.data).max_slots
        except znodes.UnreadableContent as error:
            raise PermanentError(f"{self._path} cannot be read: {error}") from error
        return max(self._slots, known)


def kafka_fence(settings: Settings) -> Fence:
    """Fences on real clusters.

    A route of the leader's may not be in this worker's configuration yet: then its partitions wait
    here, with the reason, before a copier hears of them.
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
