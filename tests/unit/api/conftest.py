from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def rest() -> RestFixture:
    return RestFixture()


@pytest.fixture(scope="package", autouse=True)
def no_forgotten_world() -> Iterator[None]:
    """A rest's reading thread ends when the rest is collected, whenever that would be."""
    yield
    gc.collect()
