"""Queue of a worker's events, in order; reports of one copier that wait in it are one.

Copiers report several times a second. While the loop is busy their reports would pile up without bound,
and the loop would work through states that are over. So a report is added to the last one that waits of
the same copier, unless another event of that copier came in between: a report from before a release must
not be joined with one from after it.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, replace

from ureplicator_worker.core.events import (
    CopierClosed,
    CopierConnected,
    CopierEnded,
    CopierLost,
    Event,
    FromCopier,
)
from ureplicator_worker.lifeline.messages import CopierId, CopierReport


@dataclass(slots=True)
class _Waiting:
    """Place of a report in the queue."""

    copier: CopierId
    report: CopierReport


class EventQueue:
    """Any thread may put, and a signal handler too: an event that is of no copier takes no lock."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event | _Waiting] = queue.SimpleQueue()
        self._reports: dict[CopierId, _Waiting] = {}
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        match event:
            case FromCopier(copier, CopierReport() as report):
                self._put_report(copier, report)
            case (
                CopierConnected(copier)
                | FromCopier(copier)
                | CopierClosed(copier)
                | CopierEnded(copier)
                | CopierLost(copier)
            ):
                with self._lock:
                    self._reports.pop(copier, None)
                    self._queue.put(event)
            case _:
                self._queue.put(event)

    def get(self, timeout_s: float) -> Event:
        """The oldest event. Raises queue.Empty."""
        taken = self._queue.get(timeout=timeout_s)
        if not isinstance(taken, _Waiting):
            return taken
        with self._lock:
            if self._reports.get(taken.copier) is taken:
                del self._reports[taken.copier]
            return FromCopier(taken.copier, taken.report)

    def _put_report(self, copier: CopierId, report: CopierReport) -> None:
        with self._lock:
            waiting = self._reports.get(copier)
            if waiting is None:
                waiting = self._reports[copier] = _Waiting(copier, report)
                self._queue.put(waiting)
            else:
                waiting.report = joined(waiting.report, report)


def joined(former: CopierReport, latter: CopierReport) -> CopierReport:
    """One report with the effect of both: counters only grow, so the last ones hold everything."""
    partitions = {**former.partitions, **latter.partitions}
    segments = {**former.segments, **latter.segments}
    handlers = {**former.handlers, **latter.handlers}
    return replace(latter, partitions=partitions, segments=segments, handlers=handlers)
