"""Lag as shown by REST and Prometheus, and how few collections that takes."""

from __future__ import annotations

import pytest

from ureplicator_common.heartbeats import heartbeat_topic
from ureplicator_common.kafka import BatchTime, ClusterUnavailable, Lifetime
from ureplicator_common.model import position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.lag_collection.cache import FRESH_S
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

GROUP = position_group(fleet="test", route=ROUTE)


@pytest.fixture
def behind(rest: RestFixture) -> RestFixture:
    """orders: 0 is 60 behind since 20 s, 1 is done, 2 was never committed, 3 has no leader."""
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    logs = rest.logs["source"]
    for number in range(3):
        logs.hold("orders", number, 10, 100)
    for number, offset in ((0, 40), (1, 100), (3, 7)):
        rest.positions.put(GROUP, "orders", number, offset)
    logs.logs["orders", 0].times = [BatchTime(30, 50, rest.clock.wall_ms() - 20_000)]
    logs.lives["orders"] = Lifetime(retention_ms=3_600_000)
    return rest


def test_one_partition(behind: RestFixture) -> None:
    assert behind.call("GET", "/offset/orders/0").get_json() == {
        "topic": "orders",
        "partition": 0,
        "route": "source.target",
        "position": 40,
        "logStart": 10,
        "logEnd": 100,
        "lagRecords": 60,
        "lagSeconds": 20.0,
        "recordsPerSecond": None,
        "catchUpSeconds": None,
        "retentionSeconds": 3_580.0,
        "heldRecords": 0,
        "heldSeconds": 0.0,
        "ageSeconds": 0.0,
    }


def test_never_committed_is_not_lag_0(behind: RestFixture) -> None:
    shown = behind.call("GET", "/offset/orders/2").get_json()
    assert shown["lagRecords"] is None
    assert shown["lagSeconds"] is None
    assert shown["position"] is None
    assert "never committed" in shown["reason"]


def test_a_partition_without_a_leader_affects_no_other(behind: RestFixture) -> None:
    progress = behind.call("GET", "/topics/orders").get_json()["progress"]
    assert progress["3"]["position"] == 7
    assert progress["3"]["lagRecords"] is None
    assert "no leader" in progress["3"]["reason"]
    assert progress["1"]["lagRecords"] == 0
    assert progress["1"]["lagSeconds"] == 0


def test_all_topics(behind: RestFixture) -> None:
    shown = behind.call("GET", "/offset").get_json()
    assert shown == {
        "ageSeconds": 0.0,
        "topics": [
            {
                "topic": "orders",
                "route": "source.target",
                "partitions": 4,
                "lagRecords": 60,
                "lagSeconds": 20.0,
                "retentionSeconds": 3_580.0,
                "heldRecords": 0,
                "heldSeconds": 0.0,
                "neverCommitted": 1,
                "unknown": 2,
            }
        ],
    }


def test_many_calls_share_one_collection(behind: RestFixture) -> None:
    logs = behind.logs["source"]
    for _ in range(50):
        behind.call("GET", "/offset")
        behind.call("GET", "/offset/orders/1")
        behind.call("GET", "/topics/orders")
        behind.call("GET", "/metrics")
    assert logs.requests == {"extents": 1, "batch_times": 1, "lifetimes": 1}
    assert behind.positions.reads == 1
    behind.clock.advance(FRESH_S)
    assert behind.call("GET", "/offset").get_json()["ageSeconds"] == 0
    assert logs.requests["extents"] == 2
    assert behind.positions.reads == 2


def test_a_new_topic_is_collected_at_once(behind: RestFixture) -> None:
    assert behind.call("GET", "/offset").status_code == 200
    behind.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    behind.logs["source"].hold("quiet", 0, 0, 3)
    behind.positions.put(GROUP, "quiet", 0, 1)
    assert behind.call("GET", "/offset/quiet/0").get_json()["lagRecords"] == 2


def test_an_unavailable_target(behind: RestFixture) -> None:
    with behind.positions.failing(ClusterUnavailable("t:1 refused")):
        shown = behind.call("GET", "/offset/orders/0").get_json()
    assert shown["position"] is None
    assert shown["lagRecords"] is None
    assert shown["logEnd"] == 100
    assert shown["reason"] == "target: t:1 refused"


def test_an_unavailable_source(behind: RestFixture) -> None:
    with behind.logs["source"].failing(ClusterUnavailable("s:1 refused")):
        shown = behind.call("GET", "/topics/orders").get_json()
    assert shown["positions"]["0"] == 40
    assert shown["progress"]["0"]["lagRecords"] is None
    assert shown["progress"]["0"]["reason"] == "source: s:1 refused"


def test_metrics(behind: RestFixture) -> None:
    text = behind.call("GET", "/metrics").text
    labels = '{fleet="test",route="source.target",topic="orders"}'
    for line in (
        f"ureplicator_lag_records{labels} 60.0",
        f"ureplicator_lag_seconds{labels} 20.0",
        f"ureplicator_retention_seconds{labels} 3580.0",
        f"ureplicator_never_committed_partitions{labels} 1.0",
        f"ureplicator_unknown_lag_partitions{labels} 2.0",
        'ureplicator_lag_age_seconds{fleet="test"} 0.0',
    ):
        assert line in text


def test_metrics_have_no_series_for_unknown_lag(behind: RestFixture) -> None:
    with behind.positions.failing():
        text = behind.call("GET", "/metrics").text
    assert "ureplicator_lag_records{" not in text
    assert 'unknown_lag_partitions{fleet="test",route="source.target",topic="orders"} 4.0' in text


def test_heartbeats_are_never_about_to_be_lost(rest: RestFixture) -> None:
    """They are kept for ten minutes by design, and one is always on its way."""
    topic = heartbeat_topic(fleet="test", route=ROUTE)
    rest.put_intent(topic, TopicIntent(1, 1, target_topic=topic))
    logs = rest.logs["source"]
    logs.hold(topic, 0, 50, 100)
    logs.lives[topic] = Lifetime(retention_ms=600_000)
    for position in (99, 40):
        rest.positions.put(GROUP, topic, 0, position)
        logs.logs[topic, 0].times = [BatchTime(99, 99, rest.clock.wall_ms() - 500)]
        rest.clock.advance(FRESH_S)
        (shown,) = rest.call("GET", "/offset").get_json()["topics"]
        assert shown["lagRecords"] == 100 - position
        assert shown["retentionSeconds"] is None
