"""WriteTxnMarkers requests (API 27, version 1) and responses, encoded by hand: control records on request.

Each entry appends one control record of a producer to each of its partitions. It takes one offset, no
consumer sees it, and the producer's sequence goes on behind it. So a gap of any length is filled by one
request, with as many entries as the gap has offsets. Needs Alter on the cluster.

Brokers append the entries in order, and respond once for each producer id, not for each entry: of a
partition with several entries the response has the outcome of the last one. The end of the log tells how
many were appended.

Request (flexible; C = compact, T = tag section):
    C[ producer_id i64, epoch i16, committed i8, C[ topic Cstr, C[ partition i32 ], T ],
    coordinator_epoch i32, T ], T

Response:
    C[ producer_id i64, C[ topic Cstr, C[ partition i32, error i16, T ], T ], T ], T
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ureplicator_common.kafka.client import CLIENT_ID
from ureplicator_common.kafka.wire.request import Request
from ureplicator_worker.wire import varint
from ureplicator_worker.wire.produce_api import Piece
from ureplicator_worker.wire.varint import MalformedResponse

API_KEY = 27
VERSION = 1
"""Version 2 adds the version of the transaction, by which a leader may want a newer epoch than it knows."""

TopicPartition = tuple[str, int]

_PRODUCER = struct.Struct(">qh?")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_ROW = struct.Struct(">ih")
_ABORTED = False


class Filling(NamedTuple):
    """`count` control records of a producer for a partition."""

    producer_id: int
    epoch: int
    count: int  # type: ignore[assignment]  # hides the method of tuples


def request(
    wanted: Mapping[TopicPartition, Filling],
    *,
    coordinator_epoch: int,
    correlation_id: int,
    client_id: str = CLIENT_ID,
) -> list[Piece]:
    """Pieces of a framed request. A leader refuses a lower coordinator epoch than a producer's last one."""
    producers: dict[tuple[int, int], dict[TopicPartition, int]] = {}
    for key, filling in wanted.items():
        producers.setdefault(filling[:2], {})[key] = filling.count
    end = _INT32.pack(coordinator_epoch) + b"\x00"
    total, parts = 0, [b""]
    for (producer_id, epoch), counts in producers.items():
        start = _PRODUCER.pack(producer_id, epoch, _ABORTED)
        for times, keys in _runs(counts):
            total += times
            parts.append((start + _topics(keys) + end) * times)
    parts[0] = varint.encode(total + 1)
    framed = Request(API_KEY, VERSION, b"".join((*parts, b"\x00")))
    framed.with_header(correlation_id=correlation_id, client_id=client_id)
    return [framed.encode(framed=True, header=True)]


def _runs(counts: Mapping[TopicPartition, int]) -> Iterator[tuple[int, list[TopicPartition]]]:
    """Equal entries of a producer in order: how many there are, and their partitions."""
    reached = 0
    for count in sorted({count for count in counts.values() if count > 0}):
        yield count - reached, [key for key, wanted in counts.items() if wanted >= count]
        reached = count


def _topics(keys: Sequence[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    parts = [varint.encode(len(topics) + 1)]
    for topic, numbers in topics.items():
        parts += (varint.text(topic), varint.encode(len(numbers) + 1))
        parts += (*map(_INT32.pack, numbers), b"\x00")
    return b"".join(parts)


def parse(view: memoryview) -> dict[TopicPartition, list[int]]:
    """Error codes of each partition, in the order of the response. It comes without its length, correlation
    id first. Raises MalformedResponse."""
    try:
        return _parse(view)
    except (IndexError, OverflowError, struct.error) as error:
        raise MalformedResponse(f"malformed response to WriteTxnMarkers: {error}") from error


def _parse(view: memoryview) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    at = varint.skip_tags(view, 4)
    producers, at = varint.read(view, at)
    for _ in range(producers - 1):
        topics, at = varint.read(view, at + _INT64.size)
        for _ in range(topics - 1):
            topic, at = varint.read_text(view, at)
            rows, at = varint.read(view, at)
            for _ in range(rows - 1):
                number, error = _ROW.unpack_from(view, at)
                found.setdefault((topic, number), []).append(error)
                at = varint.skip_tags(view, at + _ROW.size)
            at = varint.skip_tags(view, at)
        at = varint.skip_tags(view, at)
    varint.skip_tags(view, at)
    return found
