"""Settings that a target topic should have, by those of its source topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.config.route import ConfigSyncSettings
from ureplicator_common.kafka import ClusterUnavailable, TopicInfo, TopicSetting
from ureplicator_common.model import (
    DefaultsFrom,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    TopicState,
)
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.configs import (
    EXCLUDED,
    NOT_ENABLED,
    NOT_THERE,
    ConfigRules,
    Settings,
    Side,
    TopicDrift,
    differences,
    topic_drift,
)
from ureplicator_controller.core.syncs.topics import SyncedTopic, synced_topics
from ureplicator_controller.core.topics.target_limits import NO_LIMIT_MS

ROUTE = Route("a", "b")
RULES = ConfigRules(is_enabled=True, exclude=ConfigSyncSettings().exclude)
DEFAULTS = {
    "compression.type": "producer",
    "max.message.bytes": "1000",
    "message.timestamp.after.max.ms": str(NO_LIMIT_MS),
    "message.timestamp.before.max.ms": str(NO_LIMIT_MS),
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.ms": "7",
    "segment.ms": "5",
}


def settings(own: dict[str, str] | None = None, **defaults: str) -> Settings:
    """`defaults` with underscores for dots."""
    brokers = DEFAULTS | {name.replace("_", "."): value for name, value in defaults.items()}
    found = {name: TopicSetting(value) for name, value in brokers.items()}
    return found | {name: TopicSetting(value, True) for name, value in (own or {}).items()}


def changes(source: Settings, target: Settings) -> dict[str, str | None]:
    found = differences(source, target, rules=RULES)
    return {change.name: change.wanted for change in found if not change.kept}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        pytest.param({"retention.ms": "9"}, {}, {"retention.ms": "9"}, id="set at the source"),
        pytest.param({"retention.ms": "9"}, {"retention.ms": "9"}, {}, id="equal"),
        pytest.param({"retention.ms": "7"}, {}, {}, id="equal to the target's default"),
        pytest.param({}, {"segment.ms": "9"}, {"segment.ms": None}, id="set at the target"),
        pytest.param(
            {}, {"retention.ms": "9"}, {"retention.ms": "7"}, id="lifetime set at the target"
        ),
        pytest.param({}, {"retention.ms": "7"}, {}, id="set at the target as the source has it"),
        pytest.param({"compression.type": "zstd"}, {}, {}, id="codec of the source"),
        pytest.param(
            {},
            {"compression.type": "gzip"},
            {"compression.type": "producer"},
            id="codec of the target",
        ),
        pytest.param(
            {"max.message.bytes": "2000"}, {}, {"max.message.bytes": "2000"}, id="larger batches"
        ),
        pytest.param({"max.message.bytes": "500"}, {}, {}, id="size limit is not lowered"),
        pytest.param({}, {"max.message.bytes": "2000"}, {}, id="own size limit is kept"),
        pytest.param(
            {},
            {"max.message.bytes": "500"},
            {"max.message.bytes": "1000"},
            id="own size limit is too small",
        ),
        pytest.param(
            {"message.timestamp.before.max.ms": "5"}, {}, {}, id="limit of the source is not copied"
        ),
        pytest.param(
            {},
            {"message.timestamp.after.max.ms": "5"},
            {"message.timestamp.after.max.ms": str(NO_LIMIT_MS)},
            id="limit for timestamps",
        ),
    ],
)
def test_changes(
    source: dict[str, str], target: dict[str, str], expected: dict[str, str | None]
) -> None:
    assert changes(settings(source), settings(target)) == expected


def test_defaults_that_differ_are_left_unless_copying_needs_them() -> None:
    other = settings(segment_ms="1", compression_type="lz4", max_message_bytes="10")
    assert changes(settings(), other) == {
        "compression.type": "producer",
        "max.message.bytes": "1000",
    }


def test_a_lifetime_that_is_removed_at_the_source_is_not_left_to_the_targets_brokers() -> None:
    """Their default may be an hour, and deletes what the source keeps."""
    found = changes(settings(retention_ms="9"), settings({"retention.ms": "20"}, retention_ms="1"))
    assert found == {"retention.ms": "9"}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("-1", "7", {"retention.ms": "-1"}),
        ("9", "7", {"retention.ms": "9"}),
        ("7", "9", {}),
        ("7", "-1", {}),
    ],
)
def test_a_default_by_which_the_target_keeps_records_shorter_is_a_difference(
    source: str, target: str, expected: dict[str, str]
) -> None:
    assert changes(settings(retention_ms=source), settings(retention_ms=target)) == expected


def test_a_default_by_which_the_target_compacts_is_a_difference() -> None:
    source, target = settings(cleanup_policy="delete"), settings(cleanup_policy="compact")
    assert changes(source, target) == {"cleanup.policy": "delete"}
    assert changes(target, source) == {"cleanup.policy": "compact"}


def test_defaults_of_the_source_are_set_at_the_target_if_so_configured() -> None:
    rules = replace(RULES, defaults_from=DefaultsFrom.SOURCE)
    source, target = (
        settings(retention_ms="1", min_insync_replicas="2", segment_ms="5"),
        settings({"retention.bytes": "9"}, segment_ms="5"),
    )
    found = differences(source, target, rules=rules)
    assert {change.name: (change.wanted, change.kept) for change in found} == {
        "min.insync.replicas": ("2", EXCLUDED),
        "retention.ms": ("1", ""),
    }


def test_an_own_setting_of_the_target_gives_way_to_the_sources_default() -> None:
    rules = replace(RULES, defaults_from=DefaultsFrom.SOURCE)
    found = differences(settings(), settings({"retention.ms": "9"}), rules=rules)
    assert [(change.name, change.wanted) for change in found] == [("retention.ms", "7")]


def test_a_setting_that_only_the_targets_brokers_know_is_left() -> None:
    assert changes(settings(), settings({"remote.storage.enable": "true"})) == {}


def test_a_setting_that_the_targets_brokers_do_not_know_is_shown() -> None:
    (found,) = differences(settings({"remote.storage.enable": "true"}), settings(), rules=RULES)
    assert (found.name, found.source, found.target) == ("remote.storage.enable", "true", None)
    assert found.kept == NOT_THERE


def test_excluded_settings_are_shown_and_left() -> None:
    source, target = {"min.insync.replicas": "2"}, {"message.timestamp.type": "LogAppendTime"}
    found = differences(settings(source), settings(target), rules=RULES)
    assert {change.name: change.kept for change in found} == {
        "min.insync.replicas": EXCLUDED,
        "message.timestamp.type": EXCLUDED,
    }
    assert "xmin.insync.replicas" not in [change.name for change in found]
    all_included = ConfigRules(is_enabled=True, exclude=())
    found = differences(settings(source), settings(target), rules=all_included)
    assert {change.name: change.wanted for change in found} == {
        "min.insync.replicas": "2",
        "message.timestamp.type": "CreateTime",
    }


def test_patterns_match_whole_names() -> None:
    rules = ConfigRules(is_enabled=True, exclude=("retention",))
    assert rules.kept("retention.ms") == ""
    assert rules.kept("retention") == EXCLUDED
    assert ConfigRules(is_enabled=False, exclude=()).kept("retention.ms") == NOT_ENABLED


# --- Topics


def drift(source: Side, target: Side) -> TopicDrift:
    topic = SyncedTopic("t", "x.t", source_id="S", target_id="T")
    return topic_drift(topic, source, target, rules=RULES)


def test_topics_that_are_equal() -> None:
    found = drift(Side(TopicInfo(2, "S"), settings()), Side(TopicInfo(2, "T"), settings()))
    assert not found.has_any


def test_partition_counts_that_differ() -> None:
    found = drift(Side(TopicInfo(3, "S"), settings()), Side(TopicInfo(2, "T"), settings()))
    assert found.has_any
    assert (found.source_partitions, found.target_partitions) == (3, 2)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (None, TopicInfo(1), "source topic t does not exist"),
        (TopicInfo(1), None, "target topic x.t does not exist"),
        (TopicInfo(0, error="not now"), TopicInfo(1), "source topic t: not now"),
        (TopicInfo(1, "other"), TopicInfo(1, "T"), "source topic t was recreated"),
        (TopicInfo(1, "S"), TopicInfo(1, "other"), "target topic x.t was recreated"),
    ],
)
def test_topics_that_cannot_be_compared(
    source: TopicInfo | None, target: TopicInfo | None, reason: str
) -> None:
    found = drift(Side(source, settings({"retention.ms": "9"})), Side(target, settings()))
    assert (found.reason, found.changes, found.has_any) == (reason, {}, True)


def test_a_topic_whose_settings_are_not_shown() -> None:
    refused = Side(TopicInfo(1, "T"), ClusterUnavailable("not authorized"))
    found = drift(Side(TopicInfo(1, "S"), settings()), refused)
    assert found.reason == "target topic x.t: not authorized"


def test_synced_topics() -> None:
    def stored(intent: TopicIntent) -> Stored[TopicIntent]:
        return Stored(intent, 0, 0, SessionId(0))

    intents = {
        "named": TopicIntent(1, 1, target_topic="n", source_topic_id="S", target_topic_id="T"),
        "plain": TopicIntent(1, 1, whole=True, target_topic="plain"),
        "stopped": TopicIntent(1, 1, stopped="recreated", target_topic="stopped"),
        "leaving": TopicIntent(1, 1, state=TopicState.DELETING, target_topic="leaving"),
        "unreadable": TopicIntent(1, 1, target_topic="unreadable"),
    }
    snapshot = Snapshot(
        fleet="f",
        epoch=1,
        routes={ROUTE: Stored(RouteSettings(prefix="x."), 0, 0, SessionId(0))},
        topics={TopicKey(ROUTE, name): stored(intent) for name, intent in intents.items()}
        | {TopicKey(Route("b", "a"), "other"): stored(TopicIntent(1, 1, target_topic="other"))},
        unreadable_topics=frozenset({TopicKey(ROUTE, "unreadable")}),
    )
    assert synced_topics(snapshot, ROUTE) == (
        SyncedTopic("named", "n", source_id="S", target_id="T"),
        SyncedTopic("plain", "plain", is_whole=True),
    )
    (other,) = synced_topics(snapshot, Route("b", "a"))
    assert other.target == "other"


def test_settings_that_harm_records_are_named_also_where_nothing_is_to_be_changed() -> None:
    """`message.timestamp.type` is excluded by default."""
    info = TopicInfo(1, "id")
    stamping = settings({"message.timestamp.type": "LogAppendTime"})
    topic = SyncedTopic(source="t", target="x")
    drift = topic_drift(topic, Side(info, settings()), Side(info, stamping), rules=RULES)
    assert drift.changes == {}
    assert [text.partition(",")[0] for text in drift.harm] == [
        "target topic x: message.timestamp.type is LogAppendTime"
    ]
    drift = topic_drift(topic, Side(info, stamping), Side(info, settings()), rules=RULES)
    assert drift.harm == ()
