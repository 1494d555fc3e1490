"""Transactional ids and committed positions of one group, as the coordinators of a target keep them.

InitProducerId raises the epoch of a transactional id; a commit is accepted only under the current
epoch of its id (`Fenced` otherwise). A coordinator refuses single partitions and takes the others; the client
ends the transaction so that all of it counts, or none (`CommitRefused`), or what is left without the optional
ones. Unit tests of the copier, ownership histories, fleet tests and the simulation
all commit to this model.

    Ledger              the rules
    ScriptedLedger      records the requests; a test makes single ones fail or block
    MemoryPositions     the client's side: a `PositionStore` of one transactional id
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    PositionOrError,
)
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import CommitRefused, PositionStore, TargetPartition
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced

NO_POSITION = Position(-1)
FROZEN_TIMEOUT_S = 30.0
"""Ends a test that never thaws a frozen request."""


class Ledger:
    """`refused`: partitions that the coordinator takes no position for, and its error name.
    `metadata_limits`: most characters of metadata that it takes for a partition
    (`offset.metadata.max.bytes`). `unreadable`: topics whose positions it does not show, and why."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.positions: dict[TargetPartition, Position] = {}
        self.refused: dict[TargetPartition, str] = {}
        self.metadata_limits: dict[TargetPartition, int] = {}
        self.unreadable: dict[str, str] = {}

    def initialise(self, transactional_id: str) -> int:
        """A new epoch; producers with an older one are fenced."""
        self.epochs[transactional_id] = self.epochs.get(transactional_id, -1) + 1
        return self.epochs[transactional_id]

    def is_current(self, transactional_id: str, epoch: int | None) -> bool:
        return epoch is not None and self.epochs.get(transactional_id) == epoch

    def read(self, partition: TargetPartition) -> Position:
        return self.positions.get(partition, NO_POSITION)

    def shown(self, partition: TargetPartition) -> PositionOrError:
        """The position in the response to a reader."""
        topic, number = partition
        if topic in self.unreadable:
            return PartitionUnavailable(f"{topic}/{number}: {self.unreadable[topic]}")
        return self.read(partition)

    def commit(
        self,
        transactional_id: str,
        epoch: int | None,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        """Optional partitions that were refused. Raises Fenced, CommitRefused."""
        refused = self.add_positions(transactional_id, epoch, positions, optional)
        self.positions.update({key: at for key, at in positions.items() if key not in refused})
        return refused

    def add_positions(
        self,
        transactional_id: str,
        epoch: int | None,
        positions: Mapping[TargetPartition, Position],
        optional: Collection[TargetPartition],
    ) -> dict[TargetPartition, str]:
        """Store as `commit` does, before the end of the transaction."""
        if not self.is_current(transactional_id, epoch):
            raise Fenced(transactional_id)
        refused = {
            key: ErrorCode.OFFSET_METADATA_TOO_LARGE.name
            for key, at in positions.items()
            if len(at.metadata) > self.metadata_limits.get(key, len(at.metadata))
        }
        refused |= {key: self.refused[key] for key in positions if key in self.refused}
        if refused.keys() - set(optional):
            raise CommitRefused(refused)
        return refused

    def perform(self, name: str, *details: Any, effect: Callable[[], None]) -> None:
        """A request arrives. Subclasses lose or delay it."""
        effect()


class ScriptedLedger(Ledger):
    """Requests are recorded in `calls`, in order.

    `fail_next` makes the next request of a name fail: `before` it has an effect, `after` (the response is
    lost), or `late`: it has its effect only when it arrives (`arrive`), long after its client has given it
    up. `freeze_next` blocks it before it has an effect, until `thaw`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self._failures: deque[tuple[str, str]] = deque()
        self._late: deque[Callable[[], None]] = deque()
        self._freezing = ""
        self._frozen, self._thawed = threading.Event(), threading.Event()

    def store(self, transactional_id: str) -> MemoryPositions:
        """A client's access."""
        return MemoryPositions(self, transactional_id)

    @property
    def done(self) -> list[str]:
        """Names of the requests."""
        return [call[0] for call in self.calls]

    def freeze_next(self, name: str) -> threading.Event:
        """The event is set once the request has arrived and is blocked."""
        self._freezing = name
        self._thawed.clear()
        return self._frozen

    def thaw(self) -> None:
        self._thawed.set()

    def fail_next(self, name: str, when: str = "before") -> None:
        self._failures.append((name, when))

    def forgive(self) -> None:
        """No request fails any more."""
        self._failures.clear()

    def perform(self, name: str, *details: Any, effect: Callable[[], None]) -> None:
        self.calls.append((name, *details))
        self._block(name)
        when = ""
        if self._failures and self._failures[0][0] == name:
            when = self._failures.popleft()[1]
        if when == "broken":
            raise ZeroDivisionError(name)
        if when == "late":
            self._late.append(effect)
        elif when != "before":
            effect()
        if when:
            raise ClusterUnavailable(f"{name} failed {when}", delay_s=0.0)

    def arrive(self) -> None:
        """The late requests, whatever has happened since."""
        while self._late:
            with suppress(Fenced, CommitRefused):
                self._late.popleft()()

    def _block(self, name: str) -> None:
        if self._freezing == name:
            self._freezing = ""
            self._frozen.set()
            assert self._thawed.wait(FROZEN_TIMEOUT_S), f"{name} was never thawed"


class MemoryPositions(PositionStore):
    """Access of one transactional id. `_request` is where a subclass delays or loses requests."""

    def __init__(self, ledger: Ledger, transactional_id: str) -> None:
        self.ledger = ledger
        self.transactional_id = transactional_id
        self.epoch: int | None = None
        """Epoch as given by the last InitProducerId; None while there was none."""
        self._ready = False

    @property
    def can_commit(self) -> bool:
        return self.ledger.is_current(self.transactional_id, self.epoch)

    def initialise(self) -> None:
        given: list[int] = []

        def effect() -> None:
            given.append(self.ledger.initialise(self.transactional_id))

        self._ready, self.epoch = False, None
        self._request("initialise", self.transactional_id, effect=effect)
        self._ready, self.epoch = True, given[-1]

    def fence(self, transactional_ids: Sequence[str]) -> None:
        def effect() -> None:
            for transactional_id in transactional_ids:
                self.ledger.initialise(transactional_id)

        self._request("fence", *transactional_ids, effect=effect)

    def read(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, PositionOrError]:
        found: dict[TargetPartition, PositionOrError] = {}

        def effect() -> None:
            for topic, numbers in wanted.items():
                for number in numbers:
                    found[topic, number] = self._read_one((topic, number))

        self._request("read", effect=effect)
        return found

    def commit(
        self,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        """Commit positions. After a failure `initialise` must come first, as in the real store."""
        epoch = self.epoch
        assert self._ready, "commit before initialise"
        assert epoch is not None
        self._ready = False
        offsets = {key: position.offset for key, position in positions.items()}
        refused: dict[TargetPartition, str] = {}
        self._request(
            "commit",
            offsets,
            effect=lambda: refused.update(self._commit(epoch, positions, optional)),
        )
        self._ready = True
        return refused

    def wait_for_markers(self) -> None:
        raise AssertionError("transactions of positions alone are not waited for")

    def _read_one(self, partition: TargetPartition) -> PositionOrError:
        return self.ledger.shown(partition)

    def _commit(
        self,
        epoch: int,
        positions: Mapping[TargetPartition, Position],
        optional: Collection[TargetPartition],
    ) -> dict[TargetPartition, str]:
        return self.ledger.commit(self.transactional_id, epoch, positions, optional=optional)

    def _request(self, name: str, *details: Any, effect: Callable[[], None]) -> None:
        self.ledger.perform(name, *details, effect=effect)
