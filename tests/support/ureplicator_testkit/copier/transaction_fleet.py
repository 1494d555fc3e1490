"""Copiers that deliver exactly once, in memory, and what a reader with read_committed sees."""

from __future__ import annotations

from ureplicator_common.kafka.positions import TransactionProtocol
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet
from ureplicator_testkit.copier.line import records, seen
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger
from ureplicator_testkit.records import batches

PARTITIONS = 2
EXACTLY_ONCE = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
PROTOCOLS = list(TransactionProtocol)


class TransactionFleet(LedgerFleet):
    """Checks after each turn what a reader with read_committed sees, unless `checks` is off."""

    ledger: TransactionLedger

    def __init__(self, protocol: TransactionProtocol, *workers: str, nodes: int = 1) -> None:
        topics = {"t": PARTITIONS}
        target = MemoryKafka("B", topics, nodes=nodes)
        self.checks = True
        super().__init__(
            MemoryKafka("A", topics),
            target,
            *workers,
            settings=EXACTLY_ONCE,
            ledger=TransactionLedger(target, protocol),
        )

    def check_positions(self) -> None:
        if not self.checks:
            return
        for number in range(PARTITIONS):
            key = ("t", number)
            position = self.ledger.read(key).offset
            expected = [row for row in records(self.source, key) if row.offset < position]
            assert self.committed(number) == seen(expected), (key, position)

    def check_owners(self) -> None:
        """Of two workers that believe they own a partition never both commit: the history of each has its
        owner epochs in order, and each epoch is one worker's."""
        for number in range(PARTITIONS):
            found = [
                (provenance.owner_epoch, worker)
                for worker, key, position in self.ledger.history
                if key == ("t", number) and (provenance := Provenance.decode(position.metadata))
            ]
            assert found == sorted(found), found
            epochs = [epoch for epoch, _ in dict.fromkeys(found)]
            assert len(epochs) == len(set(epochs)), found

    def committed(self, number: int) -> list[tuple[object, ...]]:
        log = self.target.logs["t", number]
        return [row for batch in log.committed() for row in seen(list(batches.decode(batch)))]
