"""Topics as they stand on the wire: by name, or by id in newer versions (KIP-516).

A topic that was deleted and recreated has another id, so what names the id never reaches the new one.
Requests and responses of Fetch and Produce name topics alike, so a topic is kept as bytes.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple, Self

from ureplicator_worker.wire import varint

ID_BYTES = 16

TopicKey = tuple[bytes, int]
"""Topic as it stands on the wire in the version in use, and partition."""


def by_name(topic: str) -> bytes:
    return varint.text(topic)


def by_id(topic_id: str) -> bytes:
    """Bytes of the id; empty for a topic without an id: its cluster is still on a version without them."""
    found = uuid.UUID(topic_id)
    return found.bytes if found.int else b""


class TopicKeys(NamedTuple):
    """A partition of a topic, in versions with names and in those with ids."""

    by_name: TopicKey
    by_id: TopicKey

    @classmethod
    def of(cls, topic: str, topic_id: str, number: int) -> Self:
        return cls((by_name(topic), number), (by_id(topic_id), number))

    @property
    def has_id(self) -> bool:
        return bool(self.by_id[0])

    def key(self, *, ids: bool) -> TopicKey:
        return self.by_id if ids else self.by_name


def read_topic(buffer: bytearray | memoryview | bytes, at: int, *, ids: bool) -> tuple[bytes, int]:
    """(topic, place behind it)."""
    if ids:
        end = at + ID_BYTES
    else:
        size, end = varint.read(buffer, at)
        end += max(0, size - 1)
    return bytes(buffer[at:end]), end
