"""Reports of what follows: written by the leader; shown by `/routes`, `ureplicator status`, `groups show`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import Route, RouteSettings
from ureplicator_common.znode_contents import SyncKind, SyncReport, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync, encode_sync
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.reports import (
    MAX_HARMED,
    MAX_TEXT,
    REFRESH_S,
    ReportNeeds,
    StoredReports,
)
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.control.rest_fixture import ROUTE, NewRest, RestFixture

SYNCED = {
    "source": "source",
    "target": "target",
    "offset_map": True,
    "sync_group_offsets": {"enabled": True},
    "sync_topic_acls": {"enabled": True},
}
NOW_MS = 1_769_860_800_000


class World:
    """A leader of epoch 0, and its reports."""

    def __init__(self) -> None:
        self.paths = Paths("f")
        self.coordination = MemoryCoordination(MemoryStore())
        for path in self.paths.skeleton:
            self.coordination.ensure(path)
        self.clock = ManualClock()
        self.reports = self.of_process()
        self.path = self.paths.sync(SyncKind.GROUPS, Route("a", "b"))

    def of_process(self) -> StoredReports:
        needs = ReportNeeds(
            coordination=self.coordination,
            paths=self.paths,
            clock=self.clock,
            metrics=ControlMetrics(CollectorRegistry()),
        )
        return needs.of(SyncKind.GROUPS, Route("a", "b"))

    def stored(self) -> tuple[SyncReport, int]:
        node = self.coordination.get(self.path)
        assert node is not None
        return decode_sync(node.data), node.stat.version


@pytest.fixture
def world() -> World:
    return World()


def test_a_report_that_is_the_same_is_written_again_after_a_while(world: World) -> None:
    world.reports.passed(0, {"synced": 3, "pending": 0}, "")
    first = SyncReport(world.clock.wall_ms(), {"synced": 3})
    world.clock.advance(REFRESH_S / 2)
    world.reports.passed(0, {"synced": 3}, "")
    assert world.stored() == (first, 0)
    world.clock.advance(REFRESH_S / 2)
    world.reports.passed(0, {"synced": 3}, "")
    assert world.stored() == (SyncReport(world.clock.wall_ms(), {"synced": 3}), 1)


def test_a_report_that_differs_is_written_at_once(world: World) -> None:
    for number, left in enumerate(("", "g: not known")):
        world.reports.passed(0, {"synced": 3}, left)
        assert (world.stored()[0].error, world.stored()[1]) == (left, number)


def test_a_failed_pass_keeps_the_figures_also_of_the_leader_before(world: World) -> None:
    world.reports.passed(0, {"synced": 3}, "")
    before_ms = world.clock.wall_ms()
    world.clock.advance(1.0)
    world.of_process().failed(0, "no response")
    failed = SyncReport(before_ms, {"synced": 3}, world.clock.wall_ms(), "no response")
    assert world.stored()[0] == failed
    world.clock.advance(REFRESH_S)
    world.reports.passed(0, {"synced": 4}, "")
    assert world.stored()[0] == SyncReport(world.clock.wall_ms(), {"synced": 4})


def test_harm_is_bounded(world: World) -> None:
    harm = {f"topic-{number:04}": "x" * MAX_TEXT + "y" for number in range(MAX_HARMED + 1)}
    world.reports.passed(0, {"harmful": len(harm)}, "", harm=harm)
    stored = world.stored()[0].harm
    assert list(stored) == sorted(harm)[:MAX_HARMED]
    assert set(stored.values()) == {"x" * MAX_TEXT}


def test_harm_that_differs_is_written_at_once(world: World) -> None:
    for number, text in enumerate(("retention.ms is 7", "retention.ms is 8")):
        world.reports.passed(0, {"harmful": 1}, "", harm={"orders": text})
        assert world.stored() == (
            SyncReport(world.clock.wall_ms(), {"harmful": 1}, harm={"orders": text}),
            number,
        )


def test_a_former_leader_writes_none(world: World) -> None:
    world.reports.passed(0, {"synced": 3}, "")
    world.coordination.transact([Set(world.paths.epoch, b"", 0)])
    world.reports.passed(0, {"synced": 4}, "")
    world.of_process().failed(0, "gone")
    assert world.stored()[0].states == {"synced": 3}


@pytest.fixture
def synced(new_rest: NewRest) -> RestFixture:
    rest = new_rest((SYNCED,))
    rest.publish(RouteSettings())
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    rest.groups.add("billing", {("orders", 0): 30})
    report = SyncReport(NOW_MS, {"synced": 12}, NOW_MS + 5_000, "source: no response")
    path = rest.paths.sync(SyncKind.GROUPS, ROUTE)
    rest.other_client.transact([Create(path, encode_sync(report))])
    return rest


@pytest.fixture
def url(synced: RestFixture) -> Iterator[str]:
    with serving(synced) as url:
        yield url


def test_routes_show_the_syncs_that_they_have(synced: RestFixture) -> None:
    shown = synced.call("GET", "/routes").get_json()["routes"]["source.target"]["syncs"]
    assert shown == [
        {
            "kind": "groups",
            "lastPass": NOW_MS,
            "states": {"synced": 12},
            "lastFailure": NOW_MS + 5_000,
            "error": "source: no response",
            "age": None,
        },
        {
            "kind": "acls",
            "lastPass": None,
            "states": {},
            "lastFailure": None,
            "error": "",
            "age": None,
        },
    ]


def test_status_has_a_line_for_each(url: str) -> None:
    lines = run("status", url=url).stdout.splitlines()
    assert (
        "sync        source.target groups: 12 synced at 2026-01-31T12:00:00Z;"
        " failed at 2026-01-31T12:00:05Z; source: no response"
    ) in lines
    assert "sync        source.target acls: no pass yet" in lines


def test_a_group_is_shown_with_the_last_sync(url: str) -> None:
    assert "12 synced at 2026-01-31T12:00:00Z" in run("groups", "show", "billing", url=url).stdout


def test_a_group_is_shown_without_a_sync(rest: RestFixture) -> None:
    rest.groups.add("billing", {("orders", 0): 30})
    assert rest.client.get("/groups/billing").get_json()["sync"] is None
