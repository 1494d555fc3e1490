"""Debian's Chromium, driven by playwright, for tests of the dashboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

SHOWN_WITHIN_MS = 3_000
"""A change of the fleet is on the page within this time."""


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
