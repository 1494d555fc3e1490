"""Producers of the data that a copier sends exactly once without transactions.

Each has a transactional id of its own, by which a successor fences it, and serves a target partition once:
its sequences there begin at 0. So partitions share one until one of them begins again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.copier.ownership.position_records import target_key
from ureplicator_worker.copier.ownership.target_check import CheckedTarget, CheckTarget
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.start_position import CannotStart, cluster_errors_named
from ureplicator_worker.lifeline.messages import Grant

RENEW_S = 12 * 3600.0
"""Coordinators forget a transactional id that is not used (`transactional.id.expiration.ms`, 7 days)."""
AGAIN_S = 60.0
"""Pause after a coordinator that did not respond: commits wait for each request to it."""


@dataclass(slots=True)
class _Used:
    """Id of a producer, and when its coordinator was last asked for it."""

    id: int
    at_s: float


class DataProducers:
    """`new_name`: a name that was never used, each time. `check` None: every target will do."""

    def __init__(
        self,
        store: PositionStore,
        new_name: Callable[[], str],
        *,
        check: CheckTarget | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._new_name = new_name
        self._check = check
        self._clock = clock or SystemClock()
        self._target = CheckedTarget()
        self._current: DataProducer | None = None
        self._served: set[TargetPartition] = set()
        self._names: dict[Partition, str] = {}
        self._used: dict[str, _Used] = {}

    def refused(self, begun: Iterable[Begun]) -> dict[Partition, CannotStart]:
        """Partitions for which the target cannot be used, with the reason: brokers may change, so they are
        tried again."""
        fenced = [event.partition for event in begun if is_fenced(event)]
        if fenced and self._check is not None:
            self._target = self._check.checked()
        if not self._target.refusal:
            return {}
        return dict.fromkeys(fenced, CannotStart(self._target.refusal, temporary=True))

    def given(self, begun: Mapping[Partition, Begun], now_s: float) -> dict[Partition, Begun]:
        """The same, with a producer for those that are sent exactly once without transactions. Raises
        ClusterUnavailable."""
        shared = {
            part: producer
            for part, event in begun.items()
            if (producer := shared_producer(event)) is not None
        }
        keys = {
            part: target_key(event)
            for part, event in begun.items()
            if is_fenced(event) and part not in shared
        }
        with cluster_errors_named("target"):
            producers = self.assign(keys, now_s) | self._share(shared, now_s)
        return {
            part: replace(event, beginning=self._beginning(event, producers[part], now_s))
            if part in producers
            else event
            for part, event in begun.items()
        }

    def _beginning(self, event: Begun, producer: DataProducer, now_s: float) -> StartPosition:
        """While a log is being filled, sequences tell nothing about records of the source."""
        same = event.beginning.same
        if same is not None and same.filling >= 0 and not event.beginning.shared:
            producer = producer._replace(sequence=UNCOUNTED)
        return replace(
            event.beginning,
            appends=producer,
            at_s=now_s,
            producer_kept_s=self._target.kept_s,
        )

    def _share(
        self, producers: Mapping[Partition, DataProducer], now_s: float
    ) -> dict[Partition, DataProducer]:
        """Producers of predecessors that are used on."""
        for partition, producer in producers.items():
            self._names[partition] = producer.name
            self._used.setdefault(producer.name, _Used(producer.id, now_s))
        return dict(producers)

    def shareable(self, starting: Mapping[Partition, Grant]) -> dict[TargetPartition, int]:
        """See `CountBehind.at_target`."""
        same = {
            (grant.target_topic, part.number)
            for part, grant in starting.items()
            if grant.settings.has_same_offsets(part.topic)
        }
        if same and self._check is not None:
            self._target = self._check.checked()
        oldest_ms = self._clock.wall_ms() - round(self._target.kept_s * 1_000)
        return dict.fromkeys(same, oldest_ms)

    def assign(
        self, partitions: Mapping[Partition, TargetPartition], now_s: float
    ) -> dict[Partition, DataProducer]:
        """A producer for each that its target partition has not had. Raises ClusterUnavailable."""
        if not partitions:
            return {}
        current = self._current
        if current is None or not self._served.isdisjoint(partitions.values()):
            name = self._new_name()
            producer = self._store.data_producer(name)
            current = self._current = DataProducer(name, producer.id, producer.epoch)
            self._served.clear()
            self._used[name] = _Used(producer.id, now_s)
        self._served.update(partitions.values())
        self._names |= dict.fromkeys(partitions, current.name)
        return dict.fromkeys(partitions, current)

    def forget(self, partition: Partition) -> None:
        self._names.pop(partition, None)

    def renew(self, now_s: float) -> list[Partition]:
        """Have the coordinators keep the ids in use for longer. Returns the partitions that need another
        producer: theirs has another id by its name, since it was forgotten or its epochs ran out, so by the
        name nobody fences it. Raises ClusterUnavailable."""
        lost: list[Partition] = []
        for name, used in list(self._used.items()):
            if now_s - used.at_s < RENEW_S:
                continue
            partitions = [part for part, named in self._names.items() if named == name]
            try:
                kept = bool(partitions) and self._store.data_producer(name).id == used.id
            except ClusterUnavailable:
                used.at_s = now_s - RENEW_S + AGAIN_S
                if lost:  # the others are due again at the next step
                    return lost
                raise
            if kept:
                used.at_s = now_s
                continue
            lost += partitions
            del self._used[name]
            if self._current is not None and self._current.name == name:
                self._current = None
        return lost


def shared_producer(begun: Begun) -> DataProducer | None:
    """The producer of its predecessor, if the partition is to use it on."""
    return begun.beginning.appends if begun.beginning.shared else None


def is_fenced(begun: Begun) -> bool:
    return begun.grant.settings.is_fenced(begun.partition.topic)


def producer_name(worker: str, slot: int) -> str:
    """A name that was never used."""
    return f"{worker}.{slot}.{random_suffix()}"


def random_suffix() -> str:
    """End of a name that no other process has."""
    return secrets.token_hex(4)
