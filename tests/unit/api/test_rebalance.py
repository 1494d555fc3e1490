"""Live switches, rebalances and their dry run, over the twins."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Switches, TopicIntent
from ureplicator_common.znodes import decode_switches
from ureplicator_testkit.control.api_world import World, problem_of


def switches(world: World) -> Switches | None:
    node = world.theirs.get(world.paths.settings)
    return decode_switches(node.data) if node else None


def test_auto_balancing(world: World) -> None:
    assert world.call("GET", "/admin/autobalancing_status").get_json() == {"auto_balancing": True}
    for opt, wanted in (("disable", False), ("disable", False), ("enable", True)):
        shown = world.call("POST", f"/admin/{opt}_autobalancing").get_json()
        assert shown == {"opt": f"{opt}_autobalancing", "auto_balancing": wanted}
        shown = world.call("GET", "/admin/autobalancing_status").get_json()
        assert shown == {"auto_balancing": wanted}


def test_freezing_leaves_the_other_switch(world: World) -> None:
    world.call("POST", "/admin/disable_autobalancing")
    for opt, wanted in (("freeze", True), ("freeze", True), ("unfreeze", False)):
        shown = world.call("POST", f"/admin/{opt}").get_json()
        assert shown == {"opt": opt, "frozen": wanted}
        assert world.call("GET", "/admin/freeze").get_json() == {"frozen": wanted}
        there = switches(world)
        assert there is not None
        assert not there.auto_balancing


def test_what_is_so_already_is_not_written(world: World) -> None:
    world.call("POST", "/admin/enable_autobalancing")
    assert switches(world) is None


@pytest.mark.parametrize("path", ["/instances", "/rebalance", "/rebalance?dry_run=false"])
def test_each_rebalance_is_another_request(world: World, path: str) -> None:
    world.call("POST", "/admin/freeze")
    ids = [world.call("POST", path).get_json()["request"] for _ in range(2)]
    assert ids[0] != ids[1]
    there = switches(world)
    assert there is not None
    assert (there.rebalance_asked, there.rebalance_done, there.frozen) == (ids[1], "", True)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("path", ["/admin/freeze", "/rebalance"])
def test_a_lost_answer_is_read_back(world: World, path: str, applied: bool) -> None:
    world.coordination.lose_next_answer(applied=applied)
    answer = world.call("POST", path)
    assert answer.status_code == 200
    there = switches(world)
    assert there is not None
    assert there.frozen or there.rebalance_asked == answer.get_json()["request"]


def test_switches_that_cannot_be_read(world: World) -> None:
    world.put(world.paths.settings, b"{")
    problem_of(world.call("POST", "/admin/freeze"), 500)
    assert world.call("GET", "/admin/freeze").get_json() == {"frozen": True}, "nothing moves"


def test_a_dry_run_tells_and_changes_nothing(world: World) -> None:
    world.intend("orders", TopicIntent(4, 4))
    world.intend("quiet", TopicIntent(1, 1))
    world.place("orders", {0: "w1", 1: "w1", 2: "w1", 3: "gone"})
    world.live("w1")
    world.live("w2")
    world.lead()
    before = world.store.subtree(world.paths.root)
    shown = world.call("POST", "/rebalance?dry_run=true").get_json()
    assert world.store.subtree(world.paths.root) == before
    found = {(each["topic"], each["partition"]): each for each in shown["moves"]}
    assert found["orders", 3] == {
        "route": "source.target",
        "topic": "orders",
        "partition": 3,
        "from": "gone",
        "to": "w2",
        "reason": "worker gone lost before it began",
    }
    assert found["quiet", 0]["from"] is None
    assert found["quiet", 0]["to"] == "w2"
    assert shown["dryRun"] is True
    assert "rebalance asked for" in shown["reasons"]


def test_a_dry_run_of_a_fleet_at_rest(world: World) -> None:
    world.lead()
    shown = world.call("POST", "/rebalance?dry_run=true").get_json()
    assert shown["moves"] == []
