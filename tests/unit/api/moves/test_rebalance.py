"""Live switches, rebalances and their dry run, on in-memory clusters."""

from __future__ import annotations

import pytest

from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import KnownWorker, Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of


def switches(rest: RestFixture) -> Switches | None:
    node = rest.other_client.get(rest.paths.settings)
    return decode_switches(node.data) if node else None


def test_auto_balancing(rest: RestFixture) -> None:
    assert rest.call("GET", "/admin/autobalancing_status").get_json() == {"auto_balancing": True}
    for opt, wanted in (("disable", False), ("disable", False), ("enable", True)):
        shown = rest.call("POST", f"/admin/{opt}_autobalancing").get_json()
        assert shown == {"opt": f"{opt}_autobalancing", "auto_balancing": wanted}
        shown = rest.call("GET", "/admin/autobalancing_status").get_json()
        assert shown == {"auto_balancing": wanted}


def test_freezing_keeps_the_other_switch(rest: RestFixture) -> None:
    rest.call("POST", "/admin/disable_autobalancing")
    for opt, wanted in (("freeze", True), ("freeze", True), ("unfreeze", False)):
        shown = rest.call("POST", f"/admin/{opt}").get_json()
        assert shown == {"opt": opt, "frozen": wanted}
        assert rest.call("GET", "/admin/freeze").get_json() == {"frozen": wanted}
        there = switches(rest)
        assert there is not None
        assert not there.auto_balancing


def test_no_change_is_not_written(rest: RestFixture) -> None:
    rest.call("POST", "/admin/enable_autobalancing")
    assert switches(rest) is None


@pytest.mark.parametrize("path", ["/instances", "/rebalance", "/rebalance?dry_run=false"])
def test_each_rebalance_is_another_request(rest: RestFixture, path: str) -> None:
    rest.call("POST", "/admin/freeze")
    ids = [rest.call("POST", path).get_json()["request"] for _ in range(2)]
    assert ids[0] != ids[1]
    there = switches(rest)
    assert there is not None
    assert (there.rebalance_requested, there.rebalance_done, there.frozen) == (ids[1], "", True)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("path", ["/admin/freeze", "/rebalance"])
def test_an_unknown_outcome_is_read_back(rest: RestFixture, path: str, applied: bool) -> None:
    rest.coordination.lose_next_response(applied=applied)
    response = rest.call("POST", path)
    assert response.status_code == 200
    there = switches(rest)
    assert there is not None
    assert there.frozen or there.rebalance_requested == response.get_json()["request"]


def test_switches_that_cannot_be_read(rest: RestFixture) -> None:
    rest.put(rest.paths.settings, b"{")
    problem_of(rest.call("POST", "/admin/freeze"), 500)
    assert rest.call("GET", "/admin/freeze").get_json() == {"frozen": True}, "nothing moves"


def test_a_dry_run_changes_nothing(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"))
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    rest.place("orders", {0: "w1", 1: "w1", 2: "w1", 3: "gone"})
    rest.add_worker("w1")
    rest.add_worker("w2")
    rest.put_leader()
    before = rest.store.subtree(rest.paths.root)
    shown = rest.call("POST", "/rebalance?dry_run=true").get_json()
    assert rest.store.subtree(rest.paths.root) == before
    found = {(move["topic"], move["partition"]): move for move in shown["moves"]}
    assert found["orders", 3] == {
        "route": "source.target",
        "topic": "orders",
        "partition": 3,
        "from": "gone",
        "to": "w2",
        "reason": "worker gone lost before it was assigned the partition",
    }
    assert found["quiet", 0]["from"] is None
    assert found["quiet", 0]["to"] == "w2"
    assert shown["dryRun"] is True
    assert "rebalance requested" in shown["reasons"]


def test_a_dry_run_of_a_balanced_fleet(rest: RestFixture) -> None:
    rest.put_leader()
    shown = rest.call("POST", "/rebalance?dry_run=true").get_json()
    assert shown["moves"] == []


def lose_most(rest: RestFixture) -> None:
    """Have w3 alone live of three workers that own a partition each."""
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    rest.place("orders", {0: "w1", 1: "w2", 2: "w3"})
    for worker in ("w1", "w2"):
        known = encode_known_worker(KnownWorker(max_slots=2))
        rest.put(rest.paths.worker_known(WorkerId(worker)), known)
    rest.add_worker("w3")


def test_mass_loss_is_a_condition(rest: RestFixture) -> None:
    assert rest.call("GET", "/validation").get_json()["conditions"] == []
    lose_most(rest)
    [condition] = rest.call("GET", "/validation").get_json()["conditions"]
    assert condition.startswith("mass loss: 2 of 3 workers are lost (w1, w2);")


def test_rebalance_under_the_brake_needs_the_confirmation(rest: RestFixture) -> None:
    lose_most(rest)
    rest.put_leader()
    problem = problem_of(rest.call("POST", "/rebalance"), 409)
    assert "2 of 3 workers are lost" in problem["detail"]
    assert "confirm" in problem["hint"]
    assert switches(rest) is None
    dry = rest.call("POST", "/rebalance?dry_run=true").get_json()
    assert dry["moves"] == []
    dry = rest.call("POST", "/rebalance?dry_run=true&confirm=true").get_json()
    assert {move["from"] for move in dry["moves"]} == {"w1", "w2"}
    rest.call("POST", "/rebalance?confirm=true")
    there = switches(rest)
    assert there is not None
    assert there.confirmed_lost == {"w1", "w2"}
    assert there.rebalance_requested


def test_unfreeze_confirms_the_loss(rest: RestFixture) -> None:
    lose_most(rest)
    rest.call("POST", "/admin/unfreeze")
    there = switches(rest)
    assert there is not None
    assert there.confirmed_lost == {"w1", "w2"}
    assert rest.call("GET", "/validation").get_json()["conditions"] == []
