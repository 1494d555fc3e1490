"""Debian's Chromium, driven by playwright, for tests of the dashboard."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

from ureplicator_controller.api.services.event_feed import ALIVE_S, EventFeed
from ureplicator_controller.api.serving.streams import FEED, POLL_S, wants_stream

AXE = Path(__file__).parents[3] / "integration/rest/axe/axe.min.js"
"""axe-core 4.14.1, under the Mozilla Public License 2.0."""
SHOWN_WITHIN_MS = 3_000
"""A change of the fleet is on the page within this time."""


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """Log nothing: the pages ask often."""


class Streaming:
    """The application on a server that gives each stream of events a thread, until `end`. REST's own server
    sends the same events from its event loop."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._ended = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        accepted = [("Accept", environ.get("HTTP_ACCEPT", ""))]
        if not wants_stream(environ["REQUEST_METHOD"], environ["PATH_INFO"], accepted):
            response: Iterable[bytes] = self._app(environ, start_response)
            return response
        begin = Response.from_app(self._app, environ, buffered=True)
        del begin.headers["Content-Length"]
        start_response(begin.status, list(begin.headers))
        return chain([begin.get_data()], self._events(self._app.extensions[FEED]))

    def _events(self, feed: EventFeed) -> Iterator[bytes]:
        """Events as the feed says; also one each second, since its clock may stand still in a test."""
        told_at_s = 0.0
        while not self._ended.wait(POLL_S):
            event, now_s = feed.poll(), time.monotonic()
            if event or now_s - told_at_s >= ALIVE_S:
                told_at_s = now_s
                yield event or feed.present().encoded()

    def end(self) -> None:
        self._ended.set()


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """The address of the application, served by threads until the end."""
    streaming = Streaming(app)
    server = make_server("127.0.0.1", 0, streaming, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    streaming.end()
    server.shutdown()
    thread.join()


@contextmanager
def no_errors(page: Page, *, but: str = "") -> Iterator[Page]:
    """Fail at the end with what the page's console said, other than lines with `but`."""
    said: list[str] = []
    page.on(
        "console", lambda message: said.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    page.close()
    assert [line for line in said if not (but and but in line)] == []


def serious_faults(page: Page, part: str = "html") -> list[tuple[str, str]]:
    """Rule and element of each serious fault that axe finds in a part of the page, light and dark.

    A page that draws lists anew while axe reads them may have a fault in an element that is gone.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found: list[tuple[str, str]] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        violations = page.evaluate(
            "(part) => axe.run(part, {resultTypes: ['violations']}).then((each) => each.violations)",
            part,
        )
        found += [
            (violation["id"], node["html"])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Skips the test where there is none, but never in CI."""
    path = shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "scripts/setup --tests installs Chromium"
        pytest.skip("no Chromium: scripts/setup --tests installs it where apt-get is at hand")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-site-isolation-trials"],
        )
        yield browser
        browser.close()
