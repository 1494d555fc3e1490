"""Bytes of the requests about start offsets of share groups (KIP-932), which brokers have since Kafka 4.2.

A share group has a start offset for each partition: what lies before it is done. Records behind it may be
done, too, one by one; that is not told, so they are delivered again where the start offset is set.

Notation as in `wire`:

    DescribeShareGroupOffsets 0   [C group C, topics C (null: all) T] T
    -> response                   throttle [C group C, topics, error, text C T] T; topics are
                                  [C topic C, id, [C row T] T], and a row is number, start offset,
                                  leader epoch, error, text C
    AlterShareGroupOffsets 0      group C [C topic C [C number, start offset T] T] T
    -> response                   throttle, error, text C [C topic C, id, [C number, error, text C T] T] T

A start offset of -1 is not initialised yet. A group that does not exist is created; one with members is
refused as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ureplicator_common.kafka.groups import CommittedOffset, Offsets, TopicPartition
from ureplicator_common.kafka.groups.wire import Decoder, FetchedGroup
from ureplicator_common.kafka.wire.reader import Reader
from ureplicator_common.kafka.wire.request import Request, compact, varint

DESCRIBE_SHARE_OFFSETS, ALTER_SHARE_OFFSETS = 90, 91
_NO_TAGS = b"\0"
_ID_BYTES = 16
_ROW = struct.Struct(">iq")
_DESCRIBED = struct.Struct(">iqi")
"""A described row up to its error: number, start offset, leader epoch."""


class Altered(NamedTuple):
    """Error code of the whole group, and of the partitions that were refused."""

    code: int
    refused: Mapping[TopicPartition, int]


def describe_share_offsets(groups: Sequence[str]) -> Request:
    """All topics of the groups."""
    rows = b"".join(compact(group) + b"\0" + _NO_TAGS for group in groups)
    return Request(DESCRIBE_SHARE_OFFSETS, 0, varint(len(groups) + 1) + rows + _NO_TAGS)


def alter_share_offsets(group: str, offsets: Offsets) -> Request:
    topics: dict[str, list[bytes]] = {}
    for (topic, number), committed in offsets.items():
        row = _ROW.pack(number, committed.offset) + _NO_TAGS
        topics.setdefault(topic, []).append(row)
    body = [compact(group), varint(len(topics) + 1)]
    for topic, rows in topics.items():
        body += [compact(topic), varint(len(rows) + 1), *rows, _NO_TAGS]
    return Request(ALTER_SHARE_OFFSETS, 0, b"".join([*body, _NO_TAGS]))


class ShareOffsetsDecoder(Decoder):
    """A list of FetchedGroup."""

    def parse(self, raw: bytes, version: int) -> list[FetchedGroup]:
        reader = Reader(raw, at=5 + 4)
        return [_group(reader) for _ in range(reader.count())]


def _group(reader: Reader) -> FetchedGroup:
    group = reader.text()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    worst = 0
    for _ in range(reader.count()):
        topic = reader.text()
        reader.at += _ID_BYTES
        for _ in range(reader.count()):
            number, start, _epoch = _DESCRIBED.unpack_from(reader.data, reader.at)
            reader.at += _DESCRIBED.size
            worst = max(worst, reader.short())
            reader.compact()
            reader.skip_tags()
            if start >= 0:
                offsets[topic, number] = CommittedOffset(start)
        reader.skip_tags()
    code = reader.short()
    reader.compact()
    reader.skip_tags()
    return FetchedGroup(group, code or worst, offsets)


class AlteredDecoder(Decoder):
    """`Altered`."""

    def parse(self, raw: bytes, version: int) -> Altered:
        reader = Reader(raw, at=5 + 4)
        code = reader.short()
        reader.compact()
        refused: dict[TopicPartition, int] = {}
        for _ in range(reader.count()):
            topic = reader.text()
            reader.at += _ID_BYTES
            for _ in range(reader.count()):
                number, error = reader.integer(), reader.short()
                reader.compact()
                reader.skip_tags()
                if error:
                    refused[topic, number] = error
            reader.skip_tags()
        return Altered(code, refused)
