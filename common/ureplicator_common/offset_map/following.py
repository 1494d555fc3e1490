"""Maps of all partitions of a route, from what is read of the topic. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import NOT_MAPPED, Provenance
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.chunks import PartitionMap
from ureplicator_common.offset_map.codec import Row, decode_chunk, decode_key
from ureplicator_common.offset_map.segments import MapSegment


class Batch(NamedTuple):
    """A stored batch. `ends`: it is a marker, without rows; `aborts`: of an aborted transaction."""

    first: int
    last: int
    producer_id: int
    transactional: bool
    ends: bool
    aborts: bool
    rows: Sequence[Row]


class FollowedMaps:
    """`next_offset`: of the topic, to be read next. `only`: partitions that are kept; None for all."""

    def __init__(self, only: Container[Partition] | None = None) -> None:
        self.next_offset = 0
        self._only = only
        self._maps: dict[Partition, PartitionMap] = {}

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        return self._maps

    def segments(
        self, partition: Partition, stored: Position | None = None
    ) -> Sequence[MapSegment]:
        """Segments of a partition, in the order of the target's log; none: not known.

        The last one goes on while the partition is copied. Given the position that is `stored` for it, it
        reaches up to there; without, only as far as it was known to reach when it was written.
        """
        known = self._maps.get(partition)
        if known is None:
            return ()
        provenance = Provenance.decode(stored.metadata) if stored else None
        if stored is None or provenance is None:
            return known.segments()
        if (provenance.source_topic, provenance.target_topic) != known.topics:
            return ()
        return known.until(stored.offset, provenance.target_end, mapped=provenance.mapped)

    def reaches(self, partition: Partition, stored: Position) -> bool:
        """True if the newest segment is known that was written with this position, or before it."""
        provenance = Provenance.decode(stored.metadata)
        if provenance is None or provenance.mapped == NOT_MAPPED:
            return True
        known = self._maps.get(partition)
        return known is not None and known.newest >= provenance.mapped

    def add(self, rows: Iterable[Row]) -> None:
        """Raises UnknownMapFormat."""
        for row in rows:
            partition, target = decode_key(row.key)
            if self._only is not None and partition not in self._only:
                continue
            if row.value is not None:
                self._maps.setdefault(partition, PartitionMap()).add(decode_chunk(row.value))
            elif known := self._maps.get(partition):
                known.remove(target)
                if not known:
                    del self._maps[partition]

    def fetched(self, batches: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> None:
        """Batches of a read_committed fetch, and producer ids and first offsets of aborted transactions."""
        to_come = deque(sorted(aborted, key=lambda row: row[1]))
        void: set[int] = set()
        for batch in batches:
            if batch.last < self.next_offset:
                continue
            while to_come and to_come[0][1] <= batch.last:
                void.add(to_come.popleft()[0])
            if batch.aborts:
                void.discard(batch.producer_id)
            elif not (batch.transactional and batch.producer_id in void):
                self.add(batch.rows)
            self.next_offset = batch.last + 1
