"""`/routes`: listing the routes, pausing and resuming a whole one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ureplicator_common.contents import Switches, TopicIntent
from ureplicator_common.model import (
    PartitionState,
    Route,
    RouteSettings,
    TopicState,
    WorkerSelection,
)
from ureplicator_common.znodes import decode_switches
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

ROUTES = ({"source": "west", "target": "east"}, {"source": "east", "target": "west"})
PAUSE = "/routes/source.target/pause"
RESUME = "/routes/source.target/resume"


def switches(rest: RestFixture) -> Switches:
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    return decode_switches(node.data)


def shown_route(rest: RestFixture) -> Any:
    return rest.call("GET", "/routes").get_json()["routes"]["source.target"]


@pytest.fixture
def two_ways() -> Iterator[RestFixture]:
    rest = RestFixture(ROUTES)
    yield rest
    rest.close()


def test_routes_are_listed_with_their_topics(two_ways: RestFixture) -> None:
    west_east = Route("west", "east")
    two_ways.put_intent("orders", TopicIntent(4, 4), route=west_east)
    two_ways.put_intent("quiet", TopicIntent(2, 2), route=west_east)
    two_ways.put_intent("gone", TopicIntent(9, 9, state=TopicState.DELETING), route=west_east)
    two_ways.call("POST", "/routes/east.west/pause")
    shown = two_ways.call("GET", "/routes").get_json()["routes"]
    assert shown["west.east"] == {
        "paused": False,
        "source": "west",
        "target": "east",
        "topics": 2,
        "partitions": 6,
        "workers": {"tags": [], "min": 0, "max": 0, "available": 0},
        "syncs": [],
    }
    assert (shown["east.west"]["paused"], shown["east.west"]["topics"]) == (True, 0)
    only = two_ways.call("GET", "/routes?src=east").get_json()["routes"]
    assert only == {"east.west": shown["east.west"]}


def test_pausing_and_resuming_are_idempotent_and_stored(rest: RestFixture) -> None:
    rest.call("POST", "/admin/freeze")
    for path, paused in ((PAUSE, True), (PAUSE, True), (RESUME, False), (RESUME, False)):
        shown = rest.call("POST", path).get_json()
        assert shown == {"route": "source.target", "paused": paused}
        assert shown_route(rest)["paused"] is paused
        assert (ROUTE in switches(rest).paused_routes, switches(rest).frozen) == (paused, True)


def test_a_precondition_names_the_state_that_was_seen(rest: RestFixture) -> None:
    seen = rest.call("GET", "/routes").headers["ETag"]
    rest.call("POST", "/admin/freeze")
    problem_of(rest.call("POST", PAUSE, headers={"If-Match": seen}), 412)
    seen = rest.call("GET", "/routes").headers["ETag"]
    assert rest.call("POST", PAUSE, headers={"If-Match": seen}).status_code == 200


def test_a_route_that_is_not_configured(rest: RestFixture) -> None:
    refused = problem_of(rest.call("POST", "/routes/north.south/pause"), 404)
    assert refused["hint"] == "the routes are source.target"


def test_topics_of_a_paused_route_are_excluded_with_the_reason(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(2, 2))
    rest.place("orders", {0: None, 1: None})
    rest.call("POST", PAUSE)
    rest.call("POST", "/topics", json={"topic": "quiet"})
    shown = rest.call("GET", "/topics/orders").get_json()
    assert (shown["state"], shown["effectiveState"]) == ("active", "paused")
    assert set(shown["excluded"].values()) == {"paused: the whole route"}
    found = rest.call("GET", "/validation").get_json()
    assert found["numPausedTopicPartitions"] == 3
    assert [each["topic"] for each in found["excluded"]] == ["orders", "quiet"]
    assert found["mismatches"] == []
    assert (
        'ureplicator_route_paused{route="source.target"} 1.0' in rest.call("GET", "/metrics").text
    )


def test_partitions_that_are_released_soon_are_mismatches(rest: RestFixture) -> None:
    rest.add_worker("w1")
    rest.put_intent("orders", TopicIntent(1, 1))
    rest.place("orders", {0: "w1"})
    rest.put_states("w1", "orders", {0: PartitionState.ONLINE})
    rest.call("POST", PAUSE)
    rest.place("orders", {0: None})
    (found,) = rest.call("GET", "/validation").get_json()["mismatches"]
    assert found["actual"] == {"w1": "ONLINE"}


def test_a_route_shows_the_workers_it_asks_for_and_says_if_they_are_too_few(
    rest: RestFixture,
) -> None:
    rest.publish(RouteSettings(workers=WorkerSelection(("bulk",), min=2)))
    rest.add_worker("w1", tags=("bulk",))
    rest.add_worker("w2")
    shown = rest.call("GET", "/routes").get_json()["routes"][str(ROUTE)]["workers"]
    assert shown == {"tags": ["bulk"], "min": 2, "max": 0, "available": 1}
    conditions = rest.call("GET", "/validation").get_json()["conditions"]
    assert conditions == [f"route {ROUTE} has 1 of at least 2 workers with the tags bulk"]
    metrics = rest.call("GET", "/metrics").text
    assert f'ureplicator_route_workers{{route="{ROUTE}"}} 1.0' in metrics
    assert f'ureplicator_route_min_workers{{route="{ROUTE}"}} 2.0' in metrics
    worker = rest.call("GET", "/instances/w1").get_json()["workers"]["w1"]
    assert worker["tags"] == ["bulk"]
