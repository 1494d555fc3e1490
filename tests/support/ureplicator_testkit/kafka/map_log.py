"""The topic of an offset map in memory, as a copier writes it."""

from __future__ import annotations

from collections.abc import Sequence

from ureplicator_common.kafka.map_log import MapRefused
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.offset_map.codec import Row


class MemoryMapLog:
    """`MapLog`; rows count whether the transaction is committed or not. `failure`: raised by each write."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failure: Exception | None = None

    def refuse(self) -> None:
        self.failure = MapRefused("topic map cannot be created")

    def write(self, rows: Sequence[Row], store: PositionStore) -> None:
        if self.failure is not None:
            raise self.failure
        self.rows += rows
