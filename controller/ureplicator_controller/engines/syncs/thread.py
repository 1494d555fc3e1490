"""The thread of a route that keeps one kind of thing at its target topics as it is at their sources.

It runs in every controller, and acts only while this one leads. A request to Kafka is not fenced. So before
each one that changes anything, the leader's epoch and the age of what was read are checked: a process that
was suspended gives the round up. A request that was already on its way may arrive late; the next round of
the leader corrects it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ureplicator_common.backoff import Backoff
from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.syncs.reports import Reports

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (1.0, 2.0, 5.0, 15.0, 60.0)
STOP_TIMEOUT_S = 5.0
NOT_LEADING_S = 5.0
"""Time between two looks whether this process leads."""
MAX_AGE_S = 30.0
"""Age of what was read after which nothing is changed because of it."""
MAX_LOGGED = 5
"""Topics named in the log of one round."""

Seen = Callable[[], tuple[int, Snapshot] | None]
"""The leader's epoch and its last snapshot; None if this process does not lead."""


class TopicSyncState(StrEnum):
    """State of a topic after a round. HARMFUL: the target's settings refuse, change or delete records, and
    are not to be changed."""

    EQUAL = "equal"
    CHANGED = "changed"
    PENDING = "pending"
    HARMFUL = "harmful"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NO_AUTHORIZER = "no authorizer"


@dataclass(frozen=True, slots=True)
class TopicSync:
    """Outcome of a topic in one round: `changes` were made, `reason` is what is left or was done, `harm` what
    the target's settings still do to records."""

    state: TopicSyncState
    reason: str = ""
    changes: int = 0
    harm: str = ""


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


class Work(Protocol):
    """One kind of sync. Belongs to one thread."""

    kind: SyncKind

    def perform(self, snapshot: Snapshot, term: Term) -> Mapping[str, TopicSync]:
        """One round: source topic -> outcome. Raises OperatingError."""
        ...

    def close(self) -> None: ...


class SyncThread:
    """The thread of one route; `run_once` is one round of it, for tests to call."""

    def __init__(
        self,
        *,
        route: Route,
        work: Work,
        seen: Seen,
        interval_s: float,
        clock: Clock,
        metrics: ControlMetrics,
        reports: Reports,
    ) -> None:
        self._route = route
        self._work = work
        self._seen = seen
        self._interval_s = interval_s
        self._clock = clock
        self._metrics = metrics
        self._reports = reports
        self._backoff = Backoff(RETRY_DELAYS_S)
        self._logged: Mapping[str, TopicSync] = {}
        self._thread = PeriodicThread(
            self.run_once, name=f"{work.kind} of {route}", first_after_s=min(interval_s, 1.0)
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop; a thread that still waits for a cluster ends with the process."""
        if self._thread.stop(STOP_TIMEOUT_S):
            self._work.close()

    def run_once(self) -> float:
        """One round; returns the wait until the next one."""
        try:
            self._sync()
        except OperatingError as error:
            self._failed(str(error))
            log.warning("%s: %s of topics not compared: %s", self._route, self._work.kind, error)
        except Exception as error:  # without this thread the topics would drift apart unnoticed
            self._failed(f"{type(error).__name__}: {error}")
            log.exception("%s: the sync of %s of topics failed", self._route, self._work.kind)
        else:
            self._backoff = self._backoff.reset()
        wait_s = max(self._interval_s, self._backoff.delay_s)
        return wait_s if self._seen() is not None else min(wait_s, NOT_LEADING_S)

    def _failed(self, error: str) -> None:
        self._backoff = self._backoff.failed()
        seen = self._seen()
        if seen is not None:
            self._reports.failed(seen[0], error)
        self._metrics.follow_failures.labels(str(self._route), self._work.kind).inc()

    def _sync(self) -> None:
        seen = self._seen()
        if seen is None:
            self._report({})
            return
        epoch, snapshot = seen
        term = Term(epoch, seen=self._seen, clock=self._clock)
        outcomes = self._work.perform(snapshot, term)
        self._report(outcomes)
        states = Counter(outcome.state.value for outcome in outcomes.values())
        harm = {topic: outcome.harm for topic, outcome in outcomes.items() if outcome.harm}
        self._reports.passed(epoch, states, _first_left(outcomes), harm=harm)

    def _report(self, outcomes: Mapping[str, TopicSync]) -> None:
        labels = str(self._route), self._work.kind
        states = Counter(outcome.state for outcome in outcomes.values())
        for state in TopicSyncState:
            self._metrics.followed_topics.labels(*labels, state.value).set(states[state])
        self._metrics.follow_changes.labels(*labels).inc(
            sum(outcome.changes for outcome in outcomes.values())
        )
        self._log(outcomes)

    def _log(self, outcomes: Mapping[str, TopicSync]) -> None:
        """Outcomes with a reason that is new."""
        told = {topic: outcome for topic, outcome in outcomes.items() if outcome.reason}
        new = [topic for topic, outcome in told.items() if self._logged.get(topic) != outcome]
        for topic in new[:MAX_LOGGED]:
            is_done = told[topic].state is TopicSyncState.CHANGED
            level = logging.INFO if is_done else logging.WARNING
            log.log(level, "topic %s/%s: %s", self._route, topic, told[topic].reason)
        if len(new) > MAX_LOGGED:
            more = len(new) - MAX_LOGGED
            log.warning("%s: %s of %d more topics", self._route, self._work.kind, more)
        self._logged = told


def _first_left(outcomes: Mapping[str, TopicSync]) -> str:
    """Reason of the first topic that is not as it should be, or ""."""
    left = (
        f"{topic}: {outcome.reason}"
        for topic, outcome in sorted(outcomes.items())
        if outcome.reason and outcome.state is not TopicSyncState.CHANGED
    )
    return next(left, "")
