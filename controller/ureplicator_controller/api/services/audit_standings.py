"""Standing of each topic's audit: the state in ZooKeeper against the positions of the newest lag report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.audits.standing import CopiedTopic, Standing, standing
from ureplicator_common.clock import Clock
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.lag_collection.cache import RESPONSE_TIMEOUT_S, LagCache
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.services.fleet_cache import FleetState


class Standings:
    """Reads no cluster itself: positions are those of the lag report, as old as it is."""

    def __init__(self, *, lag_cache: LagCache, clock: Clock, stale_after_s: float) -> None:
        self._lag_cache = lag_cache
        self._clock = clock
        self.stale_after_s = stale_after_s

    @property
    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def of(
        self,
        fleet_state: FleetState,
        keys: Iterable[TopicKey],
        *,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> dict[TopicKey, Standing]:
        """`timeout_s`: for positions of now. May raise Unavailable."""
        report = self._lag_cache.report(timeout_s=timeout_s)
        age_s = self._lag_cache.age_s(report) if report else 0.0
        now_ms = self.now_ms
        found = {}
        for key in keys:
            known = known_positions(report, key)
            stored = fleet_state.snapshot.audits.states.get(key)
            found[key] = standing(
                stored.value if stored else None,
                _copied(fleet_state, key, known, now_ms - round(age_s * 1_000)),
                now_ms=now_ms,
                stale_after_s=self.stale_after_s,
            )
        return found

    def positions(self, key: TopicKey) -> Mapping[int, int]:
        return known_positions(self._lag_cache.report(), key)


def known_positions(report: LagReport | None, key: TopicKey) -> dict[int, int]:
    found = report.topics.get(key, {}) if report else {}
    return {n: lag.position for n, lag in found.items() if lag.position is not None}


def _copied(
    fleet_state: FleetState, key: TopicKey, positions: Mapping[int, int], read_ms: int
) -> CopiedTopic:
    intent = fleet_state.snapshot.topics[key].value
    return CopiedTopic(
        intent.partitions, intent.source_topic_id, intent.target_topic_id, positions, read_ms
    )
