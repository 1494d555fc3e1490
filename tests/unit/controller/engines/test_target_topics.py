"""A target topic is ensured beside other writers, and beside brokers that lag behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicInfo
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_controller.engines.target_topics import ensure_target
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin


class LaggingAdmin(MemoryTopicAdmin):
    """Its broker does not know new topics while it `lags`."""

    lags = True

    def find(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
        return {} if self.lags else super().find(names)


def ensure(source: MemoryTopicAdmin, target: MemoryTopicAdmin) -> None:
    ensure_target(
        "t",
        wanted=4,
        source_topic="t",
        source_partitions=4,
        source=source,
        target=target,
        replication_factor=BROKER_DEFAULT_REPLICATION,
    )


def test_a_topic_that_exists_and_is_not_listed_yet_is_no_refusal() -> None:
    """Another request has just created it: the caller repeats its own."""
    source, target = MemoryTopicAdmin(), LaggingAdmin()
    for admin in (source, target):
        admin.create_topic("t", partitions=4, configs={})
    with pytest.raises(ClusterUnavailable, match="do not list it yet"):
        ensure(source, target)
    target.lags = False
    ensure(source, target)
