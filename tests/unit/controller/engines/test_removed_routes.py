"""Routes that the leader's configuration does not have: withdrawn after a while, never at once."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_common.znodes.routes import decode_route
from ureplicator_controller.core.routes import WITHDRAW_AFTER_S
from ureplicator_controller.core.state.exclusions import effective_state, excluded_partitions
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_testkit.control.manual_controllers import (
    PATHS,
    ROUTE,
    ControllerFleet,
    ManualController,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination

OLD = Route("west", "east")
KEY = TopicKey(OLD, "ships")


@pytest.fixture
def fleet() -> ControllerFleet:
    """A leader that knows both routes has assigned a topic of each; one that knows one has taken over."""
    fleet = ControllerFleet()
    client = fleet.worker("a")
    former = controller(fleet, "former", OLD, ROUTE)
    fleet.topic(1, "ships", route=OLD)
    fleet.topic(1, "orders")
    former.run(6)
    fleet.report_online(client, "a")
    former.client.expire()
    fleet.one.run(6)
    assert fleet.one.leads
    return fleet


def controller(
    fleet: ControllerFleet, id: str, *routes: Route
) -> ManualController[MemoryCoordination]:
    return ManualController(MemoryCoordination(fleet.store), id, fleet.clock, routes=routes)


def copied(fleet: ControllerFleet) -> set[str]:
    return {partition.topic for partition in fleet.assignment_of("a").entries}


def pass_by(fleet: ControllerFleet, seconds: float) -> None:
    fleet.clock.advance(seconds)
    fleet.one.run(6)


def test_topics_of_a_removed_route_are_stopped_with_the_reason(fleet: ControllerFleet) -> None:
    pass_by(fleet, WITHDRAW_AFTER_S)
    assert copied(fleet) == {"orders"}
    seen = fleet.one.observer.snapshot()
    (excluded,) = excluded_partitions(seen)
    assert (excluded.key, excluded.state) == (KEY, "stopped")
    assert excluded.reason == "stopped: route is not configured"
    assert effective_state(seen, KEY) == "stopped"
    reasons = {
        mismatch.partition: mismatch.reason for mismatch in mismatches(seen, external_view(seen))
    }
    assert Partition(OLD, "ships", 0) in reasons, "operators still want it"


def test_a_leader_withdraws_nothing_before_it_has_led_for_a_while(fleet: ControllerFleet) -> None:
    """Controllers with both files may lead while a configuration is rolled out."""
    for _ in range(3):
        pass_by(fleet, WITHDRAW_AFTER_S - 20)
        assert copied(fleet) == {"orders", "ships"}
        fleet.one.client.expire()
        fleet.one.client.restore()
        fleet.one.run(6)
        assert fleet.one.leads


def test_a_route_that_comes_back_goes_on(fleet: ControllerFleet) -> None:
    pass_by(fleet, WITHDRAW_AFTER_S)
    fleet.one.client.expire()
    newer = controller(fleet, "newer", OLD, ROUTE)
    newer.run(6)
    assert newer.leads
    seen = newer.observer.snapshot()
    assert seen.ideal[KEY].value.entries[0].worker == WorkerId("a")
    assert seen.ideal[KEY].value.entries[0].reason == "resumed"
    assert excluded_partitions(seen) == []


def test_an_idle_leader_wakes_for_it(fleet: ControllerFleet) -> None:
    fleet.clock.advance(WITHDRAW_AFTER_S)
    fleet.one.run(1)
    node = fleet.client.get(PATHS.route(OLD))
    assert node is not None
    assert not decode_route(node.data).configured


def test_the_settings_of_a_route_without_topics_are_removed() -> None:
    fleet = ControllerFleet()
    former = controller(fleet, "former", OLD, ROUTE)
    former.run()
    former.client.expire()
    fleet.one.run()
    pass_by(fleet, WITHDRAW_AFTER_S - 1)
    assert fleet.client.get(PATHS.route(OLD)) is not None
    pass_by(fleet, 1)
    assert fleet.client.get(PATHS.route(OLD)) is None
    assert fleet.client.get(PATHS.route(ROUTE)) is not None
