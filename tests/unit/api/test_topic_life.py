"""Calls on topics that the leader whitelists, expands and stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.coordination import Delete
from ureplicator_common.model import OwnerEpoch, Partition, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, RouteMemory, TopicIntent
from ureplicator_common.znodes.routes import encode_memory
from ureplicator_common.znodes.workers import encode_assignment
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture, problem_of

AUTO = ({"source": "source", "target": "target", "auto_whitelist": {"enabled": True}},)
BOTH_WAYS = (
    {"source": "source", "target": "target"},
    {"source": "target", "target": "source"},
)
STOPPED = TopicIntent(
    6,
    6,
    target_topic="orders",
    had_position=frozenset({0}),
    source_topic_id="former",
    target_topic_id="target-former",
    whole=True,
    stopped="source topic was recreated (was former, is id-1)",
)


def intent(rest: RestFixture, topic: str = "orders") -> TopicIntent:
    there = rest.intent(topic)
    assert there is not None
    return there


def blacklisted(rest: RestFixture) -> list[str]:
    shown = rest.call("GET", "/blacklist").get_json()
    return [topic["topic"] for topic in shown["topics"]]


# --- Whitelisting by hand


def test_whitelisting_by_hand_is_for_the_present_topic(rest: RestFixture) -> None:
    for count, whole in ((None, True), (4, True), (3, False)):
        body = {"topic": "orders"} | ({} if count is None else {"numPartitions": count})
        assert rest.call("POST", "/topics", json=body).status_code == 201
        there = intent(rest)
        assert (there.source_topic_id, there.restarted) == ("id-1", True)
        assert there.whole == whole
        rest.other_client.transact([Delete(rest.paths.topic(TopicKey(ROUTE, "orders")))])


def test_expanding_to_all_partitions_makes_a_topic_whole(rest: RestFixture) -> None:
    rest.call("POST", "/topics", json={"topic": "orders", "numPartitions": 2})
    for count, whole in ((3, False), (4, True)):
        rest.call("PUT", "/topics", json={"topic": "orders", "numPartitions": count})
        assert intent(rest).whole == whole


def test_a_copy_is_not_copied_onto_its_origin(new_rest: NewRest) -> None:
    rest = new_rest(BOTH_WAYS)
    assert rest.call("POST", "/topics/orders?src=source").status_code == 201
    problem = problem_of(rest.call("POST", "/topics/orders?src=target"), 409)
    assert "replication loop" in problem["detail"]


# --- Stopped topics


def test_a_stopped_topic_has_a_reason(rest: RestFixture) -> None:
    rest.put_intent("orders", STOPPED)
    rest.place("orders", {0: None})
    shown = rest.call("GET", "/topics/orders").get_json()
    assert shown["stopped"] == STOPPED.stopped
    assert len(shown["mismatches"]) == 6
    validation = rest.call("GET", "/validation/srcKafka").get_json()
    assert validation["stoppedTopics"] == {"orders": STOPPED.stopped}


def test_a_topic_without_its_source_shows_what_becomes_of_its_target(rest: RestFixture) -> None:
    rest.put_intent("orders", replace(STOPPED, source_gone_ms=1_700_000_000_000))
    shown = rest.call("GET", "/topics/orders").get_json()
    kept = "the target topic is kept: on_source_deletion is keep"
    assert shown["sourceGoneMs"] == 1_700_000_000_000
    assert (shown["targetGoesMs"], shown["targetOutlook"]) == (None, kept)
    stopped = rest.call("GET", "/validation/srcKafka").get_json()["stoppedTopics"]
    assert stopped == {"orders": f"{STOPPED.stopped}; {kept}"}


@pytest.mark.parametrize("created", [True, False])
def test_whitelisting_by_hand_notes_the_target_topic_and_whether_it_was_created(
    rest: RestFixture, created: bool
) -> None:
    if not created:
        rest.target.put("orders", 4)
    assert rest.call("POST", "/topics", json={"topic": "orders"}).status_code == 201
    there = intent(rest)
    assert there.target_created is created
    assert there.target_topic_id == rest.target.topics()["orders"].topic_id


def test_a_stopped_topic_is_resumed_only_with_restart(rest: RestFixture) -> None:
    rest.put_intent("orders", STOPPED)
    problem = problem_of(rest.call("POST", "/topics/orders/resume"), 409)
    assert "was recreated" in problem["detail"]
    assert intent(rest) == STOPPED
    for _ in range(2):
        response = rest.call("POST", "/topics/orders/resume", json={"restart": True})
        assert response.status_code == 200, response.text
    there = intent(rest)
    assert (there.stopped, there.state) == ("", TopicState.ACTIVE)
    assert (there.partitions, there.initial_partitions) == (4, 0)
    assert (there.source_topic_id, there.target_topic_id) == ("id-1", "id-1")
    assert there.restarted
    assert not there.had_position
    assert rest.target.topics()["orders"].partitions == 4


def test_a_restart_is_refused_while_held_and_without_a_source(rest: RestFixture) -> None:
    rest.put_intent("orders", STOPPED)
    held = {Partition(ROUTE, "orders", 5): AssignmentEntry(OwnerEpoch(1))}
    path = rest.paths.assignment(WorkerId("w1"))
    rest.put(path, encode_assignment(Assignment(held)))
    restart = {"restart": True}
    problem = problem_of(rest.call("POST", "/topics/orders/resume", json=restart), 409)
    assert "releasing" in problem["detail"]
    rest.put(path, encode_assignment(Assignment()))
    rest.source.remove("orders")
    problem_of(rest.call("POST", "/topics/orders/resume", json=restart), 404)
    assert intent(rest) == STOPPED


@pytest.mark.parametrize("body", [{"restart": "yes"}, {"restart": 1}, {"new": True}, []])
def test_a_resume_that_is_misspelt_changes_nothing(rest: RestFixture, body: object) -> None:
    rest.put_intent("orders", STOPPED)
    problem_of(rest.call("POST", "/topics/orders/resume", json=body), 400)
    assert intent(rest) == STOPPED


# --- Whole topics on the blacklist


@pytest.mark.parametrize("whitelisted", [True, False])
def test_a_topic_is_blacklisted_and_removed(rest: RestFixture, whitelisted: bool) -> None:
    there = TopicIntent(4, 4, had_position=frozenset({1}), target_topic="orders")
    if whitelisted:
        rest.put_intent("orders", there)
    for opt, listed in (("blacklist", ["orders"]), ("whitelist", [])):
        body = {"topic": "orders", "scope": "topic", "opt": opt}
        response = rest.call("POST", "/blacklist", json=body)
        assert response.get_json() == {
            "topic": "orders",
            "partition": None,
            "route": "source.target",
            "blacklisted": opt == "blacklist",
            "note": "" if whitelisted else "orders is not whitelisted on source.target",
        }
        assert blacklisted(rest) == listed
        assert problem_of(rest.call("POST", "/blacklist", json=body), 400)["field"] == "opt"
        if whitelisted:
            assert intent(rest) == there
            shown = rest.call("GET", "/topics/orders").get_json()
            assert shown["topicBlacklisted"] == bool(listed)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("opt", ["blacklist", "whitelist"])
def test_blacklisting_a_topic_with_unknown_outcome_is_read_back(
    rest: RestFixture, applied: bool, opt: str
) -> None:
    if opt == "whitelist":
        rest.call("POST", "/blacklist?topic=orders&scope=topic&opt=blacklist")
    rest.coordination.lose_next_response(applied=applied)
    assert rest.call("POST", f"/blacklist?topic=orders&scope=topic&opt={opt}").status_code == 200
    assert bool(blacklisted(rest)) == (opt == "blacklist")


def test_deleting_blacklists_a_topic_on_a_route_with_auto_whitelisting(new_rest: NewRest) -> None:
    for routes, listed in ((AUTO, ["orders"]), (None, [])):
        rest = new_rest(routes) if routes else new_rest()
        rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
        assert rest.call("DELETE", "/topics/orders").status_code == 200
        assert rest.call("DELETE", "/topics/orders").status_code == 200
        assert blacklisted(rest) == listed
        assert intent(rest).state is TopicState.DELETING


@pytest.mark.parametrize("applied", [True, False])
def test_adding_by_hand_removes_from_the_blacklist(new_rest: NewRest, applied: bool) -> None:
    rest = new_rest(AUTO)
    rest.call("POST", "/blacklist?topic=orders&scope=topic&opt=blacklist")
    rest.call("GET", "/topics")
    rest.coordination.lose_next_response(applied=applied)
    assert rest.call("POST", "/topics/orders").status_code == 201
    assert blacklisted(rest) == []
    assert intent(rest).partitions == 4


def test_refusals_of_the_leader_are_shown(new_rest: NewRest) -> None:
    rest = new_rest((*AUTO, {"source": "other", "target": "target", "naming": {"prefix": "o."}}))
    memory = RouteMemory(baseline={}, refused={"orders": "no room"})
    rest.put(rest.paths.route_memory(ROUTE), encode_memory(memory))
    shown = rest.call("GET", "/validation/srcKafka").get_json()
    assert shown["refusedTopics"] == {"source.target/orders": "no room"}
    shown = rest.call("GET", "/validation/srcKafka?src=source").get_json()
    assert shown["refusedTopics"] == {"orders": "no room"}
