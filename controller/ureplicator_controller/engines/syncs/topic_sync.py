"""Syncs of what belongs to single topics, by the outcome of each topic in a round."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ureplicator_common.model import Route
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.thread import Passed, Term

log = logging.getLogger(__name__)

MAX_LOGGED = 5
"""Topics named in the log of one round."""


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


class Work(Protocol):
    """One kind of sync. Belongs to one thread."""

    kind: SyncKind

    def perform(self, snapshot: Snapshot, term: Term) -> Mapping[str, TopicSync]:
        """One round: source topic -> outcome. Raises OperatingError."""
        ...

    def close(self) -> None: ...


class TopicWorkSync:
    """`Sync` of a route by this work: counts and logs the outcomes."""

    def __init__(self, route: Route, work: Work, *, metrics: ControlMetrics) -> None:
        self.kind = work.kind
        self._route = route
        self._work = work
        self._metrics = metrics
        self._logged: Mapping[str, TopicSync] = {}

    def perform(self, snapshot: Snapshot, term: Term) -> Passed:
        outcomes = self._work.perform(snapshot, term)
        self._report(outcomes)
        states = Counter(outcome.state.value for outcome in outcomes.values())
        harm = {topic: outcome.harm for topic, outcome in outcomes.items() if outcome.harm}
        return Passed(states, _first_left(outcomes), harm)

    def failed(self) -> None:
        self._metrics.follow_failures.labels(str(self._route), self.kind).inc()

    def rest(self) -> None:
        self._report({})

    def close(self) -> None:
        self._work.close()

    def _report(self, outcomes: Mapping[str, TopicSync]) -> None:
        labels = str(self._route), self.kind
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
            log.warning("%s: %s of %d more topics", self._route, self.kind, more)
        self._logged = told


def _first_left(outcomes: Mapping[str, TopicSync]) -> str:
    """Reason of the first topic that is not as it should be, or ""."""
    left = (
        f"{topic}: {outcome.reason}"
        for topic, outcome in sorted(outcomes.items())
        if outcome.reason and outcome.state is not TopicSyncState.CHANGED
    )
    return next(left, "")
