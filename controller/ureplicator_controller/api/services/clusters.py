"""Topics of a source or target cluster, listed at most every few seconds.

Reads for display accept a listing that is some seconds old, so that a dashboard or a scrape costs the
brokers nothing; decisions read again. An error is cached as long, else every request would wait for the
same timeout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin, TopicInfo

MAX_AGE_S = 5.0


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

    def _read(self) -> Mapping[str, TopicInfo]:
        try:
            topics = self.admin().topics()
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
