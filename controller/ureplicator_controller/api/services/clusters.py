"""Topics of a source or target cluster, listed at most every few seconds.

Reads for display accept a listing that is some seconds old, so that a dashboard costs the brokers nothing;
decisions read again. An error is cached as long, else every request would wait for the same timeout.

A scrape accepts an older one, and waits for no cluster longer than for the others: metrics are needed most
while clusters are away, and Prometheus has a time limit. `listed` asks all of them at once; a listing that
takes longer goes on, and the next scrape has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, TopicAdmin, TopicInfo

MAX_AGE_S = 5.0
SCRAPED_MAX_AGE_S = 30.0
"""Age up to which metrics take a description: every topic is described once in two scrapes, of which
others make no decision."""


@dataclass(frozen=True, slots=True)
class _Listing:
    at_s: float
    topics: Mapping[str, TopicInfo]
    error: OperatingError | None = None


class ClusterTopics:
    """One cluster; connected at first use, in the process that uses it."""

    def __init__(self, connect: Callable[[], TopicAdmin], *, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._admin: TopicAdmin | None = None
        self._listing: _Listing | None = None
        self._under_way: Future[None] | None = None

    def admin(self) -> TopicAdmin:
        with self._lock:
            if self._admin is None:
                self._admin = self._connect()
            return self._admin

    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics now. Raises OperatingError."""
        return self._read()

    def recent_topics(self) -> Mapping[str, TopicInfo]:
        """The topics as of at most MAX_AGE_S ago. Raises the OperatingError of that time."""
        with self._reading:  # concurrent requests share one listing
            listing = self._listing
            if listing is None or self._clock.monotonic_s() - listing.at_s > MAX_AGE_S:
                return self._read()
        if listing.error is not None:
            raise listing.error
        return listing.topics

    def begin(self, max_age_s: float) -> Future[None]:
        """Begin a listing, in a thread of its own, if the last one is older and none is under way. The
        result has none: `last` has what was found."""
        with self._lock:
            if self._under_way is None or self._under_way.done():
                self._under_way = self._begun(max_age_s)
            return self._under_way

    def _begun(self, max_age_s: float) -> Future[None]:
        found: Future[None] = Future()
        listing = self._listing
        if listing is not None and self._clock.monotonic_s() - listing.at_s <= max_age_s:
            found.set_result(None)
        else:
            threading.Thread(target=self._list_for, args=(found,), daemon=True).start()
        return found

    def _list_for(self, found: Future[None]) -> None:
        try:
            with suppress(OperatingError):
                self.topics()
        finally:
            found.set_result(None)

    def last(self) -> Mapping[str, TopicInfo]:
        """The last listing, whatever its age. Raises OperatingError: its error, or there was none."""
        listing = self._listing
        if listing is None:
            raise ClusterUnavailable("it has not responded yet")
        if listing.error is not None:
            raise listing.error
        return listing.topics

    def _read(self) -> Mapping[str, TopicInfo]:
        try:
            topics = self.admin().listing().topics
        except OperatingError as error:
            self._listing = _Listing(self._clock.monotonic_s(), {}, error)
            raise
        self._listing = _Listing(self._clock.monotonic_s(), topics)
        return topics

    def close(self) -> None:
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None


def listed(clusters: Iterable[ClusterTopics], *, max_age_s: float, timeout_s: float) -> None:
    """Begin a listing of each cluster that has none of this age, and wait for all of them so long."""
    deadline_s = time.monotonic() + timeout_s
    for begun in [cluster.begin(max_age_s) for cluster in clusters]:
        with suppress(FutureTimeout):
            begun.result(max(0.0, deadline_s - time.monotonic()))
