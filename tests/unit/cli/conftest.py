"""REST over a real socket, and a configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.control.command import serving
from ureplicator_testkit.control.rest_fixture import RestFixture

CONFIG = """
fleet: local
zookeeper: {hosts: "z:1"}
clusters: {a: {bootstrap.servers: "a:1"}, b: {bootstrap.servers: "b:1"}}
routes: [{source: a, target: b}]
"""


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    with serving(rest) as url:
        yield url


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(CONFIG)
    return path
