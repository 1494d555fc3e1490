"""Cores of an auditor's Spark session: what follows behind the copy does not wait for a requested audit."""

from __future__ import annotations

import pytest

from ureplicator_worker.auditor.cores import Cores, default_master, shared


@pytest.mark.parametrize(
    ("total", "routes", "requests", "route"),
    [
        (1, 0, 1, 0),
        (8, 0, 8, 0),
        (2, 1, 1, 1),
        (16, 1, 8, 8),
        (16, 3, 10, 2),
        (4, 3, 1, 1),
        (1, 1, 1, 1),
        (2, 5, 1, 1),
    ],
)
def test_requests_leave_a_core_to_each_followed_route(
    total: int, routes: int, requests: int, route: int
) -> None:
    assert shared(total, routes=routes) == Cores(requests, route)


def test_there_are_as_many_cores_as_that_takes() -> None:
    assert default_master(0) == "local[1]"
    assert default_master(2) == "local[3]"
    for routes in range(1, 9):
        cores = shared(1 + routes, routes=routes)
        assert cores.requests + routes * cores.route <= 1 + routes
