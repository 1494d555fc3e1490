"""Heartbeats through two routes, one each way, under a fleet that whitelists every topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ureplicator_common.heartbeats import heartbeat_topic
from ureplicator_common.model import Route
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.processes import eventually

MakeFleet = Callable[..., Fleet]
pytestmark = pytest.mark.integration

ARRIVED_S = 40
COMMON = {
    "auto_whitelist": {"enabled": True, "include": [".*-heartbeats"]},
    "heartbeats": {"enabled": True, "interval_s": 0.5},
}
THERE, BACK = Route("source", "target"), Route("target", "source")


def test_heartbeats_arrive_both_ways_and_are_not_copied_back(
    make_fleet: MakeFleet, fleet: str
) -> None:
    routes = (
        {**THERE._asdict(), **COMMON, "delivery": "exactly_once"},
        {**BACK._asdict(), **COMMON, "naming": {"prefix": "copy."}},
    )
    running = make_fleet(fleet, routes=routes).start()
    for route in (THERE, BACK):
        eventually(partial(is_on_time, running, route), ARRIVED_S, f"{route} is on time")
    assert shown(running, THERE)["error"] == ""
    for route in (THERE, BACK):
        topics = running.rest("GET", f"/topics?src={route.source}&dst={route.target}")["topics"]
        mine = [topic for topic in topics if fleet in topic]
        assert mine == [heartbeat_topic(fleet=fleet, route=route)]


def shown(fleet: Fleet, route: Route) -> Any:
    (sync,) = fleet.rest("GET", "/routes")["routes"][str(route)]["syncs"]
    return sync


def is_on_time(fleet: Fleet, route: Route) -> bool:
    sync = shown(fleet, route)
    return sync["states"] == {"on time": 1} and sync["age"] is not None and sync["age"] < 10
