"""A target topic is ensured beside other writers, and beside brokers that lag behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicInfo, TopicRefused
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_controller.engines.target_topics import TIMESTAMP_LIMITS, ensure_target
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


def test_a_created_topic_keeps_times_and_records_whatever_its_brokers_have_by_default() -> None:
    source, target = MemoryTopicAdmin({"t": 4}), MemoryTopicAdmin()
    source.defaults = {
        "retention.ms": "604800000",
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "LogAppendTime",
    }
    target.defaults = {
        "retention.ms": "3600000",
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "gzip",
    }
    ensure(source, target)
    found = {name: setting.value for name, setting in target.settings_of("t").items()}
    assert (
        found.items()
        >= {
            "retention.ms": "604800000",
            "cleanup.policy": "delete",
            "max.message.bytes": "2000000",
            "message.timestamp.type": "CreateTime",
            "compression.type": "producer",
        }.items()
    )


def test_batches_that_the_sources_brokers_take_are_taken() -> None:
    source, target = MemoryTopicAdmin({"t": 4}), MemoryTopicAdmin()
    source.defaults = {"max.message.bytes": "5000000"}
    ensure(source, target)
    assert target.configs("t")["max.message.bytes"] == "5000000"


def test_a_cluster_that_refuses_the_codec_setting_gets_the_topic_without_it() -> None:
    source, target = MemoryTopicAdmin({"t": 4}), MemoryTopicAdmin()
    target.known_configs = {"message.timestamp.type", *TIMESTAMP_LIMITS[0]}
    ensure(source, target)
    assert target.configs("t") == {"message.timestamp.type": "CreateTime", **TIMESTAMP_LIMITS[0]}


def test_a_cluster_that_would_change_the_time_of_records_gets_no_topic() -> None:
    source, target = MemoryTopicAdmin({"t": 4}), MemoryTopicAdmin()
    target.known_configs = {"compression.type"}
    with pytest.raises(TopicRefused):
        ensure(source, target)
    assert target.topics() == {}
