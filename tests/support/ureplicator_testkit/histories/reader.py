"""A consumer that runs while faults happen, and notes what it finds: at the isolation level of the weakest
reader to whom each record is promised once.

It reads some partitions from their beginning, without a group. After each portion it reads the positions,
too, if it is given a way to: they count as observed after the records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self
from zlib import crc32

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from ureplicator_testkit.histories.checker import Promise, assert_sound
from ureplicator_testkit.histories.events import (
    READ_COMMITTED,
    UNNAMED,
    Event,
    Positions,
    Read,
    Seen,
)
from ureplicator_testkit.histories.recorder import History
from ureplicator_testkit.records.comparison import ConsumedRecord, Log
from ureplicator_testkit.records.labels import find_label
from ureplicator_testkit.records.topics import consumed, open_consumer
from ureplicator_testkit.servers.processes import deadline_factor

PORTION = 2_000
WAIT_S = 0.2
FETCH_WAIT_MS = 200
POSITIONS_EVERY_S = 0.5
FINISH_S = 60.0
LAST_S = 1.0
"""A fetch takes less: what is there when the reader is stopped is found."""

ReadPositions = Callable[[], Mapping[int, int] | None]
"""None if they are not known just now."""


def seen(record: ConsumedRecord, topic: str, partition: int) -> Seen:
    """`topic`: the one that the record should name, that of the source."""
    label = find_label(record)
    number = label.number if label and label[:2] == (topic, partition) else UNNAMED
    parts = (record.key, record.value, record.headers, record.timestamp_type, record.timestamp)
    return Seen(record.offset, number, crc32(repr(parts).encode()))


def whole(end: str, log: Log, topic: str, isolation: str = READ_COMMITTED) -> Read:
    """All that a log holds."""
    records = {n: tuple(seen(record, topic, n) for record in some) for n, some in log.items()}
    return Read(end, "at the end", isolation, records, whole=True)


def judge_copy(
    history: History, promise: Promise, *, topic: str, source: Log, target: Callable[[str], Log]
) -> None:
    """Add both logs as they are at the end, and have the whole history judged. `target`: its log at an
    isolation level."""
    history.add(whole("source", source, topic))
    for isolation in promise.isolations:
        history.add(whole("target", target(isolation), topic, isolation))
    assert_sound(history.events(), promise)


class Reader:
    """Reader of the `copy` of a topic, at the target. `stop` ends it when it has found all, `close` at
    once. `positions`: those that become visible together with the data."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        copy: str,
        *,
        partitions: int,
        add: Callable[[Event], None],
        isolation: str = READ_COMMITTED,
        positions: ReadPositions | None = None,
        name: str = "reader",
    ) -> None:
        self.name = name
        self.count = 0
        self._bootstrap, self._topic, self._copy = bootstrap, topic, copy
        self._partitions = partitions
        self._add = add
        self._isolation = isolation
        self._read_positions = positions
        self._positions_at_s = 0.0
        self._at_end: set[int] = set()
        self._stopped_at_s = 0.0
        self._closing = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._stopped_at_s = time.monotonic()
            self._thread.join()
        assert self._error is None, f"{self.name}: {self._error}"

    def close(self) -> None:
        self._closing = True
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with open_consumer(self._bootstrap, self._isolation, wait_ms=FETCH_WAIT_MS) as consumer:
                numbers = range(self._partitions)
                consumer.assign([TopicPartition(self._copy, n, OFFSET_BEGINNING) for n in numbers])
                while not self._is_finished():
                    self._take(consumer.consume(PORTION, timeout=WAIT_S))
                    self._add_positions()
        except Exception as error:  # raised by `stop`
            self._error = error

    def _is_finished(self) -> bool:
        """Stopped, and at the end of each partition, or too late."""
        if self._closing or not self._stopped_at_s:
            return self._closing
        stopped_s = time.monotonic() - self._stopped_at_s
        if stopped_s > FINISH_S * deadline_factor():
            raise TimeoutError(f"at the end of {sorted(self._at_end)} only")
        return stopped_s > LAST_S and len(self._at_end) == self._partitions

    def _take(self, messages: Sequence[Message]) -> None:
        records: dict[int, list[Seen]] = {}
        for message in messages:
            partition = message.partition()
            assert partition is not None
            error = message.error()
            if error is None:
                found = seen(consumed(message), self._topic, partition)
                records.setdefault(partition, []).append(found)
                self._at_end.discard(partition)
                self.count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(partition)
            elif error.fatal():
                raise KafkaException(error)
        if records:
            self._add(Read("target", self.name, self._isolation, records))

    def _add_positions(self) -> None:
        if self._read_positions is None or time.monotonic() < self._positions_at_s:
            return
        self._positions_at_s = time.monotonic() + POSITIONS_EVERY_S
        offsets = self._read_positions()
        if offsets is not None:
            self._add(Positions(self.name, offsets))
