"""Applications whose clients move to the other cluster: a writer of several topics, and a group that reads.

Each record is distinct, and names its topic, partition and number. The writer repeats what a broker has
refused, and nothing else: so each record is written once, in order, wherever it is told to write.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from ureplicator_testkit.records.topics import QUIET

PAUSE_S = 0.02
"""Time between two rounds of records, and before a refused one is sent again."""
IDLE_S = 0.4
"""Time without a record after which a reader that is to leave has read everything."""
FLUSH_S = 30.0
Partition = tuple[str, int]


class Writer:
    """A thread that writes to all partitions of some topics, round by round. `transactional_id`: each round
    is a transaction."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topics: Mapping[str, int],
        *,
        settings: Mapping[str, Any] | None = None,
        transactional_id: str = "",
    ) -> None:
        self._properties = dict(properties)
        self._keys = [(topic, n) for topic, count in topics.items() for n in range(count)]
        self._settings = dict(settings or {"enable.idempotence": True})
        self._transactional_id = transactional_id
        self.acknowledged: Counter[Partition] = Counter()
        self.longest_pause_s = 0.0
        self.errors: Counter[str] = Counter()
        self._acknowledged_at_s = time.monotonic()
        self._stopping, self._goes_on = threading.Event(), threading.Event()
        self._rests = threading.Event()
        self._goes_on.set()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def go_to(self, properties: Mapping[str, str]) -> None:
        """Write there from the next round on."""
        self._properties = dict(properties)

    def pause(self) -> None:
        """Stand still; returns when nothing is under way any more."""
        self._goes_on.clear()
        self._rests.wait()

    def resume(self) -> None:
        self._goes_on.set()

    def forget_pause(self) -> None:
        """Measure the longest pause anew."""
        self.longest_pause_s, self._acknowledged_at_s = 0.0, time.monotonic()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._write_here(self._properties)
        except BaseException as error:
            self.failure = error

    def _write_here(self, properties: Mapping[str, str]) -> None:
        """Write until it is to go elsewhere, or a record is refused: an application starts again then."""
        producer = self._producer(properties)
        while properties is self._properties and not self._stopping.is_set():
            if not self._goes_on.is_set():
                self._rests.set()
                self._stopping.wait(PAUSE_S)
                continue
            self._rests.clear()
            if not self._round(producer):
                break
            self._stopping.wait(PAUSE_S)
        else:
            return
        self._stopping.wait(PAUSE_S)

    def _producer(self, properties: Mapping[str, str]) -> Producer:
        settings = {**properties, **self._settings, **QUIET, "linger.ms": 5}
        if self._transactional_id:
            settings["transactional.id"] = self._transactional_id
        producer = Producer(settings)
        if self._transactional_id:
            producer.init_transactions(FLUSH_S)
        return producer

    def _round(self, producer: Producer) -> bool:
        """One record for each partition; True if all were acknowledged."""
        refused: list[KafkaError] = []
        written: list[Partition] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)
            else:
                written.append((message.topic() or "", message.partition() or 0))

        try:
            if self._transactional_id:
                producer.begin_transaction()
            for topic, number in self._keys:
                producer.produce(
                    topic,
                    b"%s-%d-%d" % (topic.encode(), number, self.acknowledged[topic, number]),
                    partition=number,
                    on_delivery=delivered,
                )
            assert producer.flush(FLUSH_S) == 0
            if self._transactional_id:
                (producer.abort_transaction if refused else producer.commit_transaction)(FLUSH_S)
        except KafkaException as error:
            refused.append(error.args[0])
        self._count(() if refused and self._transactional_id else written)
        self.errors.update(error.name() for error in refused)
        return not refused

    def _count(self, written: Sequence[Partition]) -> None:
        if written:
            now_s = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._acknowledged_at_s)
            self._acknowledged_at_s = now_s
        self.acknowledged.update(written)


class Group:
    """A thread with the one member of a group, which reads all topics and commits what it has read."""

    def __init__(self, properties: Mapping[str, str], name: str, topics: Sequence[str]) -> None:
        self._properties = dict(properties)
        self.name = name
        self._topics = list(topics)
        self.read: dict[Partition, list[bytes]] = defaultdict(list)
        self._leaving = threading.Event()
        self.failure: BaseException | None = None
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"group {self.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Read what is there, commit, and leave the group."""
        self._leaving.set()

    def join(self) -> None:
        """Wait until it has left."""
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def go_to(self, properties: Mapping[str, str]) -> None:
        """Go on there, with the offsets that the group has there."""
        self.join()
        self._leaving.clear()
        self._properties = dict(properties)
        self._thread = self._new_thread()
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self.failure = error

    def _read(self) -> None:
        consumer = Consumer(
            {
                **self._properties,
                **QUIET,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe(self._topics)
        idle_since_s = time.monotonic()
        try:
            while True:
                messages = consumer.consume(500, timeout=0.1)
                for message in messages:
                    assert message.error() is None, message.error()
                    key = message.topic() or "", message.partition() or 0
                    self.read[key].append(message.value() or b"")
                if messages:
                    consumer.commit(asynchronous=False)
                    idle_since_s = time.monotonic()
                elif self._leaving.is_set() and time.monotonic() - idle_since_s > IDLE_S:
                    return
        finally:
            consumer.close()


def expected(acknowledged: Mapping[Partition, int]) -> dict[Partition, list[bytes]]:
    """Values of each partition, in order."""
    return {
        (topic, number): [b"%s-%d-%d" % (topic.encode(), number, n) for n in range(count)]
        for (topic, number), count in acknowledged.items()
    }
