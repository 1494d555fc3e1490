"""Every kind of batch, produced in the background during a fault.

    first    a batch of 5,000 records, and two long transactions, one of them aborted, each of more
             than one fetch brings of a partition
    then     one thread sends batches of 1 to 500 records in each codec; another one transactions
             of several batches, every third of them aborted

Each record names its topic, its partition and its number (`labels`). What is sent, acknowledged and aborted
goes to a history, if one is kept.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from ureplicator_testkit.histories.events import Acknowledged, Ended, Event, Numbers, Sent
from ureplicator_testkit.histories.recorder import ignore
from ureplicator_testkit.records.labels import labelled
from ureplicator_testkit.records.topics import CODECS, NewRecord, produce, send_one

FLUSH_S = 120
PAUSE_S = 0.02
LARGEST_BATCH = 5_000
"""More than a chunk of the record lane (`CHUNK_BYTES`)."""
SIZES = (1, 20, 1, 5, 20, 200, 1, 20, 500, 20, 1, 60)
"""Records of one batch after the other; those of 20 or fewer go round all partitions."""
ROUND_ROBIN_BELOW = 21
LONG_TRANSACTION_RECORDS = 1_500
LONG_RECORD_BYTES = 1_500
"""2.2 MB together: a fetch brings 1 MiB of a partition."""
TRANSACTION_BATCHES, TRANSACTION_BATCH_RECORDS = 4, 5
TRANSACTION_SHARE = 0.2
TRANSACTION_TIMEOUT_MS = 180_000
"""A time above the time for which any test takes brokers away."""

SETTINGS: dict[str, Any] = {
    "linger.ms": 5,
    "enable.idempotence": True,
    "batch.num.messages": LARGEST_BATCH,
    "batch.size": 4 << 20,
    "message.max.bytes": 4 << 20,  # before compression
    "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


Place = tuple[int, int]
"""Partition, and number."""


def by_partition(places: Iterable[Place]) -> Numbers:
    found: dict[int, list[int]] = {}
    for partition, number in places:
        found.setdefault(partition, []).append(number)
    return found


@contextmanager
def repeating(send: Callable[[], object], *, pause_s: float = PAUSE_S) -> Iterator[None]:
    """A thread calls `send` meanwhile, each time after a pause."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(pause_s):
            send()

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class Load:
    """Produces until `stop`; `acknowledged` are the numbers of each partition. `young`: records have the time
    at which they are sent; else any."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        records_per_s: int = 1_000,
        add: Callable[[Event], None] = ignore,
        young: bool = False,
    ) -> None:
        self._young = young
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._add = add
        self._rate = records_per_s
        self._stopping = threading.Event()
        self._numbers = [itertools.count() for _ in range(partitions)]
        self.acknowledged: defaultdict[int, set[int]] = defaultdict(set)
        self.refused: list[object] = []
        self._sent = 0
        self._delivered_now: list[Place] = []
        self._transactions = itertools.count(1)
        self._producers = [self._producer(codec) for codec in CODECS]
        self._transactional = self._producer(
            "lz4",
            {
                "transactional.id": f"{topic}-load",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            },
        )
        self._threads = [
            threading.Thread(target=run, name="load", daemon=True)
            for run in (self._send_batches, self._send_transactions)
        ]

    def _producer(self, codec: str, more: dict[str, Any] | None = None) -> Producer:
        address = {"bootstrap.servers": self._bootstrap, "compression.type": codec}
        return Producer({**SETTINGS, **address, **(more or {})})

    @property
    def count(self) -> int:
        """Acknowledged records."""
        return sum(map(len, self.acknowledged.values()))

    def start(self) -> Self:
        """Return when the first records are acknowledged; the rest follows in a thread."""
        largest = self._producer("zstd", {"linger.ms": 300})
        self._send(largest, [0] * LARGEST_BATCH)
        self._transactional.init_transactions(FLUSH_S)
        for commit in (False, True):
            self._transaction(
                [[0, self._partitions - 1] * LONG_TRANSACTION_RECORDS],
                commit=commit,
                filler_bytes=LONG_RECORD_BYTES,
            )
        assert largest.flush(FLUSH_S) == 0
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Everything sent outside of transactions is acknowledged when this returns."""
        self._stopping.set()
        running = [thread for thread in self._threads if thread.is_alive()]
        for thread in running:
            thread.join()
        if running:
            assert all(producer.flush(FLUSH_S) == 0 for producer in self._producers)
            self._add_acknowledged()
            assert not self.refused, self.refused[:3]
            assert 0 < self._sent <= self.count, (self._sent, self.count)

    def produce(self, count: int) -> None:
        """Produce so many more in each partition, now; they are not among the acknowledged."""
        places = list(range(self._partitions)) * count
        produce(self._bootstrap, self._topic, [self._next(place)[1] for place in places])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- batches -----------------------------------------------------------------------------

    def _send_batches(self) -> None:
        producers = itertools.cycle(self._producers)
        for places in self._places():
            self._send(next(producers), places)
            self._sent += len(places)
            for producer in self._producers:
                producer.poll(0)
            self._add_acknowledged()
            if self._stopping.wait(len(places) / self._rate):
                return

    def _places(self) -> Iterator[list[int]]:
        """The partitions of the records of each batch."""
        turn = itertools.cycle(range(self._partitions))
        for size in itertools.cycle(SIZES):
            if size < ROUND_ROBIN_BELOW:
                yield list(itertools.islice(turn, size))
            else:
                yield [next(turn)] * size

    def _send(self, producer: Producer, places: list[int]) -> None:
        made = [(partition, *self._next(partition)) for partition in places]
        self._add(Sent(by_partition((partition, number) for partition, number, _ in made)))
        for partition, number, record in made:
            send_one(producer, self._topic, record, partial(self._delivered, partition, number))

    def _next(self, partition: int, filler_bytes: int = 0) -> tuple[int, NewRecord]:
        number = next(self._numbers[partition])
        record = labelled(self._topic, partition, number, filler_bytes=filler_bytes)
        return number, replace(record, timestamp=None) if self._young else record

    def _delivered(
        self, partition: int, number: int, error: KafkaError | None, _message: object
    ) -> None:
        if error is None:
            self.acknowledged[partition].add(number)
            self._delivered_now.append((partition, number))
        else:
            self.refused.append(error)

    def _add_acknowledged(self) -> None:
        """Add the acknowledged records of the thread that sends batches, or that has waited for it."""
        delivered, self._delivered_now = self._delivered_now, []
        if delivered:
            self._add(Acknowledged(by_partition(delivered)))

    # --- transactions ------------------------------------------------------------------------

    def _send_transactions(self) -> None:
        batch = [n % self._partitions for n in range(TRANSACTION_BATCH_RECORDS * self._partitions)]
        pause_s = TRANSACTION_BATCH_RECORDS / (self._rate * TRANSACTION_SHARE)
        for turn in itertools.count(1):
            self._transaction([batch] * TRANSACTION_BATCHES, commit=bool(turn % 3), pause_s=pause_s)
            if self._stopping.wait(pause_s * self._partitions):
                return

    def _transaction(
        self,
        batches: list[list[int]],
        *,
        commit: bool,
        filler_bytes: int = 0,
        pause_s: float = 0.0,
    ) -> None:
        producer, transaction = self._transactional, next(self._transactions)
        sent: list[Place] = []
        producer.begin_transaction()
        for places in batches:
            made = [(partition, *self._next(partition, filler_bytes)) for partition in places]
            now = [(partition, number) for partition, number, _ in made]
            self._add(Sent(by_partition(now), transaction))
            sent += now
            for _, _, record in made:
                send_one(producer, self._topic, record, lambda *_: None)
            producer.poll(0)
            self._stopping.wait(pause_s)
        # All are in the log when the transaction ends; one that never began there is refused.
        assert producer.flush(FLUSH_S) == 0
        end = producer.commit_transaction if commit else producer.abort_transaction
        committed = self._end(end) and commit
        if committed:
            for partition, number in sent:
                self.acknowledged[partition].add(number)
            self._add(Acknowledged(by_partition(sent)))
        self._add(Ended(transaction, committed))

    def _end(self, end: Callable[[float], None]) -> bool:
        """Returns false for a commit that became an abort."""
        while True:
            try:
                end(FLUSH_S)
                return True
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.txn_requires_abort():
                    self._end(self._transactional.abort_transaction)
                    return False
                if not cause.retriable():
                    raise
                time.sleep(0.1)
