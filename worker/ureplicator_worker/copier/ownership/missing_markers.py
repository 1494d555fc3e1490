"""Logs that end where the marker of a committed transaction should be, and since when they are seen so.

A coordinator writes markers after its response to a commit, within milliseconds once the leaders are there.
So a marker that is missing may be on its way. One that is missing for `MARKER_WAIT_S` in a log that can be
read was lost, or a record before it was: an unclean election.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.list_offsets import OffsetOrError
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.kafka.provenance import Provenance

MARKER_WAIT_S = 60.0
"""Far longer than a coordinator is without a leader (`broker.session.timeout.ms`, 9 s by default, an election
and the load of its log)."""


class MissingMarkers:
    def __init__(self) -> None:
        self._since_s: dict[TargetPartition, tuple[int, float]] = {}

    def are_lost(self, key: TargetPartition, *, acknowledged: int, now_s: float) -> bool:
        """The log ends before `acknowledged`, where the marker ends. False while that is waited for."""
        known = self._since_s.get(key)
        if known is None or known[0] != acknowledged:
            self._since_s[key] = (acknowledged, now_s)
            return False
        return now_s - known[1] >= MARKER_WAIT_S

    def found(self, key: TargetPartition) -> None:
        self._since_s.pop(key, None)

    def lost_at_start(
        self,
        stored: Mapping[TargetPartition, Position],
        ends: Mapping[TargetPartition, OffsetOrError],
        now_s: float,
    ) -> frozenset[TargetPartition]:
        """Those of them whose markers are lost, by their positions and the ends of their logs."""
        return frozenset(self._lost(stored, ends, now_s))

    def _lost(
        self,
        stored: Mapping[TargetPartition, Position],
        ends: Mapping[TargetPartition, OffsetOrError],
        now_s: float,
    ) -> Iterable[TargetPartition]:
        for key, end in ends.items():
            provenance = Provenance.decode(stored[key].metadata)
            if provenance is None or not isinstance(end, int):
                continue
            acknowledged = provenance.target_end + provenance.markers
            if end >= acknowledged:
                self.found(key)
            elif self.are_lost(key, acknowledged=acknowledged, now_s=now_s):
                yield key
