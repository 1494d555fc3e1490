"""`/overview`: a tile for each partition, a sentence for each route, and no body while nothing changes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ureplicator_common.model import PartitionState, TopicState, WorkerId
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.http.models.overview import Overview
from ureplicator_controller.api.lag_collection.cache import FRESH_S
from ureplicator_controller.api.routes.overview import LAG_AGE
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of


def overview(rest: RestFixture) -> dict[str, Any]:
    response = rest.call("GET", "/overview")
    assert response.status_code == 200
    Overview.model_validate_json(response.data, strict=True)
    shown: dict[str, Any] = response.get_json()
    return shown


def tiles(shown: dict[str, Any]) -> dict[tuple[str, int], tuple[str, str | None, str]]:
    """(topic, number) -> state, worker and reason."""
    columns = shown["tiles"]
    found = {}
    for topic, number, state, worker, reason in zip(
        *(columns[name] for name in ("topic", "partition", "state", "worker", "reason")),
        strict=True,
    ):
        owner = shown["workers"][worker]["worker"] if worker >= 0 else None
        name = shown["topics"][topic]["topic"]
        found[name, number] = shown["states"][state], owner, shown["texts"][reason]
    return found


@pytest.fixture
def fleet(rest: RestFixture) -> RestFixture:
    rest.put_leader()
    rest.add_worker("w1")
    rest.add_worker("w2")
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    rest.place("orders", {0: "w1", 1: "w1", 2: "w2"})
    rest.put_states("w1", "orders", {0: PartitionState.ONLINE, 1: PartitionState.ONLINE})
    rest.put_states("w2", "orders", {2: PartitionState.ONLINE})
    return rest


def test_partitions_with_their_ideal_worker_agree(fleet: RestFixture) -> None:
    agree = {("orders", n): ("agree", worker, "") for n, worker in enumerate(("w1", "w1", "w2"))}
    assert tiles(overview(fleet)) == agree


def test_each_state_has_its_reason(fleet: RestFixture) -> None:
    fleet.put_states("w2", "orders", {2: PartitionState.ERROR}, reason="target is full")
    fleet.place("orders", {0: "w1", 1: "w2", 2: "w2"})
    fleet.put_intent("quiet", TopicIntent(1, 1, state=TopicState.PAUSED, target_topic="quiet"))
    fleet.put_intent(
        "gone", TopicIntent(1, 1, stopped="source topic was deleted", target_topic="gone")
    )
    assert tiles(overview(fleet)) == {
        ("gone", 0): ("error", None, "stopped: source topic was deleted"),
        ("orders", 0): ("agree", "w1", ""),
        ("orders", 1): ("moving", "w2", "waiting for w1 to release it"),
        ("orders", 2): ("error", "w2", "target is full"),
        ("quiet", 0): ("excluded", None, "paused"),
    }


def test_an_excluded_partition_that_is_still_held_is_moving(fleet: RestFixture) -> None:
    fleet.put_intent("orders", TopicIntent(3, 3, blacklisted=frozenset({0}), target_topic="orders"))
    fleet.place("orders", {0: None, 1: "w1", 2: "w2"})
    assert tiles(overview(fleet))["orders", 0] == ("moving", "w1", "waiting for w1 to release it")


def test_a_partition_beyond_the_topic_is_shown_while_it_is_held(fleet: RestFixture) -> None:
    fleet.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    fleet.place("orders", {0: "w1", 1: "w1"})
    state, worker, reason = tiles(overview(fleet))["orders", 2]
    assert (state, worker) == ("moving", "w2")
    assert reason == "waiting for w2 to release it"


def test_an_unreadable_node_makes_a_mismatch_stuck(fleet: RestFixture) -> None:
    fleet.put(fleet.paths.assignment(WorkerId("w1")), b"garbled")
    fleet.place("orders", {0: "w2", 1: "w1", 2: "w2"})
    state, worker, reason = tiles(overview(fleet))["orders", 0]
    assert (state, worker) == ("stuck", "w2")
    assert reason


def test_unchanged_is_304_without_a_body(fleet: RestFixture) -> None:
    first = fleet.call("GET", "/overview")
    tag = first.headers["ETag"]
    again = fleet.call("GET", "/overview", headers={"If-None-Match": tag})
    assert (again.status_code, again.data) == (304, b"")
    assert again.headers["ETag"] == tag
    fleet.place("orders", {0: "w2", 1: "w1", 2: "w2"})
    after = fleet.call("GET", "/overview", headers={"If-None-Match": tag})
    assert after.status_code == 200
    assert after.headers["ETag"] != tag


def test_unchanged_has_the_age_of_the_lag(fleet: RestFixture) -> None:
    """The lag is collected again though its figures stay the same."""
    first = fleet.call("GET", "/overview")
    headers = {"If-None-Match": first.headers["ETag"]}
    for passed_s, age_s in ((3.0, 3.0), (FRESH_S, 0.0)):
        fleet.clock.advance(passed_s)
        again = fleet.call("GET", "/overview", headers=headers)
        assert again.status_code == 304
        assert float(again.headers[LAG_AGE]) == age_s


def test_without_zookeeper_it_is_unavailable(fleet: RestFixture) -> None:
    tag = fleet.call("GET", "/overview").headers["ETag"]
    with fleet.zookeeper_unavailable():
        problem_of(fleet.call("GET", "/overview", headers={"If-None-Match": tag}), 503)


def test_the_sentence_names_what_to_do(fleet: RestFixture) -> None:
    (route,) = overview(fleet)["summaries"]
    assert route["sentence"].startswith("source -> target: ")
    assert route["sentence"].endswith(": nothing to do")
    assert route["nextSteps"] == []
    assert fleet.call("POST", "/routes/source.target/pause").status_code == 200
    (route,) = overview(fleet)["summaries"]
    step = route["nextSteps"][0]
    assert (step["method"], step["path"]) == ("POST", "/routes/source.target/resume")
    assert route["sentence"].endswith(step["text"])
    assert fleet.call(step["method"], step["path"]).status_code == 200
    (route,) = overview(fleet)["summaries"]
    assert route["nextSteps"] == []


def test_ten_thousand_partitions_have_no_object_each(rest: RestFixture) -> None:
    for topic in range(1000):
        rest.put_intent(f"t{topic:04}", TopicIntent(10, 10, target_topic=f"t{topic:04}"))
        rest.place(f"t{topic:04}", dict.fromkeys(range(10), "w1"))
    began_s = time.perf_counter()
    response = rest.call("GET", "/overview")
    print(f"{len(response.data)} bytes in {time.perf_counter() - began_s:.3f} s")
    shown = response.get_json()
    assert len(shown["tiles"]["state"]) == 10_000
    assert len(response.data) < 700_000
    assert len(shown["texts"]) < 10
    assert response.data.count(b"{") < 1_200
