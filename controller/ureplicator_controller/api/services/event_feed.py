"""Server-sent events about the fleet: when it has changed, and that it cannot be read.

    event: state
    data: {"change":17,"lagAgeSeconds":1.2}

    event: problem
    data: {"detail":"ZooKeeper is unavailable: no response within 5 s"}

An event carries no state of the fleet. A page that sees another `change` reads `/overview`, whose document
of 10,000 partitions is encoded once and shared by its ETag; so an event has the same few bytes for each
page, and a page that is slow never makes the server keep documents for it. `change` counts from the start
of the process: after a restart the number differs, too, and the page reads again.

Source: HTML, section 9.2 (server-sent events).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ureplicator_common.clock import Clock
from ureplicator_common.errors import OperatingError
from ureplicator_controller.api.http.problems import as_problem
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState

ALIVE_S = 1.0
"""An event at least as often, changed or not: a page that hears nothing for longer has no connection."""


@dataclass(frozen=True, slots=True)
class Event:
    """`what` differs exactly if pages have to be told at once."""

    name: str
    what: object
    data: Mapping[str, Any]

    def encoded(self) -> bytes:
        return (
            f"event: {self.name}\ndata: {json.dumps(self.data, separators=(',', ':'))}\n\n".encode()
        )


class EventFeed:
    """Events of one process, the same for all pages. `present` may be called by any thread, `poll` by one."""

    def __init__(self, *, fleet: FleetCache, lag_cache: LagCache, clock: Clock) -> None:
        self._fleet = fleet
        self._lag_cache = lag_cache
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[FleetState, LagReport | None] | None = None
        self._change = clock.wall_ms()
        self._told: object = None
        self._told_at_s = 0.0

    def present(self) -> Event:
        """The event about the fleet as it is now."""
        try:
            fleet_state, report = self._fleet.current(), self._lag_cache.report(timeout_s=0.0)
        except OperatingError as error:
            detail = as_problem(error).detail
            return Event("problem", detail, {"detail": detail})
        change = self._change_of(fleet_state, report)
        age_s = round(self._lag_cache.age_s(report), 1) if report else None
        return Event("state", change, {"change": change, "lagAgeSeconds": age_s})

    def poll(self) -> bytes:
        """The event that is due: after a change, and after `ALIVE_S` without one. Else nothing."""
        event, now_s = self.present(), self._clock.monotonic_s()
        if event.what == self._told and now_s - self._told_at_s < ALIVE_S:
            return b""
        self._told, self._told_at_s = event.what, now_s
        return event.encoded()

    def _change_of(self, fleet_state: FleetState, report: LagReport | None) -> int:
        with self._lock:
            seen = self._seen
            if seen is None or seen[0] is not fleet_state or seen[1] is not report:
                self._seen = fleet_state, report
                self._change += 1
            return self._change
