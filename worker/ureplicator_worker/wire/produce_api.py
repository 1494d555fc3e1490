"""Produce requests (API 0, versions 9, 10, 12 and 13) and responses, encoded by hand. Hot path.

One request holds at most one batch per partition: brokers refuse more. The batches are not moved in
memory; a request is a list of pieces for `socket.sendmsg`, small headers between large batches.

From version 10 on (3.7) a broker that refuses a partition names its new leader (`new_leaders`). Version 13
(4.1) names a topic by its id (KIP-516), so that a batch for a topic that was deleted and recreated is
refused with UNKNOWN_TOPIC_ID instead of landing in the new one.

Request (flexible; C = compact, T = tag section):
    transactional_id Cstr or null, acks i16, timeout_ms i32,
    C[ topic Cstr or id, C[ partition i32, records Cbytes, T ], T ], T

Response:
    C[ topic Cstr or id, C[ partition i32, error i16, base_offset i64, append_time i64, log_start i64,
    C[ batch_index i32, message Cstr or null, T ], message Cstr or null, T(0: current leader) ], T ],
    throttle_ms i32, T(0: node endpoints)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ureplicator_common.kafka.client import CLIENT_ID, Broker, Leader
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_worker.wire import varint
from ureplicator_worker.wire.new_leaders import read_endpoints, read_leader
from ureplicator_worker.wire.topic_keys import TopicKey, read_topic
from ureplicator_worker.wire.varint import MalformedResponse

API_KEY = 0
NAMES, LEADERS, IN_TRANSACTION, IDS = 9, 10, 12, 13
"""Versions: topics by name, the same with new leaders, then partitions that join their transaction with their
first batch (KIP-890), then topics by id."""
CURRENT_LEADER_TAG = 0
ACKS_ALL = -1
BROKER_TIMEOUT_MS = 1_500
"""Limit for a broker's wait for its followers, before it responds with REQUEST_TIMED_OUT. It reads no
other request of the connection meanwhile."""
ASIDE_TIMEOUT_MS = 10_000
"""The broker's time-out on the connection of partitions whose followers are known to be slow."""

Piece = bytes | bytearray | memoryview

_HEADER = struct.Struct(">hhih")
_BODY = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(">ihqqq")


@dataclass(frozen=True, slots=True)
class Produced:
    """The response for one partition. `record_index` is the first record refused, -1 if not given.

    `leader`: the new leader, where the broker names it, and `broker`: its address, if it is given.
    """

    key: TopicKey
    error: int
    base_offset: int
    record_index: int = -1
    message: str = ""
    leader: Leader | None = None
    broker: Broker | None = None


@dataclass(frozen=True, slots=True)
class ProduceResult:
    throttle_ms: int
    partitions: list[Produced]


def version_for(newest: int, *, has_ids: bool, protocol: TransactionProtocol | None = None) -> int:
    """Version for a broker that knows versions up to `newest`, and topics with or without ids.

    `protocol`: of the transaction; from `IN_TRANSACTION` on a version belongs to the second one.
    """
    if protocol is TransactionProtocol.ADDED:
        newest = min(newest, IN_TRANSACTION - 1)
    if has_ids and newest >= IDS:
        return IDS
    if protocol is TransactionProtocol.IMPLICIT:
        return IN_TRANSACTION
    return LEADERS if newest >= LEADERS else NAMES


def request(
    batches: Iterable[tuple[TopicKey, memoryview]],
    *,
    version: int,
    correlation_id: int,
    client_id: str = CLIENT_ID,
    timeout_ms: int = BROKER_TIMEOUT_MS,
    transactional_id: str = "",
) -> list[Piece]:
    """Pieces of a framed request for pairs of partition and batch; with no id outside of transactions."""
    topics: dict[bytes, list[tuple[int, memoryview]]] = {}
    for (topic, number), batch in batches:
        topics.setdefault(topic, []).append((number, batch))
    client = client_id.encode()
    pending = bytearray(
        _HEADER.pack(API_KEY, version, correlation_id, len(client))
        + client
        + b"\x00"
        + (varint.text(transactional_id) if transactional_id else b"\x00")
        + _BODY.pack(ACKS_ALL, timeout_ms)
        + varint.encode(len(topics) + 1)
    )
    pieces: list[Piece] = []
    size = 0
    for topic, rows in topics.items():
        pending += topic + varint.encode(len(rows) + 1)
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


def parse(buffer: bytearray | memoryview | bytes, version: int) -> ProduceResult:
    """A response without its length, correlation id first. Raises MalformedResponse."""
    try:
        return _parse(buffer, version)
    except (IndexError, OverflowError, struct.error) as error:
        raise MalformedResponse(f"malformed response to Produce: {error}") from error


def _parse(buffer: bytearray | memoryview | bytes, version: int) -> ProduceResult:
    at = varint.skip_tags(buffer, 4)
    topics, at = varint.read(buffer, at)
    found: list[Produced] = []
    for _ in range(topics - 1):
        topic, at = read_topic(buffer, at, ids=version >= IDS)
        rows, at = varint.read(buffer, at)
        for _ in range(rows - 1):
            produced, at = _row(buffer, at, topic)
            found.append(produced)
        at = varint.skip_tags(buffer, at)
    (throttle_ms,) = _INT32.unpack_from(buffer, at)
    if any(produced.leader for produced in found):
        brokers = read_endpoints(buffer, at + 4)
        found = [_located(produced, brokers) for produced in found]
    return ProduceResult(throttle_ms, found)


def _located(produced: Produced, brokers: Mapping[int, Broker]) -> Produced:
    leader = produced.leader
    return produced if leader is None else replace(produced, broker=brokers.get(leader.node_id))


def _row(buffer: bytearray | memoryview | bytes, at: int, topic: bytes) -> tuple[Produced, int]:
    number, error, base_offset, _append_time, _log_start = _ROW.unpack_from(buffer, at)
    count, at = varint.read(buffer, at + _ROW.size)
    index, message = -1, ""
    for _ in range(count - 1):
        (row_index,) = _INT32.unpack_from(buffer, at)
        text, at = varint.read_text(buffer, at + 4)
        at = varint.skip_tags(buffer, at)
        if index < 0:
            index, message = row_index, text
    text, at = varint.read_text(buffer, at)
    tags, at = varint.read_tags(buffer, at)
    leader = read_leader(buffer, tags[CURRENT_LEADER_TAG]) if CURRENT_LEADER_TAG in tags else None
    key = (topic, number)
    return Produced(key, error, base_offset, index, message or text, leader), at
