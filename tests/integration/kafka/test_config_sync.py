"""Settings of topics that follow on real brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicRefused
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.configs import ConfigWork
from ureplicator_controller.engines.syncs.thread import SyncThread
from ureplicator_controller.engines.syncs.topic_sync import TopicWorkSync
from ureplicator_controller.engines.target_limits import topic_warnings
from ureplicator_testkit.control.memory_reports import MemoryReports
from ureplicator_testkit.kafka.clients import own_settings
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

ROUTE = Route("source", "target")
SESSION = SessionId(0)
NEEDED = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings that copying needs, and brokers do not have by default."""


@pytest.fixture
def admins(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> Iterator[dict[str, ConfluentTopicAdmin]]:
    clusters = {"source": source_cluster, "target": target_cluster}
    admins = {
        name: ConfluentTopicAdmin({"bootstrap.servers": cluster.bootstrap})
        for name, cluster in clusters.items()
    }
    yield admins
    for admin in admins.values():
        admin.close()


def test_settings_follow_and_are_removed_again(
    admins: dict[str, ConfluentTopicAdmin], topic: str
) -> None:
    """A setting that is removed at the source has the target's default then, which may be another one; the
    lifetime of records has the source's."""
    source, target = admins["source"], admins["target"]
    synced = {"retention.ms": "7000", "segment.ms": "80000"}
    own = {**synced, "min.insync.replicas": "2", "max.message.bytes": "5000000"}
    source.create_topic(topic, partitions=1, configs=own)
    target.create_topic(topic, partitions=1, configs={"segment.ms": "90000"})
    sync = opened(admins, topic)
    sync.run_once()
    needed = {**NEEDED, "max.message.bytes": "5000000"}
    wait_for_settings(target, topic, {**synced, **needed})
    assert source.alter_settings({topic: dict.fromkeys(own)}) == {}
    wait_for_settings(source, topic, {})
    sync.run_once()
    retention = {"retention.ms": source.settings_of(topic)["retention.ms"].value}
    wait_for_settings(target, topic, {**retention, **needed})


def test_a_setting_that_was_changed_at_the_target_is_put_back_and_an_excluded_one_is_left(
    admins: dict[str, ConfluentTopicAdmin], topic: str
) -> None:
    source, target = admins["source"], admins["target"]
    source.create_topic(topic, partitions=1, configs={"retention.ms": "7000"})
    target.create_topic(topic, partitions=1, configs={})
    sync = opened(admins, topic)
    sync.run_once()
    wait_for_settings(target, topic, {"retention.ms": "7000", **NEEDED})
    changed = {"retention.ms": "9000", "min.insync.replicas": "2", **NEEDED}
    assert target.alter_settings({topic: changed}) == {}
    wait_for_settings(target, topic, changed)
    sync.run_once()
    wait_for_settings(target, topic, {**changed, "retention.ms": "7000"})


def test_defaults_of_the_source_take_the_place_of_the_targets_own(
    admins: dict[str, ConfluentTopicAdmin], topic: str
) -> None:
    """Scenario 11 of MirrorMaker 2. Brokers have one retention by default, unless they are configured."""
    source, target = admins["source"], admins["target"]
    source.create_topic(topic, partitions=1, configs={})
    target.create_topic(
        topic, partitions=1, configs={"retention.ms": "7000", "min.insync.replicas": "2"}
    )
    opened(admins, topic, use_defaults_from="source").run_once()
    default = source.settings([topic], timeout_s=10)[topic]
    assert not isinstance(default, OperatingError)
    retention = {"retention.ms": default["retention.ms"].value}
    wait_for_settings(target, topic, {"min.insync.replicas": "2", **NEEDED, **retention})


def test_a_target_topic_that_existed_and_harms_records_is_named_and_left_as_it_is(
    admins: dict[str, ConfluentTopicAdmin], topic: str
) -> None:
    source, target = admins["source"], admins["target"]
    source.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
    harmful = {"message.timestamp.type": "LogAppendTime", "retention.ms": "7000"}
    target.create_topic(topic, partitions=1, configs=harmful)
    wait_for_settings(target, topic, harmful)
    warned = topic_warnings(topic, topic, source=source, target=target)
    assert [text.partition(",")[0].rpartition(": ")[2] for text in warned] == [
        "message.timestamp.type is LogAppendTime",
        "retention.ms is 7000",
    ]
    reports = MemoryReports()
    opened(admins, topic, reports=reports, enabled=False).run_once()
    assert reports.passes == [({"harmful": 1}, f"{topic}: {'; '.join(warned)}")]
    assert reports.harms == [{topic: "; ".join(warned)}]
    assert own_settings(target.settings_of(topic)) == harmful
    mended = {"message.timestamp.type": "CreateTime", "retention.ms": "-1", **NEEDED}
    assert target.alter_settings({topic: mended}) == {}
    wait_for_settings(target, topic, mended)
    opened(admins, topic, reports=reports, enabled=False).run_once()
    assert reports.harms[-1] == {}


def wait_for_settings(admin: ConfluentTopicAdmin, topic: str, expected: Mapping[str, str]) -> None:
    """Wait for the broker to answer with these settings, some time after the controller took them."""
    eventually(
        lambda: own_settings(admin.settings_of(topic)) == expected,
        20,
        f"the settings of {topic} are {expected}",
    )


def opened(
    admins: dict[str, ConfluentTopicAdmin],
    topic: str,
    *,
    reports: MemoryReports | None = None,
    **settings: str | bool,
) -> SyncThread:
    """A sync of the settings of this topic alone."""
    source, target = admins["source"], admins["target"]
    ids = {name: admin.find([topic])[topic].topic_id for name, admin in admins.items()}
    intent = TopicIntent(
        1, 1, source_topic_id=ids["source"], target_topic_id=ids["target"], target_topic=topic
    )
    snapshot = Snapshot(
        fleet="f",
        epoch=1,
        routes={ROUTE: Stored(RouteSettings(), 0, 0, SESSION)},
        topics={TopicKey(ROUTE, topic): Stored(intent, 0, 0, SESSION)},
    )
    config = {**ROUTE._asdict(), "sync_topic_configs": {"enabled": True, **settings}}
    work = ConfigWork(
        config=RouteConfig.model_validate(config), source=lambda: source, target=lambda: target
    )
    return SyncThread(
        route=ROUTE,
        sync=TopicWorkSync(ROUTE, work, metrics=ControlMetrics(CollectorRegistry())),
        seen=lambda: (1, snapshot),
        interval_s=60.0,
        clock=SystemClock(),
        reports=reports or MemoryReports(),
    )


def test_refused_changes_of_a_topic_are_its_own(
    admins: dict[str, ConfluentTopicAdmin], topic: str
) -> None:
    target = admins["target"]
    for name in (topic, f"{topic}-2"):
        target.create_topic(name, partitions=1, configs={})
    refused = target.alter_settings(
        {
            topic: {"retention.ms": "6000", "segment.ms": "x"},
            f"{topic}-2": {"retention.ms": "6000"},
            f"{topic}-3": {"retention.ms": "6000"},
        }
    )
    assert sorted(refused) == [topic, f"{topic}-3"]
    assert all(isinstance(error, TopicRefused) for error in refused.values())
    wait_for_settings(target, f"{topic}-2", {"retention.ms": "6000"})
    assert own_settings(target.settings_of(topic)) == {}
    assert target.alter_settings({}) == {}
