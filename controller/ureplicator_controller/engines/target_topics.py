"""Makes target topics, for REST and for the leader alike.

**What a target topic is made with.** The source's partition count, since a record keeps its
partition number. The broker's default replication, since the clusters differ. And of the settings
that the source topic was given itself only those that decide which records may enter and how long
they live: with a smaller message limit the copy would stop, with a longer retention it would hold
what its owner wanted gone. All else (segment sizes, placement of replicas) is the target
operator's own affair.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    TopicAdmin,
    TopicAlreadyExists,
    TopicRefused,
)

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
_ATTEMPTS = 3
"""Somebody else may make, grow or delete the topic between our look and our word; not for ever."""


def target_configs(source_configs: Mapping[str, str]) -> dict[str, str]:
    """What the source topic's own settings mean for its copy."""
    return {name: text for name, text in source_configs.items() if name in COPIED_CONFIGS}


def ensure_target(
    topic: str,
    *,
    wanted: int,
    source_topic: str,
    source_partitions: int,
    source: TopicAdmin,
    target: TopicAdmin,
) -> None:
    """Make the target topic if it is missing, grow it if it is smaller than `wanted`.

    Raises ClusterUnavailable and TopicRefused.
    """
    refused: OperatingError | None = None
    for _ in range(_ATTEMPTS):
        there = target.find([topic]).get(topic)
        if there is not None and there.trouble:
            raise ClusterUnavailable(f"{topic}: {there.trouble}")
        if there is not None and there.partitions >= wanted:
            return
        try:
            if there is None:
                configs = target_configs(source.configs(source_topic))
                partitions = max(wanted, source_partitions)
                target.create_topic(topic, partitions=partitions, configs=configs)
            else:
                target.grow_topic(topic, partitions=wanted)
            return
        except (TopicAlreadyExists, TopicRefused) as error:
            refused = error  # unless somebody else was faster: the next look tells
    raise TopicRefused(str(refused))
