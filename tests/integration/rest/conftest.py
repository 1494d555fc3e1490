"""REST as the daemon starts it, for tests that need no ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_testkit.fleet.rest_server import NOWHERE, Rest
from ureplicator_testkit.servers.processes import eventually


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    rest = Rest(NOWHERE, tmp_path_factory.mktemp("rest"))
    eventually(lambda: rest.status("/health") == 200, 20, "REST responds")
    yield rest
    rest.parent.kill_tree()
