"""/topics on in-memory clusters: effects and refusals of each verb."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused
from ureplicator_common.model import (
    HandlerSettings,
    PartitionState,
    Route,
    RouteSettings,
    SqlSettings,
    TopicState,
    position_group,
)
from ureplicator_common.znode_contents import IsolatedSubject, TopicIntent
from ureplicator_common.znodes.fleet import encode_isolated
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.core.topics.target_limits import NO_LIMIT_MS
from ureplicator_testkit.control.rest_fixture import (
    ONE_ROUTE,
    ROUTE,
    NewRest,
    RestFixture,
    problem_of,
)

ONLINE, OFFLINE, ERROR = PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.ERROR
TWO_ROUTES = (
    {"source": "source", "target": "target"},
    {"source": "other", "target": "target", "naming": {"prefix": "other."}},
)


def active(partitions: int, target_topic: str = "") -> TopicIntent:
    return TopicIntent(
        partitions=partitions, initial_partitions=partitions, target_topic=target_topic
    )


# --- POST


@pytest.mark.parametrize("count", [None, 4, "4"])
def test_adding_creates_the_target_and_the_intent(rest: RestFixture, count: Any) -> None:
    body = {"topic": "orders"} | ({} if count is None else {"numPartitions": count})
    response = rest.call("POST", "/topics", json=body)
    assert response.status_code == 201
    shown = {"topic": "orders", "route": "source.target", "partitions": 4, "target": "created"}
    assert response.get_json() == shown
    intent = rest.intent("orders")
    assert intent is not None
    assert (intent.partitions, intent.initial_partitions) == (4, 4)
    assert (intent.state, intent.target_topic) == (TopicState.ACTIVE, "orders")
    assert intent.request_id
    assert rest.target.topics()["orders"].partitions == 4
    assert rest.client.get(response.headers["Location"]).status_code == 200


def test_target_topics_have_the_replicas_of_the_route(new_rest: NewRest) -> None:
    rest = new_rest(({**ONE_ROUTE[0], "replication_factor": 2},))
    assert rest.call("POST", "/topics", json={"topic": "orders"}).status_code == 201
    assert rest.target.replication == {"orders": 2}


def test_more_replicas_than_the_target_has_brokers_are_refused(new_rest: NewRest) -> None:
    rest = new_rest(({**ONE_ROUTE[0], "replication_factor": 4},))
    response = rest.call("POST", "/topics", json={"topic": "orders"})
    assert response.status_code == 409
    assert "4 replicas" in response.get_json()["detail"]
    assert rest.intent("orders") is None


def test_adding_by_path_needs_no_body(rest: RestFixture) -> None:
    assert rest.call("POST", "/topics/orders").status_code == 201
    body = {"topic": "quiet", "numPartitions": "1"}
    assert rest.call("POST", "/topics/quiet", json=body).status_code == 201
    assert rest.call("GET", "/topics").get_json() == {"topics": ["orders", "quiet"]}


def test_fewer_partitions_than_the_source_has(rest: RestFixture) -> None:
    """The target still gets all, so that records keep their partition when the topic is expanded."""
    response = rest.call("POST", "/topics", json={"topic": "orders", "numPartitions": 2})
    assert response.get_json()["partitions"] == 2
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.initial_partitions == 2
    assert rest.target.topics()["orders"].partitions == 4


def test_a_topic_with_more_partitions_than_a_node_holds(rest: RestFixture) -> None:
    rest.source.put("huge", MAX_TOPIC_PARTITIONS + 1)
    problem = problem_of(rest.call("POST", "/topics/huge"), 400)
    assert problem["field"] == "numPartitions"
    assert rest.intent("huge") is None
    assert "huge" not in rest.target.topics()
    body = {"topic": "huge", "numPartitions": MAX_TOPIC_PARTITIONS}
    assert rest.call("POST", "/topics", json=body).status_code == 201


def test_the_target_gets_the_settings_that_decide_about_records(rest: RestFixture) -> None:
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": "9",
        "retention.ms": "1",
        "segment.bytes": "77",
        "leader.replication.throttled.replicas": "*",
    }
    rest.source.put("compact", 1, configs=configs)
    rest.call("POST", "/topics/compact")
    assert rest.target.configs("compact") == {
        "cleanup.policy": "compact",
        "max.message.bytes": "9",
        "retention.ms": "1",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(NO_LIMIT_MS),
        "message.timestamp.after.max.ms": str(NO_LIMIT_MS),
    }


@pytest.mark.parametrize(
    ("known", "set_"),
    [
        ("message.timestamp.difference.max.ms", {"message.timestamp.difference.max.ms"}),
        ("retention.ms", set()),
    ],
)
def test_a_target_that_refuses_limits_for_timestamps(
    rest: RestFixture, known: str, set_: set[str]
) -> None:
    """Brokers before 3.6 have one limit under another name; a policy for topics may forbid any."""
    rest.source.put("aged", 3, configs={"retention.ms": "1"})
    rest.target.known_configs = {"retention.ms", "message.timestamp.type", known}
    assert rest.call("POST", "/topics/aged").status_code == 201
    assert set(rest.target.configs("aged")) == {"retention.ms", "message.timestamp.type", *set_}
    assert rest.target.topics()["aged"].partitions == 3


def test_the_target_refuses(rest: RestFixture) -> None:
    def refuse(call: str, topic: str) -> None:
        raise TopicRefused("Policy violation")

    rest.target.before = refuse
    assert "Policy violation" in problem_of(rest.call("POST", "/topics/orders"), 409)["detail"]
    assert rest.intent("orders") is None


def test_target_names_by_the_published_settings(rest: RestFixture) -> None:
    rest.publish(RouteSettings(prefix="dc1."))
    rest.call("POST", "/topics/orders")
    assert "dc1.orders" in rest.target.topics()
    assert rest.call("GET", "/topics/orders").get_json()["targetTopic"] == "dc1.orders"


def test_the_lane_of_a_topic_by_the_published_settings(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    assert rest.call("GET", "/topics/orders").get_json()["lane"] == "raw"
    rest.publish(RouteSettings(sql=(SqlSettings("orders", "SELECT value FROM records"),)))
    assert rest.call("GET", "/topics/orders").get_json()["lane"] == "sql"
    rest.publish(RouteSettings(handlers=(HandlerSettings("orders", "shop:make"),)))
    assert rest.call("GET", "/topics/orders").get_json()["lane"] == "handler"


def test_two_sources_for_one_target_topic(new_rest: NewRest) -> None:
    rest = new_rest(({"source": "source", "target": "target", "naming": {"rename": {"b": "a"}}},))
    rest.source.put("a", 1)
    rest.source.put("b", 1)
    assert rest.call("POST", "/topics/a").status_code == 201
    problem = problem_of(rest.call("POST", "/topics/b"), 409)
    assert "already the target of source.target/a" in problem["detail"]


def test_already_whitelisted(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    problem = problem_of(rest.call("POST", "/topics/orders"), 409)
    assert problem["field"] == "topic"
    assert "PUT" in problem["hint"]


def test_being_deleted(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    rest.call("DELETE", "/topics/orders")
    assert "wait" in problem_of(rest.call("POST", "/topics/orders"), 409)["hint"]
    body = {"topic": "orders", "numPartitions": 4}
    problem_of(rest.call("PUT", "/topics", json=body), 409)


def test_not_in_the_source(rest: RestFixture) -> None:
    problem = problem_of(rest.call("POST", "/topics/nowhere"), 404)
    assert problem["field"] == "topic"
    assert rest.target.topics() == {}


@pytest.mark.parametrize(
    "count", [5, "5", 0, -1, "0", "-1", "four", 1.5, True, [], {}, "", "9" * 99]
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_wrong_counts(rest: RestFixture, method: str, count: Any) -> None:
    if method == "PUT":
        rest.call("POST", "/topics/orders")
    body = {"topic": "orders", "numPartitions": count}
    problem = problem_of(rest.call(method, "/topics", json=body), 400)
    assert problem["field"] == "numPartitions"
    assert problem["hint"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "ü",
        "x" * 250,
        "a\n",
        "\ud800",
        7,
        None,
        ["a"],
        "__consumer_offsets",
    ],
)
def test_illegal_names(rest: RestFixture, name: Any) -> None:
    problem = problem_of(rest.call("POST", "/topics", json={"topic": name}), 400)
    assert problem["field"] == "topic"


@pytest.mark.parametrize("path", ["a%20b", "a/b", "%C3%BC", "..%20", "__transaction_state"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_illegal_names_in_the_path(rest: RestFixture, method: str, path: str) -> None:
    assert problem_of(rest.call(method, f"/topics/{path}"), 400)["field"] == "topic"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"orders"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"\xff\xfe{", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b'{"topic": "orders", "partitions": 4}', "'partitions' is not a known field"),
        (b'{"numPartitions": 4}', "topic is missing"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_wrong_bodies(rest: RestFixture, method: str, data: bytes, word: str) -> None:
    response = rest.call(method, "/topics", data=data, content_type="application/json")
    problem = problem_of(response, 400)
    assert word in problem["detail"]
    assert problem["hint"]
    assert rest.intent("orders") is None


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_tool_need_not_say_that_it_sends_json(rest: RestFixture, kind: str | None) -> None:
    body = b'{"topic": "orders"}'
    assert rest.call("POST", "/topics", data=body, content_type=kind).status_code == 201


def test_a_body_that_is_too_large(rest: RestFixture) -> None:
    data = b'{"topic": "' + b"x" * 70_000 + b'"}'
    problem_of(rest.call("POST", "/topics", data=data, content_type="application/json"), 413)


def test_names_in_path_and_body_differ(rest: RestFixture) -> None:
    response = rest.call("POST", "/topics/orders", json={"topic": "quiet"})
    assert problem_of(response, 400)["field"] == "topic"


def test_a_misspelt_parameter(rest: RestFixture) -> None:
    for method in ("GET", "POST", "DELETE"):
        response = rest.call(method, "/topics/orders?scr=source")
        assert problem_of(response, 400)["field"] == "scr"


# --- PUT


@pytest.mark.parametrize("path", ["/topics", "/topics/orders"])
def test_expanding_expands_the_target_first(rest: RestFixture, path: str) -> None:
    rest.call("POST", "/topics", json={"topic": "orders", "numPartitions": 2})
    rest.source.grow_topic("orders", partitions=6)
    response = rest.call("PUT", path, json={"topic": "orders", "numPartitions": "6"})
    assert response.status_code == 200
    assert response.get_json() == {"topic": "orders", "route": "source.target", "partitions": 6}
    intent = rest.intent("orders")
    assert intent is not None
    assert (intent.partitions, intent.initial_partitions) == (6, 2)
    assert rest.target.topics()["orders"].partitions == 6


def test_expanding_to_the_present_number_changes_nothing(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    before = rest.intent("orders")
    body = {"topic": "orders", "numPartitions": 4}
    with rest.source.failing():  # and needs no cluster
        assert rest.call("PUT", "/topics", json=body).status_code == 200
    assert rest.intent("orders") == before


def test_expanding_keeps_what_the_leader_wrote(rest: RestFixture) -> None:
    rest.put_intent(
        "orders",
        TopicIntent(
            partitions=2,
            initial_partitions=2,
            had_position=frozenset({0, 1}),
            target_topic="orders",
        ),
    )
    rest.call("PUT", "/topics", json={"topic": "orders", "numPartitions": 4})
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.had_position == {0, 1}


def test_refused_expansions(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    fewer = {"topic": "orders", "numPartitions": 3}
    assert "shrink" in problem_of(rest.call("PUT", "/topics", json=fewer), 400)["detail"]
    more = {"topic": "orders", "numPartitions": 5}
    assert "only 4" in problem_of(rest.call("PUT", "/topics", json=more), 400)["detail"]
    unknown = {"topic": "quiet", "numPartitions": 1}
    problem_of(rest.call("PUT", "/topics", json=unknown), 404)
    missing = problem_of(rest.call("PUT", "/topics", json={"topic": "orders"}), 400)
    assert missing["field"] == "numPartitions"


# --- DELETE


def test_deleting_leaves_the_rest_to_the_leader(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    response = rest.call("DELETE", "/topics/orders")
    assert response.status_code == 200
    assert response.get_json()["state"] == "deleting"
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.state is TopicState.DELETING
    assert rest.call("GET", "/topics/orders").get_json()["state"] == "deleting"
    assert rest.call("DELETE", "/topics/orders").status_code == 200
    assert "orders" in rest.target.topics()


def test_deleting_an_unknown_topic(rest: RestFixture) -> None:
    problem_of(rest.call("DELETE", "/topics/orders"), 404)


def test_deleting_needs_no_cluster(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    with rest.source.failing(), rest.target.failing():
        assert rest.call("DELETE", "/topics/orders").status_code == 200


# --- GET


def test_a_topic_without_a_worker(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    shown = rest.call("GET", "/topics/orders").get_json()
    assert shown["idealState"] == {"0": {}, "1": {}, "2": {}, "3": {}}
    assert shown["externalView"] == {}
    assert [mismatch["reason"] for mismatch in shown["mismatches"]] == ["not placed yet"] * 4
    assert shown["mismatches"][0]["since"] is None


def test_ideal_state_against_external_view(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    rest.add_worker("w1")
    rest.add_worker("w2")
    rest.place("orders", {0: "w1", 1: "w1", 2: "w2", 3: None}, since_ms=77)
    rest.put_states("w1", "orders", {0: ONLINE, 1: ERROR}, reason="record too large at 12")
    rest.put_states("w2", "orders", {2: OFFLINE}, reason="starting")
    shown = rest.call("GET", "/topics/orders").get_json()
    assert shown["idealState"]["0"] == {"w1": "ONLINE"}
    assert shown["externalView"] == {
        "0": {"w1": "ONLINE"},
        "1": {"w1": "ERROR"},
        "2": {"w2": "OFFLINE"},
    }
    assert shown["serverToPartitionMapping"] == {
        "w1": {"0": "ONLINE", "1": "ERROR"},
        "w2": {"2": "OFFLINE"},
    }
    assert shown["serverToNumPartitionsMapping"] == {"w1": 1, "w2": 0}
    assert [mismatch["partition"] for mismatch in shown["mismatches"]] == [1, 2, 3]
    assert shown["mismatches"][0] == {
        "partition": 1,
        "ideal": {"w1": "ONLINE"},
        "actual": {"w1": "ERROR"},
        "reason": "record too large at 12",
        "since": 77,
    }


def test_positions(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    group = position_group(fleet="test", route=ROUTE)
    rest.positions.put(group, "orders", 2, 41)
    shown = rest.call("GET", "/topics/orders").get_json()
    assert shown["positions"] == {"0": None, "1": None, "2": 41, "3": None}


def test_positions_are_null_without_the_target(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    with rest.positions.failing(ClusterUnavailable("t:1 refused")):
        response = rest.call("GET", "/topics/orders")
    assert response.status_code == 200
    assert response.get_json()["positions"] is None
    assert "t:1 refused" in response.get_json()["positionsReason"]


def test_an_unknown_topic(rest: RestFixture) -> None:
    assert problem_of(rest.call("GET", "/topics/orders"), 404)["hint"]


# --- Several routes


def test_a_route_must_be_chosen_where_it_matters(new_rest: NewRest) -> None:
    rest = new_rest(TWO_ROUTES)
    problem = problem_of(rest.call("POST", "/topics/orders"), 400)
    assert problem["field"] == "src"
    assert "other.target, source.target" in problem["detail"]
    assert rest.call("POST", "/topics/orders?src=other").status_code == 201
    assert rest.call("GET", "/topics/orders").get_json()["route"] == "other.target"
    federated = "src=source&dst=target&routeid=1"
    assert rest.call("POST", f"/topics/orders?{federated}").status_code == 201
    problem_of(rest.call("GET", "/topics/orders"), 400)
    assert rest.call("GET", "/topics/orders?src=source").status_code == 200
    assert rest.intent("orders", route=Route("other", "target")) is not None
    assert set(rest.target.topics()) == {"orders", "other.orders"}
    assert rest.call("GET", "/topics?src=other").get_json() == {"topics": ["orders"]}


def test_an_unknown_route(new_rest: NewRest) -> None:
    rest = new_rest(TWO_ROUTES)
    problem = problem_of(rest.call("GET", "/topics?src=nowhere"), 404)
    assert "other.target, source.target" in problem["hint"]


# --- Unreadable nodes


def test_an_unreadable_node_is_reported_and_kept(rest: RestFixture) -> None:
    rest.put(f"{rest.paths.topics}/source.target/orders", b"{garbage")
    assert "cannot be decoded" in problem_of(rest.call("POST", "/topics/orders"), 500)["detail"]
    unreadable = rest.call("GET", "/validation").get_json()["unreadable"]
    assert unreadable[0]["path"].endswith("/topics/source.target/orders")


def test_what_the_leader_leaves_alone_is_shown(rest: RestFixture) -> None:
    assert rest.call("GET", "/validation").get_json()["isolated"] == {}
    subject = IsolatedSubject("topic source.target/orders", "too big")
    rest.put(rest.paths.isolated, encode_isolated([subject]))
    shown = rest.call("GET", "/validation").get_json()["isolated"]
    assert shown == {"topic source.target/orders": "too big"}


def test_a_field_that_is_given_twice_is_refused(rest: RestFixture) -> None:
    twice = b'{"topic": "quiet", "topic": "orders"}'
    problem = problem_of(rest.call("POST", "/topics", data=twice), 400)
    assert problem["detail"] == "'topic' is given twice"
    assert (problem["field"], problem["hint"]) == ("topic", "give it once")
    assert rest.intent("orders") is None
