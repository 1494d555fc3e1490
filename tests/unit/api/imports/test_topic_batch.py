"""PUT /import/topics: many topics in one request, each with a result of its own."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import encode_blacklisted
from ureplicator_controller.api.http.models.export import MAX_TOPICS
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture, problem_of


def put(rest: RestFixture, body: Any, *, query: str = "") -> dict[str, dict[str, Any]]:
    """The outcomes by topic."""
    response = rest.call("PUT", f"/import/topics?{query}", json=body)
    assert response.status_code == 200, response.text
    return {outcome["topic"]: outcome for outcome in response.get_json()["topics"]}


def results(outcomes: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {topic: outcome["result"] for topic, outcome in outcomes.items()}


def list_topic(rest: RestFixture, topic: str) -> None:
    rest.put(rest.paths.blacklisted(TopicKey(ROUTE, topic)), encode_blacklisted("r"))


def test_a_new_topic_without_fields_is_as_if_it_were_added_by_hand(
    rest: RestFixture, new_rest: NewRest
) -> None:
    put(rest, {"topics": {"orders": {}}})
    other = new_rest()
    assert other.call("POST", "/topics", json={"topic": "orders"}).status_code == 201
    made, added = rest.intent("orders"), other.intent("orders")
    assert made is not None
    assert added is not None
    names = [name for name in TopicIntent.__dataclass_fields__ if name != "request_id"]
    assert [getattr(made, name) for name in names] == [getattr(added, name) for name in names]
    assert rest.target.topics()["orders"].partitions == 4


def test_each_topic_has_a_result_of_its_own(rest: RestFixture) -> None:
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    rest.put_intent("gone", TopicIntent(1, 1, state=TopicState.DELETING, target_topic="gone"))
    outcomes = put(
        rest,
        {
            "topics": {
                "orders": {"partitions": 2},
                "quiet": {"state": "paused"},
                "gone": {},
                "nowhere": {},
                "or/ders": {},
                "typo": {"stat": "paused"},
            }
        },
    )
    assert results(outcomes) == {
        "orders": "created",
        "quiet": "changed",
        "gone": "refused",
        "nowhere": "refused",
        "or/ders": "refused",
        "typo": "refused",
    }
    assert outcomes["quiet"]["changes"] == ["state: active -> paused"]
    assert outcomes["nowhere"]["problem"]["status"] == 404
    assert outcomes["gone"]["problem"]["status"] == 409
    assert outcomes["typo"]["problem"]["field"] == "stat"
    intent = rest.intent("orders")
    assert intent is not None
    assert (intent.partitions, intent.whole) == (2, False)


def test_a_dry_run_says_the_same_and_writes_nothing(rest: RestFixture) -> None:
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    body = {"topics": {"orders": {}, "nowhere": {}}, "remove": ["quiet"]}
    before = rest.tree()
    dry = put(rest, body, query="dry_run=true")
    assert rest.tree() == before
    assert rest.target.topics() == {}
    assert results(put(rest, body)) == results(dry)
    assert results(dry) == {"orders": "created", "nowhere": "refused", "quiet": "deleted"}


def test_what_is_as_wanted_is_not_written_and_needs_no_cluster(rest: RestFixture) -> None:
    body = {"topics": {"orders": {"state": "paused"}, "quiet": {}}}
    put(rest, body)
    before = rest.tree()
    with rest.source.failing(), rest.target.failing():
        assert set(results(put(rest, body)).values()) == {"unchanged"}
    assert rest.tree() == before


def test_a_field_that_is_missing_stays_as_it_is(rest: RestFixture) -> None:
    wanted = TopicIntent(
        4,
        3,
        had_position=frozenset({1}),
        state=TopicState.PAUSED,
        whole=True,
        target_topic="orders",
    )
    rest.put_intent("orders", wanted)
    rest.place("orders", {0: "w1"})
    outcomes = put(rest, {"topics": {"orders": {"blacklisted": "2"}}})
    assert outcomes["orders"]["changes"] == ["blacklisted: none -> 2"]
    made = rest.intent("orders")
    assert made is not None
    assert (made.partitions, made.initial_partitions, made.state) == (4, 3, TopicState.PAUSED)
    assert (made.had_position, made.blacklisted) == (frozenset({1}), frozenset({2}))


@pytest.mark.parametrize(
    "entry", [{"blacklisted": "4"}, {"initialPartitions": 5}, {"hadPosition": "0-9"}]
)
def test_numbers_that_the_topic_would_not_have(rest: RestFixture, entry: dict[str, Any]) -> None:
    assert results(put(rest, {"topics": {"orders": entry}})) == {"orders": "refused"}
    assert rest.intent("orders") is None
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    assert results(put(rest, {"topics": {"orders": entry}})) == {"orders": "refused"}


def test_a_topic_is_taken_off_the_blacklist_only_if_the_request_says_so(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    list_topic(rest, "orders")
    assert results(put(rest, {"topics": {"orders": {}}})) == {"orders": "unchanged"}
    outcomes = put(rest, {"topics": {"orders": {"listed": False}}})
    assert outcomes["orders"]["changes"] == ["removed from the route's blacklist"]


def test_a_removed_topic_keeps_its_positions_and_is_not_blacklisted(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    assert results(put(rest, {"remove": ["orders", "quiet"]})) == {
        "orders": "deleted",
        "quiet": "unchanged",
    }
    intent = rest.intent("orders")
    assert intent is not None
    assert (intent.state, intent.forget_positions) == (TopicState.DELETING, False)
    assert rest.other_client.get(rest.paths.blacklisted(TopicKey(ROUTE, "orders"))) is None


def test_a_topic_that_the_patterns_want_is_kept_unless_it_is_blacklisted(new_rest: NewRest) -> None:
    auto = {"enabled": True, "include": ["ord.*"]}
    rest = new_rest(({"source": "source", "target": "target", "auto_whitelist": auto},))
    for topic in ("orders", "quiet"):
        rest.put_intent(topic, TopicIntent(1, 1, target_topic=topic))
    body = {"remove": ["orders", "quiet"]}
    assert results(put(rest, body)) == {"orders": "kept", "quiet": "deleted"}
    list_topic(rest, "orders")
    assert results(put(rest, body)) == {"orders": "deleted", "quiet": "unchanged"}


def test_two_topics_for_one_target_topic(rest: RestFixture) -> None:
    """Whichever is first has it."""
    entry = {"targetTopic": "all"}
    made = results(put(rest, {"topics": {"orders": entry, "quiet": entry}}))
    assert sorted(made.values()) == ["created", "refused"]


def test_a_source_that_is_away_refuses_the_request_and_nothing_is_written(
    rest: RestFixture,
) -> None:
    before = rest.tree()
    with rest.source.failing():
        problem_of(rest.call("PUT", "/import/topics", json={"topics": {"orders": {}}}), 503)
    assert rest.tree() == before


def test_more_topics_than_a_request_takes(rest: RestFixture) -> None:
    many = [f"t{number}" for number in range(MAX_TOPICS + 1)]
    bodies: list[dict[str, Any]] = [{"remove": many}, {"topics": {name: {} for name in many}}]
    for body in bodies:
        problem_of(rest.call("PUT", "/import/topics", json=body), 400)


def test_warnings_about_new_target_topics(rest: RestFixture) -> None:
    rest.target.put("orders", 4)
    rest.target.defaults = {"message.timestamp.after.max.ms": "3600000"}
    outcomes = put(rest, {"topics": {"orders": {}, "quiet": {}}})
    assert len(outcomes["orders"]["warnings"]) == 1


def test_a_batch_is_shown_by_the_next_read(rest: RestFixture) -> None:
    put(rest, {"topics": {"orders": {}, "quiet": {}}})
    assert rest.call("GET", "/topics").get_json() == {"topics": ["orders", "quiet"]}
