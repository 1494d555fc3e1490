"""Target topics that exist: warned of where they are stricter than their source, and not expanded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.model import PartitionState, TopicState
from ureplicator_common.znode_contents import SyncKind, SyncReport, TopicIntent
from ureplicator_common.znodes.routes import encode_sync
from ureplicator_controller.core.topics.target_limits import NO_LIMIT_MS
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

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
    assert [response["result"] for response in responses] == ["created", "created", "unchanged"]
    assert [response.get("warnings") for response in responses] == [None, [WARNING], None]


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
    rest.put_intent("lost", TopicIntent(1, 1, target_topic="lost"))
    rest.target.put("leaving", 1)
    rest.put_intent("leaving", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="leaving"))
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
        rest.put_intent(topic, TopicIntent(1, 1, target_topic=topic))
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


def test_what_the_leader_found_is_a_condition(rest: RestFixture) -> None:
    def conditions() -> Any:
        return rest.call("GET", "/validation").get_json()["conditions"]

    path = rest.paths.sync(SyncKind.CONFIGS, ROUTE)
    rest.put(path, encode_sync(SyncReport(1, {"equal": 2})))
    assert conditions() == []
    rest.put(path, encode_sync(SyncReport(1, {"equal": 1, "harmful": 1}, error="orders: stamps")))
    assert conditions() == [
        "route source.target: settings of 1 target topics refuse, change or delete records of their source"
        " topics (orders: stamps): see GET /validation/srcKafka"
    ]
    rest.put(path, b"nonsense")
    assert conditions() == []


HARM = "target topic orders: retention.ms is 7000, it deletes records that the source keeps (set it to -1)"


@pytest.fixture
def harmed(rest: RestFixture) -> RestFixture:
    """Two topics that are copied; the leader found that the target's settings of one do harm."""
    for worker, (topic, partitions) in {"w1": ("orders", 2), "w2": ("quiet", 1)}.items():
        numbers = range(partitions)
        rest.add_worker(worker)
        rest.put_intent(topic, TopicIntent(partitions, partitions, target_topic=topic))
        rest.place(topic, dict.fromkeys(numbers, worker), since_ms=77)
        rest.put_states(worker, topic, dict.fromkeys(numbers, PartitionState.ONLINE))
    report(rest, {"orders": HARM, "unknown": "target topic unknown: not of this fleet"})
    return rest


def report(rest: RestFixture, harm: dict[str, str]) -> None:
    path = rest.paths.sync(SyncKind.CONFIGS, ROUTE)
    rest.put(path, encode_sync(SyncReport(1, {"harmful": len(harm)}, harm=harm)))


def listed(rest: RestFixture) -> list[tuple[str, int, str]]:
    found = rest.call("GET", "/validation").get_json()["mismatches"]
    return [(mismatch["topic"], mismatch["partition"], mismatch["reason"]) for mismatch in found]


def test_settings_that_do_harm_are_mismatches_until_they_are_mended(harmed: RestFixture) -> None:
    assert listed(harmed) == [("orders", 0, HARM), ("orders", 1, HARM)]
    found = harmed.call("GET", "/validation").get_json()
    assert found["numOnlineTopicPartitions"] == 3
    assert found["mismatches"][0]["ideal"] == found["mismatches"][0]["actual"] == {"w1": "ONLINE"}
    assert found["mismatches"][0]["since"] == 77
    shown = harmed.call("GET", "/topics/orders").get_json()["mismatches"]
    assert [mismatch["reason"] for mismatch in shown] == [HARM, HARM]
    assert harmed.call("GET", "/topics/quiet").get_json()["mismatches"] == []
    assert mismatch_metric(harmed) == 2
    report(harmed, {})
    assert listed(harmed) == []
    assert harmed.call("GET", "/topics/orders").get_json()["mismatches"] == []
    assert mismatch_metric(harmed) == 0


def mismatch_metric(rest: RestFixture) -> float:
    text = rest.call("GET", "/metrics").text
    found = re.search(
        r"^ureplicator_mismatches\{.*route=\"source.target\"\} (\S+)$", text, re.MULTILINE
    )
    assert found
    return float(found[1])


def test_harm_to_what_is_not_to_be_copied_is_no_mismatch(harmed: RestFixture) -> None:
    harmed.put_intent(
        "orders", TopicIntent(2, 2, target_topic="orders", blacklisted=frozenset({0}))
    )
    assert listed(harmed) == [("orders", 1, HARM)]
    harmed.put_intent("orders", TopicIntent(2, 2, target_topic="orders", state=TopicState.PAUSED))
    assert HARM not in str(listed(harmed))


def test_a_partition_that_waits_for_a_worker_is_one_mismatch(harmed: RestFixture) -> None:
    harmed.place("orders", {0: "w1", 1: None})
    reasons = [reason for _, _, reason in listed(harmed)]
    assert reasons == [HARM, f"waiting for w1 to release it; {HARM}"]


def test_the_overview_says_what_to_mend(harmed: RestFixture) -> None:
    harmed.put_leader()
    (route,) = harmed.call("GET", "/overview").get_json()["summaries"]
    assert (route["states"]["stuck"], route["states"]["agree"]) == (2, 1)
    assert HARM in route["sentence"]


def test_a_scrape_reads_no_settings(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    for cluster in rest.clusters.values():
        cluster.configs_failure = AssertionError("not to be read")
    response = rest.call("GET", "/metrics")
    assert 'ureplicator_source_up{fleet="test",route="source.target"} 1.0' in response.text


# --- Partition counts


NARROW = "target topic orders exists with 2 partitions, not 4."
RAISED = {"raisePartitions": True}


def test_a_smaller_target_is_refused_unless_asked_and_a_wider_one_kept(rest: RestFixture) -> None:
    rest.target.put("orders", 2)
    rest.target.put("quiet", 9)
    assert NARROW in problem_of(rest.call("POST", "/topics/orders"), 409)["detail"]
    assert rest.intent("orders") is None
    assert rest.target.topics()["orders"].partitions == 2
    assert rest.call("POST", "/topics/quiet").get_json()["target"] == "existed"
    assert rest.target.topics()["quiet"].partitions == 9
    assert rest.call("POST", "/topics/orders", json=RAISED).get_json()["target"] == "raised"
    assert rest.target.topics()["orders"].partitions == 4


def test_what_the_copy_itself_made_grows_with_the_source(rest: RestFixture) -> None:
    assert rest.call("POST", "/topics/orders").get_json()["target"] == "created"
    rest.source.grow_topic("orders", partitions=6)
    body = {"numPartitions": 6}
    assert rest.call("PUT", "/topics/orders", json=body).status_code == 200
    assert rest.target.topics()["orders"].partitions == 6


def test_a_found_target_with_all_partitions_grows_with_the_source(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.call("POST", "/topics/orders")
    rest.source.grow_topic("orders", partitions=6)
    assert rest.call("PUT", "/topics/orders", json={"numPartitions": 6}).status_code == 200
    assert rest.target.topics()["orders"].partitions == 6


def test_a_found_target_of_fewer_partitions_is_expanded_on_request_only(rest: RestFixture) -> None:
    rest.target.put("orders", 2)
    rest.call("POST", "/topics/orders", json={"numPartitions": 2})
    body = {"numPartitions": 4}
    assert NARROW in problem_of(rest.call("PUT", "/topics/orders", json=body), 409)["detail"]
    assert rest.call("PUT", "/topics/orders", json=body | RAISED).status_code == 200
    assert rest.target.topics()["orders"].partitions == 4


@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_an_import_raises_no_partitions(rest: RestFixture, dry_run: str) -> None:
    rest.target.put("orders", 2)
    body = {"partitions": 4, "initialPartitions": 4, "state": "active"}
    response = rest.call("PUT", f"/import/topics/orders?dry_run={dry_run}", json=body)
    assert NARROW in problem_of(response, 409)["detail"]
    body = {"topics": {"orders": {}}}
    outcome = rest.call("PUT", f"/import/topics?dry_run={dry_run}", json=body).get_json()
    assert NARROW in outcome["topics"][0]["problem"]["detail"]
    assert rest.target.topics()["orders"].partitions == 2


def test_a_target_that_another_writer_creates_meanwhile_with_fewer_partitions(
    rest: RestFixture,
) -> None:
    def faster(call: str, topic: str) -> None:
        rest.target.before = lambda call, topic: None
        rest.target.put(topic, 2)

    rest.target.before = faster
    assert NARROW in problem_of(rest.call("POST", "/topics/orders"), 409)["detail"]
    assert rest.target.topics()["orders"].partitions == 2
