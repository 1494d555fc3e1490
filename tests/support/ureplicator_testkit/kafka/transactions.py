"""Transactions of data and positions at a target in memory: the coordinator beside its brokers.

The rules are those of KIP-98, and of KIP-890 for the implicit protocol: batches of a former epoch are
refused, and a partition takes part that was added, or with its first batch. InitProducerId aborts what is
open. A commit stores the positions and writes the markers of all partitions at once, unless the coordinator
is `preparing`. An EndTxn with nothing to end is refused by brokers (KAFKA-18464), and fails the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from ureplicator_common.kafka import ClusterUnavailable, Position, PositionOrError
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import CommitRefused, TargetPartition
from ureplicator_common.kafka.transactions.control_records import ControlRecords
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_testkit.kafka.ledger import MemoryPositions, ScriptedLedger
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records.batches import TRANSACTIONAL, marker
from ureplicator_testkit.records.batches import field as header_field
from ureplicator_worker.wire import produce_api

FIRST_PRODUCER_ID, PRODUCER_IDS = 500, 1_000
"""Producer id of the first transactional id; and how many ids lie between two that one transactional id
gets in turn."""
EPOCHS = 32_767
FIRST_DATA_ID = 100_000


class TransactionLedger(ScriptedLedger):
    """`protocol`: finalized by the cluster. `epochs_each`: epochs of a producer id; then the transactional id
    gets another one; `data_epochs`: the same of ids that name producers of data. `unaddable`: partitions that
    are refused in a transaction, and the error's name."""

    def __init__(self, target: MemoryKafka, protocol: TransactionProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.epochs_each = EPOCHS
        self.unaddable: dict[TargetPartition, str] = {}
        self.preparing = False
        self.stale_responses = 0
        self.waited = 0
        """Calls of `wait_for_markers`."""
        self.history: list[tuple[str, TargetPartition, Position]] = []
        """Every position that was committed, by whom."""
        self.late_markers = 0
        """Control records of fences that are written only while somebody waits."""
        self.late_control_records = 0
        """Next transactions without data whose responses are lost; their records come by `settle`."""
        self._unsettled: dict[str, list[TopicPartition]] = {}
        self.data_epochs = EPOCHS
        self._data: dict[str, Producer] = {}
        self._data_ids = count(FIRST_DATA_ID)
        self._late_markers: deque[tuple[TopicPartition, bytes]] = deque()
        target.passed = self.write_markers
        self._target = target
        self._added: dict[str, set[TopicPartition]] = {}
        self._prepared: deque[tuple[str, Mapping[TargetPartition, Position]]] = deque()
        target.check_transaction = self._check

    def store(self, transactional_id: str) -> MemoryTransactions:
        return MemoryTransactions(self, transactional_id)

    def producer(self, transactional_id: str, generation: int) -> tuple[int, int]:
        """Id and epoch. `generation`: 0, 1, ..., over all of the transactional id's producers."""
        number, epoch = divmod(generation, self.epochs_each)
        first = FIRST_PRODUCER_ID + list(self.epochs).index(transactional_id)
        return first + number * PRODUCER_IDS, epoch

    def initialise(self, transactional_id: str) -> int:
        if self.prepared(transactional_id):
            raise ClusterUnavailable("still CONCURRENT_TRANSACTIONS", delay_s=0.0)
        if transactional_id in self.epochs:
            self._end(transactional_id, commit=False)
        return super().initialise(transactional_id)

    def add(
        self, transactional_id: str, epoch: int | None, partitions: Iterable[TopicPartition]
    ) -> None:
        """Raises Fenced."""
        if not self.is_current(transactional_id, epoch):
            raise Fenced(transactional_id)
        self._added.setdefault(transactional_id, set()).update(partitions)

    def commit(
        self,
        transactional_id: str,
        epoch: int | None,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        assert positions or self._added.get(transactional_id), "nothing to end"
        try:
            refused = self.add_positions(transactional_id, epoch, positions, optional)
        except CommitRefused:
            self._end(transactional_id, commit=False)
            raise
        taken = {key: at for key, at in positions.items() if key not in refused}
        if refused and not taken:
            assert not self._has_data(transactional_id), "data without a position is aborted"
            self._end(transactional_id, commit=False)
        elif self.preparing:
            self._prepared.append((transactional_id, taken))
        else:
            self.positions.update(taken)
            self._committed(transactional_id, taken)
        return refused

    def is_unstable(self, partition: TargetPartition) -> bool:
        """A position of it is in a prepared transaction: stable reads wait for the marker."""
        return any(partition in positions for _, positions in self._prepared)

    def prepared(self, transactional_id: str) -> bool:
        return any(writer == transactional_id for writer, _ in self._prepared)

    def finish(self) -> None:
        """The markers of prepared transactions are written at last."""
        self.preparing = False
        while self._prepared:
            transactional_id, positions = self._prepared.popleft()
            self.positions.update(positions)
            self._committed(transactional_id, positions)

    def expire(self, transactional_id: str) -> None:
        """The coordinator aborts a transaction that is open for too long, under a new epoch."""
        if self._added.get(transactional_id):
            self.initialise(transactional_id)

    def fence(self, transactional_ids: Iterable[str]) -> None:
        """Another process initialises ids that there are."""
        for transactional_id in self.epochs.keys() & set(transactional_ids):
            self.initialise(transactional_id)

    def data_producer(self, name: str) -> Producer:
        """The producer of a name; another id if the name is not known, or its epochs have run out
        (KIP-360)."""
        known = self._data.get(name)
        goes_on = known is not None and known.epoch + 1 < self.data_epochs
        self._data[name] = (
            Producer(known.id, known.epoch + 1)
            if known is not None and goes_on
            else Producer(next(self._data_ids), 0)
        )
        return self._data[name]

    def forget_data_producers(self) -> None:
        """None of them was used for `transactional.id.expiration.ms`."""
        self._data.clear()

    def fence_data(self, name: str, partitions: Iterable[TargetPartition]) -> Producer:
        producer = self.data_producer(name)
        for key in partitions:
            written = marker(
                base_offset=0,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                commit=False,
            )
            self._late_markers.append((key, written))
        if not self.late_markers:
            self.write_markers()
        self.late_markers = max(0, self.late_markers - 1)
        return producer

    def write_control_records(self, name: str, partitions: Iterable[TargetPartition]) -> None:
        """Control records of a producer without data. Raises ClusterUnavailable."""
        if self.late_control_records:
            self.late_control_records -= 1
            self._unsettled[name] = list(partitions)
            raise ClusterUnavailable("no response to EndTxn", delay_s=0.0)
        producer = self.data_producer(name)
        for key in partitions:
            self._target.logs[key].put(
                marker(
                    base_offset=0,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    commit=False,
                )
            )

    def settle(self, name: str) -> None:
        """Write what was begun under the name."""
        if name in self._unsettled:
            self.write_control_records(name, self._unsettled.pop(name))

    def write_markers(self) -> None:
        while self._late_markers:
            key, written = self._late_markers.popleft()
            self._target.logs[key].put(written)

    def bump(self, transactional_id: str) -> int:
        """Begin the next epoch: with the implicit protocol each transaction has a producer of its own."""
        return super().initialise(transactional_id)

    def _committed(
        self, transactional_id: str, positions: Mapping[TargetPartition, Position]
    ) -> None:
        self.history += [(transactional_id, key, at) for key, at in positions.items()]
        self._end(transactional_id, commit=True)

    def _end(self, transactional_id: str, *, commit: bool) -> None:
        id, _ = self.producer(transactional_id, self.epochs[transactional_id])
        for key in self._added.pop(transactional_id, set()):
            self._target.logs[key].put(marker(base_offset=0, producer_id=id, commit=commit))

    def _has_data(self, transactional_id: str) -> bool:
        id, _ = self.producer(transactional_id, self.epochs[transactional_id])
        added = self._added.get(transactional_id, set())
        return any(id in self._target.logs[key].transactions for key in added)

    def _check(self, key: TopicPartition, batch: bytes, version: int) -> int:
        if not header_field(batch, "attributes") & TRANSACTIONAL:
            return ErrorCode.NONE
        producer = header_field(batch, "producer_id"), header_field(batch, "producer_epoch")
        current = {
            self.producer(transactional_id, self.epochs[transactional_id]): transactional_id
            for transactional_id in self.epochs
        }
        if producer not in current:
            known = producer[0] in {id for id, _ in current}
            return (
                ErrorCode.INVALID_PRODUCER_EPOCH if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            )
        if self.prepared(current[producer]):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        added = self._added.setdefault(current[producer], set())
        if version >= produce_api.IN_TRANSACTION:
            added.add(key)
        if key not in added:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE


class MemoryTransactions(MemoryPositions):
    """A `PositionStore` whose transactions hold data, too."""

    ledger: TransactionLedger
    protocol = TransactionProtocol.ADDED

    @property
    def producer(self) -> Producer:
        assert self._ready
        assert self.epoch is not None
        id, epoch = self.ledger.producer(self.transactional_id, self.epoch)
        return Producer(id, epoch, self.protocol)

    def initialise(self) -> None:
        super().initialise()
        self.protocol = self.ledger.protocol

    def add_partitions(self, partitions: Iterable[TargetPartition]) -> dict[TargetPartition, str]:
        assert self._ready, "add_partitions before initialise"
        if self.protocol is TransactionProtocol.IMPLICIT:
            return {}
        unaddable = self.ledger.unaddable
        refused = {key: unaddable[key] for key in partitions if key in unaddable}
        epoch, keys = self.epoch, [key for key in partitions if key not in refused]
        self._request(
            "join", keys, effect=lambda: self.ledger.add(self.transactional_id, epoch, keys)
        )
        return refused

    def commit(
        self,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        refused = super().commit(positions, optional=optional)
        if self.protocol is TransactionProtocol.IMPLICIT:
            self.epoch = self.ledger.epochs[self.transactional_id]
            if self.ledger.stale_responses:
                self.ledger.stale_responses -= 1
                self.epoch -= 1
        self.protocol = self.ledger.protocol
        return refused

    def data_producer(self, name: str) -> Producer:
        given: list[Producer] = []
        self._request(
            "data producer", name, effect=lambda: given.append(self.ledger.data_producer(name))
        )
        return given[-1]

    def fence_data(
        self, name: str, partitions: Iterable[TargetPartition]
    ) -> tuple[Producer, dict[TargetPartition, str]]:
        given: list[Producer] = []
        unaddable = self.ledger.unaddable
        wanted = list(partitions)
        refused = {key: unaddable[key] for key in wanted if key in unaddable}
        keys = [key for key in wanted if key not in refused]
        self._request(
            "fence data", keys, effect=lambda: given.append(self.ledger.fence_data(name, keys))
        )
        return given[-1], refused

    def control_records(self, name: str) -> MemoryControlRecords:
        return MemoryControlRecords(self, name)

    def wait_for_markers(self) -> None:
        self.ledger.waited += 1

    def _read_one(self, partition: TargetPartition) -> PositionOrError:
        if self.ledger.is_unstable(partition):
            raise ClusterUnavailable("still UNSTABLE_OFFSET_COMMIT", delay_s=0.0)
        return super()._read_one(partition)

    def _commit(
        self,
        epoch: int,
        positions: Mapping[TargetPartition, Position],
        optional: Collection[TargetPartition],
    ) -> dict[TargetPartition, str]:
        refused = super()._commit(epoch, positions, optional)
        if self.protocol is TransactionProtocol.IMPLICIT:
            self.ledger.bump(self.transactional_id)
        return refused


class MemoryControlRecords(ControlRecords):
    """Each takes effect at once, but those that are `late` until the name is initialised again."""

    def __init__(self, store: MemoryTransactions, name: str) -> None:
        self._store, self._name = store, name

    def write(self, partitions: Iterable[TargetPartition]) -> dict[TargetPartition, str]:
        ledger, wanted = self._store.ledger, list(partitions)
        keys = [key for key in wanted if key not in ledger.unaddable]
        self._store._request(
            "write control records",
            keys,
            effect=lambda: ledger.write_control_records(self._name, keys),
        )
        return {key: ledger.unaddable[key] for key in wanted if key in ledger.unaddable}

    def settle(self) -> None:
        self._store._request(
            "settle", self._name, effect=lambda: self._store.ledger.settle(self._name)
        )
