"""Sampler: figures of routes and lagging topics every few seconds, what was copied, and the events since.

It sees the fleet as REST does. While ZooKeeper is unavailable there is a gap in the figures; events of that
time follow with the history. The lag is the one that requests share (`lag_collection.cache`).

Events become spans where this controller leads, each once. Those of before its first sample do not: a
process that has just started does not know which were sent.

`prepare` is called with the state that was sampled: what requests keep of it is made before one comes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ureplicator_common.clock import Clock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Node
from ureplicator_common.errors import OperatingError
from ureplicator_common.znode_contents import PastEvent, WorkerUsage
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.workers import decode_usage
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.timeline.store import (
    MAX_TOPICS,
    Event,
    TimelineStore,
    kept_from_ms,
)
from ureplicator_controller.api.tracing.sink import Spans
from ureplicator_controller.core.reporting.event_history import past_events
from ureplicator_controller.core.reporting.route_figures import lagging_topics, route_figures
from ureplicator_controller.core.reporting.shown_events import shown_event
from ureplicator_controller.core.spans import event_span
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.usage import SeenUsage, grown, remembered

LAG_TIMEOUT_S = 1.0
MIN_REST, MAX_REST_S = 20.0, 60.0
"""Rest after a sample, in times of what it took without the wait for the lag: some tenths of a second in a
fleet of 100,000 partitions."""

log = logging.getLogger(__name__)


class TimelineSampler:
    """Sampler of the timeline, used by one thread."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: FleetCache,
        lag_cache: LagCache,
        store: TimelineStore,
        prepare: Callable[[FleetState, Tallies], None],
        spans: Spans,
        id: str,
        clock: Clock,
    ) -> None:
        """`id`: of this controller."""
        self._settings = settings
        self._fleet = fleet
        self._lag_cache = lag_cache
        self.store = store
        self._prepare = prepare
        self._clock = clock
        self._spans = spans
        self._id = id
        self._kept: dict[int, PastEvent] | None = None
        """Events by number, as they were written."""
        self._seen: SeenUsage | None = None
        self._failure = ""

    def run_once(self) -> float:
        """Sample; returns the seconds until the next time. A failure is logged once, until it is another."""
        began_s = self._clock.monotonic_s()
        try:
            report = self._lag_cache.report(timeout_s=LAG_TIMEOUT_S)
            began_s = self._clock.monotonic_s()
            self._sample(report)
            failure = ""
        except OperatingError as error:
            failure = str(error)
        except Exception:
            log.exception("no figures for the timeline")
            failure = "see the log"
        if failure and failure != self._failure:
            log.warning("no figures for the timeline: %s", failure)
        self._failure = failure
        took_s = self._clock.monotonic_s() - began_s
        interval_s = self._settings.controller.timeline.interval_s
        return max(interval_s, min(MIN_REST * took_s, MAX_REST_S))

    def _sample(self, report: LagReport | None) -> None:
        """Write the figures of now. Raises OperatingError."""
        fleet_state, at_ms = self._fleet.current(), self._clock.wall_ms()
        lags = report.summaries if report else {}
        tallies = self._fleet.tallies(fleet_state)
        figures = route_figures(
            fleet_state.snapshot,
            tallies,
            lags,
            [config.route for config in self._settings.routes],
            at_ms=at_ms,
        )
        found = {past.number: past for past in past_events(fleet_state.snapshot.history)}
        topics = lagging_topics(lags, at_ms=at_ms, limit=MAX_TOPICS)
        changed = self._changed(found)
        self.store.add(figures, [_kept_event(event) for event in changed], topics)
        if self._kept is not None and fleet_state.leader and fleet_state.leader.id == self._id:
            self._trace(changed)
        self._kept = found
        self._add_usage(fleet_state, at_ms)
        self.store.forget(before_ms=kept_from_ms(at_ms))
        self._prepare(fleet_state, tallies)

    def _changed(self, found: dict[int, PastEvent]) -> list[PastEvent]:
        kept = self._kept or {}
        return [past for number, past in sorted(found.items()) if kept.get(number) != past]

    def _trace(self, events: Iterable[PastEvent]) -> None:
        for past in events:
            span = event_span(self._settings.fleet, past)
            if span is not None:
                self._spans.send(span)

    def _add_usage(self, fleet_state: FleetState, at_ms: int) -> None:
        """Add what the workers copied since the last sample."""
        snapshot, path_of = fleet_state.snapshot, self._fleet.paths.measures.usage
        nodes = ((worker, fleet_state.nodes.get(path_of(worker))) for worker in snapshot.sessions)
        now = {worker: usage for worker, node in nodes if node and (usage := _usage(node))}
        seen, costs = grown(self._seen, now, at_ms=at_ms)
        self.store.add_usage(costs, at_ms=at_ms)
        self._seen = remembered(seen, frozenset(snapshot.known) | now.keys())


def _kept_event(past: PastEvent) -> Event:
    return Event(past.wall_ms, past.number, shown_event(past))


def _usage(node: Node) -> WorkerUsage | None:
    try:
        return decode_usage(node.data)
    except UnreadableContent:
        return None
