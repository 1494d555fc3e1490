"""Pauses of each partition: by a plain producer's acknowledgements, and by a copy's progress.

A broker that is lost stops every client for a while, until its partitions have another leader, or the
others wait for it no more. What a copy may add to that is measured against a plain producer on the same
brokers at the same time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self

from confluent_kafka import KafkaError, Producer

from ureplicator_testkit.histories.events import Acknowledged, Event, Sent
from ureplicator_testkit.histories.recorder import ignore
from ureplicator_testkit.records.labels import labelled
from ureplicator_testkit.records.topics import send_one

FLUSH_S = 60
LONG_PAUSE_S = 0.5
"""Five records of a trickle late."""
SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "delivery.timeout.ms": 120_000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


Pause = tuple[float, float]
"""Times of its two ends."""


class Stalls:
    """Pauses between two signs of progress of each partition, since `begin`."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self.begin(0.0)

    def begin(self, now_s: float) -> None:
        self._last_s = dict.fromkeys(range(self._partitions), now_s)
        self._pauses: dict[int, list[Pause]] = {number: [] for number in range(self._partitions)}

    def progress(self, partition: int, now_s: float) -> None:
        self._pauses[partition].append((self._last_s[partition], now_s))
        self._last_s[partition] = now_s

    def all_moved_since(self, began_s: float) -> bool:
        return all(last_s > began_s for last_s in self._last_s.values())

    def longest_s(self, now_s: float) -> Mapping[int, float]:
        """The longest pause, with those that have not ended."""
        return {
            partition: max(end_s - began_s for began_s, end_s in self.pauses(partition, now_s))
            for partition in self._pauses
        }

    def pauses(self, partition: int, now_s: float) -> list[Pause]:
        """Pauses with the one that has not ended."""
        return [*self._pauses[partition], (self._last_s[partition], now_s)]


def longest_alone_s(pauses: Iterable[Pause], others: Iterable[Pause]) -> float:
    """The longest time of a pause that no long pause of the others covers.

    A copy waits for the source and then for the target. So its pause may be as long as one of each end
    together, and a pause of another moment excuses nothing.
    """
    long = sorted(other for other in others if other[1] - other[0] >= LONG_PAUSE_S)
    return max((_uncovered_s(pause, long) for pause in pauses), default=0.0)


def _uncovered_s(pause: Pause, sorted_others: Iterable[Pause]) -> float:
    at_s, end_s = pause
    alone_s = 0.0
    for began_s, ended_s in sorted_others:
        if ended_s > at_s and began_s < end_s:
            alone_s += max(0.0, began_s - at_s)
            at_s = ended_s
    return alone_s + max(0.0, end_s - at_s)


class Trickle:
    """A plain producer of some records a second for each partition; `acknowledged` are their numbers."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        records_per_s: float = 10.0,
        add: Callable[[Event], None] = ignore,
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._add = add
        self._pause_s = 1 / records_per_s
        self._producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)
        self.acknowledged: defaultdict[int, set[int]] = defaultdict(set)
        self.refused: list[object] = []
        self.stalls = Stalls(partitions)

    def start(self) -> Self:
        self.stalls.begin(time.monotonic())
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            assert self._producer.flush(FLUSH_S) == 0
            assert not self.refused, self.refused[:3]

    def _run(self) -> None:
        for number in itertools.count():
            self._add(Sent({partition: [number] for partition in range(self._partitions)}))
            for partition in range(self._partitions):
                record = labelled(self._topic, partition, number)
                delivered = partial(self._delivered, partition, number)
                send_one(self._producer, self._topic, record, delivered)
            self._producer.poll(0)
            if self._stopping.wait(self._pause_s):
                return
            self._producer.poll(0)

    def _delivered(
        self, partition: int, number: int, error: KafkaError | None, _message: object
    ) -> None:
        if error is None:
            self.acknowledged[partition].add(number)
            self._add(Acknowledged({partition: [number]}))
            self.stalls.progress(partition, time.monotonic())
        else:
            self.refused.append(error)


Status = Mapping[int, Mapping[str, Any]]
"""Status of each partition of a topic, as its worker reports it."""


class CopyWatch:
    """Polls the status of a topic's partitions: pauses of each position, and every state and reason."""

    def __init__(self, status: Callable[[], Status], *, partitions: int) -> None:
        self._status = status
        self._positions: dict[int, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copy-watch", daemon=True)
        self.stalls = Stalls(partitions)
        self.reasons: defaultdict[int, set[str]] = defaultdict(set)

    def start(self) -> Self:
        self.stalls.begin(time.monotonic())
        self._thread.start()
        return self

    def begin(self) -> None:
        """Begin to count pauses from here on."""
        self.stalls.begin(time.monotonic())
        self.reasons.clear()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            for partition, row in self._status().items():
                if row["reason"]:
                    self.reasons[partition].add(f"{row['state']}: {row['reason']}")
                position = row.get("position", -1)
                if position > self._positions.get(partition, -1):
                    self._positions[partition] = position
                    self.stalls.progress(partition, time.monotonic())
