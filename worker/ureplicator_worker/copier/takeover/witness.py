"""Identity of a record on both ends: time, key, value and headers, which a copy keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ureplicator_worker.batches.header import LOG_APPEND_TIME, Header
from ureplicator_worker.copier.record.decoding import StoredRecords

STAMPED_MS = -2
"""Time of a record of a target that stamps the records itself."""


class Witness(NamedTuple):
    """A record. `time_ms`: STAMPED_MS if the source's is not known."""

    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[object, ...]

    def is_copy_of(self, source: Witness) -> bool:
        return self == source or (
            self.time_ms == STAMPED_MS and self == source._replace(time_ms=STAMPED_MS)
        )


class Placed(NamedTuple):
    offset: int
    witness: Witness


def records_of(batch: bytes | memoryview, *, position: int) -> Iterator[Placed]:
    """Records of a stored batch from `position` on. Raises CorruptBatch."""
    stored = StoredRecords(memoryview(batch), position=position)
    for record, _, _ in stored.read(topic="", partition=0, position=position):
        witness = Witness(record.timestamp_ms, record.key, record.value, tuple(record.headers))
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
