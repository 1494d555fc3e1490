"""Pausing topics and blacklisting partitions, on in-memory clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.coordination import Operation
from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture, problem_of

TWO_ROUTES = (
    {"source": "source", "target": "target"},
    {"source": "other", "target": "target", "naming": {"prefix": "other."}},
)
HAD = TopicIntent(3, 2, had_position=frozenset({0, 1}), target_topic="orders")


@pytest.fixture
def copying(rest: RestFixture) -> RestFixture:
    rest.put_intent("orders", HAD)
    rest.target.put("orders", 4)
    return rest


def intent(rest: RestFixture) -> TopicIntent:
    there = rest.intent("orders")
    assert there is not None
    return there


def blacklisted(rest: RestFixture) -> list[tuple[str, int]]:
    shown = rest.call("GET", "/blacklist").get_json()["blacklist"]
    return [(entry["topic"], entry["partition"]) for entry in shown]


# --- Pause and resume


def test_pausing_and_resuming_are_idempotent_and_change_nothing_else(copying: RestFixture) -> None:
    for verb, state in (("pause", TopicState.PAUSED), ("resume", TopicState.ACTIVE)):
        for _ in range(2):
            response = copying.call("POST", f"/topics/orders/{verb}")
            assert response.status_code == 200
            assert response.get_json()["state"] == state
        there = intent(copying)
        assert there.state is state
        assert (there.had_position, there.initial_partitions) == (HAD.had_position, 2)


def test_no_change_is_not_written(copying: RestFixture) -> None:
    copying.call("POST", "/topics/orders/resume")
    assert intent(copying).request_id == ""


def test_a_topic_that_is_being_deleted_is_not_resumed(copying: RestFixture) -> None:
    copying.call("DELETE", "/topics/orders")
    problem_of(copying.call("POST", "/topics/orders/resume"), 409)
    assert intent(copying).state is TopicState.DELETING


@pytest.mark.parametrize("applied", [True, False])
def test_pausing_with_unknown_outcome_is_read_back(copying: RestFixture, applied: bool) -> None:
    copying.coordination.lose_next_response(applied=applied)
    assert copying.call("POST", "/topics/orders/pause").status_code == 200
    assert intent(copying).state is TopicState.PAUSED


def test_pausing_takes_no_body(copying: RestFixture) -> None:
    problem_of(copying.call("POST", "/topics/orders/pause", json={"topic": "orders"}), 400)


# --- The blacklist


@pytest.mark.parametrize(
    "request_",
    [
        {"query_string": {"topic": "orders", "partition": "1", "opt": "blacklist"}},
        {"json": {"topic": "orders", "partition": 1, "opt": "blacklist"}},
        {"json": {"topic": "orders", "partition": "1", "opt": "blacklist"}},
        {"query_string": "topic=orders&partition=1", "json": {"partition": 1, "opt": "blacklist"}},
    ],
)
def test_a_partition_is_blacklisted(copying: RestFixture, request_: dict[str, Any]) -> None:
    response = copying.call("POST", "/blacklist", **request_)
    assert response.get_json() == {
        "topic": "orders",
        "partition": 1,
        "route": "source.target",
        "blacklisted": True,
        "note": "",
    }
    assert blacklisted(copying) == [("orders", 1)]
    assert intent(copying).had_position == HAD.had_position


def test_a_partition_is_removed_from_the_blacklist(copying: RestFixture) -> None:
    for opt in ("blacklist", "whitelist"):
        query = {"topic": "orders", "partition": 1, "opt": opt}
        assert copying.call("POST", "/blacklist", query_string=query).status_code == 200
        problem = problem_of(copying.call("POST", "/blacklist", query_string=query), 400)
        assert problem["field"] == "opt"
    assert blacklisted(copying) == []


def test_the_blacklist_survives_expansion_and_pause(copying: RestFixture) -> None:
    copying.call("POST", "/blacklist?topic=orders&partition=1&opt=blacklist")
    body = {"topic": "orders", "numPartitions": 4}
    assert copying.call("PUT", "/topics", json=body).status_code == 200
    copying.call("POST", "/topics/orders/pause")
    copying.call("POST", "/topics/orders/resume")
    assert intent(copying).partitions == 4
    assert blacklisted(copying) == [("orders", 1)]
    assert copying.call("GET", "/topics/orders").get_json()["blacklisted"] == [1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("partition=1&opt=blacklist", "topic"),
        ("topic=..&partition=1&opt=blacklist", "topic"),
        ("topic=orders&partition=&opt=blacklist", "partition"),
        ("topic=orders&partition=-1&opt=blacklist", "partition"),
        ("topic=orders&partition=1.0&opt=blacklist", "partition"),
        ("topic=orders&partition=99999999999&opt=blacklist", "partition"),
        ("topic=orders&partition=3&opt=blacklist", "partition"),
        ("topic=orders&partition=1", "opt"),
        ("topic=orders&partition=1&opt=BlacklistEntries", "opt"),
        ("topic=orders&partition=1&opt=whitelist", "opt"),
        ("topic=orders&partition=1&opt=blacklist&force=1", "force"),
    ],
)
def test_a_refusal_names_its_field(copying: RestFixture, query: str, field: str) -> None:
    problem = problem_of(copying.call("POST", f"/blacklist?{query}"), 400)
    assert problem["field"] == field
    assert problem["hint"]
    assert intent(copying) == HAD


def test_a_whole_topic_is_named_as_such(copying: RestFixture) -> None:
    """A script that forgot the partition must not stop the topic."""
    query = "topic=orders&opt=blacklist"
    assert problem_of(copying.call("POST", f"/blacklist?{query}"), 400)["field"] == "partition"
    both = copying.call("POST", f"/blacklist?{query}&partition=1&scope=topic")
    assert problem_of(both, 400)["field"] == "scope"
    assert copying.call("GET", "/blacklist").get_json() == {"blacklist": [], "topics": []}
    assert copying.call("POST", f"/blacklist?{query}&scope=topic").status_code == 200


@pytest.mark.parametrize("body", [{"partition": True}, {"partition": -1}, {"opt": ["blacklist"]}])
def test_bodies_that_are_refused(copying: RestFixture, body: dict[str, Any]) -> None:
    whole = {"topic": "orders", "partition": 1, "opt": "blacklist"} | body
    problem_of(copying.call("POST", "/blacklist", json=whole), 400)


def test_query_and_body_must_agree(copying: RestFixture) -> None:
    response = copying.call(
        "POST",
        "/blacklist?partition=1",
        json={"topic": "orders", "partition": 2, "opt": "blacklist"},
    )
    assert problem_of(response, 400)["field"] == "partition"


@pytest.mark.parametrize("applied", [True, False])
def test_blacklisting_with_unknown_outcome_is_read_back(
    copying: RestFixture, applied: bool
) -> None:
    """Made twice it would be refused the second time."""
    copying.coordination.lose_next_response(applied=applied)
    query = "topic=orders&partition=1&opt=blacklist"
    assert copying.call("POST", f"/blacklist?{query}").status_code == 200
    assert blacklisted(copying) == [("orders", 1)]


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("opt", ["blacklist", "whitelist"])
def test_a_topic_that_changes_before_the_write_is_not_blacklisted(
    copying: RestFixture, monkeypatch: pytest.MonkeyPatch, opt: str, is_deleted: bool
) -> None:
    """`If-Match` is part of the write."""
    query = "topic=orders&scope=topic&opt="
    if opt == "whitelist":
        assert copying.call("POST", f"/blacklist?{query}blacklist").status_code == 200
    before = blacklisted(copying)
    tag = copying.call("GET", "/topics/orders").headers["ETag"]
    transact, changes = copying.coordination.transact, [is_deleted]

    def after_another_writer(operations: Sequence[Operation]) -> None:
        if changes:
            if changes.pop():
                copying.remove("orders")
            else:
                copying.put_intent("orders", replace(HAD, state=TopicState.PAUSED))
        transact(operations)

    monkeypatch.setattr(copying.coordination, "transact", after_another_writer)
    response = copying.call("POST", f"/blacklist?{query}{opt}", headers={"If-Match": tag})
    assert problem_of(response, 412)["field"] == "If-Match"
    assert blacklisted(copying) == before


def test_with_several_routes_one_is_chosen(new_rest: NewRest) -> None:
    rest = new_rest(TWO_ROUTES)
    rest.put_intent("orders", HAD)
    query = "topic=orders&partition=1&opt=blacklist"
    assert problem_of(rest.call("POST", f"/blacklist?{query}"), 400)["field"] == "src"
    assert rest.call("POST", f"/blacklist?{query}&src=source").status_code == 200
    assert blacklisted(rest) == [("orders", 1)]
    assert rest.call("GET", "/blacklist?src=other").get_json() == {"blacklist": [], "topics": []}
