"""Copiers that deliver exactly once, in memory, and what a reader with read_committed sees."""

from __future__ import annotations

import json
from functools import lru_cache

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Delivery, HandlerSettings, RouteSettings
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet
from ureplicator_testkit.copier.line import seen
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import Record

PARTITIONS = 2
KEEP = HandlerSettings("t", f"{MODULE}:fan_out", json.dumps({"topics": []}))
TRANSACTIONAL = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(KEEP,))
"""In transactions: the handler puts each record out as it is."""
PROTOCOLS = list(TransactionProtocol)

COPY, SHARED = "u", "v"
THREE = HandlerSettings("t", f"{MODULE}:three", json.dumps({"others": [COPY, SHARED]}))
HANDLED = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(THREE,))


class TransactionFleet(LedgerFleet):
    """Checks after each turn what a reader with read_committed sees, unless `checks` is off.

    With a handler (HANDLED) each record goes to its own partition, to that of another topic, and to one
    partition that all share.
    """

    topics: tuple[str, ...] = ("t",)
    """Copied, `PARTITIONS` of each."""
    ledger: TransactionLedger

    def __init__(
        self,
        protocol: TransactionProtocol,
        *workers: str,
        nodes: int = 1,
        settings: RouteSettings = TRANSACTIONAL,
    ) -> None:
        topics = dict.fromkeys(self.topics, PARTITIONS)
        target = MemoryKafka("B", {**topics, COPY: PARTITIONS, SHARED: 1}, nodes=nodes)
        self.checks = True
        self._checked: dict[tuple[str, int], tuple[int, int]] = {}
        """Position and end of the target's log at the last check."""
        super().__init__(
            MemoryKafka("A", topics),
            target,
            *workers,
            settings=settings,
            ledger=TransactionLedger(target, protocol),
        )

    @property
    def _fans_out(self) -> bool:
        return THREE in self.settings.handlers

    def check_positions(self) -> None:
        if not self.checks:
            return
        for number in range(PARTITIONS):
            key = ("t", number)
            position = self.ledger.read(key).offset
            state = position, self.target.logs[key].end
            if state == self._checked.get(key):
                continue
            assert position >= self._checked.get(key, state)[0], (key, position)
            self._checked[key] = state
            expected = [row for row in committed(self.source, key) if row.offset < position]
            found = committed(self.target, key, stable=False)
            assert seen(found) == seen(expected), (key, position)
            if self._fans_out:
                copies = committed(self.target, (COPY, number), stable=False)
                assert seen(copies) == seen(expected), (key, position)
                assert self.shared(number, stable=False) == seen(expected), (key, position)

    def expire_transactions(self) -> None:
        """Long after everything: a process that is gone has left its transaction open."""
        for worker in self.workers:
            self.ledger.expire(worker)

    def check_whole(self) -> None:
        """Everything is copied, and no position was committed by two at once."""
        for number in range(PARTITIONS):
            source = seen(committed(self.source, ("t", number)))
            assert self.committed(number) == source
            assert not self._fans_out or self.shared(number) == source
        self.check_owners()

    def check_owners(self) -> None:
        """Check that of two workers that believe they own a partition never both commit: the history of each
        has its owner epochs in order, and each epoch is one worker's."""
        for number in range(PARTITIONS):
            found: list[tuple[int, str]] = []
            before = None
            for worker, key, position in self.ledger.history:
                provenance = Provenance.decode(position.metadata)
                state = position.offset, provenance
                if key == ("t", number) and provenance and state != before:
                    before = state  # the same again is a renewal or a trial, of any owner
                    found.append((provenance.owner_epoch, worker))
            assert found == sorted(found), found
            epochs = [epoch for epoch, _ in dict.fromkeys(found)]
            assert len(epochs) == len(set(epochs)), found

    def committed(self, number: int) -> list[tuple[object, ...]]:
        return seen(committed(self.target, ("t", number)))

    def shared(self, number: int, *, stable: bool = True) -> list[tuple[object, ...]]:
        """Records of the shared partition that come from this one."""
        ours = b"t/%d/" % number
        found = committed(self.target, (SHARED, 0), stable=stable)
        return seen([row for row in found if (row.value or b"").startswith(ours)])


def committed(kafka: MemoryKafka, key: tuple[str, int], *, stable: bool = True) -> list[Record]:
    """See `BatchLog.committed`."""
    return [row for batch in kafka.logs[key].committed(stable=stable) for row in decoded(batch)]


@lru_cache(20_000)
def decoded(batch: bytes) -> tuple[Record, ...]:
    return tuple(batches.decode(batch))
