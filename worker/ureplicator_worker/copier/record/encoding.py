"""Outputs of a handler as batches for the target. Hot path of the handler's process.

One builder for each target partition. A batch ends at BATCH_BYTES, and has the codec of the stored batch
that its first record came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ureplicator_worker.batches.header import SEQUENCE_MODULUS, Header
from ureplicator_worker.batches.offsets import Run, SourceOffsets
from ureplicator_worker.batches.records import Built, Records, zigzag
from ureplicator_worker.copier.record.decoding import NAME_ENCODING, StoredRecords
from ureplicator_worker.handlers import Output, Record

BATCH_BYTES = 512 << 10
"""Bytes of records before compression. Topics take batches of 1 MiB unless configured otherwise."""
SPLICED_BYTES = 64 << 10
"""Bytes, about, between two comparisons with the size of a batch."""

TopicPartition = tuple[str, int]


class BadOutput(Exception):
    """A handler returned what no record can be made of."""


class Ready(NamedTuple):
    """A batch, and the partition it is for."""

    target: TopicPartition
    built: Built

    def described(self) -> tuple[str, int, int, int, tuple[Run, ...], int]:
        """Fields by which a result's message names it, before its bytes."""
        built = self.built
        return (
            *self.target,
            len(built.data),
            built.records,
            built.offsets.runs,
            built.max_timestamp_ms,
        )


class Builders:
    def __init__(self) -> None:
        self._open: dict[TopicPartition, tuple[Records, int]] = {}
        self._full: list[Ready] = []
        self.size_bytes = 0

    def splice(
        self, target: TopicPartition, stored: StoredRecords, at: int, count: int, base_offset: int
    ) -> None:
        """Records of a stored batch as they are: so many from this place on."""
        before = at
        step = max(1, SPLICED_BYTES * stored.header.records // (len(stored.data) + 1))
        while count:
            records = self._records(target, stored.header.codec)
            taken = min(step, count)
            at = records.splice(
                stored.data, at, taken, base_offset, stored.base_ms, stored.stamped_ms
            )
            count -= taken
        self.size_bytes += at - before

    def pick(
        self, target: TopicPartition, stored: StoredRecords, places: Sequence[int], base_offset: int
    ) -> None:
        """Records of a stored batch as they are: those at these places."""
        size = len(stored.data) // (stored.header.records or 1) + 1
        step = max(1, SPLICED_BYTES // size)
        for at in range(0, len(places), step):
            taken = places[at : at + step]
            self._records(target, stored.header.codec).splice(
                stored.data,
                0,
                len(taken),
                base_offset,
                stored.base_ms,
                stored.stamped_ms,
                places=taken,
            )
        self.size_bytes += size * len(places)

    def pass_on(self, target: TopicPartition, view: memoryview, header: Header) -> None:
        """A stored batch, wholly as it is."""
        if target in self._open:
            self._close(target)
        offsets = SourceOffsets.from_(header.base_offset)
        built = Built(bytearray(view), header.records, offsets, header.max_timestamp_ms)
        self._full.append(Ready(target, built))
        self.size_bytes += len(view)

    def append(
        self, target: TopicPartition, rest: bytes, *, offset: int, time_ms: int, codec: int
    ) -> None:
        """An encoded record (`encoded`) that comes from this source offset."""
        records = self._records(target, codec)
        records.append(rest, offset=offset, time_ms=time_ms)
        self.size_bytes += len(rest)

    def _records(self, target: TopicPartition, codec: int) -> Records:
        known = self._open.get(target)
        if known is not None and known[0].size_bytes >= BATCH_BYTES:
            self._close(target)
            known = None
        if known is None:
            known = self._open[target] = (Records(), codec)
        return known[0]

    def _close(self, target: TopicPartition) -> None:
        records, codec = self._open.pop(target)
        built = records.build(codec=codec)
        if built is not None:
            self._full.append(Ready(target, built))

    def take(self) -> Iterator[Ready]:
        """All batches since the last call; those of a partition in order."""
        for target in list(self._open):
            self._close(target)
        ready, self._full, self.size_bytes = self._full, [], 0
        return iter(ready)


def encoded(output: Output) -> bytes:
    """Key, value and headers of an output as they stand in a record. Raises BadOutput."""
    pieces = [*_bytes(output.key, "key"), *_bytes(output.value, "value")]
    pieces.append(zigzag(len(output.headers)))
    for header in output.headers:
        if not isinstance(header, tuple) or len(header) != 2 or not isinstance(header[0], str):
            raise BadOutput(f"header {header!r} is no pair of a name and bytes")
        name = header[0].encode(*NAME_ENCODING)
        pieces += (zigzag(len(name)), name, *_bytes(header[1], f"header {header[0]}"))
    return b"".join(pieces)


def _bytes(value: object, name: str) -> tuple[bytes, bytes]:
    if value is None:
        return zigzag(-1), b""
    if not isinstance(value, bytes | bytearray):
        raise BadOutput(f"{name} is {type(value).__name__}, not bytes or None")
    return zigzag(len(value)), bytes(value)


def checked(output: object) -> Output:
    """An output whose fields a record can be made of. Raises BadOutput."""
    if isinstance(output, Record):
        return output.output()
    if not isinstance(output, Output):
        raise BadOutput(f"an output is {type(output).__name__}, not Record or Output")
    if not isinstance(output.timestamp_ms, int) or not -1 <= output.timestamp_ms < 1 << 62:
        raise BadOutput(f"timestamp_ms is {output.timestamp_ms!r}")
    if not (output.topic is None or (isinstance(output.topic, str) and output.topic)):
        raise BadOutput(f"topic is {output.topic!r}")
    if not (output.partition is None or isinstance(output.partition, int)):
        raise BadOutput(f"partition is {output.partition!r}")
    if not isinstance(output.headers, tuple | list):
        raise BadOutput(f"headers are {type(output.headers).__name__}")
    return output


_MURMUR_M = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C
_UINT32 = 0xFFFFFFFF


def partition_of(key: bytes, count: int) -> int:
    """Partition that the default partitioner of Kafka's Java client takes (murmur2, seed 9747b28c)."""
    return (murmur2(key) & (SEQUENCE_MODULUS - 1)) % count


def murmur2(data: bytes) -> int:
    size = len(data)
    found = _MURMUR_SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MURMUR_M & _UINT32
        part ^= part >> 24
        found = (found * _MURMUR_M & _UINT32) ^ (part * _MURMUR_M & _UINT32)
    if size > whole:
        found ^= int.from_bytes(data[whole:], "little")
        found = found * _MURMUR_M & _UINT32
    found ^= found >> 13
    found = found * _MURMUR_M & _UINT32
    return found ^ (found >> 15)
