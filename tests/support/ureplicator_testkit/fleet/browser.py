"""Debian's Chromium, driven by playwright, for tests of the dashboard."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

SHOWN_WITHIN_MS = 3_000
"""A change of the fleet is on the page within this time."""


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """Log nothing: the pages ask often."""


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """The address of the application, served by threads until the end."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()


@contextmanager
def no_errors(page: Page, *, but: str = "") -> Iterator[Page]:
    """Fail at the end with what the page's console said, other than lines with `but`."""
    said: list[str] = []
    page.on("console", lambda each: said.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    page.close()
    assert [each for each in said if not (but and but in each)] == []


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Skips the test where there is none, but never in CI."""
    path = shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "scripts/setup --tests installs Chromium"
        pytest.skip("no Chromium: scripts/setup --tests installs it where apt-get is at hand")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()
