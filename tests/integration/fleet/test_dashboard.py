"""The dashboard in a browser as it is served: by gunicorn, over a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, expect

from ureplicator_common.coordination import Set, create_or_set, version_of
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
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


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """One that a test kills, and has back in order."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def rest(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    rest = Rest(zookeeper.hosts, tmp_path_factory.mktemp("rest"))
    try:
        eventually(lambda: rest.status("/ready") == 200, 20, "REST is ready")
        yield rest
    finally:
        rest.parent.kill_tree()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperCoordination]:
    """Another client, which has whitelisted a topic."""
    client = ZooKeeperCoordination(hosts=zookeeper.hosts, session_timeout_s=3)
    client.connect(5)
    path = PATHS.topic(KEY)
    client.ensure(path.rpartition("/")[0])
    client.transact([create_or_set(path, encode_intent(INTENT), version_of(client.get(path)))])
    yield client
    client.close()


@pytest.fixture
def page(client: ZooKeeperCoordination, rest: Rest, browser: Browser) -> Iterator[Page]:
    """It shows the topic."""
    page = browser.new_page()
    page.goto(rest.url)
    expect(page.locator("#count-moving")).to_have_text("2", timeout=10_000)
    yield page
    page.close()


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
        changes = (json.loads(line[6:])["change"] for line in lines if line[:6] == b"data: ")
        at_rest = next(one for one, other in pairwise(changes) if one == other)
        paused = encode_intent(replace(INTENT, state=TopicState.PAUSED))
        client.transact([Set(PATHS.topic(KEY), paused, -1)])
        assert next(change for change in changes if change != at_rest) == at_rest + 1
