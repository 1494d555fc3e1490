"""Removal of claims that no intent uses any more.

A claim may outlive its intent, and the next topic with that target takes it over (`within_fleet`). But the
tree is held by every controller, and nodes of topics that come and go would pile up in it.

A claim is written in one transaction with its intent, so each new intent gives it another version. Here it is
read first, then the intent that it names. If there is none the claim is deleted at the version that was
read, which fails if an intent has come meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ureplicator_common.coordination import Coordination, Delete, Unavailable
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.claims.within_fleet import in_force, owner_of
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter, WriteOutcome
from ureplicator_controller.engines.periodic_thread import PeriodicThread

INTERVAL_S = 600.0
MORE_S = 1.0
"""Time until the next round where more are left."""
MAX_REMOVED = 100
"""Claims that one round removes at most."""
STOP_TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


class ClaimRemover:
    """Thread that removes unused claims while this process leads. `seen`: epoch and last snapshot."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        paths: Paths,
        seen: Callable[[], tuple[int, Snapshot] | None],
        metrics: ControlMetrics,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._seen = seen
        self._writer = FencedWriter(coordination, paths=paths, metrics=metrics)
        self._thread = PeriodicThread(self.run_once, name="unused claims", first_after_s=INTERVAL_S)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.stop(STOP_TIMEOUT_S)

    def run_once(self) -> float:
        """One round; returns the seconds until the next."""
        seen = self._seen()
        if seen is None:
            return INTERVAL_S
        try:
            removed = self._remove(*seen)
        except Unavailable as error:
            log.info("unused claims are not removed yet: %s", error)
            return INTERVAL_S
        except Exception:
            log.exception("removing unused claims failed")
            return INTERVAL_S
        if removed:
            log.info("%d claims of topics that are gone removed", removed)
        return MORE_S if removed == MAX_REMOVED else INTERVAL_S

    def _remove(self, epoch: int, snapshot: Snapshot) -> int:
        """Number of removed claims. Raises Unavailable."""
        removed = 0
        for path in self._unused(snapshot):
            removed += self._remove_one(path, epoch)
            if removed == MAX_REMOVED:
                break
        return removed

    def _unused(self, snapshot: Snapshot) -> Iterator[str]:
        """Claims on topics that are no target by the snapshot, which may lag behind."""
        used = {
            (key.route.target, stored.value.target_topic) for key, stored in snapshot.topics.items()
        }
        for cluster in self._coordination.children(self._paths.targets):
            for topic in self._coordination.children(f"{self._paths.targets}/{cluster}"):
                if (cluster, topic) not in used:
                    yield self._paths.target(cluster, topic)

    def _remove_one(self, path: str, epoch: int) -> bool:
        """True if it was removed. A claim that cannot be read stays, for a person to look at."""
        node = self._coordination.get(path)
        owner = owner_of(node.data) if node is not None else None
        target_topic = path.rpartition("/")[2]
        if node is None or owner is None:
            return False
        if in_force(self._coordination, self._paths, owner, target_topic):
            return False
        removal = Delete(path, node.stat.version)
        return self._writer.write([removal], epoch=epoch) is WriteOutcome.DONE
