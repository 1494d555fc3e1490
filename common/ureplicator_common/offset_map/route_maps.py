"""Maps of all partitions of a route, from what is read of the topic. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import NOT_MAPPED, Provenance
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import Row, decode_key
from ureplicator_common.offset_map.partition_map import Details, MapView, PartitionMap


class RouteMaps:
    """`only`: partitions that are kept; None for all. `load`: see `partition_map.Load`, of any partition."""

    def __init__(
        self,
        only: Container[Partition] | None = None,
        *,
        load: Callable[[Partition, int, int], bytes] | None = None,
    ) -> None:
        self._only = only
        self._load = load
        self._details = Details()
        self._maps: dict[Partition, PartitionMap] = {}

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        return self._maps

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        """The map of a partition; an empty one: not known.

        The last segment goes on while the partition is copied. Given the position that is `stored` for it, it
        reaches up to there; without, only as far as it was known to reach when it was written.
        """
        known = self._maps.get(partition)
        if known is None:
            return MapView()
        provenance = Provenance.decode(stored.metadata) if stored else None
        if stored is None or provenance is None:
            return known.view()
        if (provenance.source_topic, provenance.target_topic) != known.topics:
            return MapView()
        return known.view(stored.offset, provenance.target_end, mapped=provenance.mapped)

    def reaches(self, partition: Partition, stored: Position) -> bool:
        """True if the newest segment is known that was written with this position, or before it."""
        provenance = Provenance.decode(stored.metadata)
        if provenance is None or provenance.mapped == NOT_MAPPED:
            return True
        known = self._maps.get(partition)
        return known is not None and known.newest >= provenance.mapped

    def add(self, rows: Iterable[Row], *, at: int = 0) -> None:
        """Rows of the batch at this offset. Raises UnknownMapFormat."""
        for row in rows:
            partition, target = decode_key(row.key)
            if self._only is not None and partition not in self._only:
                continue
            if row.value is not None:
                self._map(partition).add(row.value, at=at)
            elif known := self._maps.get(partition):
                known.remove(target)
                if not known:
                    del self._maps[partition]

    def _map(self, partition: Partition) -> PartitionMap:
        known = self._maps.get(partition)
        if known is None:
            load = None if self._load is None else partial(self._load, partition)
            known = self._maps[partition] = PartitionMap(load, self._details)
        return known
