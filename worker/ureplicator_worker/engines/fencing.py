"""Fencing of this worker's former processes: all transactional ids of its name are initialised.

Done once per route and process, before the first copier starts there (see `core.fencing`). A former
process may have had more slots, so the number of ids is that of the most slots the worker ever had. Where
that cannot be read, it is the most slots that any worker may have: an id too many costs a request.

Later one id at a time: that of a slot whose copier was lost where it cannot be seen.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

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
)
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.workers import decode_known_worker
from ureplicator_worker.core.events import Fenced, FenceFailed
from ureplicator_worker.core.instructions import Fence

logger = logging.getLogger(__name__)

FenceIds = Callable[[Route, Sequence[str]], None]
"""Initialises transactional ids on the route's target. Raises OperatingError."""


class Fencer:
    """One thread per request: a target that is down delays no other."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        fleet: str,
        worker: WorkerId,
        slots: int,
        fence: FenceIds,
        put: Callable[[Fenced | FenceFailed], None],
    ) -> None:
        self._coordination = coordination
        self._path = paths.worker_known(worker)
        self._fleet, self._worker, self._slots = fleet, worker, slots
        self._fence, self._put = fence, put

    def request(self, fence: Fence) -> None:
        """Start fencing; the result is an event."""
        name = f"worker fence {fence.route}"
        threading.Thread(target=self.attempt, args=(fence,), name=name, daemon=True).start()

    def attempt(self, fence: Fence) -> None:
        """Fence and put the result."""
        route, slot, problem = fence.route, fence.slot, self._problem(fence)
        self._put(FenceFailed(route, problem, slot) if problem else Fenced(route, slot))

    def _problem(self, fence: Fence) -> str:
        """Fence; why that failed, or nothing."""
        try:
            ids = self._ids(fence)
            self._fence(fence.route, ids)
        except Unavailable as error:
            return f"ZooKeeper unreachable: {error}"
        except PermanentError as error:
            return str(error)
        except OperatingError as error:
            return f"target unreachable: {error}"
        logger.info("%s: fenced former holders of %d transactional ids", fence.route, len(ids))
        return ""

    def _ids(self, fence: Fence) -> Sequence[str]:
        """Raises Unavailable."""
        slots = range(self._max_slots()) if fence.slot is None else (fence.slot,)
        return [
            transactional_id(fleet=self._fleet, route=fence.route, worker=self._worker, slot=slot)
            for slot in slots
        ]

    def _max_slots(self) -> int:
        """Raises Unavailable."""
        node = self._coordination.get(self._path)
        try:
            known = 0 if node is None else decode_known_worker(node.data).max_slots
        except UnreadableContent as error:
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
