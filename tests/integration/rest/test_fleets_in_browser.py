"""The page of several fleets in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, expect

from ureplicator_cli.fleets.page import FleetsPage
from ureplicator_cli.fleets.reading import read_fleets
from ureplicator_cli.fleets.rows import survey
from ureplicator_common.clock import SystemClock
from ureplicator_testkit.control.command import serving
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.fleet.browser import no_errors, serious_faults

pytestmark = pytest.mark.integration

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def served() -> Iterator[FleetsPage]:
    """The page of a fleet that responds and of one that does not; they are read once."""
    with closing(RestFixture()) as rest, serving(rest) as url:
        rest.put_leader("c1")
        page = FleetsPage(
            lambda: survey(read_fleets([url, NOWHERE])),
            port=0,
            interval_s=3_600,
            clock=SystemClock(),
        )
        thread = threading.Thread(target=page.run)
        thread.start()
        yield page
        page.stop()
        thread.join()
        page.close()


def test_fleets_are_shown_on_a_phone_and_axe_finds_no_serious_fault(
    browser: Browser, served: FleetsPage
) -> None:
    """The first page may come before the fleets are read; it asks again by itself."""
    opened = browser.new_page(viewport={"width": 390, "height": 800})
    with closing(opened), no_errors(opened) as page:
        page.goto(served.url)
        expect(page.get_by_role("link", name="test", exact=True)).to_be_visible(timeout=30_000)
        expect(page.get_by_role("listitem").first).to_contain_text("cannot reach a controller")
        assert serious_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_its_server_the_last_picture_stays(browser: Browser, served: FleetsPage) -> None:
    with closing(browser.new_page()) as page:
        page.goto(served.url)
        expect(page.get_by_role("link", name="test", exact=True)).to_be_visible(timeout=30_000)
        served.close()
        said = page.get_by_text("The server of this page does not respond")
        expect(said).to_be_visible(timeout=30_000)
        expect(page.get_by_role("link", name="test", exact=True)).to_be_visible()
