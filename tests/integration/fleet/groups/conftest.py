"""One fleet that syncs consumer groups, for the tests of this folder. Each of them leaves it without topics,
and may leave processes ended. The clusters are shared: it syncs the groups of these tests only."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.fleet.syncing import syncing_route

GRACE_S = 20
"""More than the time between two looks at a busy fleet."""


@pytest.fixture(scope="package")
def lasting(
    new_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """One controller, one worker."""
    name = f"groups-{uuid.uuid4().hex[:8]}"
    route = syncing_route(
        Delivery.AT_LEAST_ONCE.value,
        groups=f"{name}.synced.*",
        on_source_deletion="delete",
        source_deletion_grace_s=GRACE_S,
    )
    with new_fleet(name=name, folder=tmp_path_factory.mktemp(name), route=route) as fleet:
        yield fleet.start()


@pytest.fixture
def delivery() -> str:
    """A test may be parametrized by it."""
    return Delivery.AT_LEAST_ONCE


@pytest.fixture
def running(lasting: Fleet, delivery: str) -> Iterator[Fleet]:
    lasting.heal()
    lasting.change({"delivery": delivery})
    yield lasting
    lasting.clear()


@pytest.fixture
def group(running: Fleet, topic: str) -> str:
    """Name of a group that is synced, of which nothing is known yet."""
    return f"{running.name}.synced.{topic}"
