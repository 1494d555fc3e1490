"""One fleet of two controllers and two workers for the tests of this folder. Each of them leaves it without
topics, and may leave processes ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet

MASK = "ureplicator_worker.handlers.mask:json_fields"
TAGGED: Mapping[str, Mapping[str, Any]] = {
    "w2": {"tags": ["bulk"]},
    "large": {"tags": ["bulk", "ssd"], "slots": 2},
}
"""Settings of single workers. A test that starts another one than `w1` and `w2` ends it."""


@pytest.fixture(scope="package")
def lasting(
    new_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    masked = {"topics": ".*-masked", "handler": MASK, "args": {"fields": ["name"]}}
    options = {"route": {"handlers": [masked]}, "workers_own": TAGGED}
    with new_fleet(name=name, folder=tmp_path_factory.mktemp(name), **options) as fleet:
        yield fleet.start(controllers=2, workers=2)


@pytest.fixture
def running(lasting: Fleet) -> Iterator[Fleet]:
    lasting.heal()
    yield lasting
    lasting.clear()
