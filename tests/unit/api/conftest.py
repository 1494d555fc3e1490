from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ureplicator_testkit.control.api_world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="package", autouse=True)
def no_forgotten_world() -> Iterator[None]:
    """A world's reading thread ends when the world is collected, whenever that would be."""
    yield
    gc.collect()
