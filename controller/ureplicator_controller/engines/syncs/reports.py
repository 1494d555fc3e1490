"""Reports of the last passes of each sync, for REST and its clients.

The leader writes them, fenced by its epoch. A report whose figures are the same is written again after
REFRESH_S, so that its time is not older than that and the interval of the sync. A report that could not be
written is written after the next pass: it decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Unavailable, create_or_set, version_of
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import SyncKind, SyncReport
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync, encode_sync
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter, WriteOutcome

log = logging.getLogger(__name__)

REFRESH_S = 10.0
MAX_TEXT = 500
"""Characters of an error, and of the harm to one topic, that are stored."""
MAX_HARMED = 1_000
"""Topics with harm that are stored: their names and texts stay below the largest node."""
NO_HARM: Mapping[str, str] = MappingProxyType({})


class Reports(Protocol):
    """Reports of one sync. Belongs to its thread."""

    def passed(
        self,
        epoch: int,
        states: Mapping[str, int],
        left: str,
        *,
        age_s: float | None = None,
        harm: Mapping[str, str] = NO_HARM,
    ) -> None:
        """A pass has read both clusters; `left`: why the first one is not as it should be, or ""; `harm`: of
        target topics to records, by source topic."""
        ...

    def failed(self, epoch: int, error: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNeeds:
    """Everything that the reports of a process share."""

    coordination: Coordination
    paths: Paths
    clock: Clock
    metrics: ControlMetrics

    def of(self, kind: SyncKind, route: Route) -> StoredReports:
        writer = FencedWriter(self.coordination, paths=self.paths, metrics=self.metrics)
        path = self.paths.sync(kind, route)
        return StoredReports(
            coordination=self.coordination, path=path, writer=writer, clock=self.clock
        )


class StoredReports:
    """`Reports` in `syncs/<kind>/<route>`."""

    def __init__(
        self, *, coordination: Coordination, path: str, writer: FencedWriter, clock: Clock
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._writer = writer
        self._clock = clock
        self._written: tuple[int, SyncReport] | None = None
        self._due_s = 0.0

    def passed(
        self,
        epoch: int,
        states: Mapping[str, int],
        left: str,
        *,
        age_s: float | None = None,
        harm: Mapping[str, str] = NO_HARM,
    ) -> None:
        found = {state: count for state, count in sorted(states.items()) if count}
        now_ms = self._clock.wall_ms()
        report = SyncReport(
            passed_at_ms=now_ms,
            states=found,
            error=left[:MAX_TEXT],
            age_s=age_s,
            harm={topic: harm[topic][:MAX_TEXT] for topic in sorted(harm)[:MAX_HARMED]},
        )
        self._store(epoch, report)

    def failed(self, epoch: int, error: str) -> None:
        """The last pass that was not failed keeps its time and figures."""
        try:
            before = self._before(epoch)
        except Unavailable as unavailable:
            log.debug("%s: not written: %s", self._path, unavailable)
            return
        now_ms = self._clock.wall_ms()
        self._store(epoch, replace(before, failed_at_ms=now_ms, error=error[:MAX_TEXT]))

    def _before(self, epoch: int) -> SyncReport:
        """The report that the next one takes the place of. Raises Unavailable."""
        if self._written is not None and self._written[0] == epoch:
            return self._written[1]
        node = self._coordination.get(self._path)
        try:
            return decode_sync(node.data) if node is not None else SyncReport()
        except UnreadableContent:
            return SyncReport()

    def _store(self, epoch: int, report: SyncReport) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._due_s and self._is_known(epoch, report):
            return
        try:
            version = version_of(self._coordination.get(self._path))
            written = self._writer.write(
                [create_or_set(self._path, encode_sync(report), version)], epoch=epoch
            )
        except Unavailable as error:
            log.debug("%s: not written: %s", self._path, error)
            return
        if written is WriteOutcome.DONE:
            self._written, self._due_s = (epoch, report), now_s + REFRESH_S

    def _is_known(self, epoch: int, report: SyncReport) -> bool:
        if self._written is None or self._written[0] != epoch:
            return False
        before = self._written[1]
        is_same_kind = bool(before.failed_at_ms) is bool(report.failed_at_ms)
        return is_same_kind and _figures(before) == _figures(report)


def _figures(report: SyncReport) -> object:
    """Contents of a report, but for its times."""
    return report.states, report.error, report.harm
