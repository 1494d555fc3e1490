"""Responses while ZooKeeper or a cluster is unavailable, and when a response is lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ureplicator_common.coordination import Operation, SessionState
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryTreeCache
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

READS = ["/topics", "/topics/orders", "/instances", "/instances/w1", "/validation", "/blacklist"]
READS += ["/validation/srcKafka", "/validation/topics", "/ready"]
WRITES = [("POST", "/topics/quiet"), ("PUT", "/topics"), ("DELETE", "/topics/orders")]
WRITES += [("POST", "/instances"), ("POST", "/rebalance"), ("POST", "/rebalance?dry_run=true")]
WRITES += [("POST", "/admin/freeze"), ("POST", "/admin/disable_autobalancing")]
WRITES += [("POST", "/topics/orders/pause"), ("POST", "/topics/orders/resume")]
WRITES += [("POST", "/blacklist?topic=orders&partition=0&opt=blacklist")]
WRITES += [("DELETE", "/instances/w1"), ("POST", "/instances/w1")]


@pytest.fixture
def serving(rest: RestFixture) -> RestFixture:
    rest.call("POST", "/topics", json={"topic": "orders", "numPartitions": 3})
    return rest


@pytest.mark.parametrize("path", READS)
def test_reads_without_zookeeper(serving: RestFixture, path: str) -> None:
    with serving.zookeeper_unavailable():
        response = serving.call("GET", path)
    problem = problem_of(response, 503)
    assert "ZooKeeper is unavailable" in problem["detail"]
    assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writes_without_zookeeper(serving: RestFixture, method: str, path: str) -> None:
    body = {"topic": "orders", "numPartitions": 4} if method == "PUT" else None
    with serving.zookeeper_unavailable():
        response = serving.call(method, path, json=body)
    assert "ZooKeeper is unavailable" in problem_of(response, 503)["detail"]


def test_requests_work_after_a_reconnect(serving: RestFixture) -> None:
    with serving.zookeeper_unavailable():
        pass
    assert serving.call("GET", "/topics").get_json() == {"topics": ["orders"]}


def test_changes_made_while_disconnected_are_seen_after_the_reconnect(serving: RestFixture) -> None:
    """The connection is back before the tree cache has read again."""
    seen: list[object] = []

    def observe(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            seen.append(serving.call("GET", "/topics").get_json())

    serving.coordination.on_session(observe)
    with serving.zookeeper_unavailable():
        serving.put_intent("later", TopicIntent(1, 1, target_topic="later"))
    assert seen == [{"topics": ["later", "orders"]}]


def test_a_server_that_does_not_respond(serving: RestFixture) -> None:
    """The connection is open, but the server is frozen."""
    serving.coordination.fail_next()
    problem_of(serving.call("GET", "/topics"), 503)


def test_liveness_does_not_depend_on_zookeeper(serving: RestFixture) -> None:
    with serving.zookeeper_unavailable():
        assert serving.call("GET", "/health").get_json() == {"status": "ok", "id": "c1"}
        metrics = serving.call("GET", "/metrics")
    assert metrics.status_code == 200
    assert 'ureplicator_zookeeper_connected{fleet="test"} 0.0' in metrics.text
    assert "ureplicator_topics" not in metrics.text


def test_source_unavailable(serving: RestFixture) -> None:
    with serving.source.failing(ClusterUnavailable("cluster at s:1: no broker")):
        for method, path in (("POST", "/topics/quiet"), ("GET", "/validation/srcKafka")):
            problem = problem_of(serving.call(method, path), 503)
            assert "s:1" in problem["detail"]
        body = {"topic": "orders", "numPartitions": 4}
        problem_of(serving.call("PUT", "/topics", json=body), 503)
    assert serving.intent("quiet") is None


def test_target_unavailable(serving: RestFixture) -> None:
    with serving.target.failing():
        problem_of(serving.call("POST", "/topics/quiet"), 503)
        assert serving.call("GET", "/topics/orders").status_code == 200
    assert serving.intent("quiet") is None


# --- An response that is lost


@pytest.mark.parametrize("applied", [True, False])
def test_adding_with_unknown_outcome_is_read_back(rest: RestFixture, applied: bool) -> None:
    rest.coordination.lose_next_response(applied=applied)
    assert rest.call("POST", "/topics/orders").status_code == 201
    assert rest.intent("orders") is not None


@pytest.mark.parametrize("applied", [True, False])
def test_expanding_with_unknown_outcome_is_read_back(serving: RestFixture, applied: bool) -> None:
    serving.coordination.lose_next_response(applied=applied)
    body = {"topic": "orders", "numPartitions": 4}
    assert serving.call("PUT", "/topics", json=body).status_code == 200
    intent = serving.intent("orders")
    assert intent is not None
    assert intent.partitions == 4


@pytest.mark.parametrize("applied", [True, False])
def test_deleting_with_unknown_outcome_is_read_back(serving: RestFixture, applied: bool) -> None:
    serving.coordination.lose_next_response(applied=applied)
    assert serving.call("DELETE", "/topics/orders").status_code == 200


class CutWhileWriting(MemoryCoordination):
    """The connection goes, for good, while a write is under way."""

    def transact(self, operations: Sequence[Operation]) -> None:
        self.lose_next_response(applied=True)
        try:
            super().transact(operations)
        finally:
            self.suspend()


def test_an_unknown_outcome_that_cannot_be_read_back(new_rest: NewRest) -> None:
    """The write may have been applied: the response tells so, and reading back has an end."""
    rest = new_rest(client=CutWhileWriting)
    problem = problem_of(rest.call("POST", "/topics/orders"), 503)
    assert "unknown" in problem["detail"]
    assert "GET" in problem["hint"]


# --- Concurrent writes of another client


def test_two_concurrent_writers_of_one_topic(rest: RestFixture) -> None:
    """Another controller's request for the same topic is written between the read and the write."""

    def faster(call: str, topic: str) -> None:
        rest.target.before = lambda call, topic: None
        second = rest.app.test_client().post("/topics/orders")
        assert second.status_code == 201

    rest.target.before = faster
    problem_of(rest.call("POST", "/topics/orders"), 409)


def test_deleted_while_it_is_being_expanded(serving: RestFixture) -> None:
    serving.target.put("orders", 3)

    def faster(call: str, topic: str) -> None:
        serving.target.before = lambda call, topic: None
        assert serving.app.test_client().delete("/topics/orders").status_code == 200

    serving.target.before = faster
    body = {"topic": "orders", "numPartitions": 4}
    problem_of(serving.call("PUT", "/topics", json=body), 409)


def test_requests_after_an_outage_share_one_reload(
    serving: RestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty threads would each read tens of thousands of nodes, in an incident."""
    reloads: list[MemoryTreeCache] = []
    all_wait, together = threading.Barrier(8), threading.Barrier(8)
    load, sync = MemoryTreeCache.load, serving.coordination.sync

    def synced(path: str) -> None:
        sync(path)
        all_wait.wait(10)

    def counted(cache: MemoryTreeCache) -> None:
        reloads.append(cache)
        with suppress(threading.BrokenBarrierError):
            together.wait(0.3)  # the others come as well if nothing holds them
        load(cache)

    serving.coordination.hold_watches()
    with serving.zookeeper_unavailable():
        pass
    monkeypatch.setattr(MemoryTreeCache, "load", counted)
    monkeypatch.setattr(serving.coordination, "sync", synced)

    def status(_: int) -> int:
        return serving.app.test_client().get("/topics").status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(status, range(8))) == [200] * 8
    assert len(reloads) == 1
