"""Copy of a route, in memory: the twin of `engines.groups.copied`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_controller.core.groups.decisions import CopiedPartition
from ureplicator_controller.core.groups.topics import RouteTopic

BASE = 1_000


class MemoryCopied:
    """Everything up to `position` is copied, `base` further at the target. The map begins at `first`.

    `held`: offsets of the source behind the position, in an open transaction. `asked`: partitions that were
    read, again each time.
    """

    def __init__(self) -> None:
        self.position = 100
        self.base = BASE
        self.first = 0
        self.held = 0
        self.error: Exception | None = None
        self.asked: list[TopicPartition] = []

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        if self.error is not None:
            raise self.error
        self.asked += wanted
        return {
            key: CopiedPartition(
                target=(topics[key[0]].target, key[1]),
                position=self.position,
                translate=self._forward,
                translate_back=self._backward,
                log=Extent(0, self.position + self.base),
                source_log=Extent(0, self.position, self.held),
            )
            for key in wanted
        }

    def close(self) -> None: ...

    def _forward(self, offset: int) -> int | None:
        return None if offset < self.first else offset + self.base

    def _backward(self, offset: int) -> int | None:
        return None if offset - self.base < self.first else offset - self.base
