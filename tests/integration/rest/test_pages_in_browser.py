"""Pages of a topic, of a worker and of the consumer groups in a real browser, with hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from ureplicator_common.coordination import Delete
from ureplicator_common.kafka import BatchTime
from ureplicator_common.model import (
    Limited,
    OffsetShift,
    Partition,
    PartitionState,
    RouteSettings,
    TopicKey,
    TopicState,
    WorkerId,
    position_group,
)
from ureplicator_common.znode_contents import PartitionLoad, Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_controller.api.app import TIMELINE
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture
from ureplicator_testkit.fleet.browser import SHOWN_WITHIN_MS, no_errors, serious_faults, served
from ureplicator_testkit.fleet.prefix_proxy import below_prefix

pytestmark = pytest.mark.integration

HOSTILE = "<img src=x onerror=alert(1)><script>document.title='taken'</script>\u202egnp.evil"
LONG = "l" * 249
OF_ROUTE = "src=source&dst=target"
PATHS = (
    f"show/topic?topic=orders&{OF_ROUTE}",
    f"show/topic?topic={LONG}&{OF_ROUTE}",
    "show/worker?worker=w1",
    "show/groups",
)


@pytest.fixture
def rest() -> Iterator[RestFixture]:
    """`orders` on w1 with a partition in error; a topic with the longest name there is."""
    rest = RestFixture()
    rest.put_leader()
    rest.add_worker("w1", tags=("bulk",))
    for topic in ("orders", LONG):
        rest.put_intent(topic, TopicIntent(2, 2, target_topic=topic))
        rest.source.put(topic, 2)
        rest.place(topic, {0: "w1", 1: "w1"})
    states = {0: PartitionState.ONLINE, 1: PartitionState.ERROR}
    rest.put_states("w1", "orders", states, reason=HOSTILE)
    yield rest
    rest.close()


@pytest.fixture
def address(rest: RestFixture) -> Iterator[str]:
    with served(rest.app) as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The test fails with what the page's console says, but for refusals, which the page shows."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    with no_errors(page, but="Failed to load resource") as page:
        yield page


def test_a_topic_shows_its_partitions_and_follows_them(
    rest: RestFixture, page: Page, address: str
) -> None:
    page.goto(address + PATHS[0])
    partitions = page.get_by_role("region", name="Partitions", exact=True)
    rows = partitions.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(HOSTILE)
    assert page.title() == "test: topic - uReplicator"
    assert page.locator("main img").count() == 0
    rest.put_intent("orders", TopicIntent(2, 2, state=TopicState.PAUSED, target_topic="orders"))
    expect(partitions).to_contain_text("paused", timeout=2 * SHOWN_WITHIN_MS)
    expect(page.get_by_role("region", name="Audit")).to_contain_text("never verified")
    page.get_by_text("Differences of partitions and settings").click()
    expect(page.locator("#parts")).to_contain_text("not compared")


def test_a_topic_shows_whether_its_offsets_are_the_same(
    rest: RestFixture, page: Page, address: str
) -> None:
    page.goto(address + PATHS[0])
    partitions = page.get_by_role("region", name="Partitions", exact=True)
    rows = partitions.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(partitions).not_to_contain_text("offsets")
    shifts = (OffsetShift(0, 100), OffsetShift(1, 2_000, HOSTILE))
    rest.put_loads(
        "w1", {Partition(ROUTE, "orders", n): PartitionLoad(offsets=shifts[n]) for n in (0, 1)}
    )
    page.reload()
    expect(rows.nth(0)).to_contain_text("same since 100")
    expect(rows.nth(1)).to_contain_text(f"shifted by 1 since 2,000 ({HOSTILE})")
    expect(partitions.locator("dl")).to_contain_text("same in 1 of 2 partitions")


def test_lag_of_a_topic_is_drawn_over_time(rest: RestFixture, page: Page, address: str) -> None:
    logs, sampler = rest.logs["source"], rest.app.extensions[TIMELINE]
    logs.hold("orders", 0, 0, 100)
    logs.logs["orders", 0].times = [BatchTime(30, 50, rest.clock.wall_ms() - 20_000)]
    rest.positions.put(position_group(fleet="test", route=ROUTE), "orders", 0, 40)
    for _ in range(3):
        sampler.run_once()
        rest.clock.advance(15)
    page.goto(address + PATHS[0])
    lag = page.get_by_role("region", name="Lag, the last hour")
    expect(lag).to_contain_text("At most 50 s")
    expect(lag.locator("canvas")).to_be_visible()
    expect(lag.get_by_role("img")).to_have_attribute("aria-label", re.compile("At most 50 s"))
    page.goto(address + PATHS[1])
    expect(lag).to_contain_text("No lag is kept of this time")


def test_an_act_on_the_page_of_a_topic_is_written(
    rest: RestFixture, page: Page, address: str
) -> None:
    page.goto(address + PATHS[0])
    page.get_by_role("button", name="Pause orders", exact=True).click()
    expect(page.locator("#confirm-lines")).to_contain_text("Positions are kept")
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm")).to_be_hidden()
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.state is TopicState.PAUSED


def confirmed(page: Page, button: str) -> str:
    """Click, read what will happen, and apply it."""
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("#confirm-apply")).to_be_enabled()
    lines = page.locator("#confirm-lines").inner_text()
    page.locator("#confirm-apply").click()
    expect(page.locator("#confirm")).to_be_hidden()
    return lines


def test_a_stopped_topic_is_restarted(rest: RestFixture, page: Page, address: str) -> None:
    page.goto(address + PATHS[0])
    page.get_by_role("button", name="Restart orders", exact=True).click()
    expect(page.locator("#confirm-result")).to_contain_text("orders is not stopped")
    expect(page.locator("#confirm-apply")).to_be_disabled()
    page.keyboard.press("Escape")
    nobody_holds = (
        rest.paths.ideal_topic(TopicKey(ROUTE, "orders")),
        rest.paths.current_state(WorkerId("w1")),
    )
    rest.other_client.transact([Delete(path) for path in nobody_holds])
    rest.put_intent(
        "orders", TopicIntent(2, 2, stopped="source topic deleted", target_topic="orders")
    )
    lines = confirmed(page, "Restart orders")
    assert lines.startswith("It is stopped: source topic deleted.")
    intent = rest.intent("orders")
    assert intent is not None
    assert (intent.stopped, intent.restarted) == ("", True)


def test_a_position_is_changed_after_its_dry_run(
    rest: RestFixture, page: Page, address: str
) -> None:
    rest.logs["source"].hold("orders", 1, 10, 100)
    rest.positions.put(position_group(fleet="test", route=ROUTE), "orders", 1, 60)
    page.goto(address + PATHS[0])
    page.get_by_label("Position").select_option("offset")
    page.get_by_label("Offset or time").fill("40")
    page.get_by_label("Partition", exact=True).fill("1")
    lines = confirmed(page, "Change position")
    assert lines.startswith("partition 1: from 60 to 40: 20 offsets are copied again")
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.positions[1].offset == 40


def test_limits_of_a_topic_and_a_worker_are_set_and_removed(
    rest: RestFixture, page: Page, address: str
) -> None:
    for path, limited in (
        (PATHS[0], Limited.topic(TopicKey(ROUTE, "orders"))),
        (PATHS[2], Limited.worker(WorkerId("w1"))),
    ):
        page.goto(address + path)
        page.locator("input[placeholder='MB/s']").fill("2.5")
        confirmed(page, "Limit")
        assert switches(rest).limits == {limited: 2_500_000}
        confirmed(page, "No limit")
        assert switches(rest).limits == {}


def test_a_route_is_paused_and_resumed_on_the_dashboard(
    rest: RestFixture, page: Page, address: str
) -> None:
    page.goto(address)
    confirmed(page, "Pause route")
    assert switches(rest).paused_routes == {ROUTE}
    confirmed(page, "Resume route")
    assert switches(rest).paused_routes == frozenset()


def switches(rest: RestFixture) -> Switches:
    node = rest.other_client.get(rest.paths.settings)
    assert node is not None
    return decode_switches(node.data)


def test_a_worker_shows_what_it_offers_and_holds(page: Page, address: str) -> None:
    page.goto(address + PATHS[2])
    held = page.get_by_role("region", name="Condition and partitions")
    expect(held).to_contain_text("bulk")
    expect(held.locator("tbody tr").first).to_contain_text("source.target/orders")
    held.get_by_role("link").first.click()
    expect(page.locator("#title")).to_have_text("source.target/orders")


def test_the_grid_leads_to_the_pages(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#count-error")).to_have_text("1", timeout=10_000)
    page.locator("#grid").click(position={"x": 5, "y": 27})
    page.locator("#tile-text").get_by_role("link", name="worker w1").click()
    expect(page.locator("#title")).to_have_text("worker w1")


def test_consumer_groups_are_listed_by_route(page: Page, address: str) -> None:
    page.goto(address + PATHS[3])
    expect(page.locator("#parts")).to_contain_text("source -> target")
    expect(page.locator("#parts")).to_contain_text("No consumer group has offsets on a route.")


UNCLEAR = {
    "": '""',
    " padded ": '" padded "',
    "a  b": '"a  b"',
    "two\nlines": '"two\\u{a}lines"',
    "\u200b": '"\\u{200b}"',
    "\u202egnp.evil": '"\\u{202e}gnp.evil"',
}
"""Names of groups that could not be told from others, or seen at all, and how they are shown."""


def test_consumer_groups_of_any_name_are_shown(rest: RestFixture, page: Page, address: str) -> None:
    shown = UNCLEAR | {name: name for name in ("<b>x</b>", "a b", "..", '"', "größe", "l" * 300)}
    rest.publish(RouteSettings())
    for name in shown:
        rest.groups.add(name, {("orders", 0): 30})
    page.goto(address + PATHS[3])
    expect(page.locator("#parts tbody tr")).to_have_count(len(shown))
    assert serious_faults(page) == []
    texts = page.locator("#parts tbody button").all_text_contents()
    assert sorted(texts) == sorted(shown.values())
    for name, text in shown.items():
        page.locator("#parts tbody button").nth(texts.index(text)).click()
        heading = page.locator("#chosen h3")
        expect(heading).to_have_text(f"source.target: {text}", use_inner_text=True)
        assert parse_qs(urlsplit(page.url).query, keep_blank_values=True)["group"] == [name]
    page.goto(f"{address}{PATHS[3]}?route=source.target&group=")
    expect(page.locator("#chosen tbody tr")).to_have_count(1)


def test_pages_work_below_a_path_of_a_proxy(
    rest: RestFixture, browser: Browser, address: str
) -> None:
    """Each page is followed by links from the dashboard, and nothing beside the path is requested."""
    rest.publish(RouteSettings())
    rest.groups.add("/a, b/../%2F", {("orders", 0): 30})
    requested: list[str] = []
    with below_prefix(address) as below, no_errors(browser.new_page()) as page:
        page.on("request", lambda request: requested.append(request.url))
        page.goto(below)
        expect(page.locator("#count-error")).to_have_text("1", timeout=10_000)
        expect(page.locator("#pulse")).to_contain_text("as of", timeout=10_000)
        confirmed(page, "Pause route")
        page.locator("#grid").click(position={"x": 5, "y": 27})
        page.locator("#tile-text").get_by_role("link", name="worker w1").click()
        held = page.get_by_role("region", name="Condition and partitions")
        held.get_by_role("link").first.click()
        expect(page.locator("#title")).to_contain_text("source.target/")
        page.locator("h1 a").click()
        page.get_by_role("link", name="consumer groups").click()
        page.get_by_role("button", name="/a, b/../%2F").click()
        expect(page.locator("#chosen")).to_contain_text("source.target: /a, b/../%2F")
        page.reload()
        expect(page.locator("#chosen tbody tr")).to_have_count(1)
    assert switches(rest).paused_routes == {ROUTE}
    assert {f"{below}events", f"{below}overview"} <= set(requested)
    assert [url for url in requested if not url.startswith((below, "data:"))] == []


def test_what_is_not_there_says_so(page: Page, address: str) -> None:
    page.goto(f"{address}show/worker?worker={quote(HOSTILE)}")
    expect(page.get_by_role("alert").first).to_contain_text("is live or known")
    assert page.locator("main img").count() == 0
    response = page.request.get(f"{address}show/nothing")
    assert response.status == 404


@pytest.mark.parametrize("path", PATHS, ids=["topic", "long name", "worker", "groups"])
def test_axe_finds_no_serious_fault_and_a_phone_has_room(
    page: Page, address: str, path: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(address + path)
    expect(page.locator("#parts section").first).to_be_visible()
    expect(page.locator("#pulse")).to_contain_text("read ", timeout=10_000)
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
