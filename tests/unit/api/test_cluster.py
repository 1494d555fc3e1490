"""/instances, /validation, /health, /ready, /metrics and the page on in-memory clusters."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pytest

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Partition, PartitionState, Route, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, PartitionLoad, TopicIntent
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_controller.api.services.clusters import SCRAPED_MAX_AGE_S
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture, problem_of
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin

ONLINE, ERROR = PartitionState.ONLINE, PartitionState.ERROR
RATES = {0: 1_500, 1: 700}
"""Bytes a second of partitions on w1."""


@pytest.fixture
def busy(rest: RestFixture) -> RestFixture:
    """`orders` on w1 (two online, one in error), its fourth partition without an owner; w2 is idle."""
    rest.call("POST", "/topics/orders")
    rest.call("POST", "/topics/quiet")
    rest.put_leader()
    rest.add_worker("w1")
    rest.add_worker("w2", slots=4)
    rest.place("orders", {0: "w1", 1: "w1", 2: "w1", 3: "w2"})
    rest.place("quiet", {0: "w2"})
    rest.put_states("w1", "orders", {0: ONLINE, 1: ONLINE, 2: ERROR}, reason="too large")
    rates = {
        Partition(ROUTE, "orders", number): PartitionLoad(steady_bytes_per_s=rate)
        for number, rate in RATES.items()
    }
    rest.put_loads("w1", rates)
    known = KnownWorker(max_slots=2, blacklisted=True, last_seen_ms=9)
    rest.put(rest.paths.worker_known(WorkerId("gone")), encode_known_worker(known))
    return rest


def test_instances(busy: RestFixture) -> None:
    shown = busy.call("GET", "/instances").get_json()
    assert shown["instances"] == {
        "w1": ["orders.0:1500", "orders.1:700", "orders.2:0", "TOTALWORKLOAD.3:2200"],
        "w2": ["TOTALWORKLOAD.0:0"],
    }
    assert shown["workers"]["w1"]["bytesPerSecond"] == 2_200
    assert shown["allInstances"] == ["gone", "w1", "w2"]
    assert shown["blacklisted"] == ["gone"]
    assert shown["workers"]["w2"] == {
        "live": True,
        "evicted": False,
        "host": "h",
        "port": 7,
        "version": "1",
        "slots": 4,
        "tags": [],
        "zone": "",
        "leaving": False,
        "noCapacity": "",
        "blacklisted": False,
        "draining": False,
        "lastSeen": None,
        "idealPartitions": 2,
        "heldPartitions": 0,
        "onlinePartitions": 0,
        "errorPartitions": 0,
        "bytesPerSecond": 0,
        "partitions": [],
    }
    gone = shown["workers"]["gone"]
    assert (gone["live"], gone["blacklisted"], gone["lastSeen"]) == (False, True, 9)


def test_one_instance(busy: RestFixture) -> None:
    shown = busy.call("GET", "/instances/w1").get_json()
    assert list(shown["instances"]) == ["w1"]
    worker = shown["workers"]["w1"]
    assert (worker["onlinePartitions"], worker["errorPartitions"]) == (2, 1)
    assert worker["partitions"][2] == {
        "route": "source.target",
        "topic": "orders",
        "partition": 2,
        "state": "ERROR",
        "reason": "too large",
        "bytesPerSecond": 0,
    }


def test_an_unknown_instance(busy: RestFixture) -> None:
    assert problem_of(busy.call("GET", "/instances/unknown"), 404)["field"] == "worker"


def test_validation(busy: RestFixture) -> None:
    shown = busy.call("GET", "/validation").get_json()
    assert shown["numTopics"] == 2
    assert shown["numTopicPartitions"] == 5
    assert shown["numOnlineTopicPartitions"] == 2
    assert shown["numOfflineTopicPartitions"] == 2
    assert shown["numErrorTopicPartitions"] == 1
    assert shown["numErrorTopics"] == 1
    assert shown["IdealState"] == {"w1": 3, "w2": 2}
    assert shown["ExternalView"] == {"w1": 3, "w2": 0}
    assert [(mismatch["topic"], mismatch["partition"]) for mismatch in shown["mismatches"]] == [
        ("orders", 2),
        ("orders", 3),
        ("quiet", 0),
    ]


def test_validation_of_one_route(new_rest: NewRest) -> None:
    routes = ({"source": "a", "target": "c"}, {"source": "b", "target": "d"})
    rest = new_rest(routes)
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"), route=Route("a", "c"))
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"), route=Route("b", "d"))
    assert rest.call("GET", "/validation").get_json()["numTopicPartitions"] == 7
    shown = rest.call("GET", "/validation?src=b").get_json()
    assert shown["numTopicPartitions"] == 3
    assert {mismatch["route"] for mismatch in shown["mismatches"]} == {"b.d"}


def test_source_validation_changes_nothing(rest: RestFixture) -> None:
    rest.target.put("orders", 1)
    rest.target.put("quiet", 1)
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    rest.put_intent("lost", TopicIntent(1, 1, target_topic="lost"))
    rest.put_intent("leaving", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="leaving"))
    shown = rest.call("GET", "/validation/srcKafka").get_json()
    assert shown == {
        "numMissingTopics": 1,
        "missingTopics": ["lost"],
        "numMismatchedTopics": 1,
        "numMismatchedTopicPartitions": 2,
        "mismatchedTopicPartitions": {"orders": 2},
        "sourceFindings": {},
        "targetFindings": {
            "lost": "the target has no topic lost",
            "orders": "target topic orders has 1 of 2 partitions",
        },
        "stoppedTopics": {},
        "refusedTopics": {},
    }
    assert rest.intent("orders") == TopicIntent(2, 2, target_topic="orders")
    assert rest.target.topics()["orders"].partitions == 1


def test_topics_that_the_clusters_do_not_describe_are_not_missing(rest: RestFixture) -> None:
    """No list has a topic without the right to describe it."""
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.target.put("orders", 2)
    rest.source.model.hidden = rest.target.model.hidden = {"orders"}
    shown = rest.call("GET", "/validation/srcKafka").get_json()
    assert shown["missingTopics"] == []
    lacking = "TOPIC_AUTHORIZATION_FAILED: the principal lacks DESCRIBE on topic orders at cluster"
    assert shown["sourceFindings"]["orders"].startswith(f"source: {lacking}")
    assert shown["targetFindings"]["orders"].startswith(f"target topic orders: {lacking}")


def test_source_validation_without_the_target(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    with rest.target.failing():
        shown = rest.call("GET", "/validation/srcKafka").get_json()
    assert shown["numMismatchedTopics"] == 1
    assert shown["targetFindings"] == {}
    assert "no broker responds" in shown["targetReason"]


def test_source_validation_of_several_routes(new_rest: NewRest) -> None:
    rest = new_rest(({"source": "a", "target": "c"}, {"source": "b", "target": "d"}))
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"), route=Route("a", "c"))
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"), route=Route("b", "d"))
    rest.put_intent("lost", TopicIntent(1, 1, target_topic="lost"), route=Route("b", "d"))
    shown = rest.call("GET", "/validation/srcKafka").get_json()
    assert shown["mismatchedTopicPartitions"] == {"b.d/orders": 1}
    assert shown["missingTopics"] == ["b.d/lost"]


def test_frequent_requests_read_the_source_seldom(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    path = "/validation/srcKafka"
    assert rest.call("GET", path).get_json()["numMismatchedTopics"] == 1
    with rest.source.failing():
        assert rest.call("GET", path).status_code == 200
        rest.clock.advance(6)
        problem_of(rest.call("GET", path), 503)
    problem_of(rest.call("GET", path), 503)  # remembered
    rest.clock.advance(6)
    assert rest.call("GET", path).status_code == 200


def test_ready(busy: RestFixture) -> None:
    shown = busy.call("GET", "/ready").get_json()
    assert shown == {"status": "ready", "id": "c1", "leader": "c2", "controllers": ["c2"]}


def test_ready_without_a_leader(rest: RestFixture) -> None:
    """Intents are durable without one: this process can serve."""
    response = rest.call("GET", "/ready")
    assert response.status_code == 200
    assert response.get_json()["leader"] is None


def test_metrics(busy: RestFixture) -> None:
    busy.put_intent("lost", TopicIntent(1, 1, target_topic="lost"))
    busy.call("GET", "/topics/some-guess")
    busy.call("GET", "/nothing/here")
    response = busy.call("GET", "/metrics")
    assert response.content_type.startswith("text/plain")
    lines = set(response.text.splitlines())
    requests = 'ureplicator_http_requests_total{fleet="test"'
    assert {
        'ureplicator_zookeeper_connected{fleet="test"} 1.0',
        'ureplicator_leader_present{fleet="test"} 1.0',
        'ureplicator_live_workers{fleet="test"} 2.0',
        'ureplicator_topics{fleet="test",route="source.target"} 3.0',
        'ureplicator_error_topics{fleet="test",route="source.target"} 1.0',
        'ureplicator_partitions{fleet="test",route="source.target",state="online"} 2.0',
        'ureplicator_partitions{fleet="test",route="source.target",state="offline"} 3.0',
        'ureplicator_partitions{fleet="test",route="source.target",state="error"} 1.0',
        'ureplicator_mismatches{fleet="test",route="source.target"} 4.0',
        'ureplicator_worker_ideal_partitions{fleet="test",worker="w1"} 3.0',
        'ureplicator_worker_external_partitions{fleet="test",worker="w1"} 3.0',
        'ureplicator_source_up{fleet="test",route="source.target"} 1.0',
        'ureplicator_missing_topics{fleet="test",route="source.target"} 1.0',
        'ureplicator_mismatched_topics{fleet="test",route="source.target"} 0.0',
        f'{requests},method="GET",path="/topics/<path:topic>",status="404"}} 1.0',
        f'{requests},method="GET",path="unknown",status="404"}} 1.0',
    } <= lines


def test_metrics_of_an_unavailable_source(rest: RestFixture) -> None:
    with rest.source.failing():
        text = rest.call("GET", "/metrics").text
    assert 'ureplicator_source_up{fleet="test",route="source.target"} 0.0' in text
    assert 'ureplicator_missing_topics{fleet="test",route="source.target"}' not in text


def test_metrics_wait_for_no_silent_cluster(
    new_rest: NewRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clusters are silent. Both are asked at once, and what they say later is in the next scrape."""
    both = ({"source": "west", "target": "east"}, {"source": "north", "target": "south"})
    rest = new_rest(both, scrape_timeout_s=0.0)
    asked, answers = threading.Semaphore(0), threading.Event()
    listed = MemoryTopicAdmin.topics

    def silent(admin: MemoryTopicAdmin) -> Mapping[str, TopicInfo]:
        asked.release()
        assert answers.wait(60)
        return listed(admin)

    monkeypatch.setattr(MemoryTopicAdmin, "topics", silent)
    up = 'ureplicator_source_up{fleet="test",route="west.east"}'
    for _ in range(3):
        assert f"{up} 0.0" in rest.call("GET", "/metrics").text
    for _ in range(4):
        assert asked.acquire(timeout=60)
    assert not asked.acquire(blocking=False), "each cluster is asked once at a time"
    answers.set()
    while f"{up} 1.0" not in rest.call("GET", "/metrics").text:
        pass


def test_clusters_are_asked_at_the_same_time(
    new_rest: NewRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ({"source": "west", "target": "east"}, {"source": "north", "target": "south"})
    rest = new_rest(both, scrape_timeout_s=60.0)
    all_asked = threading.Barrier(4)
    listed = MemoryTopicAdmin.topics

    def together(admin: MemoryTopicAdmin) -> Mapping[str, TopicInfo]:
        all_asked.wait(30)
        return listed(admin)

    monkeypatch.setattr(MemoryTopicAdmin, "topics", together)
    text = rest.call("GET", "/metrics").text
    assert 'ureplicator_source_up{fleet="test",route="west.east"} 1.0' in text
    assert 'ureplicator_source_up{fleet="test",route="north.south"} 1.0' in text


def test_scrapes_share_a_listing(rest: RestFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    listings: list[object] = []
    listed = MemoryTopicAdmin.topics

    def counted(admin: MemoryTopicAdmin) -> Mapping[str, TopicInfo]:
        listings.append(admin)
        return listed(admin)

    monkeypatch.setattr(MemoryTopicAdmin, "topics", counted)
    for _ in range(4):
        rest.call("GET", "/metrics")
        rest.clock.advance(SCRAPED_MAX_AGE_S / 4)
    assert len(listings) == len(rest.clusters)
    rest.clock.advance(1)
    rest.call("GET", "/metrics")
    assert len(listings) == 2 * len(rest.clusters)


def test_the_page_loads_no_external_assets(rest: RestFixture) -> None:
    response = rest.call("GET", "/")
    assert response.status_code == 200
    assert response.mimetype == "text/html"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert str(ROUTE.source) in response.text
    for path in re.findall(r'(?:href|src)="(/dashboard/[^"]+)"', response.text):
        with rest.call("GET", path) as asset:
            assert asset.status_code == 200
    assert not re.search(r"https?://", response.text)


def test_the_page_is_served_without_zookeeper(rest: RestFixture) -> None:
    with rest.zookeeper_unavailable():
        assert rest.call("GET", "/").status_code == 200
