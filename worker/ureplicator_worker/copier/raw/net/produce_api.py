"""Produce requests (API 0, version 9) and responses, encoded by hand. Hot path.

One request holds at most one batch per partition: brokers refuse more. The batches are not moved in
memory; a request is a list of pieces for `socket.sendmsg`, small headers between large batches.

Request (flexible; C = compact, T = tag section):
    transactional_id Cstr or null, acks i16, timeout_ms i32,
    C[ topic Cstr, C[ partition i32, records Cbytes, T ], T ], T

Response:
    C[ topic Cstr, C[ partition i32, error i16, base_offset i64, append_time i64, log_start i64,
    C[ batch_index i32, message Cstr or null, T ], message Cstr or null, T ], T ], throttle_ms i32, T
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ureplicator_common.kafka.client import CLIENT_ID
from ureplicator_worker.copier.raw.net import varint
from ureplicator_worker.copier.raw.net.varint import MalformedResponse

API_KEY = 0
VERSION = 9
ACKS_ALL = -1
BROKER_TIMEOUT_MS = 1_500
"""Limit for a broker's wait for its followers, before it responds with REQUEST_TIMED_OUT. It reads no
other request of the connection meanwhile."""
ASIDE_TIMEOUT_MS = 10_000
"""The same on the connection of partitions whose followers are known to be slow."""

Piece = bytes | bytearray | memoryview

_HEADER = struct.Struct(">hhih")
_BODY = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(">ihqqq")


@dataclass(frozen=True, slots=True)
class Produced:
    """The response for one partition. `record_index` is the first record refused, -1 if not given."""

    topic: str
    number: int
    error: int
    base_offset: int
    record_index: int = -1
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    throttle_ms: int
    partitions: list[Produced]


def request(
    batches: Iterable[tuple[str, int, memoryview]],
    *,
    correlation_id: int,
    client_id: str = CLIENT_ID,
    timeout_ms: int = BROKER_TIMEOUT_MS,
) -> list[Piece]:
    """Pieces of a framed request for (topic, partition, batch) triples."""
    topics: dict[str, list[tuple[int, memoryview]]] = {}
    for topic, number, batch in batches:
        topics.setdefault(topic, []).append((number, batch))
    client = client_id.encode()
    pending = bytearray(
        _HEADER.pack(API_KEY, VERSION, correlation_id, len(client))
        + client
        + b"\x00\x00"
        + _BODY.pack(ACKS_ALL, timeout_ms)
        + varint.encode(len(topics) + 1)
    )
    pieces: list[Piece] = []
    size = 0
    for topic, rows in topics.items():
        pending += varint.text(topic) + varint.encode(len(rows) + 1)
        for number, batch in rows:
            pending += _INT32.pack(number) + varint.encode(len(batch) + 1)
            pieces += [bytes(pending), batch]
            size += len(pending) + len(batch)
            pending = bytearray(b"\x00")
        pending += b"\x00"
    pending += b"\x00"
    pieces.append(bytes(pending))
    size += len(pending)
    pieces[0] = _INT32.pack(size) + bytes(pieces[0])
    return pieces


def parse(buffer: bytearray | memoryview | bytes) -> ProduceResult:
    """A response without its length, correlation id first. Raises MalformedResponse."""
    try:
        return _parse(buffer)
    except (IndexError, OverflowError, struct.error) as error:
        raise MalformedResponse(f"malformed response to Produce: {error}") from error


def _parse(buffer: bytearray | memoryview | bytes) -> ProduceResult:
    at = varint.skip_tags(buffer, 4)
    topics, at = varint.read(buffer, at)
    found: list[Produced] = []
    for _ in range(topics - 1):
        topic, at = _text(buffer, at)
        rows, at = varint.read(buffer, at)
        for _ in range(rows - 1):
            produced, at = _row(buffer, at, topic)
            found.append(produced)
        at = varint.skip_tags(buffer, at)
    (throttle_ms,) = _INT32.unpack_from(buffer, at)
    return ProduceResult(throttle_ms, found)


def _row(buffer: bytearray | memoryview | bytes, at: int, topic: str) -> tuple[Produced, int]:
    number, error, base_offset, _append_time, _log_start = _ROW.unpack_from(buffer, at)
    count, at = varint.read(buffer, at + _ROW.size)
    index, message = -1, ""
    for _ in range(count - 1):
        (row_index,) = _INT32.unpack_from(buffer, at)
        text, at = _text(buffer, at + 4)
        at = varint.skip_tags(buffer, at)
        if index < 0:
            index, message = row_index, text
    text, at = _text(buffer, at)
    at = varint.skip_tags(buffer, at)
    return Produced(topic, number, error, base_offset, index, message or text), at


def _text(buffer: bytearray | memoryview | bytes, at: int) -> tuple[str, int]:
    """Compact nullable string; null is "" here."""
    size, at = varint.read(buffer, at)
    if size <= 1:
        return "", at
    return bytes(buffer[at : at + size - 1]).decode(errors="replace"), at + size - 1
