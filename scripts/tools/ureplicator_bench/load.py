"""Topics full of records, produced as fast as one Python process can."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Producer

from ureplicator_testkit.records.topics import QUIET

_HEAP = 512
"""Distinct values used in turn: more would only cost time, fewer would compress too well."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Content of a topic. `size`: bytes of a value; no keys or headers. `batch_records` and `batch_bytes`: of
    each batch at most."""

    name: str
    records: int
    size: int
    codec: str = "none"
    partitions: int = 8
    batch_records: int = 100_000
    batch_bytes: int = 131_072

    @property
    def bytes(self) -> int:
        return self.records * self.size

    def changed(self, changes: Mapping[str, Any]) -> Profile:
        """The load with other fields; None: as it is."""
        return replace(self, **{key: value for key, value in changes.items() if value is not None})


class Filler:
    """Produces to all partitions of one topic in turn."""

    def __init__(
        self, bootstrap: str, topic: str, profile: Profile, *, linger_ms: int = 50
    ) -> None:
        self._topic, self._profile = topic, profile
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": profile.codec,
                "acks": "1",
                "batch.size": profile.batch_bytes,
                "batch.num.messages": profile.batch_records,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 262_144,
                **QUIET,
            }
        )
        self._messages = [{"value": value} for value in values(profile.size)]
        self._turn = 0

    def add(self, records: int) -> None:
        """Produce so many records; returns when all are acknowledged."""
        self.send(records)
        if self._producer.flush(120):
            raise AssertionError(f"{self._topic} could not be filled")

    def send(self, records: int) -> None:
        """Produce so many records; returns when all are queued."""
        left = records
        while left > 0:
            count = min(left, len(self._messages))
            self._send(self._messages[:count], self._turn % self._profile.partitions)
            self._turn += 1
            left -= count
        self._producer.poll(0)

    def _send(self, messages: list[dict[str, Any]], partition: int) -> None:
        while messages:
            done = self._producer.produce_batch(self._topic, messages, partition)
            if done == len(messages):
                return
            messages = [
                {"value": message["value"]} for message in messages if message.pop("_error", None)
            ]
            self._producer.poll(0.05)


def values(size: int) -> Iterator[bytes]:
    """Text with repeated names and varying numbers, as most topics contain."""
    dice = random.Random(1)  # noqa: S311
    for _ in range(_HEAP):
        text = b""
        while len(text) < size:
            text += b'"field": "%012x", ' % dice.getrandbits(48)
        yield text[:size]
