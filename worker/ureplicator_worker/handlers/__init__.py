"""Contract of message handlers (KIP-3): user code that each record of a topic goes through.

A route names a factory, `package.module:factory`, and its arguments. What the factory returns has `handle`:

    class Upper(Handler):
        def handle(self, record):
            return [record.output(value=(record.value or b"").upper())]

`handle` gets the records of a partition in order, and returns none, one or several outputs for each: a
Record as it is, or Outputs, which name topic, partition and content. A record counts as copied once the
target has acknowledged all its outputs. After a crash some records are handled again, so a handler
should produce the same outputs for the same record.

It runs in a process of its own, one for each slot and configured handler, in one thread, for one record
at a time. What it raises, prints or never finishes concerns that process, and the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Header = tuple[str, bytes | None]

BY_KEY = -1
"""Partition of an output: the one that the default partitioner of Kafka's Java client takes for the key.
Without a key it is the partition of the source."""


class Output(NamedTuple):
    """A record for the target. `topic` None: the route's topic for the source's topic. `partition` None:
    the number that the record has at the source."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = -1
    topic: str | None = None
    partition: int | None = None


class Record(NamedTuple):
    """A record of the source. Bytes of header names that are not UTF-8 are kept (`surrogateescape`)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    def output(self, **changes: Any) -> Output:
        """The record for the target, with these fields of Output changed."""
        same = Output(self.key, self.value, self.headers, self.timestamp_ms)
        return same._replace(**changes) if changes else same


class Handler:
    """Base of handlers. Each method may raise: the partition then stops with the reason."""

    def handle(self, record: Record) -> Iterable[Record | Output]:
        """The record as it is, changed, several times, or not at all."""
        return (record,)

    def on_assign(self, topic: str, partition: int, offset: int) -> None:
        """Copying of a source partition begins here, in this process."""

    def on_release(self, topic: str, partition: int) -> None:
        """Copying of a source partition has ended. Not called when the process is lost."""


def identity() -> Handler:
    """Copy every record as it is."""
    return Handler()
