"""The topics of source and target as REST needs them: asked for seldom, and made on the target.

Reads for display take an answer that may be some seconds old, so that a dashboard or a scrape costs
the brokers nothing; decisions ask anew. A cluster that is away is remembered as long, else every
request would wait for the same time-out.

**What a target topic is made with.** The source's partition count, since a record keeps its
partition number. The broker's default replication, since the clusters differ. And of the settings
that the source topic was given itself only those that decide which records may enter and how long
they live: with a smaller message limit the copy would stop, with a longer retention it would hold
what its owner wanted gone. All else (segment sizes, placement of replicas) is the target
operator's own affair.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin, TopicAlreadyExists, TopicInfo, TopicRefused

COPIED_CONFIGS = frozenset(
    {
        "cleanup.policy",
        "max.message.bytes",
        "retention.ms",
        "retention.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
    }
)

MAX_AGE_S = 5.0
_ATTEMPTS = 3
"""Somebody else may make, grow or delete the topic between our look and our word; not for ever."""


def target_configs(source_configs: Mapping[str, str]) -> dict[str, str]:
    """What the source topic's own settings mean for its copy."""
    return {name: text for name, text in source_configs.items() if name in COPIED_CONFIGS}


@dataclass(frozen=True, slots=True)
class _Answer:
    at_s: float
    topics: Mapping[str, TopicInfo]
    error: OperatingError | None = None


class Cluster:
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


def ensure_target(
    topic: str,
    *,
    wanted: int,
    source_topic: str,
    source_partitions: int,
    source: Cluster,
    target: Cluster,
) -> None:
    """Make the target topic if it is missing, grow it if it is smaller than `wanted`.

    Raises ClusterUnavailable and TopicRefused.
    """
    refused: OperatingError | None = None
    for _ in range(_ATTEMPTS):
        there = target.topics().get(topic)
        if there is not None and there.partitions >= wanted:
            return
        try:
            if there is None:
                configs = target_configs(source.admin().configs(source_topic))
                partitions = max(wanted, source_partitions)
                target.admin().create_topic(topic, partitions=partitions, configs=configs)
            else:
                target.admin().grow_topic(topic, partitions=wanted)
            return
        except (TopicAlreadyExists, TopicRefused) as error:
            refused = error  # unless somebody else was faster: the next look tells
    raise TopicRefused(str(refused))
