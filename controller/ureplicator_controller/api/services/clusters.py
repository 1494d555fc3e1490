"""The topics of source and target as REST needs them: asked for seldom.

Reads for display take an answer that may be some seconds old, so that a dashboard or a scrape costs
the brokers nothing; decisions ask anew. A cluster that is away is remembered as long, else every
request would wait for the same time-out.
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
class _Answer:
    at_s: float
    topics: Mapping[str, TopicInfo]
    error: OperatingError | None = None


class ClusterTopics:
    """One cluster; made at first use, in the process that uses it."""

    def __init__(self, connect: Callable[[], TopicAdmin], *, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._admin: TopicAdmin | None = None
        self._answer: _Answer | None = None

    def admin(self) -> TopicAdmin:
        with self._lock:
            if self._admin is None:
                self._admin = self._connect()
            return self._admin

    def topics(self) -> Mapping[str, TopicInfo]:
        """As they are now. Raises what the cluster raises."""
        return self._ask()

    def recent_topics(self) -> Mapping[str, TopicInfo]:
        """As they were at most MAX_AGE_S ago. Raises what the cluster raised then."""
        with self._asking:  # who waited here takes the answer that came meanwhile
            answer = self._answer
            if answer is None or self._clock.monotonic_s() - answer.at_s > MAX_AGE_S:
                return self._ask()
        if answer.error is not None:
            raise answer.error
        return answer.topics

    def _ask(self) -> Mapping[str, TopicInfo]:
        try:
            topics = self.admin().topics()
        except OperatingError as error:
            self._answer = _Answer(self._clock.monotonic_s(), {}, error)
            raise
        self._answer = _Answer(self._clock.monotonic_s(), topics)
        return topics

    def close(self) -> None:
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None
