"""The page of several fleets: the last picture with its age, whatever a fleet does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
import requests

from ureplicator_cli.fleets.page import FleetsPage, Picture, page_html
from ureplicator_cli.fleets.reading import Reading, read_fleets
from ureplicator_cli.fleets.rows import HEADS, Survey, survey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import serving
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.rest_fixture import RestFixture
from ureplicator_testkit.fleet.prefix_proxy import below_prefix
from ureplicator_testkit.servers.processes import eventually

NOWHERE = "http://127.0.0.1:1"
AT_MS = 1_769_860_800_000


class Cells(HTMLParser):
    """Text of the cells of a page, row by row, and of its list entries."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.items: list[str] = []
        self.links: list[str | None] = []
        self._into: Callable[[str], object] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._into = lambda text: self.rows[-1].__setitem__(-1, self.rows[-1][-1] + text)
        if tag == "li":
            self._into = self.items.append
        if tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into(data)


@contextmanager
def running(made: Callable[[], Survey]) -> Iterator[FleetsPage]:
    page = FleetsPage(made, port=0, interval_s=3_600, clock=ManualClock())
    thread = threading.Thread(target=page.run)
    with closing(page):
        thread.start()
        try:
            yield page
        finally:
            page.stop()
            thread.join()


def get(page: FleetsPage, path: str = "/") -> requests.Response:
    return requests.get(f"{page.url.rstrip('/')}{path}", timeout=30)


def test_each_fleet_is_a_row_with_a_link(rest: RestFixture) -> None:
    rest.put_leader("c2")
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    with (
        serving(rest) as url,
        running(lambda: survey(read_fleets([url, NOWHERE]))) as page,
    ):
        eventually(lambda: "no response" in get(page).text, 30, "the fleets are read")
        shown, as_json = Cells(get(page).text), get(page, "/fleets.json").json()
    assert shown.rows == [
        list(HEADS),
        ["test", "c2", "0", "1", "0", "2", "0", "2"],
        [NOWHERE, "no response", "", "", "", "", "", ""],
    ]
    assert shown.links == [f"{url}/", f"{NOWHERE}/"]
    assert shown.items[0].startswith(f"{NOWHERE}: cannot reach a controller")
    assert [fleet["fleet"] for fleet in as_json["fleets"]] == ["test", ""]


def test_requests_do_not_wait_for_fleets() -> None:
    go_on = threading.Event()

    def slow() -> Survey:
        assert go_on.wait(30)
        return survey([])

    with running(slow) as page:
        try:
            assert "The fleets are being read" in get(page).text
            assert get(page, "/fleets.json").status_code == 503
        finally:
            go_on.set()
        eventually(lambda: "In order" in get(page).text, 30, "they are read")


def test_an_error_leaves_the_last_picture(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Survey:
        raise ZeroDivisionError

    with running(broken) as page:
        eventually(lambda: "the fleets were not read" in caplog.text, 30, "it is logged")
        assert get(page).status_code == 200


def test_what_fleets_call_themselves_is_text_and_nothing_else() -> None:
    failure = Reading('http://a"><script>', {}, "<b>\x1b[2J & no")
    text = page_html(Picture(survey([failure]), AT_MS), now_ms=AT_MS + 5_500)
    assert "<script>" not in text
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "Look here: read at 2026-01-31T12:00:00Z, 5 s ago." in text


def test_a_page_loads_nothing_from_elsewhere() -> None:
    with running(lambda: survey([])) as page:
        policy = get(page).headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert get(page, "/fleets.css").headers["Content-Type"].startswith("text/css")
        assert "setInterval(refresh, 2000)" in get(page, "/fleets.js").text
        assert get(page, "/nothing").status_code == 404


def test_a_proxy_may_serve_the_page_below_a_path_of_its_own() -> None:
    with running(lambda: survey([])) as page, below_prefix(page.url) as address:
        text = requests.get(address, timeout=30).text
        names = re.findall(r'(?:href|src)="([^":]+)"', text)
        assert names == ["fleets.css", "fleets.js"]
        for name in names:
            assert requests.get(urljoin(address, name), timeout=30).ok
        assert 'fetch("./")' in get(page, "/fleets.js").text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_stopped(number: signal.Signals) -> None:
    words = ["-m", "ureplicator_cli.main", "fleets", NOWHERE, "--serve", "0", "--interval", "1"]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)  # noqa: S603
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        eventually(lambda: "no response" in requests.get(url, timeout=30).text, 30, "it is read")
        process.send_signal(number)
        assert process.wait(30) == 0
