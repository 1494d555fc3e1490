"""Failing commits, as operators see them: logged once per disturbance, and shown when it lasts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ureplicator_common.clock import SystemClock
from ureplicator_common.model import Route

COMMITS_WAIT_S = 30.0
"""Partitions are copied while commits wait for a coordinator that moves, for some seconds on a healthy
cluster. Beyond this time, too much would be copied again after a failure: operators must know."""
TRANSACTIONS_WAIT_S = 15.0
"""Exactly once, no record counts as copied while a commit waits. So this is shorter: as long as a connection
may be silent (`raw.target.SILENCE_TIMEOUT_S`). A coordinator or a leader that crashes is replaced within it
(`broker.session.timeout.ms`, 9 s by default, an election, and the order of ownership), so that an election
is no error."""

CLOCK = SystemClock()

logger = logging.getLogger(__name__)


class CommitFailures:
    """`wall_ms`: the time of day, shown to operators."""

    def __init__(self, route: Route, *, wall_ms: Callable[[], int] = CLOCK.wall_ms) -> None:
        self._route = route
        self._wall_ms = wall_ms
        self._since_s: float | None = None
        self._error = ""

    def succeeded(self) -> None:
        self._since_s = None

    def failed(self, reason: str, now_s: float, *, waited_s: float = 0.0) -> None:
        """`waited_s`: for so long the failed request had been under way."""
        if self._since_s is None:
            self._since_s = now_s - waited_s
            since = time.strftime("%H:%M:%S", time.gmtime(self._wall_ms() / 1_000 - waited_s))
            bare = reason.removeprefix("target: ")
            self._error = f"target: commits wait for the coordinator since {since} UTC: {bare}"
            logger.warning("%s: positions not committed: %s", self._route, reason)

    def error(self, now_s: float, *, wait_s: float = COMMITS_WAIT_S) -> str:
        """Reason if no commit has succeeded for longer than `wait_s`; "" otherwise."""
        since_s = self._since_s
        return self._error if since_s is not None and now_s - since_s > wait_s else ""
