"""Identity of a record on both ends: time, key, value and headers, which a copy keeps."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from ureplicator_worker.batches.header import LOG_APPEND_TIME, Header
from ureplicator_worker.copier.record.decoding import StoredRecords

STAMPED_MS = -2
"""Time of a record of a target that stamps the records itself."""


DIGEST_BYTES = 16


class Witness(NamedTuple):
    """A record. `time_ms`: STAMPED_MS if the source's is not known. `key`, and `content` of value and
    headers, are digests: where copies are compared, there is a witness of each, however large they are."""

    time_ms: int
    key: bytes | None
    content: bytes

    def is_copy_of(self, source: Witness) -> bool:
        return self == source or (
            self.time_ms == STAMPED_MS and self == source._replace(time_ms=STAMPED_MS)
        )


def witness_of(
    time_ms: int, key: bytes | None, value: bytes | None, headers: tuple[object, ...] = ()
) -> Witness:
    content = blake2b(repr(headers).encode(), digest_size=DIGEST_BYTES)
    content.update(b"" if value is None else b"=" + value)
    digest = None if key is None else blake2b(key, digest_size=DIGEST_BYTES).digest()
    return Witness(time_ms, digest, content.digest())


class Placed(NamedTuple):
    offset: int
    witness: Witness


def records_of(batch: bytes | memoryview, *, position: int) -> Iterator[Placed]:
    """Records of a stored batch from `position` on. Raises CorruptBatch."""
    stored = StoredRecords(memoryview(batch), position=position)
    for record, _, _ in stored.read(topic="", partition=0, position=position):
        witness = witness_of(record.timestamp_ms, record.key, record.value, tuple(record.headers))
        yield Placed(record.offset, witness)


def copies_of(batch: bytes | memoryview) -> Iterator[Placed]:
    """Records of a batch of the target, from its first one on. Raises CorruptBatch."""
    stamped = bool(Header(batch, 0).attributes & LOG_APPEND_TIME)
    for offset, witness in records_of(batch, position=0):
        yield Placed(offset, witness._replace(time_ms=STAMPED_MS) if stamped else witness)


def last_of(batch: bytes) -> Witness | None:
    """The last record of a batch of the target; None if compaction has taken it."""
    header, last = Header(batch, 0), None
    if header.records > 0:
        *_, last = copies_of(batch)
    return last.witness if last is not None and last.offset == header.last_offset else None
