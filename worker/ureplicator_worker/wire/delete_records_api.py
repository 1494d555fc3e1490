"""DeleteRecords requests (API 21, version 2) and responses, encoded by hand: the log start moves up.

Needs Delete on the topic. An offset above the high watermark is refused with OFFSET_OUT_OF_RANGE, and a topic
that is compacted only with POLICY_VIOLATION. What was deleted before stays deleted: an offset below the log
start is no error.

Request (flexible; C = compact, T = tag section):
    C[ topic Cstr, C[ partition i32, offset i64, T ], T ], timeout_ms i32, T

Response:
    throttle_ms i32, C[ topic Cstr, C[ partition i32, low_watermark i64, error i16, T ], T ], T
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ureplicator_common.kafka.client import CLIENT_ID
from ureplicator_common.kafka.wire.request import Request
from ureplicator_worker.wire import varint
from ureplicator_worker.wire.produce_api import BROKER_TIMEOUT_MS, Piece
from ureplicator_worker.wire.varint import MalformedResponse

API_KEY = 21
VERSION = 2
HIGH_WATERMARK = -1
"""Offset for the end of what consumers see."""

TopicPartition = tuple[str, int]

_PARTITION = struct.Struct(">iqb")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(">iqh")


def request(
    before: Mapping[TopicPartition, int],
    *,
    correlation_id: int,
    client_id: str = CLIENT_ID,
    timeout_ms: int = BROKER_TIMEOUT_MS,
) -> list[Piece]:
    """Pieces of a framed request: of each partition, the first offset that stays.

    The time limit is for followers, which delete first.
    """
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, number), offset in before.items():
        topics.setdefault(topic, []).append((number, offset))
    parts = [varint.encode(len(topics) + 1)]
    for topic, rows in topics.items():
        parts += (varint.text(topic), varint.encode(len(rows) + 1))
        parts += (_PARTITION.pack(number, offset, 0) for number, offset in rows)
        parts.append(b"\x00")
    parts += (_INT32.pack(timeout_ms), b"\x00")
    framed = Request(API_KEY, VERSION, b"".join(parts))
    framed.with_header(correlation_id=correlation_id, client_id=client_id)
    return [framed.encode(framed=True, header=True)]


def parse(view: memoryview) -> dict[TopicPartition, tuple[int, int]]:
    """(error code, low watermark of all replicas) of each partition, of a response without its length,
    correlation id first. Raises MalformedResponse."""
    try:
        return _parse(view)
    except (IndexError, OverflowError, struct.error) as error:
        raise MalformedResponse(f"malformed response to DeleteRecords: {error}") from error


def _parse(view: memoryview) -> dict[TopicPartition, tuple[int, int]]:
    found: dict[TopicPartition, tuple[int, int]] = {}
    at = varint.skip_tags(view, 4)
    topics, at = varint.read(view, at + _INT32.size)
    for _ in range(topics - 1):
        topic, at = varint.read_text(view, at)
        rows, at = varint.read(view, at)
        for _ in range(rows - 1):
            number, low_watermark, error = _ROW.unpack_from(view, at)
            found[topic, number] = (error, low_watermark)
            at = varint.skip_tags(view, at + _ROW.size)
        at = varint.skip_tags(view, at)
    varint.skip_tags(view, at)
    return found
