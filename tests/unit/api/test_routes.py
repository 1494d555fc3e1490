"""`/routes`: listing the routes, pausing and resuming a whole one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ureplicator_common.model import (
    PartitionState,
    Route,
    RouteSettings,
    TopicState,
    WorkerSelection,
)
from ureplicator_common.znode_contents import Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches, encode_switches
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
    two_ways.put_intent("orders", TopicIntent(4, 4, target_topic="orders"), route=west_east)
    two_ways.put_intent("quiet", TopicIntent(2, 2, target_topic="quiet"), route=west_east)
    two_ways.put_intent(
        "gone", TopicIntent(9, 9, state=TopicState.DELETING, target_topic="gone"), route=west_east
    )
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
        "settings": shown["east.west"]["settings"],
        "changes": {},
        "refusal": "",
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
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.place("orders", {0: None, 1: None})
    rest.call("POST", PAUSE)
    rest.call("POST", "/topics", json={"topic": "quiet"})
    shown = rest.call("GET", "/topics/orders").get_json()
    assert (shown["state"], shown["effectiveState"]) == ("active", "paused")
    assert set(shown["excluded"].values()) == {"paused: the whole route"}
    found = rest.call("GET", "/validation").get_json()
    assert found["numPausedTopicPartitions"] == 3
    assert [topic["topic"] for topic in found["excluded"]] == ["orders", "quiet"]
    assert found["mismatches"] == []
    assert (
        'ureplicator_route_paused{fleet="test",route="source.target"} 1.0'
        in rest.call("GET", "/metrics").text
    )


def test_partitions_that_are_released_soon_are_mismatches(rest: RestFixture) -> None:
    rest.add_worker("w1")
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
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
    assert f'ureplicator_route_workers{{fleet="test",route="{ROUTE}"}} 1.0' in metrics
    assert f'ureplicator_route_min_workers{{fleet="test",route="{ROUTE}"}} 2.0' in metrics
    worker = rest.call("GET", "/instances/w1").get_json()["workers"]["w1"]
    assert worker["tags"] == ["bulk"]


SETTINGS = "/routes/source.target/settings"


def change(rest: RestFixture, settings: dict[str, Any], query: str = "") -> Any:
    response = rest.call("PUT", f"{SETTINGS}{query}", json={"settings": settings})
    assert response.status_code == 200, response.text
    return response.get_json()


def test_settings_are_changed_for_the_whole_fleet_beside_those_of_the_file(
    rest: RestFixture,
) -> None:
    before = shown_route(rest)
    assert (before["settings"]["delivery"], before["changes"]) == ("exactly_once", {})
    patterns = {"auto_whitelist": {"enabled": True, "include": ["orders"]}}
    changed = change(rest, {"delivery": "at_least_once", **patterns})
    assert changed["changes"] == {"delivery": "at_least_once", **patterns}
    shown = shown_route(rest)
    assert shown["settings"] == changed["settings"]
    assert shown["settings"]["auto_whitelist"] == {
        **before["settings"]["auto_whitelist"],
        **patterns["auto_whitelist"],
    }
    again = change(rest, {"auto_whitelist": {"include": None, "exclude": ["x"]}})
    assert again["changes"]["auto_whitelist"] == {"enabled": True, "exclude": ["x"]}
    assert again["changes"]["delivery"] == "at_least_once"
    back = change(rest, {"delivery": None, "auto_whitelist": None})
    assert (back["changes"], back["settings"]) == ({}, before["settings"])
    assert switches(rest).route_settings == {}


def test_a_dry_run_changes_no_settings(rest: RestFixture) -> None:
    planned = change(rest, {"on_gap": "latest"}, "?dry_run=true")
    assert planned["changes"] == {"on_gap": "latest"}
    assert shown_route(rest)["changes"] == {}
    assert change(rest, {"on_gap": "latest"}) == planned


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"delivery": "twice"}, "delivery: unknown value 'twice'"),
        ({"handlers": [{"topics": ".*", "handler": "os:system"}]}, "handlers: is in the file only"),
        ({"sql": []}, "sql: is in the file only"),
        ({"source": "west"}, "source: is in the file only"),
        ({"nothing": 1}, "nothing: is no setting of a route"),
        ({"deliverey": 1}, "deliverey: is no setting of a route; did you mean 'delivery'?"),
        ({"auto_whitelist": {"include": ["("]}}, "auto_whitelist.include: '(' is not a regular"),
        ({"auto_whitelist": {"includes": ["x"]}}, "auto_whitelist.includes: unknown key"),
        (
            {"naming": {"rename": {"a": "x", "b": "x"}}},
            "naming.rename.b: 'x' is already the target",
        ),
        ({"workers": {"min": 3, "max": 2}}, "workers.max: 2 is below min 3"),
        ({"naming": "x"}, "naming"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(
    rest: RestFixture, settings: dict[str, Any], reason: str
) -> None:
    for query in ("", "?dry_run=true"):
        response = rest.call("PUT", f"{SETTINGS}{query}", json={"settings": settings})
        problem = problem_of(response, 400)
        assert problem["field"] == "settings"
        assert problem["detail"].startswith(reason)
    assert shown_route(rest)["changes"] == {}


def test_settings_are_judged_beside_those_of_other_routes(two_ways: RestFixture) -> None:
    """Topics would go in a circle, as they do with such a file."""
    auto = {"settings": {"auto_whitelist": {"enabled": True}}}
    problem = problem_of(two_ways.call("PUT", "/routes/west.east/settings", json=auto), 400)
    assert "west.east.auto_whitelist: topics would be copied back to west" in problem["detail"]
    prefix = {"settings": {"naming": {"prefix": "east."}}}
    assert two_ways.call("PUT", "/routes/east.west/settings", json=prefix).status_code == 200
    assert two_ways.call("PUT", "/routes/west.east/settings", json=auto).status_code == 200
    none = {"settings": {"naming": None}}
    problem_of(two_ways.call("PUT", "/routes/east.west/settings", json=none), 400)


def test_changes_that_this_version_cannot_read_are_shown_and_replaced(rest: RestFixture) -> None:
    for text, reason in (("{", "no JSON"), ('{"later": 1}', "later: is no setting of a route")):
        rest.put(rest.paths.settings, encode_switches(Switches(route_settings={ROUTE: text})))
        shown = shown_route(rest)
        assert reason in shown["refusal"]
        assert shown["settings"]["delivery"] == "exactly_once"
    assert change(rest, {"later": None, "on_gap": "latest"})["changes"] == {"on_gap": "latest"}
    assert shown_route(rest)["refusal"] == ""


def test_patterns_that_were_changed_keep_a_deleted_topic_from_coming_back(
    rest: RestFixture,
) -> None:
    change(rest, {"auto_whitelist": {"enabled": True}})
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    rest.call("DELETE", "/topics/orders")
    assert rest.call("GET", "/blacklist").get_json()["topics"] == [
        {"topic": "orders", "route": "source.target"}
    ]


def test_a_changed_precondition_changes_no_settings(rest: RestFixture) -> None:
    seen = rest.call("GET", "/routes").headers["ETag"]
    rest.call("POST", "/admin/freeze")
    body = {"settings": {"on_gap": "latest"}}
    problem_of(rest.call("PUT", SETTINGS, json=body, headers={"If-Match": seen}), 412)
    problem_of(rest.call("PUT", "/routes/a.b/settings", json=body), 404)
    problem_of(rest.call("PUT", SETTINGS, json={"settings": {}}), 400)
