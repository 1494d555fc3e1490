"""Cores of an auditor's Spark session, shared by requested audits and the routes that it follows.

A task of a requested audit keeps its core for a round, which takes a minute at a low byte rate. Fair
scheduling does not interrupt it. So requested audits leave a core to each route: what is copied meanwhile is
compared in time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cores:
    """Partitions that are compared at a time: by requested audits, and behind the copy of each route."""

    requests: int
    route: int


def default_master(routes: int) -> str:
    """Spark's master: this machine, with a core for requested audits and one for each followed route."""
    return f"local[{1 + routes}]"


def shared(total: int, *, routes: int) -> Cores:
    """Half of the cores for the followed routes; at least one for each part, though they be too few."""
    if routes == 0:
        return Cores(total, 0)
    route = max(1, total // (2 * routes))
    return Cores(max(1, total - routes * route), route)
