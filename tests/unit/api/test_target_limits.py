"""Warnings about target topics that are stricter than their source, at whitelisting and later."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.contents import TopicIntent
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.model import TopicState
from ureplicator_controller.core.topics.record_limits import NO_LIMIT_MS
from ureplicator_testkit.control.rest_fixture import RestFixture

AFTER = "message.timestamp.after.max.ms"
WARNING = (
    f"target topic orders: {AFTER} is 3600000, it refuses records that are further ahead of its"
    f" clock (set it to {NO_LIMIT_MS})"
)
NOT_CHECKED = "limits for records were not checked: "


@pytest.fixture
def rest(rest: RestFixture) -> RestFixture:
    """The target's brokers are of 4.0 or later, the source's are older."""
    rest.target.defaults = {AFTER: "3600000", "max.message.bytes": "1000"}
    rest.source.defaults = {AFTER: str(NO_LIMIT_MS), "max.message.bytes": "1000"}
    return rest


def added(rest: RestFixture, topic: str = "orders") -> Any:
    response = rest.call("POST", f"/topics/{topic}")
    assert response.status_code == 201
    assert rest.intent(topic) is not None
    return response.get_json()


def test_a_target_topic_that_exists(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    assert added(rest)["warnings"] == [WARNING]


def test_a_target_topic_that_exists_without_limits(rest: RestFixture) -> None:
    rest.target.put("orders", 4, configs={AFTER: str(NO_LIMIT_MS)})
    assert "warnings" not in added(rest)


def test_a_target_topic_that_is_created_has_no_limits_for_timestamps(rest: RestFixture) -> None:
    assert "warnings" not in added(rest)


def test_a_target_cluster_that_takes_smaller_batches_by_default(rest: RestFixture) -> None:
    rest.source.defaults["max.message.bytes"] = "2000"
    assert [text.partition(",")[0] for text in added(rest)["warnings"]] == [
        "target topic orders: max.message.bytes is 1000"
    ]


def test_a_cluster_that_does_not_respond_to_the_check(rest: RestFixture) -> None:
    """The topic is whitelisted all the same."""
    rest.target.put("orders", 4)
    rest.target.configs_failure = ClusterUnavailable("cluster at t:1: timed out")
    assert added(rest)["warnings"] == [NOT_CHECKED + "cluster at t:1: timed out"]
    rest.target.configs_failure, rest.source.configs_failure = None, ClusterUnavailable("s:1")
    assert added(rest, "quiet")["warnings"] == [NOT_CHECKED + "s:1"]


def test_an_imported_topic(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    item = rest.call("GET", "/export").get_json()["topics"]["source.target"]["orders"]
    rest.remove("orders")
    responses = [
        rest.call("PUT", f"/import/topics/orders?dry_run={dry_run}", json=item).get_json()
        for dry_run in ("true", "false", "false")
    ]
    assert [each["result"] for each in responses] == ["created", "created", "unchanged"]
    assert [each.get("warnings") for each in responses] == [None, [WARNING], None]


# --- Later


def validation(rest: RestFixture) -> Any:
    return rest.call("GET", "/validation/srcKafka").get_json()


def test_validation_shows_the_same(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.target.put("quiet", 0)
    rest.target.put("gone", 1)
    rest.put_intent("gone", TopicIntent(1, 1, target_topic="gone"))
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    rest.put_intent("lost", TopicIntent(1, 1))
    rest.target.put("leaving", 1)
    rest.put_intent("leaving", TopicIntent(1, 1, state=TopicState.DELETING))
    shown = validation(rest)
    assert shown["targetFindings"] == {
        "lost": "the target has no topic lost",
        "orders": WARNING,
        "quiet": "target topic quiet has 0 of 1 partitions",
    }
    assert "targetReason" not in shown


def test_validation_of_a_renamed_topic(rest: RestFixture) -> None:
    rest.target.put("copy", 4)
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="copy"))
    assert validation(rest)["targetFindings"] == {"orders": WARNING.replace("orders", "copy")}


def test_validation_says_what_was_not_checked(rest: RestFixture) -> None:
    for topic in ("orders", "quiet"):
        rest.target.put(topic, 4)
        rest.put_intent(topic, TopicIntent(1, 1))
    validation(rest)
    rest.target.troubled.add("quiet")
    shown = validation(rest)
    assert shown["targetFindings"] == {"orders": WARNING}
    reason = "target topic quiet: quiet cannot be described"
    assert shown["targetReason"] == NOT_CHECKED + reason
    rest.source.troubled.add("orders")
    reason = "source topic orders: orders cannot be described (and 1 more)"
    assert validation(rest)["targetReason"] == NOT_CHECKED + reason
    rest.target.configs_failure = ClusterUnavailable("t:1")
    shown = validation(rest)
    assert (shown["targetFindings"], shown["targetReason"]) == ({}, NOT_CHECKED + "t:1")


def test_a_scrape_reads_no_settings(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.put_intent("orders", TopicIntent(4, 4))
    for cluster in rest.clusters.values():
        cluster.configs_failure = AssertionError("not to be read")
    response = rest.call("GET", "/metrics")
    assert 'ureplicator_source_up{route="source.target"} 1.0' in response.text
