"""Output for what is excluded: drained, frozen, paused, blacklisted, stopped, gone."""

from __future__ import annotations

import json

import pytest

from ureplicator_common.model import PartitionState, TopicState, WorkerId
from ureplicator_common.znode_contents import KnownWorker, LiveWorker, TopicIntent
from ureplicator_common.znodes.workers import encode_known_worker, encode_live_worker
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import ONE_ROUTE, NewRest, RestFixture


@pytest.fixture
def rest(new_rest: NewRest) -> RestFixture:
    return new_rest(
        (*ONE_ROUTE, {"source": "other", "target": "target", "naming": {"prefix": "o."}})
    )


def exclude_some(rest: RestFixture) -> None:
    """Four kinds of exclusion, and one partition that is copied."""
    rest.add_worker("w1")
    rest.put_intent("orders", TopicIntent(4, 4, state=TopicState.PAUSED, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(3, 3, blacklisted=frozenset({1, 2}), target_topic="quiet"))
    rest.put_intent(
        "gone", TopicIntent(2, 2, stopped="source topic was deleted", target_topic="gone")
    )
    rest.put_intent("spam", TopicIntent(1, 1, target_topic="spam"))
    rest.call("POST", "/blacklist?src=source&topic=spam&scope=topic&opt=blacklist")
    rest.place("quiet", {0: "w1", 1: None, 2: None})
    rest.put_states("w1", "quiet", {0: PartitionState.ONLINE})


def test_status_tells_excluded_from_failed_partitions(rest: RestFixture, url: str) -> None:
    exclude_some(rest)
    shown = run("status", url=url).stdout
    assert "10: 1 online, 9 offline (4 paused, 3 blacklisted, 2 stopped), 0 in error" in shown
    assert "gone/1" in shown
    assert "orders/" not in shown, "excluded partitions are no mismatch"


def test_a_partition_that_is_still_copied_is_not_offline_yet(rest: RestFixture, url: str) -> None:
    """The leader has not applied the pause yet: the counts in brackets are part of the offline ones."""
    exclude_some(rest)
    rest.place("orders", {0: "w1"})
    rest.put_states("w1", "orders", {0: PartitionState.ONLINE})
    shown = run("status", url=url).stdout
    assert "offline (3 paused, " in shown


def test_validation_lists_excluded_partitions(rest: RestFixture) -> None:
    exclude_some(rest)
    shown = rest.call("GET", "/validation?src=source").get_json()
    assert [(row["topic"], row["partitions"], row["state"]) for row in shown["excluded"]] == [
        ("gone", [0, 1], "stopped"),
        ("orders", [0, 1, 2, 3], "paused"),
        ("quiet", [1, 2], "blacklisted"),
        ("spam", [0], "blacklisted"),
    ]
    assert shown["excluded"][0]["reason"] == "stopped: source topic was deleted"
    assert rest.call("GET", "/validation?src=other").get_json()["excluded"] == []


@pytest.mark.parametrize(
    ("topic", "wish", "effective", "why"),
    [
        ("orders", "paused", "paused", "paused"),
        ("quiet", "active", "active", "blacklisted"),
        ("gone", "active", "stopped", "stopped: source topic was deleted"),
        ("spam", "active", "blacklisted", "blacklisted"),
    ],
)
def test_a_topic_shows_its_effective_state(
    rest: RestFixture, url: str, topic: str, wish: str, effective: str, why: str
) -> None:
    exclude_some(rest)
    shown = run("topics", "show", topic, url=url).stdout
    title, *table = shown.splitlines()
    assert title.rstrip().endswith(f"-> {topic}, {effective}")
    assert any(why in line for line in table)
    body = json.loads(run("topics", "show", topic, "--json", url=url).stdout)
    assert (body["state"], body["effectiveState"]) == (wish, effective)
    assert set(body["excluded"].values()) == {why}


def test_a_topic_that_is_being_deleted(rest: RestFixture) -> None:
    rest.put_intent(
        "orders", TopicIntent(1, 1, state=TopicState.DELETING, stopped="x", target_topic="orders")
    )
    body = rest.call("GET", "/topics/orders").get_json()
    assert (body["effectiveState"], body["excluded"]) == ("deleting", {"0": "topic deleted"})


def test_workers_that_are_drained_or_gone(rest: RestFixture, url: str) -> None:
    exclude_some(rest)
    rest.place("quiet", {0: "w1", 1: "w2"})
    rest.add_worker("w3")
    known = KnownWorker(max_slots=2, blacklisted=True, draining=True)
    rest.put(rest.paths.worker_known(WorkerId("w2")), encode_known_worker(KnownWorker(2)))
    rest.put(rest.paths.worker_known(WorkerId("w9")), encode_known_worker(known))
    run("instances", "drain", "w3", url=url)
    shown = run("instances", url=url).stdout
    for name in ("w2 (gone)", "w3 (drained)", "w9 (gone, drained)"):
        assert name in shown
    assert run("instances", "w3", url=url).stdout == "partitions of w3 (drained): none\n"
    status = run("status", url=url).stdout
    assert "workers     w1, w2 (gone), w3 (drained)\n" in status


def test_a_worker_that_leaves(rest: RestFixture, url: str) -> None:
    live = encode_live_worker(LiveWorker(slots=2, leaving=True))
    rest.put(rest.paths.worker_live(WorkerId("w1")), live, ephemeral=True)
    assert "w1 (leaving)" in run("instances", url=url).stdout
    assert run("instances", "w1", url=url).stdout == "partitions of w1 (leaving): none\n"


def test_an_owner_that_never_registered_is_gone_too(rest: RestFixture, url: str) -> None:
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    rest.place("orders", {0: "w1"})
    assert "workers     w1 (gone)\n" in run("status", url=url).stdout


@pytest.mark.parametrize("words", [["instances"], ["blacklist"], ["history"]])
def test_an_empty_list_is_one_line(url: str, words: list[str]) -> None:
    assert run(*words, url=url).stdout == f"{words[0].replace('instances', 'workers')}: none\n"
