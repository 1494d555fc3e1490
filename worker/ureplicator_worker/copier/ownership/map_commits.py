"""The offset map in the commits of an ownership thread: what is written before each, and what then counts.

A target that refuses the map gets the positions without it: `mapped` is not set then, so that no reader takes
an older row for one that holds up to the position.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka.map_log import MapLog, MapRefused
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import NOT_MAPPED
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.chunks import NO_PLACE
from ureplicator_common.offset_map.codec import Row
from ureplicator_common.offset_map.writing import Written, advance
from ureplicator_worker.copier.position_values import Commitment, StartPosition


class MapCommits:
    """`log` None: nothing is written."""

    def __init__(self, log: MapLog | None) -> None:
        self._log = log
        self._written: dict[Partition, Written] = {}
        self._pending: dict[Partition, Written] = {}

    def begin(self, partition: Partition, beginning: StartPosition) -> None:
        self._written[partition] = begun(partition, beginning)

    def forget(self, partition: Partition) -> None:
        self._written.pop(partition, None)
        self._pending.pop(partition, None)

    def write(
        self, positions: Mapping[Partition, Commitment], store: PositionStore
    ) -> dict[Partition, int]:
        """`mapped` of each position; none of those that are committed without the map.

        Raises Fenced, ClusterUnavailable.
        """
        self._pending, rows = {}, list[Row]()
        for partition, item in positions.items():
            if self._log is not None and item.grant.settings.offset_map:
                self._pending[partition], more = advance(self._written[partition], item.segments)
                rows += more
        if self._log is not None and rows:
            try:
                self._log.write(rows, store)
            except MapRefused:
                for partition in self._pending:
                    self._written[partition] = self._written[partition].interrupted()
                self._pending = {}
        return {partition: each.mapped for partition, each in self._pending.items()}

    def committed(self) -> None:
        self._written |= self._pending
        self._pending = {}


def begun(partition: Partition, beginning: StartPosition) -> Written:
    """The map goes on if the position where copying begins was committed with it."""
    goes_on = beginning.mapped != NOT_MAPPED and beginning.position == beginning.committed
    return Written(
        partition,
        beginning.source_topic_id,
        beginning.target_topic_id,
        begin=(beginning.position, beginning.target_end) if goes_on else NO_PLACE,
        mapped=beginning.mapped if goes_on else NOT_MAPPED,
    )
