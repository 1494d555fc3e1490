"""If-Match: writes only onto the version that was read; a 412 changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ureplicator_common.coordination import Operation
from ureplicator_common.model import TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, TopicIntent
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

WRITES: list[tuple[str, str, Any, str]] = [
    ("PUT", "/topics", {"topic": "orders", "numPartitions": 4}, "/topics/orders"),
    ("PUT", "/topics/orders", {"numPartitions": 4}, "/topics/orders"),
    ("DELETE", "/topics/orders", None, "/topics/orders"),
    ("DELETE", "/topics/orders?positions=forget", None, "/topics/orders"),
    ("POST", "/topics/orders/pause", None, "/topics/orders"),
    ("POST", "/topics/orders/resume", None, "/topics/orders"),
    ("POST", "/blacklist?topic=orders&partition=0&opt=blacklist", None, "/topics/orders"),
    ("DELETE", "/instances/w1", None, "/instances/w1"),
    ("POST", "/instances/w1", None, "/instances/w1"),
    ("POST", "/admin/freeze", None, "/admin/freeze"),
    ("POST", "/admin/unfreeze", None, "/admin/freeze"),
    ("POST", "/admin/disable_autobalancing", None, "/admin/autobalancing_status"),
    ("POST", "/admin/enable_autobalancing", None, "/admin/autobalancing_status"),
    ("POST", "/instances", None, "/admin/freeze"),
    ("POST", "/rebalance", None, "/admin/freeze"),
]
"""And the call that returns the ETag of each."""


@pytest.fixture
def working(rest: RestFixture) -> RestFixture:
    rest.put_intent("orders", TopicIntent(2, 2, TopicState.PAUSED, target_topic="orders"))
    rest.target.put("orders", 4)
    rest.add_worker("w1")
    known = KnownWorker(2, draining=True)
    rest.put(rest.paths.worker_known(WorkerId("w1")), encode_known_worker(known))
    return rest


def etag(rest: RestFixture, path: str) -> str:
    response = rest.call("GET", path)
    assert response.status_code == 200
    return str(response.headers["ETag"])


def write(rest: RestFixture, method: str, path: str, body: Any, tag: str) -> Any:
    return rest.call(method, path, json=body, headers={"If-Match": tag})


@pytest.mark.parametrize(("method", "path", "body", "seen_at"), WRITES)
def test_a_write_onto_the_version_that_was_read(
    working: RestFixture, method: str, path: str, body: Any, seen_at: str
) -> None:
    tag = etag(working, seen_at)
    assert write(working, method, path, body, f'"7", {tag}').status_code == 200


@pytest.mark.parametrize(("method", "path", "body", "seen_at"), WRITES)
def test_a_write_onto_another_version_is_refused(
    working: RestFixture, method: str, path: str, body: Any, seen_at: str
) -> None:
    tag = etag(working, seen_at)
    working.call("POST", "/admin/freeze")
    working.call("POST", "/topics/orders/resume")
    working.call("DELETE", "/instances/w1")
    before, target = working.tree(), dict(working.target.topics())
    problem = problem_of(write(working, method, path, body, tag), 412)
    assert problem["field"] == "If-Match"
    assert (working.tree(), working.target.topics()) == (before, target)


@pytest.mark.parametrize(("method", "path", "body", "seen_at"), WRITES)
def test_any_version_with_a_star(
    working: RestFixture, method: str, path: str, body: Any, seen_at: str
) -> None:
    assert write(working, method, path, body, "*").status_code == 200


@pytest.mark.parametrize("tag", ['W/"5"', "5", '"a"', '""', "", '"5" "6"', '*, "5"', '"5"\u00e4'])
def test_invalid_etags(working: RestFixture, tag: str) -> None:
    before = working.tree()
    problem = problem_of(write(working, "DELETE", "/topics/orders", None, tag), 400)
    assert problem["field"] == "If-Match"
    assert working.tree() == before


def test_a_missing_topic_is_a_404_before_a_412(working: RestFixture) -> None:
    for tag in ('"5"', "*"):
        problem_of(write(working, "DELETE", "/topics/quiet", None, tag), 404)
        problem_of(write(working, "DELETE", "/instances/w9", None, tag), 404)


@pytest.mark.parametrize("tag", ['"5"', "*"])
def test_adding_with_if_match_is_refused(working: RestFixture, tag: str) -> None:
    problem_of(write(working, "POST", "/topics/quiet", None, tag), 412)
    assert "quiet" not in working.target.topics()


def test_a_topic_added_again_has_another_etag(rest: RestFixture) -> None:
    """Its node has the same version."""
    rest.call("POST", "/topics/orders")
    tag = etag(rest, "/topics/orders")
    rest.remove("orders")
    rest.call("POST", "/topics/orders")
    assert etag(rest, "/topics/orders") != tag
    problem_of(write(rest, "DELETE", "/topics/orders", None, tag), 412)


# --- In the very transaction


class OvertakenWrite(MemoryCoordination):
    """Another client writes between the read and the first write."""

    overtake: Callable[[], None] | None = None

    def transact(self, operations: Sequence[Operation]) -> None:
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        super().transact(operations)


@pytest.fixture
def contended(new_rest: NewRest) -> RestFixture:
    rest = new_rest(client=OvertakenWrite)
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    return rest


def test_a_concurrent_write_is_refused(contended: RestFixture) -> None:
    tag = etag(contended, "/topics/orders")
    other = TopicIntent(3, 2, target_topic="orders")
    contended.coordination.overtake = lambda: contended.put_intent("orders", other)  # type: ignore[attr-defined]
    problem_of(write(contended, "DELETE", "/topics/orders", None, tag), 412)
    assert contended.intent("orders") == other


def test_without_a_precondition_the_edit_is_decided_again(contended: RestFixture) -> None:
    other = TopicIntent(3, 2, target_topic="orders")
    contended.coordination.overtake = lambda: contended.put_intent("orders", other)  # type: ignore[attr-defined]
    assert contended.call("DELETE", "/topics/orders").get_json()["state"] == "deleting"
    intent = contended.intent("orders")
    assert intent is not None
    assert (intent.partitions, intent.state) == (3, TopicState.DELETING)


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_is_read_back(working: RestFixture, applied: bool) -> None:
    tag = etag(working, "/topics/orders")
    working.coordination.lose_next_response(applied=applied)
    assert write(working, "DELETE", "/topics/orders", None, tag).status_code == 200


class HiddenWrite(MemoryCoordination):
    """The write is applied, its response lost, and the node overwritten by another client."""

    hide: Callable[[], None] | None = None

    def transact(self, operations: Sequence[Operation]) -> None:
        hide, self.hide = self.hide, None
        if hide is None:
            return super().transact(operations)
        self.lose_next_response(applied=True)
        try:
            return super().transact(operations)
        finally:
            hide()


def test_a_write_that_may_be_hidden_by_another_is_not_reported_as_refused(
    new_rest: NewRest,
) -> None:
    rest = new_rest(client=HiddenWrite)
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    tag = etag(rest, "/topics/orders")
    other = TopicIntent(3, 2, target_topic="orders")
    rest.coordination.hide = lambda: rest.put_intent("orders", other)  # type: ignore[attr-defined]
    problem = problem_of(write(rest, "POST", "/topics/orders/pause", None, tag), 503)
    assert "unknown" in problem["detail"]


# --- Two sources, one target


@pytest.fixture
def one_target(new_rest: NewRest) -> RestFixture:
    """`a` and `b` of the source are both called `a` on the target."""
    routes = ({"source": "source", "target": "target", "naming": {"rename": {"b": "a"}}},)
    rest = new_rest(routes, client=OvertakenWrite)
    rest.source.put("a", 1)
    rest.source.put("b", 1)
    return rest


def whitelisted(rest: RestFixture) -> list[str]:
    return [topic for topic in ("a", "b") if rest.intent(topic) is not None]


@pytest.mark.parametrize("left_over", [False, True])
def test_two_topics_added_concurrently_for_one_target(
    one_target: RestFixture, left_over: bool
) -> None:
    if left_over:
        one_target.call("POST", "/topics/a")
        one_target.remove("a")

    def other() -> None:
        assert one_target.app.test_client().post("/topics/b").status_code == 201

    one_target.coordination.overtake = other  # type: ignore[attr-defined]
    problem = problem_of(one_target.call("POST", "/topics/a"), 409)
    assert "already the target of source.target/b" in problem["detail"]
    assert whitelisted(one_target) == ["b"]


def test_a_claim_that_the_tree_cache_does_not_show_yet(one_target: RestFixture) -> None:
    """The second is written while the first makes its target."""

    def other(call: str, topic: str) -> None:
        one_target.target.before = lambda call, topic: None
        assert one_target.app.test_client().post("/topics/b").status_code == 201

    one_target.target.before = other
    problem_of(one_target.call("POST", "/topics/a"), 409)
    assert whitelisted(one_target) == ["b"]


def test_a_target_is_free_again_when_its_topic_is_gone(one_target: RestFixture) -> None:
    one_target.call("POST", "/topics/a")
    one_target.remove("a")
    assert one_target.call("POST", "/topics/b").status_code == 201
    problem_of(one_target.call("POST", "/topics/a"), 409)
    one_target.remove("b")
    assert one_target.call("POST", "/topics/b").status_code == 201


def test_a_topic_without_a_claim_keeps_its_target(one_target: RestFixture) -> None:
    one_target.put_intent("a", TopicIntent(1, 1, target_topic="a"))
    problem_of(one_target.call("POST", "/topics/b"), 409)


def test_an_unreadable_claim_is_taken_over(one_target: RestFixture) -> None:
    one_target.put(one_target.paths.target("target", "a"), b"{")
    assert one_target.call("POST", "/topics/b").status_code == 201
