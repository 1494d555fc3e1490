"""Topics whose offsets are to be the same: what is shown of them, and the warning when one is added."""

from __future__ import annotations

from ureplicator_common.model import (
    Delivery,
    OffsetShift,
    Partition,
    PartitionState,
    RouteSettings,
)
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture


def test_shifts_are_shown_as_the_worker_measured_them(rest: RestFixture) -> None:
    rest.call("POST", "/topics/orders")
    rest.add_worker("w1")
    rest.put_states("w1", "orders", dict.fromkeys(range(3), PartitionState.ONLINE))
    assert rest.call("GET", "/topics/orders").get_json()["offsets"] == {}
    shifts = {0: OffsetShift(0, 100), 1: OffsetShift(1, 2_000, "a fence"), 2: None}
    rest.put_loads(
        "w1", {Partition(ROUTE, "orders", n): PartitionLoad(offsets=shifts[n]) for n in shifts}
    )
    assert rest.call("GET", "/topics/orders").get_json()["offsets"] == {
        "0": {"shift": 0, "since": 100, "reason": ""},
        "1": {"shift": 1, "since": 2_000, "reason": "a fence"},
    }


def test_a_target_topic_that_exists_is_warned_of(rest: RestFixture) -> None:
    rest.publish(RouteSettings(delivery=Delivery.EXACTLY_ONCE, same_offsets="orders|new"))
    for topic in ("orders", "new", "quiet"):
        rest.source.put(topic, 4)
    for topic in ("orders", "quiet"):
        rest.target.put(topic, 4)
    added = {
        topic: rest.call("POST", f"/topics/{topic}").get_json().get("warnings")
        for topic in ("orders", "new", "quiet")
    }
    warning = "target topic orders exists: offsets are the same only if it is empty"
    assert added == {"orders": [warning], "new": None, "quiet": None}
