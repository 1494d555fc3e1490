"""The timeline in a real browser: charts, events, the table, and times in the page's address."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, expect

from ureplicator_common.model import EventKind, Partition, Route, WorkerId
from ureplicator_common.znode_contents import PastEvent, TopicIntent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_controller.api.app import TIMELINE
from ureplicator_controller.core.usage import CopyCost
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.fleet.browser import no_errors, serious_faults, served

pytestmark = pytest.mark.integration

HOSTILE = "gone <img src=x onerror=alert(1)>"
MOVED = Partition(Route("s0", "target"), "orders", 0)
ROUTES = tuple({"source": f"s{n}", "target": "target"} for n in range(7))


@pytest.fixture
def rest() -> Iterator[RestFixture]:
    """Seven routes, sampled each minute until now, and a worker that is gone since ten minutes."""
    rest = RestFixture(ROUTES)
    now_s = datetime.now(UTC).timestamp()
    rest.put_leader()
    rest.put_intent("orders", TopicIntent(4, 4, target_topic="orders"), route=Route("s0", "target"))
    rest.clock.advance(now_s - 1_800 - rest.clock.monotonic_s())
    gone_ms = round((now_s - 600) * 1_000)
    gone = PastEvent(1, EventKind.WORKER, HOSTILE, gone_ms, worker=WorkerId("w1"))
    moved = PastEvent(2, EventKind.MOVE, "worker w1 lost", gone_ms, partition=MOVED, request="r1")
    asked = PastEvent(3, EventKind.SWITCH, "rebalance requested", gone_ms, request="r1/olga")
    rest.put(rest.paths.history_block(0), encode_history([gone, moved, asked]))
    for _ in range(30):
        rest.app.extensions[TIMELINE].run_once()
        rest.clock.advance(60)
    rest.app.extensions[TIMELINE].store.add_usage(
        {Route("s0", "target"): CopyCost(1_500_000_000, 1_500_000_000_000, 3_600.0)},
        at_ms=round((now_s - 900) * 1_000),
    )
    yield rest
    rest.close()


@pytest.fixture
def page(rest: RestFixture, browser: Browser) -> Iterator[Page]:
    """The test fails with what its console says."""
    with (
        served(rest.app) as address,
        no_errors(browser.new_page(viewport={"width": 1200, "height": 900})) as page,
    ):
        page.goto(address)
        yield page


def test_the_last_hour_is_drawn_with_its_events(page: Page) -> None:
    for chart in ("lag", "rate"):
        expect(page.locator(f"#timeline-{chart} canvas")).to_have_count(1)
        expect(page.locator(f"#timeline-{chart} .u-series")).to_have_count(1 + 5)
    expect(page.locator("#timeline-kept")).to_contain_text("2 routes with less lag are left out")
    expect(page.locator("#timeline-events")).to_contain_text(HOSTILE)
    assert page.locator("#timeline-events img").count() == 0
    expect(page.locator("#timeline-events")).to_contain_text("rebalance requested: by olga")
    expect(page.locator("#timeline-events li")).to_have_count(2)
    drawn = page.evaluate(
        "document.querySelector('#timeline-lag canvas').getContext('2d')"
        ".getImageData(0, 0, 2000, 300).data.some((each) => each !== 0)"
    )
    assert drawn


def test_what_was_copied_in_a_day_is_shown_by_route(page: Page) -> None:
    row = page.locator("#usage tbody tr")
    expect(row).to_have_count(1)
    for text in ("s0.target", "1.5 TB", "1,500,000,000", "1.00 core-hours", "0.67"):
        expect(row).to_contain_text(text)


def test_the_table_has_the_figures(page: Page) -> None:
    page.locator("#timeline-table summary").click()
    expect(page.locator("#timeline-rows tbody tr").first).to_contain_text("not known")
    assert page.locator("#timeline-rows tbody tr").count() >= 7 * 25


def test_the_address_holds_the_time(page: Page) -> None:
    page.locator("#timeline-minutes").select_option("360")
    assert "minutes=360" in page.url
    page.locator("#timeline-at").fill("2020-01-31T12:00:00")
    page.locator("#timeline-at").press("Enter")
    expect(page.locator("#timeline-events")).to_contain_text("No fault and no operator's act")
    assert "at=2020-01-31T" in page.url
    page.locator("#grid-differing").check()
    assert "at=2020-01-31T" in page.url
    page.reload()
    assert page.locator("#timeline-at").input_value().startswith("2020-01-31T12:00")
    expect(page.locator("#timeline-minutes")).to_have_value("360")
    page.locator("#timeline-now").click()
    expect(page.locator("#timeline-events")).to_contain_text("gone")
    assert "at=" not in page.url


def test_axe_finds_no_serious_fault(page: Page) -> None:
    expect(page.locator("#timeline-lag canvas")).to_have_count(1)
    assert serious_faults(page, "section[aria-label=Timeline]") == []
