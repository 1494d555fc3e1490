"""Logs that end where the marker of a committed transaction should be, and since when they are seen so.

A coordinator writes markers after its response to a commit, within milliseconds once the leaders are there.
So a marker that is missing may be on its way. One that is missing for `MARKER_WAIT_S` in a log that can be
read all the time was lost, or a record before it was: an unclean election.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.list_offsets import OffsetOrError
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.kafka.provenance import Provenance

MARKER_WAIT_S = 60.0
"""A time far longer than a coordinator is without a leader (`broker.session.timeout.ms`, 9 s by
default, an election and the load of its log)."""
UNSEEN_S = 30.0
"""A log that was not seen for longer, more than between two tries of a partition, could not be read."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A log that ends before `acknowledged`, where the marker ends."""

    acknowledged: int
    since_s: float
    seen_s: float

    @property
    def is_lost(self) -> bool:
        return self.seen_s - self.since_s >= MARKER_WAIT_S

    def holds(self, acknowledged: int, now_s: float) -> bool:
        """True of the same marker. A lost one stays so: a partition in ERROR looks seldom."""
        same = self.acknowledged == acknowledged
        return same and (self.is_lost or now_s - self.seen_s <= UNSEEN_S)


class MissingMarkers:
    def __init__(self) -> None:
        self._sightings: dict[TargetPartition, Sighting] = {}

    def are_lost(self, key: TargetPartition, *, acknowledged: int, now_s: float) -> bool:
        """The log ends before `acknowledged`, where the marker ends. False while that is waited for."""
        known = self._sightings.get(key)
        since_s = known.since_s if known and known.holds(acknowledged, now_s) else now_s
        seen = self._sightings[key] = Sighting(acknowledged, since_s=since_s, seen_s=now_s)
        return seen.is_lost

    def forget(self, key: TargetPartition) -> None:
        """The marker is there, or the log cannot be read."""
        self._sightings.pop(key, None)

    def lost_at_start(
        self,
        stored: Mapping[TargetPartition, Position],
        ends: Mapping[TargetPartition, OffsetOrError],
        now_s: float,
    ) -> frozenset[TargetPartition]:
        """Partitions of them whose markers are lost, by their positions and the ends of their logs."""
        return frozenset(self._lost(stored, ends, now_s))

    def _lost(
        self,
        stored: Mapping[TargetPartition, Position],
        ends: Mapping[TargetPartition, OffsetOrError],
        now_s: float,
    ) -> Iterable[TargetPartition]:
        for key, end in ends.items():
            provenance = Provenance.decode(stored[key].metadata)
            if provenance is None:
                continue
            acknowledged = provenance.target_end + provenance.markers
            if not isinstance(end, int) or end >= acknowledged:
                self.forget(key)
            elif self.are_lost(key, acknowledged=acknowledged, now_s=now_s):
                yield key
