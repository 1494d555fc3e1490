"""Fetch requests (API 1, versions 12, 13 and 16) and responses, encoded by hand. Hot path.

All carry `last_fetched_epoch`: with it a leader reports that its log is not the one we read
(truncation, KIP-595) instead of returning other records under the same offsets. Version 13 names a topic
by its id (KIP-516), so one that was deleted and recreated is never read in place of the former. Brokers
below 3.1 support only version 12, with topic names (`topic_keys`). From version 16 on (3.7) a broker that
refuses a partition names its new leader (`new_leaders`), and the request has no replica id.

Request (flexible; C = compact, T = tag section):
    replica_id i32 (below 15), max_wait_ms i32, min_bytes i32, max_bytes i32, isolation i8, session_id i32,
    session_epoch i32, C[ topic Cstr or id, C[ partition i32, current_leader_epoch i32, fetch_offset i64,
    last_fetched_epoch i32, log_start_offset i64, partition_max_bytes i32, T ], T ],
    C[ forgotten: topic Cstr or id, C[ i32 ], T ], rack Cstr, T

Response:
    throttle_ms i32, error i16, session_id i32, C[ topic Cstr or id, C[ partition i32, error
    i16, high_watermark i64, last_stable_offset i64, log_start i64, C[ producer_id i64, first_offset i64,
    T ], preferred_replica i32, records Cbytes, T(0: diverging epoch i32, end_offset i64, T; 1: current
    leader) ], T ], T(0: node endpoints)

Sessions (KIP-227): the broker remembers what we fetch, so a request names only what changed and a
response only what has data or an error; a thousand quiet partitions cost nothing. A partition that must
not be fetched now (no room) is *forgotten* in the session, else the broker would return it again. A
session keeps to one version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ureplicator_common.kafka.client import CLIENT_ID, READ_COMMITTED, Broker, Leader
from ureplicator_worker.wire import varint
from ureplicator_worker.wire.new_leaders import read_endpoints, read_leader
from ureplicator_worker.wire.topic_keys import TopicKey, read_topic
from ureplicator_worker.wire.varint import MalformedResponse

API_KEY = 1
NAMES, IDS, LEADERS = 12, 13, 16
"""Versions: topics by name, topics by id, and with new leaders."""
NO_SESSION_EPOCH = 0
SESSIONLESS_EPOCH = -1
"""The broker keeps no session: each request names everything."""
DIVERGING_EPOCH_TAG = 0
CURRENT_LEADER_TAG = 1

_HEADER = struct.Struct(">hhih")
_REPLICA_ID = struct.Struct(">i")
_BODY = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqi")
_RESPONSE = struct.Struct(">ihi")
_ROW = struct.Struct(">ihqq8x")
_ABORTED = struct.Struct(">qq")
_DIVERGING = struct.Struct(">iq")
_INT32 = struct.Struct(">i")


def version_for(newest: int, *, has_ids: bool) -> int:
    """Version for a broker that knows versions up to `newest`, and topics with or without ids."""
    if not has_ids or newest < IDS:
        return NAMES
    return LEADERS if newest >= LEADERS else IDS


class Wanted(NamedTuple):
    """Fetch of one partition; epochs are -1 where unknown."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


class Fetched:
    """One partition of a response. `start`..`end` is where its records lie in the buffer.

    `last_stable`: end of what is fetched, before the first open transaction.

    `leader`: the new leader, where the broker names it, and `broker`: its address, if it is given.
    """

    __slots__ = (
        "aborted",
        "broker",
        "diverging",
        "end",
        "error",
        "high_watermark",
        "key",
        "last_stable",
        "leader",
        "start",
    )

    def __init__(self, key: TopicKey, *, error: int, high_watermark: int, last_stable: int) -> None:
        self.key = key
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.aborted: list[tuple[int, int]] = []
        self.diverging: tuple[int, int] | None = None
        self.leader: Leader | None = None
        self.broker: Broker | None = None
        self.start = self.end = 0


@dataclass(frozen=True, slots=True)
class FetchResult:
    throttle_ms: int
    error: int
    session_id: int
    partitions: list[Fetched]


class FetchSession:
    """Our side of one broker's fetch session: what the broker remembers, and what changed since."""

    def __init__(
        self,
        version: int,
        *,
        client_id: str = CLIENT_ID,
        first_epoch: int = NO_SESSION_EPOCH,
    ) -> None:
        self.version = version
        self._client_id = client_id.encode()
        self._id = 0
        self._epoch = self._first_epoch = first_epoch
        self._known: dict[TopicKey, Wanted] = {}

    @property
    def known(self) -> Mapping[TopicKey, Wanted]:
        """Everything that the last request fetches."""
        return self._known

    def request(
        self,
        changes: Mapping[TopicKey, Wanted | None],
        *,
        correlation_id: int,
        max_wait_ms: int,
        max_bytes: int,
        isolation: int = READ_COMMITTED,
    ) -> bytes:
        """The next request, framed; the session counts it as sent. None: fetch the partition no more."""
        changed, forgotten = self._apply(changes)
        body = _BODY.pack(max_wait_ms, 1, max_bytes, isolation, self._id, self._epoch)
        if self.version < LEADERS:
            body = _REPLICA_ID.pack(-1) + body
        parts = [
            _request_header(self.version, correlation_id, self._client_id),
            body,
            *_partitions(changed),
        ]
        parts += [*_forgotten(forgotten), b"\x01", b"\x00"]
        payload = b"".join(parts)
        return _INT32.pack(len(payload)) + payload

    def _apply(
        self, changes: Mapping[TopicKey, Wanted | None]
    ) -> tuple[Mapping[TopicKey, Wanted], list[TopicKey]]:
        """Named and forgotten partitions of a request. The first one of a session names everything."""
        known = self._known
        changed: dict[TopicKey, Wanted] = {}
        forgotten: list[TopicKey] = []
        for key, wanted in changes.items():
            if wanted is None:
                if known.pop(key, None) is not None:
                    forgotten.append(key)
            elif known.get(key) != wanted:
                known[key] = changed[key] = wanted
        return (changed, forgotten) if self._id else (known, [])

    def on_response(self, result: FetchResult) -> None:
        """Follow the broker's session; after an error the next request begins a new one."""
        if result.error or result.session_id == 0:
            self._id = 0
            self._epoch = self._first_epoch
            self._take_turns(result.partitions)
            return
        self._id = result.session_id
        self._epoch = 1 if self._epoch == 0x7FFFFFFF else self._epoch + 1

    def _take_turns(self, partitions: Iterable[Fetched]) -> None:
        """The next request names last what brought data, as brokers order their sessions."""
        for fetched in partitions:
            wanted = self._known.pop(fetched.key, None) if fetched.start < fetched.end else None
            if wanted is not None:
                self._known[fetched.key] = wanted


def _request_header(version: int, correlation_id: int, client: bytes) -> bytes:
    return _HEADER.pack(API_KEY, version, correlation_id, len(client)) + client + b"\x00"


def _by_topic(
    keys: Mapping[TopicKey, Wanted] | list[TopicKey],
) -> list[tuple[bytes, list[int]]]:
    """Partitions by topic in this order, which brokers keep: a topic may come again."""
    topics: list[tuple[bytes, list[int]]] = []
    for topic, number in keys:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(number)
    return topics


def _partitions(changed: Mapping[TopicKey, Wanted]) -> list[bytes]:
    topics = _by_topic(changed)
    parts = [varint.encode(len(topics) + 1)]
    for topic, numbers in topics:
        parts += [topic, varint.encode(len(numbers) + 1)]
        for number in numbers:
            want = changed[(topic, number)]
            parts.append(
                _PARTITION.pack(
                    number,
                    want.leader_epoch,
                    want.offset,
                    want.last_fetched_epoch,
                    -1,
                    want.max_bytes,
                )
            )
            parts.append(b"\x00")
        parts.append(b"\x00")
    return parts


def _forgotten(forgotten: list[TopicKey]) -> list[bytes]:
    topics = _by_topic(forgotten)
    parts = [varint.encode(len(topics) + 1)]
    for topic, numbers in topics:
        parts += [topic, varint.encode(len(numbers) + 1)]
        parts += [_INT32.pack(number) for number in numbers]
        parts.append(b"\x00")
    return parts


def parse(buffer: bytearray | memoryview | bytes, version: int) -> FetchResult:
    """A response without its length, correlation id first. Raises MalformedResponse."""
    try:
        return _parse(buffer, version)
    except (IndexError, OverflowError, struct.error) as error:
        raise MalformedResponse(f"malformed response to Fetch: {error}") from error


def _parse(buffer: bytearray | memoryview | bytes, version: int) -> FetchResult:
    at = varint.skip_tags(buffer, 4)
    throttle_ms, error, session_id = _RESPONSE.unpack_from(buffer, at)
    at += _RESPONSE.size
    topics, at = varint.read(buffer, at)
    found: list[Fetched] = []
    for _ in range(topics - 1):
        topic, at = read_topic(buffer, at, ids=version >= IDS)
        rows, at = varint.read(buffer, at)
        for _ in range(rows - 1):
            fetched, at = _row(buffer, at, topic)
            found.append(fetched)
        at = varint.skip_tags(buffer, at)
    moved = [fetched for fetched in found if fetched.leader is not None]
    brokers = read_endpoints(buffer, at) if moved else {}
    for fetched in moved:
        assert fetched.leader is not None
        fetched.broker = brokers.get(fetched.leader.node_id)
    return FetchResult(throttle_ms, error, session_id, found)


def _row(buffer: bytearray | memoryview | bytes, at: int, topic: bytes) -> tuple[Fetched, int]:
    number, error, high_watermark, last_stable = _ROW.unpack_from(buffer, at)
    fetched = Fetched(
        (topic, number), error=error, high_watermark=high_watermark, last_stable=last_stable
    )
    count, at = varint.read(buffer, at + _ROW.size)
    for _ in range(count - 1):
        fetched.aborted.append(_ABORTED.unpack_from(buffer, at))
        at = varint.skip_tags(buffer, at + _ABORTED.size)
    size, at = varint.read(buffer, at + 4)
    fetched.start = at
    at = fetched.end = at + max(0, size - 1)
    return fetched, _row_tags(buffer, at, fetched)


def _row_tags(buffer: bytearray | memoryview | bytes, at: int, fetched: Fetched) -> int:
    tags, at = varint.read_tags(buffer, at)
    if DIVERGING_EPOCH_TAG in tags:
        epoch, end_offset = _DIVERGING.unpack_from(buffer, tags[DIVERGING_EPOCH_TAG])
        if epoch >= 0 or end_offset >= 0:
            fetched.diverging = (epoch, end_offset)
    if CURRENT_LEADER_TAG in tags:
        fetched.leader = read_leader(buffer, tags[CURRENT_LEADER_TAG])
    return at
