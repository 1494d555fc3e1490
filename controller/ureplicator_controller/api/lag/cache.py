"""When to look at how far the partitions are: only while somebody asks, and nobody waits long.

Who asks within `FRESH_S` of a look is given that look. Who asks later starts the next one, and all who ask
meanwhile share it: the number of looks does not grow with the number of calls. Nobody asks: nothing is
read.

An answer is given after `ANSWER_S` at the latest, from an older look if need be: its age is shown. While
looks take longer than that, as when a cluster does not answer, nobody waits for one.
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
from ureplicator_controller.api.lag.collector import LagCollector, LagReport, Topics

ANSWER_S = 1.5
FRESH_S = 5.0

logger = logging.getLogger(__name__)


class LagCache:
    """Shared by all threads that serve requests. `wanted` tells what is whitelisted now."""

    def __init__(
        self, collector: LagCollector, *, wanted: Callable[[], Topics], clock: Clock
    ) -> None:
        self._collector = collector
        self._wanted = wanted
        self._clock = clock
        self._lock = Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._under_way: Future[LagReport] | None = None
        self._last: LagReport | None = None
        self._took_s = 0.0

    def report(self, key: TopicKey | None = None, *, partitions: int = 0) -> LagReport | None:
        """The newest look that can be had soon, or None.

        `key`: a topic that it must have, with so many partitions; whoever whitelists one asks at once.
        Raises what `wanted` raises.
        """
        with self._lock:
            last = self._last
            holds = last is not None and (key is None or _holds(last, key, partitions))
            if last is not None and holds and self.age_s(last) < FRESH_S:
                return last
            look = self._under_way
            if look is None or look.done():
                look = self._under_way = self._thread.submit(self._look)
            waits = not holds or self._took_s < ANSWER_S
        try:
            return look.result(timeout=ANSWER_S if waits else 0)
        except FutureTimeout:
            return last

    def age_s(self, report: LagReport) -> float:
        return max(0.0, self._clock.monotonic_s() - report.at_s)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._collector.close()

    def _look(self) -> LagReport:
        began_s = self._clock.monotonic_s()
        try:
            report = self._collector.look(self._wanted())
        except OperatingError:
            raise
        except Exception:
            logger.exception("looking at the partitions failed")  # maybe nobody waits for it
            raise
        with self._lock:
            self._last = report
            self._took_s = report.at_s - began_s
        return report


def _holds(report: LagReport, key: TopicKey, partitions: int) -> bool:
    return len(report.topics.get(key, ())) >= partitions
