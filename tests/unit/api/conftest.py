from __future__ import annotations

import pytest

from ureplicator_testkit.control.rest_fixture import RestFixture


@pytest.fixture
def rest() -> RestFixture:
    return RestFixture()
