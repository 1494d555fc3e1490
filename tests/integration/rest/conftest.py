"""Fixtures of the tests of this folder: REST as the daemon starts it, without ZooKeeper, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser

from ureplicator_testkit.fleet.browser import chromium
from ureplicator_testkit.fleet.rest_server import NOWHERE, Rest
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.shared import Shared


@contextmanager
def started_rest() -> Iterator[Rest]:
    with TemporaryDirectory() as folder:
        rest = Rest(NOWHERE, Path(folder))
        try:
            eventually(lambda: rest.status("/health") == 200, 20, "REST responds")
            yield rest
        finally:
            rest.parent.kill_tree()


@pytest.fixture(scope="module")
def rest(of_folder: Shared) -> Rest:
    return of_folder.get(started_rest)


@pytest.fixture(scope="module")
def browser(of_folder: Shared) -> Browser:
    return of_folder.get(chromium)
