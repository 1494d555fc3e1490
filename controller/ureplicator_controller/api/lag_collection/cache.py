"""Cache of the lag report: when a new one is collected, and how long a request waits for it.

A request within `FRESH_S` of the last collection gets that report. A later request starts the next
collection, and all requests that arrive meanwhile share it: the number of collections does not grow
with the number of requests. Without requests nothing is read from the clusters.

A request returns within `RESPONSE_TIMEOUT_S`, with an older report if need be; the response carries
its age. While collections take longer than that, as when a cluster does not respond, no request waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Lock

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.lag_collection.collector import (
    IntentsByKey,
    LagCollector,
    LagReport,
)

RESPONSE_TIMEOUT_S = 1.5
FRESH_S = 5.0

log = logging.getLogger(__name__)


class LagCache:
    """The last lag report, shared by all threads that serve requests. `whitelisted` returns the intents
    of now."""

    def __init__(
        self, collector: LagCollector, *, whitelisted: Callable[[], IntentsByKey], clock: Clock
    ) -> None:
        self._collector = collector
        self._whitelisted = whitelisted
        self._clock = clock
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lag")
        self._under_way: Future[LagReport] | None = None
        self._last: LagReport | None = None
        self._took_s = 0.0

    def report(
        self,
        key: TopicKey | None = None,
        *,
        partitions: int = 0,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> LagReport | None:
        """The newest report that is available within `timeout_s`, or None.

        `key`: a topic that the report must cover, with this many partitions: a topic that was just
        whitelisted is missing from a cached report. Raises what `whitelisted` raises.
        """
        with self._lock:
            last = self._last
            covers = last is not None and (key is None or _covers(last, key, partitions))
            if last is not None and covers and self.age_s(last) < FRESH_S:
                return last
            collection = self._under_way
            if collection is None or collection.done():
                collection = self._under_way = self._thread.submit(self._collect)
            waits = not covers or self._took_s < timeout_s
        try:
            return collection.result(timeout=timeout_s if waits else 0)
        except FutureTimeout:
            return last

    def age_s(self, report: LagReport) -> float:
        return max(0.0, self._clock.monotonic_s() - report.at_s)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._collector.close()

    def _collect(self) -> LagReport:
        began_s = self._clock.monotonic_s()
        try:
            report = self._collector.collect(self._whitelisted())
        except OperatingError:
            raise
        except Exception:
            log.exception("collecting lag failed")  # no request may be waiting for the result
            raise
        with self._lock:
            self._last = report
            self._took_s = report.at_s - began_s
        return report


def _covers(report: LagReport, key: TopicKey, partitions: int) -> bool:
    return len(report.topics.get(key, ())) >= partitions
