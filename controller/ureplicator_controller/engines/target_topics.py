"""Creation and expansion of target topics, for REST and for the leader.

**Settings of a target topic.** The partition count of the source, since a record keeps its partition
number. Replicas as the route is configured, by default as many as the target's brokers have it, since the
clusters differ. And those settings that decide which records are accepted, which time they have and how
long they are kept, with the values that are in force at the source, its brokers' defaults included: a target
whose brokers keep an hour would lose what the source keeps. All other settings (segment sizes, replica
placement) are left to the operator of the target.

Records keep their time: `message.timestamp.type` is `CreateTime` whatever either side has by default. The
copier writes the times that the brokers of the source stamped as times of creation.

And no limits for timestamps. What the source accepted, the target accepts: records of any age, and of
clocks that are ahead. Brokers of 4.0 and later refuse by default what is over an hour ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    TopicAdmin,
    TopicAlreadyExists,
    TopicRefused,
    TopicSetting,
)
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.topics.partition_counts import may_raise, narrow_target
from ureplicator_controller.core.topics.target_limits import LIFETIME, NO_LIMIT_MS

SIZE_LIMIT = "max.message.bytes"
USUAL_SIZE_LIMIT = 1_048_588
"""Kafka's default (1 MiB and the header of a batch). A source with no more leaves the limit to the target's
brokers, so that raising it there raises it for all their topics."""
RECORD_TIME = {"message.timestamp.type": "CreateTime"}
COMPRESSIONS: Sequence[Mapping[str, str]] = ({"compression.type": "producer"}, {})
"""Batches are stored as they are sent, unless a cluster with a policy for topics refuses the setting."""
TIMESTAMP_LIMITS: Sequence[Mapping[str, str]] = (
    {
        "message.timestamp.before.max.ms": str(NO_LIMIT_MS),
        "message.timestamp.after.max.ms": str(NO_LIMIT_MS),
    },
    {"message.timestamp.difference.max.ms": str(NO_LIMIT_MS)},
    {},
)
"""Limits that are tried in this order. Brokers before 3.6 do not know the first, those from 4.0 on not
the second; a cluster with a policy for topics may refuse both, and is taken as it is."""
_MAX_ATTEMPTS = 3
"""Another writer may create, expand or delete the topic between the read and the write."""


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A target topic that is there. `topic_id`: "" of brokers without topic ids; `is_created`: by this
    process, and by nobody else; `is_raised`: partitions were added."""

    topic_id: str
    is_created: bool
    is_raised: bool = False


def target_configs(source: Mapping[str, TopicSetting]) -> dict[str, str]:
    """Settings that a target topic is created with, by those in force at the source."""
    copied = {name: setting.value for name, setting in source.items() if name in LIFETIME}
    limit = source.get(SIZE_LIMIT)
    if limit is not None and (limit.is_own or int(limit.value) > USUAL_SIZE_LIMIT):
        copied[SIZE_LIMIT] = limit.value
    return {**copied, **RECORD_TIME}


def ensure_target(
    topic: str,
    *,
    wanted: int,
    source_topic: str,
    source_partitions: int,
    source: TopicAdmin,
    target: TopicAdmin,
    replication_factor: int,
    known: TopicIntent | None = None,
    raise_partitions: bool = False,
) -> TargetTopic:
    """Create the target topic if it is missing, expand it if it has fewer partitions than `wanted`, and may
    be expanded (`core.topics.partition_counts`). `known`: the intent that the topic is copied by;
    `raise_partitions`: operators request that it is expanded.

    Raises ClusterUnavailable and TopicRefused.
    """
    refused: OperatingError | None = None
    for _ in range(_MAX_ATTEMPTS):
        there = target.find([topic]).get(topic)
        if there is not None and there.error:
            raise ClusterUnavailable(f"{topic}: {there.error}")
        if there is not None and there.partitions >= wanted:
            return TargetTopic(there.topic_id, False)
        if there is not None and not raise_partitions and not may_raise(known, there):
            raise TopicRefused(narrow_target(topic, there, wanted))
        try:
            if there is not None:
                target.grow_topic(topic, partitions=wanted)
                return TargetTopic(there.topic_id, False, is_raised=True)
            created_id = _create(
                target,
                topic,
                partitions=max(wanted, source_partitions),
                configs=target_configs(source.settings_of(source_topic)),
                replication_factor=replication_factor,
            )
            return TargetTopic(created_id, True)
        except (TopicAlreadyExists, TopicRefused) as error:
            refused = error  # or another writer was faster: the next read shows it
    if isinstance(refused, TopicAlreadyExists):
        raise ClusterUnavailable(f"{topic} exists, and the brokers do not list it yet")
    raise TopicRefused(str(refused))


def with_target(intent: TopicIntent, target: TargetTopic) -> TopicIntent:
    """The intent of a topic whose target topic was ensured. An id that it has stays: it is compared."""
    return replace(
        intent,
        target_topic_id=intent.target_topic_id or target.topic_id,
        target_created=intent.target_created or target.is_created,
    )


def _create(
    target: TopicAdmin,
    topic: str,
    *,
    partitions: int,
    configs: Mapping[str, str],
    replication_factor: int,
) -> str:
    """The id of the created topic. Raises ClusterUnavailable, TopicAlreadyExists, TopicRefused."""
    refused: TopicRefused | None = None
    for limits, compression in product(TIMESTAMP_LIMITS, COMPRESSIONS):
        try:
            return target.create_topic(
                topic,
                partitions=partitions,
                configs={**configs, **limits, **compression},
                replication_factor=replication_factor,
            )
        except TopicRefused as error:
            refused = refused or error
    assert refused is not None
    raise refused
