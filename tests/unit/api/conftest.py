from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def rest() -> Iterator[RestFixture]:
    fixture = RestFixture()
    yield fixture
    fixture.close()
