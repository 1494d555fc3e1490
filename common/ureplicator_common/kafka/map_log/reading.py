"""Offset maps of a route, read on a cluster: read_committed, from the beginning, incrementally.

Rows of the map and the position that they belong to are committed in one transaction. Its marker reaches the
partition of the positions and that of the map one after the other, so a position may be seen before its rows.
Readers that have positions wait for the rows that these name, while a transaction is open in the map.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.topics.partition_log import LogRecord, PartitionLog
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import MapKey, Row, UnknownMapFormat, encode_key
from ureplicator_common.offset_map.partition_map import MapView, PartitionMap
from ureplicator_common.offset_map.route_maps import RouteMaps

FETCH_BYTES = 4 << 20
LOAD_BYTES = 64 << 10
"""Bytes of one row that is read again."""
MARKER_WAIT_S = 1.0
MARKER_POLL_S = 0.02


class OffsetMaps(Protocol):
    """Offset maps of the partitions of one route."""

    def update(self, positions: Mapping[Partition, Position] | None = None) -> None:
        """Read to the end of what is committed, which includes the rows that belong to these positions.
        Raises ClusterUnavailable, UnknownMapFormat."""
        ...

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        """See `RouteMaps.view`. Its calls may raise ClusterUnavailable, too."""
        ...

    def close(self) -> None: ...


class KafkaOffsetMaps:
    """`OffsetMaps` and `MapReading` in this topic. Belongs to one thread at a time.

    `only`: see `RouteMaps`.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        only: Collection[Partition] | None = None,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._client = client
        self._topic = topic
        self._only = only
        self._maps = self._new()
        self._log = PartitionLog(
            client,
            topic,
            add=self._add,
            clear=self._clear,
            unreadable=UnknownMapFormat,
            fetch_bytes=fetch_bytes,
        )
        self._goal: int | None = None
        """End of the log as of the first step."""

    def _new(self) -> RouteMaps:
        return RouteMaps(self._only, load=self._load)

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        return self._maps.view(partition, stored)

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        return self._maps.partitions

    def close(self) -> None:
        self._client.close()

    def step(self) -> bool:
        """See `MapReading`."""
        is_at_end = self._log.step()
        if self._goal is None:
            self._goal = self._log.end
        return is_at_end and self._log.stable_end >= self._goal

    def update(self, positions: Mapping[Partition, Position] | None = None) -> None:
        """A topic that does not exist has no maps. Rows that are missing for good are waited for in vain, for
        `MARKER_WAIT_S` at most."""
        deadline_s = self._client.deadline_s(MARKER_WAIT_S)
        self._log.read()
        while self._log.stable_end < self._log.end and self._is_behind(positions or {}):
            if self._client.now_s() > deadline_s:
                return
            self._client.pause(MARKER_POLL_S)
            self._log.read()

    def _is_behind(self, positions: Mapping[Partition, Position]) -> bool:
        return not all(self._maps.reaches(*item) for item in positions.items())

    def _add(self, first: int, records: Sequence[LogRecord]) -> None:
        rows = (Row(record.key or b"", record.value) for record in records)
        self._maps.add(rows, at=first)

    def _clear(self) -> None:
        self._maps = self._new()
        self._goal = None

    def _load(self, partition: Partition, at: int, target: int) -> bytes:
        """Value of a row of the batch at this offset. Raises ClusterUnavailable, also where the row was
        replaced meanwhile and compaction has removed it: the next update shows what took its place."""
        key = encode_key(MapKey(partition, target))
        records = self._log.batch_at(at, max_bytes=LOAD_BYTES)
        value = next((record.value for record in reversed(records) if record.key == key), None)
        if value is None:
            raise ClusterUnavailable(
                f"topic {self._topic}: the rows at offset {at} have changed, they are read anew",
                delay_s=0.2,
            )
        return value
