"""Settings of routes that operators have changed count under each leader, whatever its file says."""

from __future__ import annotations

import json

import pytest

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import create_or_set, version_of
from ureplicator_common.model import Delivery, GapPolicy, RouteSettings
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_common.znodes.routes import decode_route
from ureplicator_testkit.control.manual_controllers import (
    PATHS,
    ROUTE,
    ControllerFleet,
    ManualController,
    config_of,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination

OLD_FILE = config_of(ROUTE, naming={"prefix": "old."})
NEW_FILE = config_of(ROUTE, naming={"prefix": "new."}, on_gap="latest")


class World(ControllerFleet):
    """Two controllers with different files; `first` leads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self.of("first", OLD_FILE), self.of("second", NEW_FILE)
        self.first.run()
        assert self.first.leads

    def of(self, id: str, file: RouteConfig) -> ManualController[MemoryCoordination]:
        return ManualController(MemoryCoordination(self.store), id, self.clock, file=[file])

    def change(self, text: str | bytes) -> None:
        node = self.client.get(PATHS.settings)
        data = (
            text
            if isinstance(text, bytes)
            else encode_switches(Switches(route_settings={ROUTE: text}))
        )
        self.client.transact([create_or_set(PATHS.settings, data, version_of(node))])

    def second_takes_over(self) -> None:
        self.first.client.expire()
        self.second.run()
        assert self.second.leads

    @property
    def published(self) -> RouteSettings:
        node = self.client.get(PATHS.route(ROUTE))
        assert node is not None
        return decode_route(node.data)

    @property
    def published_version(self) -> int:
        node = self.client.get(PATHS.route(ROUTE))
        assert node is not None
        return node.stat.version


@pytest.fixture
def world() -> World:
    return World()


def test_changes_are_published_at_once_and_once(world: World) -> None:
    assert world.published == OLD_FILE.settings
    world.change(json.dumps({"delivery": "exactly_once"}))
    world.first.run()
    assert world.published.delivery is Delivery.EXACTLY_ONCE
    assert world.published.prefix == "old."
    version = world.published_version
    world.first.run(5)
    assert world.published_version == version
    world.change("")
    world.first.run()
    assert world.published == OLD_FILE.settings


def test_a_new_leader_with_another_file_keeps_them(world: World) -> None:
    world.change(json.dumps({"naming": {"prefix": "live."}}))
    world.first.run()
    assert world.published.prefix == "live."
    world.second_takes_over()
    assert world.published.prefix == "live."
    assert world.published.on_gap is GapPolicy.LATEST, "what was not changed is of its file"


def test_changes_that_cannot_be_read_here_do_not_count(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.change(json.dumps({"delivery": "exactly_once", "later": 1}))
    world.first.run()
    assert world.published == OLD_FILE.settings
    assert "its changed settings do not count: later: is no setting of a route" in caplog.text


def test_what_is_published_stays_while_the_changes_cannot_be_read(world: World) -> None:
    world.change(json.dumps({"naming": {"prefix": "live."}}))
    world.first.run()
    world.change(b"?")
    world.first.run()
    assert world.published.prefix == "live."
    world.second_takes_over()
    assert world.published.prefix == "live."
    world.change("")
    world.second.run()
    assert world.published == NEW_FILE.settings
