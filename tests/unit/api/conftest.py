from __future__ import annotations

import pytest

from ureplicator_testkit.api_world import World


@pytest.fixture
def world() -> World:
    return World()
