"""Offset maps in memory, for tests of what is built on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Position
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import Row, encode_chunk, row
from ureplicator_common.offset_map.partition_map import MapView, PartitionMap
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_common.offset_map.segments import MapSegment


class MemoryOffsetMaps:
    """`OffsetMaps` that show what was `put` before the last update. `failure`: raised by updates."""

    def __init__(self) -> None:
        self.failure: OperatingError | None = None
        self.updates = 0
        self._waiting: list[Row] = []
        self._maps = RouteMaps()

    def put(
        self,
        partition: Partition,
        *segments: MapSegment,
        open: bool = True,
        topics: tuple[str, str] = ("s", "t"),
    ) -> None:
        """A chunk of a partition, as a copier writes it."""
        self.put_rows(row(partition, Chunk(*topics, segments, open=open)))

    def put_rows(self, *rows: Row) -> None:
        self._waiting.extend(rows)

    def update(self, positions: Mapping[Partition, Position] | None = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.updates += 1
        self._maps.add(self._waiting)
        self._waiting.clear()

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        return self._maps.view(partition, stored)

    def close(self) -> None: ...


def forward(segments: Sequence[MapSegment], source_offset: int) -> int | None:
    """See `MapView`."""
    return MapView.of(segments).forward(source_offset)


def backward(segments: Sequence[MapSegment], target_offset: int) -> int | None:
    """See `MapView`."""
    return MapView.of(segments).backward(target_offset)


def map_of(*chunks: Chunk) -> PartitionMap:
    """The map of a partition with these rows."""
    known = PartitionMap()
    for chunk in chunks:
        known.add(encode_chunk(chunk))
    return known
