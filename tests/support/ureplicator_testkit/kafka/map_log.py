"""The topic of an offset map in memory, as a copier writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ureplicator_common.kafka.map_log import MapRefused
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import Row
from ureplicator_common.offset_map.partition_map import PartitionMap
from ureplicator_common.offset_map.route_maps import RouteMaps


class MemoryMapLog:
    """`MapLog`; rows count whether the transaction is committed or not. `failure`: raised by each write.
    `replicas`: that the last write would have created the topic with."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failure: Exception | None = None
        self.replicas = 0

    def refuse(self) -> None:
        self.failure = MapRefused("topic map cannot be created")

    def is_refused(self) -> bool:
        return isinstance(self.failure, MapRefused)

    def write(self, rows: Sequence[Row], store: PositionStore, *, replication_factor: int) -> None:
        self.replicas = replication_factor
        if self.failure is not None:
            raise self.failure
        self.rows += rows

    def reading(self, partitions: Collection[Partition]) -> MemoryMapReading:
        return MemoryMapReading(self, frozenset(partitions))


class MemoryMapReading:
    """`MapReading`, some rows a step. `log.failure` is raised by steps, too."""

    STEP_ROWS = 3

    def __init__(self, log: MemoryMapLog, only: frozenset[Partition]) -> None:
        self._log = log
        self._goal = len(log.rows)
        self._at = 0
        self._maps = RouteMaps(only)

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        return self._maps.partitions

    def step(self) -> bool:
        if self._log.failure is not None:
            raise self._log.failure
        rows = self._log.rows[self._at : self._at + self.STEP_ROWS]
        self._maps.add(rows)
        self._at += len(rows)
        return self._at >= self._goal
