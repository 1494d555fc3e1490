"""The driver as the copier's loop sees it: messages over the lifeline, until it closes.

The driver keeps the last report of each partition, so only changes are sent (`reports`). A link has no
successor: the next copier of the slot begins with a report of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ureplicator_common.model import Limited, Partition
from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.copier.reporting import ReportDelta, SegmentDelta
from ureplicator_worker.lifeline.client import LifelineClient, LifelineClosed
from ureplicator_worker.lifeline.measures import Measures, Segment
from ureplicator_worker.lifeline.messages import (
    CopierReport,
    Failed,
    HandlerReport,
    LimitUse,
    Message,
    PartitionReport,
    Released,
)


class DriverLink:
    """A `SocketGroup` of one socket; `received` gets each message of the driver."""

    def __init__(self, lifeline: LifelineClient, *, received: Callable[[Message], None]) -> None:
        self.closed = False
        self.reports = ReportDelta()
        self.segments = SegmentDelta()
        self._lifeline = lifeline
        self._received = received

    @property
    def open(self) -> tuple[LifelineClient, ...]:
        return () if self.closed else (self._lifeline,)

    @property
    def ready(self) -> bool:
        """The driver has read everything so far. Reports wait for it, since memory is finite."""
        return not self.closed and not self._lifeline.wants_write

    def report(
        self,
        partitions: Mapping[Partition, PartitionReport],
        latency: LatencyHistogram,
        segments: Mapping[Partition, Sequence[Segment]],
        limits: Mapping[Limited, LimitUse],
        handlers: Mapping[str, HandlerReport],
        measures: Measures,
    ) -> None:
        """Send what has changed, even if that is nothing: a silent copier is killed."""
        self.send(
            CopierReport(
                self.reports.changed(partitions),
                tuple(latency.counts),
                int(latency.sum_ms),
                self.segments.changed(segments),
                limits,
                handlers,
                measures,
            )
        )

    def send(self, message: Message) -> None:
        if self.closed:
            return
        match message:
            case Released(partitions):
                self._forget(partitions)
            case Failed(partition):
                self._forget((partition,))
        try:
            self._lifeline.send(message)
        except LifelineClosed:
            self.close()

    def _forget(self, partitions: tuple[Partition, ...]) -> None:
        self.reports.forget(partitions)
        self.segments.forget(partitions)

    def on_readable(self, socket: LifelineClient, now_s: float) -> None:
        try:
            for message in self._lifeline.on_readable():
                self._received(message)
        except LifelineClosed:
            self.close()

    def on_writable(self, socket: LifelineClient, now_s: float) -> None:
        try:
            self._lifeline.on_writable()
        except LifelineClosed:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._lifeline.close()
