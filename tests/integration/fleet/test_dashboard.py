"""The dashboard in a browser as it is served: by gunicorn, over a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from ureplicator_common.coordination import Create, Set
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes import Paths, decode_switches, encode_intent
from ureplicator_controller.api.serving.streams import EVENT_STREAM
from ureplicator_testkit.fleet.browser import SHOWN_WITHIN_MS, chromium
from ureplicator_testkit.fleet.rest_server import Rest
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

PATHS = Paths("rest")
KEY = TopicKey(Route("a", "b"), "orders")
INTENT = TopicIntent(2, 2, target_topic="orders")
RECONNECTED_MS = 30_000


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperCoordination]:
    """Another client, which has whitelisted a topic."""
    client = ZooKeeperCoordination(hosts=zookeeper.hosts, session_timeout_s=3)
    client.connect(5)
    path = PATHS.topic(KEY)
    client.ensure(path.rpartition("/")[0])
    client.transact([Create(path, encode_intent(INTENT))])
    yield client
    client.close()


@pytest.fixture
def rest(
    client: ZooKeeperCoordination, zookeeper: ZooKeeperServer, tmp_path: Path
) -> Iterator[Rest]:
    rest = Rest(zookeeper.hosts, tmp_path)
    try:
        eventually(lambda: rest.status("/ready") == 200, 20, "REST is ready")
        yield rest
    finally:
        rest.parent.kill_tree()


@pytest.fixture
def page(rest: Rest) -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(rest.url)
        expect(page.locator("#count-moving")).to_have_text("2", timeout=10_000)
        yield page


def test_changes_in_zookeeper_are_shown_and_clicks_written(
    client: ZooKeeperCoordination, page: Page
) -> None:
    expect(page.locator("#routes")).to_contain_text("a -> b: ")
    expect(page.locator("#routes")).to_contain_text("no controller leads: start one")
    page.locator("#grid").click(position={"x": 5, "y": 27})
    expect(page.locator("#tile")).to_contain_text("not placed yet")
    paused = encode_intent(replace(INTENT, state=TopicState.PAUSED))
    client.transact([Set(PATHS.topic(KEY), paused, -1)])
    expect(page.locator("#count-excluded")).to_have_text("2", timeout=SHOWN_WITHIN_MS)
    expect(page.locator("#tile")).to_contain_text("paused")
    page.get_by_role("button", name="Freeze", exact=True).click()
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm")).to_be_hidden()
    node = client.get(PATHS.settings)
    assert node is not None
    assert decode_switches(node.data).frozen


def test_without_zookeeper_the_last_known_stays(zookeeper: ZooKeeperServer, page: Page) -> None:
    lost = page.locator("#grid-lost")
    zookeeper.kill()
    expect(lost).to_contain_text("ZooKeeper is unavailable", timeout=2 * SHOWN_WITHIN_MS)
    expect(page.locator("#count-moving")).to_have_text("2")
    expect(page.locator("#grid-age")).to_contain_text("ago")
    zookeeper.restart()
    expect(lost).to_be_empty(timeout=RECONNECTED_MS)


def test_a_stream_tells_of_a_change_and_of_nothing_else(
    client: ZooKeeperCoordination, rest: Rest
) -> None:
    """Each event has the number of the last change."""
    with rest.opened("/events", {"Accept": EVENT_STREAM}) as response:
        lines = response.iter_lines()
        changes = (json.loads(each[6:])["change"] for each in lines if each[:6] == b"data: ")
        at_rest = next(one for one, other in pairwise(changes) if one == other)
        paused = encode_intent(replace(INTENT, state=TopicState.PAUSED))
        client.transact([Set(PATHS.topic(KEY), paused, -1)])
        assert next(each for each in changes if each != at_rest) == at_rest + 1
