"""A route's offset map for its copiers: rows in the transaction that commits positions, and a reading of what
former owners left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ureplicator_common.errors import TemporaryError
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import Row
from ureplicator_common.offset_map.partition_map import PartitionMap


class MapRefused(TemporaryError):
    """The map cannot be written now; nothing of it is in the transaction, so positions can be committed
    without it."""


class MapReading(Protocol):
    """Reads the topic from its beginning, a response at a time. Belongs to one thread."""

    def step(self) -> bool:
        """True once all is read that the topic held at the first step.

        Raises ClusterUnavailable, UnknownMapFormat.
        """
        ...

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        """Maps of the partitions, as far as they are read."""
        ...


class MapLog(Protocol):
    """Topic of a route's map. Belongs to one thread."""

    def is_refused(self) -> bool:
        """True while a write would be refused without an attempt."""
        ...

    def write(self, rows: Sequence[Row], store: PositionStore, *, replication_factor: int) -> None:
        """Add rows to the transaction that the store's next commit ends. `replication_factor`: of the topic,
        should it be created.

        Raises MapRefused, Fenced, ClusterUnavailable. After the latter two the outcome is unknown.
        """
        ...

    def reading(self, partitions: Collection[Partition]) -> MapReading:
        """A new reading of these partitions."""
        ...
