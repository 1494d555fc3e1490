"""`GET /validation/topics`: what differs between source and target topics, and what will be changed."""

from __future__ import annotations

from typing import Any

from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

SYNCED = {"source": "source", "target": "target", "sync_topic_configs": {"enabled": True}}


def drift(rest: RestFixture) -> list[dict[str, Any]]:
    shown = rest.call("GET", "/validation/topics").get_json()
    assert shown["numTopics"] == len(shown["topics"])
    topics: list[dict[str, Any]] = shown["topics"]
    return topics


def test_topics_that_are_equal_are_not_listed(rest: RestFixture) -> None:
    rest.source.put("orders", 2, configs={"retention.ms": "9"})
    rest.target.put("orders", 2, configs={"retention.ms": "9"})
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.put_intent("leaving", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="leaving"))
    assert drift(rest) == []


def test_differences_are_shown_while_nothing_follows(rest: RestFixture) -> None:
    rest.source.put("orders", 4, configs={"retention.ms": "9"})
    rest.target.put("orders", 2)
    rest.target.defaults = {"retention.ms": "7"}
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    assert drift(rest) == [
        {
            "route": "source.target",
            "topic": "orders",
            "targetTopic": "orders",
            "partitions": {
                "source": 4,
                "target": 2,
                "willChange": False,
                "wanted": None,
                "reason": "only some partitions of the source are copied",
            },
            "settings": [
                {
                    "name": "retention.ms",
                    "source": "9",
                    "target": "7",
                    "willChange": False,
                    "wanted": "9",
                    "reason": "sync_topic_configs is not enabled",
                }
            ],
            "reason": "",
        }
    ]
    assert rest.target.configs("orders") == {}


def test_differences_that_the_leader_will_change(new_rest: NewRest) -> None:
    rest = new_rest((SYNCED,))
    rest.source.put("orders", 4, configs={"retention.ms": "9", "min.insync.replicas": "2"})
    rest.target.put("orders", 2)
    rest.target.defaults = {"retention.ms": "7", "min.insync.replicas": "1"}
    rest.put_intent("orders", TopicIntent(2, 2, whole=True, target_topic="orders"))
    (found,) = drift(rest)
    assert (found["partitions"]["willChange"], found["partitions"]["wanted"]) == (True, 4)
    assert {setting["name"]: setting["willChange"] for setting in found["settings"]} == {
        "min.insync.replicas": False,
        "retention.ms": True,
    }


def test_a_target_with_more_partitions_keeps_them(rest: RestFixture) -> None:
    rest.source.put("orders", 1)
    rest.target.put("orders", 2)
    rest.put_intent("orders", TopicIntent(1, 1, whole=True, target_topic="orders"))
    (found,) = drift(rest)
    assert found["partitions"]["reason"] == "partitions cannot be removed"


def test_topics_that_cannot_be_compared(rest: RestFixture) -> None:
    rest.source.put("orders", 1)
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="copy"))
    (found,) = drift(rest)
    assert found["reason"] == "target topic copy does not exist"
    assert (found["partitions"], found["settings"]) == (None, [])
    with rest.target.failing():
        problem_of(rest.call("GET", "/validation/topics"), 503)
