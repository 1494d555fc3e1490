"""Twins in memory of what a copier's ownership thread talks to: positions, and a cluster to ask."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient, ClusterView, Leader
from ureplicator_common.kafka.positions import (
    CommitRefused,
    Fenced,
    PositionStore,
    TargetPartition,
)

FROZEN_S = 30.0
"""A test that forgets to thaw shall not hang."""


class Ledger:
    """Positions of one route, and the epochs of the transactional ids that may commit them.

    `calls` tells what was done, in order. `fail_next` makes the next call of a name fail: `before`
    it had an effect, or `after` (the answer is lost). `freeze_next` makes it stand still before it has an
    effect, until `thaw`.
    """

    def __init__(self) -> None:
        self.positions: dict[TargetPartition, Position] = {}
        self.epochs: dict[str, int] = {}
        self.refused: dict[TargetPartition, str] = {}
        self.calls: list[tuple[Any, ...]] = []
        self._failures: deque[tuple[str, str]] = deque()
        self._freezing = ""
        self._frozen, self._thawed = threading.Event(), threading.Event()

    def freeze_next(self, name: str) -> threading.Event:
        """Set when the call has come, and stands still."""
        self._freezing = name
        self._thawed.clear()
        return self._frozen

    def thaw(self) -> None:
        self._thawed.set()

    def _stand_still(self, name: str) -> None:
        if self._freezing == name:
            self._freezing = ""
            self._frozen.set()
            assert self._thawed.wait(FROZEN_S), f"{name} was never thawed"

    def fail_next(self, name: str, when: str = "before") -> None:
        self._failures.append((name, when))

    def perform(self, name: str, *details: Any, effect: Callable[[], None]) -> None:
        self.calls.append((name, *details))
        self._stand_still(name)
        when = ""
        if self._failures and self._failures[0][0] == name:
            when = self._failures.popleft()[1]
        if when == "broken":
            raise ZeroDivisionError(name)
        if when != "before":
            effect()
        if when:
            raise ClusterUnavailable(f"{name} failed {when}", delay_s=0.0)

    def initialise(self, transactional_id: str) -> int:
        self.epochs[transactional_id] = self.epochs.get(transactional_id, -1) + 1
        return self.epochs[transactional_id]

    @property
    def done(self) -> list[str]:
        return [call[0] for call in self.calls]


class MemoryPositions(PositionStore):
    """One slot's access, as `PositionStore` gives it."""

    def __init__(self, ledger: Ledger, transactional_id: str) -> None:
        self._ledger = ledger
        self._own_id = transactional_id
        self._epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """Under which it may commit; None while the order is to be gone through."""
        return self._epoch

    def initialise(self) -> None:
        def effect() -> None:
            self._epoch = self._ledger.initialise(self._own_id)

        self._epoch = None
        self._ledger.perform("initialise", self._own_id, effect=effect)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        def effect() -> None:
            for each in transactional_ids:
                self._ledger.initialise(each)

        self._ledger.perform("fence", *transactional_ids, effect=effect)

    def read(self, wanted: Mapping[str, Sequence[int]]) -> dict[TargetPartition, Position]:
        self._ledger.perform("read", effect=lambda: None)
        keys = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
        return {key: self._ledger.positions.get(key, Position(-1)) for key in keys}

    def commit(self, positions: Mapping[TargetPartition, Position]) -> None:
        assert self._epoch is not None, "commit before the order was gone through"
        epoch, self._epoch = self._epoch, None
        offsets = {key: position.offset for key, position in positions.items()}

        def effect() -> None:
            if self._ledger.epochs[self._own_id] != epoch:
                raise Fenced(self._own_id)
            refused = {
                key: self._ledger.refused[key] for key in positions if key in self._ledger.refused
            }
            if refused:
                raise CommitRefused(refused)
            self._ledger.positions.update(positions)

        self._ledger.perform("commit", offsets, effect=effect)
        self._epoch = epoch


class MemoryCluster(ClusterClient):
    """Metadata and offsets of a cluster whose topics all have one leader."""

    def __init__(self, cluster_id: str, topics: Mapping[str, int]) -> None:
        super().__init__("nowhere:1")
        self.cluster_id = cluster_id
        self.partitions = dict(topics)
        self.topic_ids = {topic: f"{cluster_id}-{topic}" for topic in topics}
        self.offsets: dict[int, int] = {}
        self.leaderless: set[tuple[str, int]] = set()
        self.failures = 0
        self.closed = False
        self.producers = 0

    def _answer(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ClusterUnavailable(f"{self.cluster_id} does not answer", delay_s=0.0)

    def view(self, topics: Sequence[str]) -> ClusterView:
        self._answer()
        known = [topic for topic in topics if topic in self.partitions]
        return ClusterView(
            cluster_id=self.cluster_id,
            brokers={},
            leaders={
                (topic, n): Leader(1, 0) for topic in known for n in range(self.partitions[topic])
            },
            topic_ids={topic: self.topic_ids[topic] for topic in known},
            missing=frozenset(topics) - set(known),
        )

    def offset_at(self, topic: str, partition: int, *, timestamp_ms: int) -> int:
        """`offsets` by timestamp (-2 earliest, -1 latest)."""
        self._answer()
        if (topic, partition) in self.leaderless:
            raise PartitionUnavailable(f"{topic}/{partition} has no leader", delay_s=0.0)
        return self.offsets[timestamp_ms]

    def call_any(self, request: Callable[[], Any], response: Any) -> Any:
        """Hands out plain producer ids."""
        self._answer()
        self.producers += 1
        answer = response(version=4, error_code=0, producer_id=self.producers, producer_epoch=0)
        return answer

    def close(self) -> None:
        self.closed = True
