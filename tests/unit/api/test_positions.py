"""`/positions`: shown, set and forgotten, on in-memory clusters; what the leader does is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ureplicator_common.kafka import BatchTime, Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import PartitionState, RouteSettings, TopicState, position_group
from ureplicator_common.znode_contents import PositionChange, TopicIntent
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

GROUP = position_group(fleet="test", route=ROUTE)
PATH = "/positions/orders"
NOW = "2026-01-31T12:00:00Z"
NOW_S = 1_769_860_800


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    """`orders` has 3 partitions here, whose logs hold 10 to 50; they were copied up to 20, 5 and never."""
    rest.clock.advance(NOW_S - rest.clock.monotonic_s())
    rest.put_intent("orders", TopicIntent(3, 2, target_topic="orders", had_position=frozenset({0})))
    for number in range(3):
        rest.logs["source"].hold("orders", number, 10, 50)
    for number, offset in ((0, 20), (1, 5)):
        rest.positions.put(GROUP, "orders", number, offset)
    return rest


def send(rest: RestFixture, body: dict[str, Any], *, query: str = "") -> Any:
    response = rest.call("POST", f"{PATH}{query}", json=body)
    assert response.status_code == 200, response.text
    return response.get_json()


def requested(rest: RestFixture) -> dict[int, int]:
    intent = rest.intent("orders")
    assert intent is not None
    return {n: change.offset for n, change in intent.positions.items() if change.is_pending}


def effects(shown: Any) -> list[tuple[Any, ...]]:
    names = ("from", "to", "repeated", "skipped", "lost")
    return [tuple(partition[name] for name in names) for partition in shown["partitions"]]


# Show.


def test_showing_positions(copied: RestFixture) -> None:
    copied.add_worker("w1")
    copied.put_states("w1", "orders", {0: PartitionState.ONLINE})
    metadata = Provenance("c", "s", "t", "w1", 1, 7, 40).encode()
    copied.positions.groups[GROUP].positions["orders", 0] = Position(20, 3, metadata)
    response = copied.call("GET", PATH)
    assert response.headers["ETag"]
    first, second, third = response.get_json()["partitions"]
    assert first == {
        "partition": 0,
        "position": 20,
        "leaderEpoch": 3,
        "writer": "w1",
        "slot": 1,
        "ownerEpoch": 7,
        "logStart": 10,
        "logEnd": 50,
        "lagRecords": 30,
        "heldBy": ["w1"],
        "change": None,
    }
    assert second["reason"] == "offset 5 is out of range: the source begins at 10"
    assert (third["position"], third["lagRecords"], third["heldBy"]) == (None, None, [])


def test_showing_one_partition(copied: RestFixture) -> None:
    (shown,) = copied.call("GET", f"{PATH}?partition=1").get_json()["partitions"]
    assert shown["partition"] == 1
    problem_of(copied.call("GET", f"{PATH}?partition=3"), 400)


def test_a_partition_without_a_leader_is_shown_with_the_reason(copied: RestFixture) -> None:
    del copied.logs["source"].logs["orders", 1]
    shown = copied.call("GET", PATH).get_json()["partitions"][1]
    assert (shown["position"], shown["logEnd"]) == (5, None)
    assert "no leader" in shown["reason"]


def test_positions_that_the_target_does_not_show(copied: RestFixture) -> None:
    """Nothing is set or compared then: what would be repeated is not known."""
    copied.positions.groups[GROUP].unreadable["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    shown = copied.call("GET", PATH).get_json()["partitions"][0]
    assert (shown["position"], shown["logEnd"], shown["lagRecords"]) == (None, 50, None)
    assert shown["reason"] == "orders/0: TOPIC_AUTHORIZATION_FAILED"
    for path, body in ((PATH, {"to": "earliest"}), ("/audits/orders", {})):
        refused = problem_of(copied.call("POST", path, json=body), 503)
        assert "TOPIC_AUTHORIZATION_FAILED" in refused["detail"]
    assert requested(copied) == {}


def test_a_change_is_shown_until_the_next_one(copied: RestFixture) -> None:
    send(copied, {"to": "earliest", "partition": 0})
    shown = copied.call("GET", f"{PATH}?partition=0").get_json()["partitions"][0]
    assert shown["change"]["outcome"] == "pending"
    done = PositionChange(-1, "r1/olga", "done", 20)
    copied.put_intent("orders", TopicIntent(3, 3, positions={0: done}, target_topic="orders"))
    shown = copied.call("GET", f"{PATH}?partition=0").get_json()["partitions"][0]
    assert shown["change"] == {
        "position": None,
        "outcome": "done",
        "replaced": 20,
        "request": "r1",
        "by": "olga",
    }


# Set.


@pytest.mark.parametrize(
    ("body", "positions", "found"),
    [
        (
            {"to": "earliest"},
            {0: 10, 1: 10, 2: 10},
            [(20, 10, 10, 0, 0), (5, 10, 0, 0, 5), (None, 10, None, None, None)],
        ),
        (
            {"to": "latest"},
            {0: 50, 1: 50, 2: 50},
            [(20, 50, 0, 30, 0), (5, 50, 0, 40, 5), (None, 50, None, None, None)],
        ),
        ({"offset": 15, "partition": 0}, {0: 15}, [(20, 15, 5, 0, 0)]),
        ({"offset": 50, "partition": "1"}, {1: 50}, [(5, 50, 0, 40, 5)]),
    ],
)
def test_setting_positions(
    copied: RestFixture, body: dict[str, Any], positions: dict[int, int], found: list[Any]
) -> None:
    """A dry run shows the same and changes nothing."""
    before = copied.tree()
    shown = send(copied, body, query="?dry_run=true")
    assert (shown["dryRun"], shown["request"], effects(shown)) == (True, None, found)
    assert copied.tree() == before
    shown = send(copied, body)
    assert (shown["dryRun"], effects(shown)) == (False, found)
    assert requested(copied) == positions
    intent = copied.intent("orders")
    assert intent is not None
    assert {change.request for change in intent.positions.values()} == {shown["request"]}


def test_setting_positions_by_time(copied: RestFixture) -> None:
    times = [BatchTime(10, 29, (NOW_S - 600) * 1_000), BatchTime(30, 49, (NOW_S - 60) * 1_000)]
    for number in range(3):
        copied.logs["source"].logs["orders", number].times = times
    shown = send(copied, {"time": "2026-01-31T12:55:00.5+01:00", "partition": 0})
    assert effects(shown) == [(20, 30, 0, 10, 0)]
    assert effects(send(copied, {"time": NOW, "partition": 0})) == [(20, 50, 0, 30, 0)]
    assert effects(send(copied, {"time": "1969-12-31T00:00Z", "partition": 0}))[0][1] == 10


def test_a_time_at_the_end_of_a_growing_log_is_not_refused(
    copied: RestFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record is written after each look at the log."""
    logs = copied.logs["source"]
    found = logs.extents

    def growing(wanted: Mapping[str, Sequence[int]]) -> Mapping[Any, Any]:
        extents = found(wanted)
        logs.logs["orders", 0].end += 1
        return extents

    monkeypatch.setattr(logs, "extents", growing)
    assert effects(send(copied, {"time": NOW, "partition": 0})) == [(20, 50, 0, 30, 0)]
    copied.publish(RouteSettings(start="latest"))
    (shown,) = copied.call("DELETE", f"{PATH}?partition=0").get_json()["partitions"]
    assert (shown["beginsAt"], shown.get("refused")) == (51, None)


def test_seeding_from_a_group_of_the_source(copied: RestFixture) -> None:
    for number, offset in ((0, 40), (1, 12), (2, 50)):
        copied.source_groups.put("theirs", "orders", number, offset)
    shown = send(copied, {"group": "theirs"})
    assert effects(shown) == [(20, 40, 0, 20, 0), (5, 12, 0, 2, 5), (None, 50, None, None, None)]
    assert requested(copied) == {0: 40, 1: 12, 2: 50}


@pytest.mark.parametrize("name", ["", "l" * 300, "a,b/%2F", "two\nlines"])
def test_a_group_of_any_name_seeds(copied: RestFixture, name: str) -> None:
    copied.source_groups.put(name, "orders", 1, 44)
    shown = send(copied, {"group": name, "partition": 1}, query="?dry_run=true")["partitions"]
    assert [(partition["partition"], partition["to"]) for partition in shown] == [(1, 44)]


def test_a_group_of_the_target_seeds_nothing(copied: RestFixture) -> None:
    copied.positions.put("theirs", "orders", 0, 40)
    problem_of(copied.call("POST", PATH, json={"group": "theirs"}), 404)


@pytest.mark.parametrize(("method", "body"), [("POST", {"to": "latest"}), ("DELETE", None)])
def test_a_topic_that_is_stopped_since_the_check_gets_no_request(
    copied: RestFixture, monkeypatch: pytest.MonkeyPatch, method: str, body: Any
) -> None:
    """The leader finds that the topic was recreated while the clusters are read."""
    logs = copied.logs["source"]
    read = logs.extents

    def extents(wanted: Any) -> Any:
        copied.put_intent(
            "orders", TopicIntent(3, 3, stopped="source topic was recreated", target_topic="orders")
        )
        return read(wanted)

    monkeypatch.setattr(logs, "extents", extents)
    problem = problem_of(copied.call(method, PATH, json=body), 409)
    assert "source topic was recreated" in problem["detail"]
    assert requested(copied) == {}


def test_a_later_request_replaces_an_earlier_one_of_its_partition(copied: RestFixture) -> None:
    send(copied, {"to": "latest"})
    send(copied, {"offset": 33, "partition": 1})
    assert requested(copied) == {0: 50, 1: 33, 2: 50}


def test_setting_the_position_of_a_paused_topic(copied: RestFixture) -> None:
    copied.put_intent("orders", TopicIntent(3, 3, TopicState.PAUSED, target_topic="orders"))
    send(copied, {"offset": 15, "partition": 0})
    intent = copied.intent("orders")
    assert intent is not None
    assert (intent.state, intent.awaits_position(0)) == (TopicState.PAUSED, True)


def test_what_a_request_does_is_visible_elsewhere(copied: RestFixture) -> None:
    copied.place("orders", {0: "w1", 1: "w1", 2: "w1"})
    send(copied, {"offset": 15, "partition": 0})
    assert copied.call("GET", "/topics/orders").get_json()["excluded"] == {
        "0": "position requested"
    }
    assert copied.call("GET", "/topics/orders").get_json()["effectiveState"] == "active"
    excluded = copied.call("GET", "/validation").get_json()["excluded"]
    assert [(row["partitions"], row["state"]) for row in excluded] == [([0], "position requested")]


# Forget.


@pytest.mark.parametrize(
    ("start", "begins"), [("earliest", [10, 10, 10]), ("latest", [50, 50, 10]), ("5", [10, 10, 10])]
)
def test_forgetting_positions(copied: RestFixture, start: str, begins: list[int]) -> None:
    """Partitions that came later begin at their first record, whatever the route's `start` is."""
    copied.publish(RouteSettings(start=start))
    for number in range(3):
        copied.logs["source"].logs["orders", number].times = [BatchTime(10, 49, 1_000)]
    response = copied.call("DELETE", f"{PATH}?dry_run=true")
    assert [partition["beginsAt"] for partition in response.get_json()["partitions"]] == begins
    assert requested(copied) == {}
    shown = copied.call("DELETE", PATH).get_json()
    assert [partition["to"] for partition in shown["partitions"]] == [None, None, None]
    assert requested(copied) == {0: -1, 1: -1, 2: -1}


def test_forgetting_one_position(copied: RestFixture) -> None:
    copied.call("DELETE", f"{PATH}?partition=1")
    assert requested(copied) == {1: -1}


# Refusals.


@pytest.mark.parametrize(
    ("body", "status", "field", "detail"),
    [
        ({}, 400, "to", "no position is given"),
        ({"to": "latest", "offset": 1}, 400, "offset", "to and offset are given"),
        ({"to": "now"}, 400, "to", '"now" is not an end of the log'),
        ({"offset": -1}, 400, "offset", "-1 is not an offset"),
        ({"offset": 9, "partition": 0}, 400, "offset", "orders/0: offset 9 is out of range"),
        ({"offset": 51, "partition": 0}, 400, "offset", "the source ends at 50"),
        ({"offset": 51}, 400, "offset", "(and 2 more partitions)"),
        ({"offset": 20, "partition": 3}, 400, "partition", "no partition 3"),
        ({"offset": 20, "partition": -1}, 400, "partition", "-1 is not a partition number"),
        ({"time": "2026-01-31T12:00:01Z"}, 400, "time", "is in the future"),
        ({"time": "2026-02-30T12:00:00Z"}, 400, "time", "is not a time"),
        ({"time": "2026-01-31T12:00:00"}, 400, "time", "is not a time"),
        ({"time": 5}, 400, "time", "is not a time"),
        (
            {"group": "strangers"},
            404,
            "group",
            "group strangers has no offsets of orders on source",
        ),
        ({"group": "some"}, 409, "group", "orders/2: group some has no offset for it"),
        ({"group": "far", "partition": 0}, 409, "group", "orders/0: offset 77 is out of range"),
        ({"to": "latest", "topic": "orders"}, 400, "topic", "not a known field"),
    ],
)
def test_refusals(
    copied: RestFixture, body: dict[str, Any], status: int, field: str, detail: str
) -> None:
    for number, offset in ((0, 40), (1, 12)):
        copied.source_groups.put("some", "orders", number, offset)
    copied.source_groups.put("far", "orders", 0, 77)
    before = copied.tree()
    problem = problem_of(copied.call("POST", PATH, json=body), status)
    assert detail in problem["detail"]
    assert (problem["field"], bool(problem["hint"])) == (field, True)
    assert copied.tree() == before


def test_a_dry_run_shows_what_would_be_refused_for_each_partition(copied: RestFixture) -> None:
    copied.logs["source"].hold("orders", 1, 0, 9)
    copied.source_groups.put("some", "orders", 0, 40)
    copied.source_groups.put("some", "orders", 1, 40)
    shown = send(copied, {"group": "some"}, query="?dry_run=true")["partitions"]
    assert [partition.get("refused") for partition in shown] == [
        None,
        "offset 40 is out of range: the source ends at 9",
        "group some has no offset for it",
    ]


@pytest.mark.parametrize(("method", "body"), [("POST", {"to": "latest"}), ("DELETE", None)])
def test_topics_whose_positions_cannot_be_changed(
    copied: RestFixture, method: str, body: Any
) -> None:
    problem_of(copied.call(method, "/positions/quiet", json=body), 404)
    copied.put_intent("orders", TopicIntent(3, 3, TopicState.DELETING, target_topic="orders"))
    problem_of(copied.call(method, PATH, json=body), 409)
    copied.put_intent(
        "orders", TopicIntent(3, 3, stopped="source topic was deleted", target_topic="orders")
    )
    for query in ("", "?dry_run=true"):
        problem = problem_of(copied.call(method, f"{PATH}{query}", json=body), 409)
        assert "source topic was deleted" in problem["detail"]
    problem_of(copied.call(method, f"{PATH}?dst=nowhere", json=body), 404)


@pytest.mark.parametrize(("method", "body"), [("POST", {"to": "latest"}), ("DELETE", None)])
def test_changes_only_onto_the_version_that_was_read(
    copied: RestFixture, method: str, body: Any
) -> None:
    tag = copied.call("GET", PATH).headers["ETag"]
    assert tag == copied.call("GET", "/topics/orders").headers["ETag"]
    copied.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    stale = copied.call(method, PATH, json=body, headers={"If-Match": tag})
    problem_of(stale, 412)
    assert requested(copied) == {}
    tag = copied.call("GET", PATH).headers["ETag"]
    assert copied.call(method, PATH, json=body, headers={"If-Match": tag}).status_code == 200


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_is_read_back(copied: RestFixture, applied: bool) -> None:
    copied.coordination.lose_next_response(applied=applied)
    send(copied, {"offset": 15, "partition": 0})
    assert requested(copied) == {0: 15}


def test_a_cluster_that_is_away_is_a_503(copied: RestFixture) -> None:
    for reader in (copied.positions, copied.logs["source"]):
        with reader.failing():
            for method, body in (("GET", None), ("POST", {"to": "latest"}), ("DELETE", None)):
                problem_of(copied.call(method, PATH, json=body), 503)
    assert requested(copied) == {}
