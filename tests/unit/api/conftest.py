from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def rest() -> RestFixture:
    return RestFixture()


@pytest.fixture(scope="package", autouse=True)
def no_leaked_fixture() -> Iterator[None]:
    """The lag threads of a RestFixture end when it is garbage-collected: collect now."""
    yield
    gc.collect()
