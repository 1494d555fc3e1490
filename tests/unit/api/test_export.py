"""/export and /import on in-memory clusters: an export can be imported again without damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.coordination import Operation, Set
from ureplicator_common.model import (
    MAX_SLOTS,
    Limited,
    OwnerEpoch,
    Partition,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    Switches,
    TopicIntent,
)
from ureplicator_common.znodes.fleet import decode_switches, encode_switches
from ureplicator_common.znodes.topics import encode_blacklisted, encode_ideal
from ureplicator_common.znodes.workers import (
    decode_known_worker,
    encode_assignment,
    encode_known_worker,
)
from ureplicator_controller.core.reporting.export import numbers, ranges
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture, problem_of

ORDERS = {
    "partitions": 4,
    "initialPartitions": 3,
    "state": "paused",
    "blacklisted": "2",
    "hadPosition": "0-1,3",
    "targetTopic": "orders",
    "whole": True,
    "sourceTopicId": "id-1",
    "targetTopicId": "",
    "targetCreated": True,
    "restarted": True,
    "stopped": "the source topic was recreated",
}
INTENT = TopicIntent(
    partitions=4,
    initial_partitions=3,
    state=TopicState.PAUSED,
    blacklisted=frozenset({2}),
    had_position=frozenset({0, 1, 3}),
    target_topic="orders",
    whole=True,
    source_topic_id="id-1",
    target_created=True,
    restarted=True,
    stopped="the source topic was recreated",
)


SWITCHES = Switches(
    frozen=True,
    paused_routes=frozenset({ROUTE}),
    limits={Limited.route(ROUTE): 50_000},
    rebalance_requested="r",
)


def put(rest: RestFixture, path: str, body: Any, *, query: str = "") -> dict[str, Any]:
    response = rest.call("PUT", f"/import/{path}?{query}", json=body)
    assert response.status_code == 200, response.text
    return dict(response.get_json())


def stored(rest: RestFixture, topic: str = "orders") -> TopicIntent:
    """Stored content without the id of the request that wrote it."""
    intent = rest.intent(topic)
    assert intent is not None
    assert intent.request_id
    return TopicIntent(
        **{
            name: getattr(intent, name)
            for name in TopicIntent.__dataclass_fields__
            if name != "request_id"
        }
    )


# --- Export


def test_the_export_holds_what_operators_set_and_nothing_else(rest: RestFixture) -> None:
    rest.put_intent("orders", INTENT)
    rest.put_intent("quiet", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="quiet"))
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, "quiet")), encode_blacklisted("r"))
    rest.add_worker("w1")
    rest.place("orders", {0: "w1"})
    for worker, tagged in (("w1", False), ("w2", True)):
        data = encode_known_worker(KnownWorker(4, blacklisted=tagged, draining=tagged))
        rest.put(rest.paths.worker_known(WorkerId(worker)), data)
    rest.put(rest.paths.settings, encode_switches(SWITCHES))
    assert rest.call("GET", "/export").get_json() == {
        "version": 1,
        "fleet": "test",
        "switches": {
            "autoBalancing": True,
            "frozen": True,
            "pausedRoutes": ["source.target"],
            "limits": {"route:source.target": 50_000},
            "routeSettings": {},
        },
        "workers": {"w2": {"slots": 4, "blacklisted": True, "draining": True}},
        "blacklist": {"source.target": ["quiet"]},
        "topics": {"source.target": {"orders": ORDERS}},
    }


# --- Import of topics


def test_a_created_topic_keeps_everything_that_decides_its_start_position(
    rest: RestFixture,
) -> None:
    result = put(rest, "topics/orders", ORDERS)
    assert result["result"] == "created"
    assert "initialPartitions: 3" in result["changes"]
    created = rest.target.topics()["orders"]
    assert created.partitions == 4
    assert stored(rest) == replace(INTENT, target_topic_id=created.topic_id)


def test_an_entry_of_a_former_version_may_name_the_lane(rest: RestFixture) -> None:
    assert put(rest, "topics/orders", {**ORDERS, "lane": "raw"})["result"] == "created"
    assert stored(rest).partitions == 4


@pytest.mark.parametrize("given_id", ["", "id-of-the-export"])
def test_a_created_topic_has_the_id_of_the_target_topic_that_was_there(
    rest: RestFixture, given_id: str
) -> None:
    """One that the export has is kept: the leader stops the topic if it differs."""
    rest.target.put("orders", 4)
    put(rest, "topics/orders", ORDERS | ({"targetTopicId": given_id} if given_id else {}))
    there = stored(rest)
    assert there is not None
    assert there.target_topic_id == (given_id or rest.target.topics()["orders"].topic_id)


def test_a_repeated_import_is_unchanged_and_writes_nothing(rest: RestFixture) -> None:
    put(rest, "topics/orders", ORDERS)
    before = rest.intent("orders")
    assert put(rest, "topics/orders", ORDERS) == {
        "result": "unchanged",
        "changes": [],
        "refused": [],
    }
    assert rest.intent("orders") == before


def test_differences_are_written_and_reported(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(3, 3, had_position=frozenset({2}), target_topic="orders"))
    result = put(rest, "topics/orders", ORDERS)
    assert result == {
        "result": "changed",
        "changes": [
            "partitions: 3 -> 4",
            "state: active -> paused",
            "blacklisted: none -> 2",
            "hadPosition: 2 -> 0-3",
            "whole: false -> true",
            "sourceTopicId: none -> id-1",
        ],
        "refused": [],
    }
    assert stored(rest).had_position == {0, 1, 2, 3}, "no mark is ever taken away"


@pytest.mark.parametrize("there", [None, TopicIntent(2, 3, target_topic="orders")])
def test_a_dry_run_writes_nothing(rest: RestFixture, there: TopicIntent | None) -> None:
    if there is not None:
        rest.put_intent("orders", there)
    result = put(rest, "topics/orders", ORDERS, query="dry_run=true")
    assert result["result"] == ("changed" if there else "created")
    assert rest.intent("orders") == there
    assert rest.target.topics() == {}


@pytest.mark.parametrize(
    ("there", "field"),
    [
        (TopicIntent(4, 3, target_topic="other"), "targetTopic"),
        (TopicIntent(4, 4, target_topic="orders"), "initialPartitions"),
        (TopicIntent(5, 3, target_topic="orders"), "partitions"),
        (TopicIntent(4, 3, source_topic_id="other", target_topic="orders"), "sourceTopicId"),
    ],
)
def test_changes_to_the_meaning_of_positions_are_refused_and_the_others_made(
    rest: RestFixture, there: TopicIntent, field: str
) -> None:
    rest.put_intent("orders", there)
    rest.place("orders", {0: "w1"})
    for query in ("dry_run=true", "dry_run=false", ""):
        result = put(rest, "topics/orders", ORDERS, query=query)
        assert [refusal["field"] for refusal in result["refused"]] == [field], query
        assert result["result"] == ("changed" if query else "unchanged")
        assert (rest.intent("orders") == there) == (query == "dry_run=true")
    now = stored(rest)
    assert (now.state, now.blacklisted) == (TopicState.PAUSED, frozenset({2}))
    marks = frozenset() if field == "sourceTopicId" else INTENT.had_position
    assert now.had_position == marks, "those of a former topic say nothing of this one"
    for name in ("partitions", "initial_partitions", "source_topic_id", "target_topic"):
        assert getattr(now, name) in (getattr(there, name), getattr(INTENT, name))
    assert now.initial_partitions == there.initial_partitions


def test_a_topic_that_is_being_deleted_is_refused(rest: RestFixture) -> None:
    there = TopicIntent(4, 3, state=TopicState.DELETING, target_topic="orders")
    rest.put_intent("orders", there)
    response = rest.call("PUT", "/import/topics/orders", json=ORDERS)
    assert problem_of(response, 409)["field"] == "topic"
    assert rest.intent("orders") == there


YOUNG = TopicIntent(5, 0, target_topic="orders", whole=True, source_topic_id="id-2", restarted=True)
"""Whitelisted by the leader."""


def test_a_topic_that_was_never_held_is_restored_completely(rest: RestFixture) -> None:
    rest.put_intent("orders", YOUNG)
    rest.place("orders", {0: None, 1: None})
    result = put(rest, "topics/orders", ORDERS)
    assert result["refused"] == []
    assert {"initialPartitions: 0 -> 3", "state: active -> paused"} <= set(result["changes"])
    assert stored(rest) == INTENT


@pytest.mark.parametrize("by", ["owner", "holder", "mark", "assignment", "garbled"])
def test_a_topic_that_may_have_been_copied_keeps_its_start_position(
    rest: RestFixture, by: str
) -> None:
    marks = frozenset({1}) if by == "mark" else frozenset[int]()
    rest.put_intent("orders", replace(YOUNG, had_position=marks))
    key = TopicKey(ROUTE, "orders")
    if by == "owner":
        rest.place("orders", {0: None, 1: "w1"})
    elif by == "holder":
        holders = {WorkerId("w1"): SessionId(7)}
        entry = IdealEntry(None, OwnerEpoch(1), 5, "paused", holders=holders)
        rest.put(rest.paths.ideal_topic(key), encode_ideal(IdealTopic({0: entry})))
    elif by == "assignment":
        assigned = {Partition(ROUTE, "orders", 0): AssignmentEntry(OwnerEpoch(1))}
        data = encode_assignment(Assignment(assigned))
        rest.put(rest.paths.assignment(WorkerId("w1")), data)
    elif by == "garbled":
        rest.put(rest.paths.ideal_topic(key), b"?")
    refused = put(rest, "topics/orders", ORDERS)["refused"]
    assert "initialPartitions" in [refusal["field"] for refusal in refused]
    assert stored(rest).initial_partitions == 0


class _GivenMeanwhile(MemoryCoordination):
    """The leader gives the topic to a worker just before the first write."""

    meanwhile: Callable[[], None] | None = None

    def transact(self, operations: Sequence[Operation]) -> None:
        if self.meanwhile is not None and any(
            isinstance(operation, Set) for operation in operations
        ):
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        super().transact(operations)


def test_a_topic_assigned_meanwhile_keeps_its_start_position(new_rest: NewRest) -> None:
    rest = new_rest(client=_GivenMeanwhile)
    rest.put_intent("orders", YOUNG)
    rest.place("orders", {0: None})
    assert isinstance(rest.coordination, _GivenMeanwhile)
    rest.coordination.meanwhile = lambda: rest.place("orders", {0: "w1"})
    result = put(rest, "topics/orders", ORDERS)
    assert rest.coordination.meanwhile is None
    assert "initialPartitions" in [refusal["field"] for refusal in result["refused"]]
    assert stored(rest).initial_partitions == 0


def test_a_topic_missing_or_with_fewer_partitions_at_the_source_is_refused(
    rest: RestFixture,
) -> None:
    assert problem_of(rest.call("PUT", "/import/topics/gone", json=ORDERS), 404)
    wide = {**ORDERS, "partitions": 5}
    response = rest.call("PUT", "/import/topics/orders", json=wide)
    assert problem_of(response, 400)["field"] == "partitions"
    assert rest.intent("orders") is None


def test_a_target_topic_of_another_topic_is_refused(rest: RestFixture) -> None:
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="orders"))
    assert problem_of(rest.call("PUT", "/import/topics/orders", json=ORDERS), 409)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": "4"}, "partitions"),
        ({"partitions": True}, "partitions"),
        ({"initialPartitions": 5}, "initialPartitions"),
        ({"state": "deleting"}, "state"),
        ({"blacklisted": "4"}, "blacklisted"),
        ({"blacklisted": [2]}, "blacklisted"),
        ({"hadPosition": "3-1"}, "hadPosition"),
        ({"hadPosition": "0-999999999"}, "hadPosition"),
        ({"hadPosition": "all"}, "hadPosition"),
        ({"targetTopic": "a/b"}, "targetTopic"),
        ({"lane": "sql"}, "lane"),
        ({"sourceTopicId": "a b"}, "sourceTopicId"),
        ({"whole": "yes"}, "whole"),
        ({"partitons": 4}, "partitons"),
        ({"state": None}, "state"),
    ],
)
def test_invalid_values_are_refused_with_their_field(
    rest: RestFixture, change: Any, field: str
) -> None:
    response = rest.call("PUT", "/import/topics/orders", json={**ORDERS, **change})
    assert problem_of(response, 400)["field"] == field
    assert rest.intent("orders") is None


# --- Import of all else


def test_an_import_keeps_a_topic_on_the_blacklist(
    rest: RestFixture,
) -> None:
    path = rest.paths.blacklisted(TopicKey(ROUTE, "orders"))
    assert put(rest, "blacklist/orders", None, query="dry_run=true")["result"] == "created"
    assert rest.other_client.get(path) is None
    assert put(rest, "blacklist/orders", None)["result"] == "created"
    assert put(rest, "blacklist/orders", {})["result"] == "unchanged"
    put(rest, "topics/orders", ORDERS)
    assert rest.other_client.get(path) is not None


@pytest.mark.parametrize("there", [None, INTENT, YOUNG])
def test_a_topic_not_blacklisted_in_the_file_is_removed_from_the_blacklist(
    rest: RestFixture, there: TopicIntent | None
) -> None:
    path = rest.paths.blacklisted(TopicKey(ROUTE, "orders"))
    rest.put(path, encode_blacklisted("r"))
    if there is not None:
        rest.put_intent("orders", there)
    dry = put(rest, "topics/orders", ORDERS, query="listed=false&dry_run=true")
    assert dry["changes"][-1] == "removed from the route's blacklist"
    assert rest.other_client.get(path) is not None
    assert put(rest, "topics/orders", ORDERS, query="listed=false") == dry
    assert rest.other_client.get(path) is None
    again = put(rest, "topics/orders", ORDERS, query="listed=false")
    assert again["result"] == "unchanged"


def test_tags_and_slots_of_a_worker_that_has_not_joined_yet(rest: RestFixture) -> None:
    entry = {"slots": 4, "blacklisted": True, "draining": False}
    assert put(rest, "workers/w9", entry, query="dry_run=true")["result"] == "created"
    path = rest.paths.worker_known(WorkerId("w9"))
    assert rest.other_client.get(path) is None
    assert put(rest, "workers/w9", entry)["result"] == "created"
    assert put(rest, "workers/w9", entry)["result"] == "unchanged"
    assert put(rest, "workers/w9", {**entry, "slots": 2})["result"] == "unchanged"
    node = rest.other_client.get(path)
    assert node is not None
    known = decode_known_worker(node.data)
    assert (known.max_slots, known.blacklisted, known.draining) == (4, True, False)


def test_a_worker_has_at_most_the_slots_that_settings_allow(rest: RestFixture) -> None:
    entry = {"slots": MAX_SLOTS, "blacklisted": False, "draining": False}
    assert put(rest, "workers/w9", entry)["result"] == "created"
    refused = rest.call("PUT", "/import/workers/w9", json={**entry, "slots": MAX_SLOTS + 1})
    assert problem_of(refused, 400)["field"] == "slots"


def test_switches(rest: RestFixture) -> None:
    entry = {"autoBalancing": False, "frozen": False}
    assert put(rest, "switches", entry, query="dry_run=true")["result"] == "changed"
    assert rest.other_client.get(rest.paths.settings) is None
    assert put(rest, "switches", entry)["changes"] == ["autoBalancing: true -> false"]
    assert put(rest, "switches", entry)["result"] == "unchanged"
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    assert decode_switches(node.data).auto_balancing is False


def test_limits_stay_as_they_are_unless_the_export_has_them(rest: RestFixture) -> None:
    entry: dict[str, Any] = {"autoBalancing": True, "frozen": False}
    rest.call("PUT", "/limits/routes/source.target", json={"bytesPerSecond": 50_000})
    assert put(rest, "switches", entry)["result"] == "unchanged"
    other = {"limits": {"topic:source.target/orders": 60_000, "worker:w1": 70_000}}
    assert put(rest, "switches", entry | other)["changes"] == [
        "limits: route:source.target 50000 -> topic:source.target/orders 60000, worker:w1 70000"
    ]
    assert put(rest, "switches", entry | other)["result"] == "unchanged"
    for wrong in ({"orders": 60_000}, {"worker:w1": 1}, {"topic:orders": 60_000}, ["worker:w1"]):
        body = entry | {"limits": wrong}
        problem_of(rest.call("PUT", "/import/switches", json=body), 400)


def test_paused_routes_stay_as_they_are_unless_the_export_has_them(rest: RestFixture) -> None:
    entry: dict[str, Any] = {"autoBalancing": True, "frozen": False}
    rest.call("POST", "/routes/source.target/pause")
    assert put(rest, "switches", entry)["result"] == "unchanged"
    changes = put(rest, "switches", entry | {"pausedRoutes": []})["changes"]
    assert changes == ["pausedRoutes: source.target -> none"]
    changes = put(rest, "switches", entry | {"pausedRoutes": ["source.target"]})["changes"]
    assert changes == ["pausedRoutes: none -> source.target"]
    for wrong in ("source.target", ["source"], [1]):
        body = entry | {"pausedRoutes": wrong}
        problem_of(rest.call("PUT", "/import/switches", json=body), 400)


def test_changed_settings_of_routes_are_exported_and_restored(rest: RestFixture) -> None:
    settings = {"naming": {"prefix": "x."}}
    rest.call("PUT", "/routes/source.target/settings", json={"settings": settings})
    exported = rest.call("GET", "/export").get_json()["switches"]
    assert exported["routeSettings"] == {"source.target": settings}
    assert put(rest, "switches", exported)["result"] == "unchanged"
    entry: dict[str, Any] = {"autoBalancing": True, "frozen": False}
    assert put(rest, "switches", entry)["result"] == "unchanged"
    other = {"routeSettings": {"source.target": {"on_gap": "latest"}, "gone.target": {"later": 1}}}
    put(rest, "switches", entry | other)
    assert rest.call("GET", "/export").get_json()["switches"]["routeSettings"] == {
        "gone.target": {"later": 1},
        "source.target": {"on_gap": "latest"},
    }
    refused: list[Any] = [{"source": {}}, {"source.target": 1}, {"source.target": {"sql": []}}, []]
    for wrong in refused:
        body = entry | {"routeSettings": wrong}
        problem_of(rest.call("PUT", "/import/switches", json=body), 400)


def test_restored_settings_of_routes_are_judged_together(new_rest: NewRest) -> None:
    rest = new_rest(({"source": "a", "target": "b"}, {"source": "b", "target": "a"}))
    entry: dict[str, Any] = {"autoBalancing": True, "frozen": False}
    auto = {"auto_whitelist": {"enabled": True}}
    body = entry | {"routeSettings": {"a.b": auto}}
    problem = problem_of(rest.call("PUT", "/import/switches", json=body), 400)
    assert problem["detail"].startswith("a.b.auto_whitelist: topics would be copied back to a")
    wrong = entry | {"routeSettings": {"a.b": {"delivery": "twice"}}}
    problem = problem_of(rest.call("PUT", "/import/switches", json=wrong), 400)
    assert problem["detail"].startswith("a.b.delivery: unknown value 'twice'")
    prefix = {"b.a": {"naming": {"prefix": "b."}}}
    assert put(rest, "switches", entry | {"routeSettings": {"a.b": auto} | prefix})["changes"]


@pytest.mark.parametrize("path", ["workers/w1", "switches", "topics/orders"])
@pytest.mark.parametrize("body", [None, {}, [], {"frozen": 1}])
def test_invalid_bodies(rest: RestFixture, path: str, body: Any) -> None:
    problem_of(rest.call("PUT", f"/import/{path}", json=body), 400)


# --- Ranges


@given(st.frozensets(st.integers(0, 300)))
def test_ranges_round_trip(found: frozenset[int]) -> None:
    assert numbers(ranges(found), below=301) == found


def test_ranges_are_short() -> None:
    assert ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"
    assert ranges(()) == ""
