"""Bytes of the requests about many groups. The library's classes need some 20 us for each row.

Requests have the interface of the library's: `version`, `with_header` and `encode`; decoders that of its
response classes: `decode`. C = compact, T = tag section:

    OffsetFetch 8      [C group C, topics C (null: all) T] stable T
    -> response        throttle [C group C, topics, error T] T; topics are [C topic C, [C row T] T], and a
                       row is number, offset, epoch, metadata C, error
    OffsetFetch 7      one group, without the outer array; the error behind the topics
    OffsetCommit 7     group, generation, member, instance, [topic, [number, offset, epoch, metadata]]
    -> response        throttle [topic, [number, error]]
    ListGroups 4       -> throttle, error, [C group C, kind C, state C T] T
    DescribeGroups 5   -> throttle, [C error, group C, state C, kind C, protocol C, members, rights T] T
    FindCoordinator 4  kind [C key C] T -> throttle [C key C, node, host C, port, error, text C T] T
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.cluster_view import Broker
from ureplicator_common.kafka.groups import CommittedOffset, ListedGroup, Offsets, TopicPartition
from ureplicator_common.kafka.wire.reader import Reader
from ureplicator_common.kafka.wire.request import Request, compact, plain, varint

UNKNOWN_LEADER_EPOCH = -1
"""Leader epoch that is written with each offset. An epoch of the source that is above the target's
would make consumers refresh their metadata again and again."""
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 8, 9, 10, 15, 16
MANY_GROUPS = 8
"""The first version of OffsetFetch with many groups in a request (KIP-709)."""
MANY_KEYS = 4
"""The first version of FindCoordinator with many keys in a request (KIP-699)."""
_NO_TAGS = b"\0"
_EMPTY = plain("")
_ROW = struct.Struct(">iqi")
_BARE_ROW = struct.Struct(">iqiBhB")
"""A fetched row without metadata: number, offset, epoch, size of the metadata, error, tags."""
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_REFUSED = struct.Struct(">ih")
_new = tuple.__new__
"""Makes a named tuple in half the time of its class."""


class FetchedGroup(NamedTuple):
    """Offsets of one group in a response, or an error code."""

    group: str
    error: int
    offsets: Offsets


def fetch_offsets(groups: Sequence[str], version: int) -> Request:
    """All topics of the groups; below MANY_GROUPS of a single one. Offsets of open transactions are left
    out, those before them are returned."""
    if version < MANY_GROUPS:
        (group,) = groups
        return Request(OFFSET_FETCH, version, compact(group) + b"\0\0" + _NO_TAGS)
    rows = b"".join(compact(group) + b"\0" + _NO_TAGS for group in groups)
    return Request(OFFSET_FETCH, version, varint(len(groups) + 1) + rows + b"\0" + _NO_TAGS)


def commit_offsets(group: str, offsets: Offsets) -> Request:
    """The OffsetCommit of a group without members."""
    topics: dict[str, list[bytes]] = {}
    for (topic, number), (offset, metadata) in offsets.items():
        row = _ROW.pack(number, offset, UNKNOWN_LEADER_EPOCH)
        topics.setdefault(topic, []).append(row + (plain(metadata) if metadata else _EMPTY))
    body = [plain(group), b"\xff\xff\xff\xff", plain(""), b"\xff\xff", _INT.pack(len(topics))]
    for topic, rows in topics.items():
        body += [plain(topic), _INT.pack(len(rows)), *rows]
    return Request(OFFSET_COMMIT, 7, b"".join(body), flexible=False)


def list_groups() -> Request:
    """ListGroups, for groups in all states."""
    return Request(LIST_GROUPS, 4, b"\1" + _NO_TAGS)


def describe_groups(groups: Sequence[str]) -> Request:
    rows = b"".join(map(compact, groups))
    return Request(DESCRIBE_GROUPS, 5, varint(len(groups) + 1) + rows + b"\0" + _NO_TAGS)


def find_coordinators(groups: Sequence[str]) -> Request:
    rows = b"".join(map(compact, groups))
    body = b"\0" + varint(len(groups) + 1) + rows + _NO_TAGS
    return Request(FIND_COORDINATOR, MANY_KEYS, body)


class Decoder:
    """Decoder of a connection's responses, in place of the library's class."""

    def decode(self, raw: bytes, *, version: int, header: bool) -> Any:
        """Raises ClusterUnavailable for bytes that are no such response."""
        assert header
        try:
            return self.parse(raw, version)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise ClusterUnavailable(f"a response that is not understood: {error}") from error

    def parse(self, raw: bytes, version: int) -> Any:
        raise NotImplementedError


class OffsetsDecoder(Decoder):
    """A list of FetchedGroup; of the group "" below MANY_GROUPS. `keys`: partitions that were seen before,
    so that all groups share them."""

    def __init__(self, keys: dict[TopicPartition, TopicPartition]) -> None:
        self._keys = keys

    def parse(self, raw: bytes, version: int) -> list[FetchedGroup]:
        reader = Reader(raw, at=5 + 4)
        if version < MANY_GROUPS:
            return [self._group(reader, "")]
        return [self._named(reader) for _ in range(reader.count())]

    def _named(self, reader: Reader) -> FetchedGroup:
        found = self._group(reader, reader.text())
        reader.skip_tags()
        return found

    def _group(self, reader: Reader, group: str) -> FetchedGroup:
        offsets: dict[TopicPartition, CommittedOffset] = {}
        error = 0
        for _ in range(reader.count()):
            topic = reader.text()
            error = max(error, self._topic(reader, topic, offsets))
            reader.skip_tags()
        return FetchedGroup(group, reader.short() or error, offsets)

    def _topic(
        self, reader: Reader, topic: str, offsets: dict[TopicPartition, CommittedOffset]
    ) -> int:
        """Adds its partitions to `offsets`; the highest error code of one."""
        data, keys, worst = reader.data, self._keys, 0
        for _ in range(reader.count()):
            number, offset, _epoch, size, code, tags = _BARE_ROW.unpack_from(data, reader.at)
            metadata = ""
            if size <= 1 and not tags:
                reader.at += _BARE_ROW.size
            else:
                reader.at += _ROW.size
                metadata, code = reader.text(), reader.short()
                reader.skip_tags()
            if code > worst:
                worst = code
            if offset >= 0:
                key = (topic, number)
                offsets[keys.setdefault(key, key)] = _new(CommittedOffset, (offset, metadata))
        return worst


class RefusedDecoder(Decoder):
    """Error codes of the partitions whose offsets were not committed."""

    def parse(self, raw: bytes, version: int) -> Mapping[TopicPartition, int]:
        at = 4 + 4
        (topics,) = _INT.unpack_from(raw, at)
        at += 4
        refused: dict[TopicPartition, int] = {}
        for _ in range(topics):
            (size,) = _SHORT.unpack_from(raw, at)
            name = raw[at + 2 : at + 2 + size]
            (rows,) = _INT.unpack_from(raw, at + 2 + size)
            at += 2 + size + 4
            for number, code in _REFUSED.iter_unpack(raw[at : at + rows * _REFUSED.size]):
                if code:
                    refused[name.decode(), number] = code
            at += rows * _REFUSED.size
        if at > len(raw):
            raise IndexError("the response is cut off")
        return refused


class ListDecoder(Decoder):
    """Error code, and groups."""

    def parse(self, raw: bytes, version: int) -> tuple[int, list[ListedGroup]]:
        reader = Reader(raw, at=5 + 4)
        code = reader.short()
        return code, list(self._groups(reader))

    def _groups(self, reader: Reader) -> Iterator[ListedGroup]:
        for _ in range(reader.count()):
            yield ListedGroup(reader.text(), reader.text(), reader.text())
            reader.skip_tags()


class StatesDecoder(Decoder):
    """Error code and state of each group."""

    def parse(self, raw: bytes, version: int) -> Mapping[str, tuple[int, str]]:
        reader = Reader(raw, at=5 + 4)
        found: dict[str, tuple[int, str]] = {}
        for _ in range(reader.count()):
            code = reader.short()
            group, state = reader.text(), reader.text()
            found[group] = code, state
            reader.compact()
            reader.compact()
            self._skip_members(reader)
            reader.at += 4
            reader.skip_tags()
        return found

    def _skip_members(self, reader: Reader) -> None:
        for _ in range(reader.count()):
            for _ in range(6):
                reader.compact()
            reader.skip_tags()


class CoordinatorsDecoder(Decoder):
    """Error code of each key, and its coordinator."""

    def parse(self, raw: bytes, version: int) -> Mapping[str, tuple[int, Broker]]:
        reader = Reader(raw, at=5 + 4)
        found: dict[str, tuple[int, Broker]] = {}
        for _ in range(reader.count()):
            key = reader.text()
            broker = Broker(reader.integer(), reader.text(), reader.integer())
            found[key] = reader.short(), broker
            reader.compact()
            reader.skip_tags()
        return found
