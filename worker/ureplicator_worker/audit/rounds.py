"""One round of an audit: a Spark job that can be watched and ended while it runs.

The thread of the audit waits in Spark. Another one calls `watch` every `TICK_S`. What `watch` raises ends
the round: tasks are told to end, and bring what can be kept. Those that have not ended after `GRACE_S` are
ended by Spark, and what they did in the round is lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self
from uuid import uuid4

from ureplicator_worker.audit.signals import DriverSignals
from ureplicator_worker.audit.task import Outcome, Work, compare_each

logger = logging.getLogger(__name__)

TICK_S = 0.5
GRACE_S = 1.0
RETRY_S = 2.0

Watch = Callable[[int], None]
"""Gets the source offsets that the round has passed so far; may raise, to end the audit. Called from a thread
of its own, never while the audit's own thread reports a round."""


def run_round(
    context: Any, works: Sequence[Work], *, signals: DriverSignals, watch: Watch | None
) -> tuple[list[Outcome], BaseException | None]:
    """Results of the tasks, and what `watch` raised. A round with a partition that could not be read takes
    `RETRY_S` longer."""
    group = f"audit {uuid4().hex}"
    context.setJobGroup(group, "a round of an audit")
    signals.begin_round()
    rows = context.parallelize(works, len(works))
    with _Watcher(watch, signals, lambda: context.cancelJobGroup(group)) as watcher:
        try:
            outcomes: list[Outcome] = rows.mapPartitions(compare_each).collect()
        except Exception:  # of Spark
            if not watcher.forced:
                raise
            outcomes = []
        if any(outcome.error for outcome in outcomes):
            watcher.rest(RETRY_S)
    return outcomes, watcher.reason


class _Watcher:
    """`reason`: what `watch` raised. `forced`: Spark was told to end the tasks."""

    def __init__(
        self, watch: Watch | None, signals: DriverSignals, force: Callable[[], None]
    ) -> None:
        self._watch, self._signals, self._force = watch, signals, force
        self._ended, self._cancelled = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self.reason: BaseException | None = None
        self.forced = False

    def __enter__(self) -> Self:
        if self._watch is not None:
            self._thread = threading.Thread(target=self._run, name="audit watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def rest(self, seconds: float) -> None:
        self._cancelled.wait(seconds)

    def _run(self) -> None:
        assert self._watch is not None
        while not self._ended.wait(TICK_S):
            try:
                self._watch(self._signals.passed())
            except BaseException as reason:  # whatever ends the audit: raised by its own thread
                self.reason = reason
                self._cancel()
                return

    def _cancel(self) -> None:
        self._signals.cancel()
        self._cancelled.set()
        if self._ended.wait(GRACE_S):
            return
        self.forced = True
        try:
            self._force()
        except Exception:  # of Spark: if its JVM is gone, the round fails by itself
            logger.exception("Spark was not told to end a round")
