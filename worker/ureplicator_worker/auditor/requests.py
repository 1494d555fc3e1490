"""Requested audits, one after the other: claimed, compared, and their outcome written.

An audit that is withdrawn, or whose claim is lost with the session, ends at its next progress. While
ZooKeeper is away the comparison goes on; its result is written when it is back.

A claim is released before the next one is made, whatever happened since. So an auditor that was cut off
from ZooKeeper right after its claim takes the request again, or another one does. Each claim counts an
attempt in the request: one that ends its auditors is given up after `MAX_ATTEMPTS`. One whose result cannot
be written waits while others are carried out (`failures`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from ureplicator_common.audits import CANCELLED, DONE, NOT_VERIFIED, RequestedAudit, RunningAudit
from ureplicator_common.clock import Clock
from ureplicator_common.coordination import OutcomeUnknown, Unavailable
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.result import AuditRequest, AuditResult
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.auditor.failures import Failures
from ureplicator_worker.auditor.nodes import AuditNodes, ClaimLost, Withdrawn
from ureplicator_worker.auditor.outcome import (
    difference_counts,
    outcome_of,
    reason_of,
    run_of,
    with_result,
)

logger = logging.getLogger(__name__)

RETRY_S = 1.0
MAX_ATTEMPTS = 10
"""Attempts, more than the restarts that a fleet sees in the hours of a long audit."""


class Compare(Protocol):
    """Runs a comparison. `on_progress` gets what was compared so far; `watch` is called twice a second with
    the source offsets that were passed since. Both may raise to end it."""

    def __call__(
        self,
        request: AuditRequest,
        on_progress: Callable[[AuditResult], None],
        watch: Watch | None = None,
    ) -> AuditResult: ...


Prepare = Callable[[TopicKey, TopicIntent, RequestedAudit], AuditRequest]
Report = Callable[[TopicKey, str, AuditResult], str]
"""Keeps a whole result; returns where it lies."""


class RequestedAudits:
    def __init__(
        self,
        *,
        auditor: str,
        nodes: AuditNodes,
        prepare: Prepare,
        compare: Compare,
        report: Report,
        clock: Clock,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._auditor = auditor
        self._nodes = nodes
        self._prepare = prepare
        self._compare = compare
        self._report = report
        self._clock = clock
        self._wait = wait
        self._claimed: TopicKey | None = None
        self.failures: Failures[str] = Failures()
        """Failures of requests by id, as far as no outcome could be written."""
        self.counts = dict.fromkeys(("done", "cancelled", "not_verified", "failed"), 0)
        """Audits that ended so."""

    def step(self) -> bool:
        """Carry out one request; False if there is none. May raise Unavailable and OutcomeUnknown."""
        self._release()
        found = list(self._nodes.requests())
        self.failures.keep({wanted.id for _, wanted in found})
        now_s = self._clock.monotonic_s()
        for key, wanted in found:
            if self.failures.due(wanted.id, now_s=now_s) and self._claim(key, wanted):
                return True
        return False

    def _release(self) -> None:
        if self._claimed is not None:
            self._nodes.release(self._claimed)
            self._claimed = None

    def _claim(self, key: TopicKey, wanted: RequestedAudit) -> bool:
        """Carry a request out, if no other auditor has it."""
        running = RunningAudit(
            self._auditor, wanted.id, self._clock.wall_ms(), offsets=wanted.offsets
        )
        self._claimed = key
        if not self._nodes.claim(key, wanted, running):
            self._claimed = None
            return False
        try:
            self._carry_out(key, wanted, running)
        except (Unavailable, OutcomeUnknown):
            raise
        except Exception as error:  # its outcome cannot be written: the next request is carried out
            logger.exception("audit %s of %s is tried again later", wanted.id, key)
            self.failures.add(wanted.id, reason_of(error), now_s=self._clock.monotonic_s())
        return True

    def _carry_out(self, key: TopicKey, wanted: RequestedAudit, running: RunningAudit) -> None:
        logger.info("audit %s of %s: %d offsets", wanted.id, key, wanted.offsets)
        if wanted.attempts >= MAX_ATTEMPTS:
            outcome = f"given up: begun {wanted.attempts} times without an end"
            self._finish(key, None, wanted, running, outcome, None)
            return
        intent = self._nodes.intent(key)
        if intent is None:
            logger.info("audit %s: %s is not whitelisted any more", wanted.id, key)
            self._finish(key, None, wanted, running, CANCELLED, None)
            return
        self._run(key, intent, wanted, running)

    def _run(
        self, key: TopicKey, intent: TopicIntent, wanted: RequestedAudit, running: RunningAudit
    ) -> None:
        last: list[AuditResult] = []

        def on_progress(result: AuditResult) -> None:
            last[:] = [result]
            self._progress(key, running, result, 0)

        def watch(passed: int) -> None:
            self._progress(key, running, last[0] if last else None, passed)

        try:
            result = self._compare(self._prepare(key, intent, wanted), on_progress, watch)
            last[:] = [result]
            outcome = outcome_of(result)
        except ClaimLost as lost:
            logger.warning("%s", lost)
            return
        except Withdrawn:
            outcome = CANCELLED
        except Exception as error:  # whatever Spark raises: the next request is carried out
            logger.exception("audit %s of %s failed", wanted.id, key)
            outcome = reason_of(error)
        self._finish(key, intent, wanted, running, outcome, last[0] if last else None)

    def _progress(
        self, key: TopicKey, running: RunningAudit, result: AuditResult | None, passed: int
    ) -> None:
        """`passed`: source offsets since the result."""
        partitions = result.partitions if result else ()
        verified = sum(
            max(0, partition.verified_to - partition.verified_from) for partition in partitions
        )
        now = replace(
            running,
            compared=min(running.offsets, verified + passed),
            differences=sum(difference_counts(result).values()) if result else 0,
        )
        try:
            self._nodes.progress(key, now)
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("progress of audit %s of %s: %s", running.id, key, error)

    def _finish(
        self,
        key: TopicKey,
        intent: TopicIntent | None,
        wanted: RequestedAudit,
        running: RunningAudit,
        outcome: str,
        result: AuditResult | None,
    ) -> None:
        run = run_of(
            result,
            id=wanted.id,
            auditor=self._auditor,
            started_ms=running.since_ms,
            ended_ms=self._clock.wall_ms(),
            outcome=outcome,
            report=self._report(key, wanted.id, result) if result else "",
        )
        logger.info("audit %s of %s: %s, %s", wanted.id, key, outcome, dict(run.differences))
        change = partial(
            with_result, result=result, run=run, intent=intent, at_ms=wanted.requested_ms
        )
        self._until_written(lambda: self._nodes.finish(key, wanted.id, change))
        self._until_written(self._release)
        self.counts[_counted(outcome)] += 1

    def _until_written(self, write: Callable[[], None]) -> None:
        """A result of hours is not lost to a connection that is away."""
        while True:
            try:
                return write()
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("the result is written when ZooKeeper responds: %s", error)
                self._wait(RETRY_S)


def _counted(outcome: str) -> str:
    """Label of an outcome in the metrics."""
    if outcome.startswith(NOT_VERIFIED):
        return "not_verified"
    return outcome if outcome in (DONE, CANCELLED) else "failed"
