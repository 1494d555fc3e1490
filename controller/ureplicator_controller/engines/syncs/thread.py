"""The thread of a route that keeps one kind of thing at the target as it is at the source.

There is one for each route and kind, so that a cluster that does not respond delays no other. It runs in
every controller, and acts only while this one leads. A request to Kafka is not fenced. So before each one
that changes anything, the leader's epoch and the age of what was read are checked: a process that was
suspended gives the round up. A request that was already on its way may arrive late; the next round of the
leader corrects it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ureplicator_common.backoff import Backoff
from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.syncs.reports import Reports

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (1.0, 2.0, 5.0, 15.0, 60.0)
STOP_TIMEOUT_S = 5.0
NOT_LEADING_S = 5.0
"""Time between two looks whether this process leads."""
MAX_AGE_S = 30.0
"""Age of what was read after which nothing is changed because of it."""

Seen = Callable[[], tuple[int, Snapshot] | None]
"""The leader's epoch and its last snapshot; None if this process does not lead."""


class Term:
    """The leader's epoch that a round began in."""

    def __init__(self, epoch: int, *, seen: Seen, clock: Clock) -> None:
        self.epoch = epoch
        self._seen = seen
        self._clock = clock

    def reading(self) -> Callable[[], bool]:
        """Call it before something is read; the result says whether it may still be acted on."""
        began_s = self._clock.monotonic_s()

        def may_write() -> bool:
            seen = self._seen()
            is_leader = seen is not None and seen[0] == self.epoch
            return is_leader and self._clock.monotonic_s() - began_s <= MAX_AGE_S

        return may_write


@dataclass(frozen=True, slots=True)
class Passed:
    """Findings of a round, as `Reports.passed` takes them."""

    states: Mapping[str, int]
    left: str
    harm: Mapping[str, str] = field(default_factory=dict)


class Sync(Protocol):
    """One kind of sync of a route. Belongs to one thread."""

    kind: SyncKind

    def perform(self, snapshot: Snapshot, term: Term) -> Passed:
        """One round. Raises OperatingError."""
        ...

    def failed(self) -> None:
        """Count a round that failed."""
        ...

    def rest(self) -> None:
        """Show nothing: this process does not lead."""
        ...

    def close(self) -> None: ...


class SyncThread:
    """The thread of one sync; `run_once` is one round of it, for tests to call."""

    def __init__(
        self,
        *,
        route: Route,
        sync: Sync,
        seen: Seen,
        interval_s: float,
        clock: Clock,
        reports: Reports,
    ) -> None:
        self._route = route
        self._sync = sync
        self._seen = seen
        self._interval_s = interval_s
        self._clock = clock
        self._reports = reports
        self._backoff = Backoff(RETRY_DELAYS_S)
        self._thread = PeriodicThread(
            self.run_once, name=f"{sync.kind} of {route}", first_after_s=min(interval_s, 1.0)
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop; a thread that still waits for a cluster ends with the process."""
        if self._thread.stop(STOP_TIMEOUT_S):
            self._sync.close()

    def run_once(self) -> float:
        """One round; returns the wait until the next one."""
        try:
            self._perform()
        except OperatingError as error:
            self._failed(str(error))
            log.warning("%s: sync of %s failed: %s", self._route, self._sync.kind, error)
        except Exception as error:  # without this thread both ends would drift apart unnoticed
            self._failed(f"{type(error).__name__}: {error}")
            log.exception("%s: sync of %s failed", self._route, self._sync.kind)
        else:
            self._backoff = self._backoff.reset()
        wait_s = max(self._interval_s, self._backoff.delay_s)
        return wait_s if self._seen() is not None else min(wait_s, NOT_LEADING_S)

    def _failed(self, error: str) -> None:
        self._backoff = self._backoff.failed()
        seen = self._seen()
        if seen is not None:
            self._reports.failed(seen[0], error)
        self._sync.failed()

    def _perform(self) -> None:
        seen = self._seen()
        if seen is None:
            self._sync.rest()
            return
        epoch, snapshot = seen
        term = Term(epoch, seen=self._seen, clock=self._clock)
        passed = self._sync.perform(snapshot, term)
        self._reports.passed(epoch, passed.states, passed.left, harm=passed.harm)
