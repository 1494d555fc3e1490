"""Metadata by hand: requests for topics by name; responses with brokers, and topics with ids and leaders.

Clusters have tens of thousands of topics, and while topics are added each slot and the leader read them
several times a second; the library makes an object for each partition, which takes three times as long.

Layout (Metadata v10, flexible; https://kafka.apache.org/protocol#The_Messages_Metadata). A compact array or
string begins with its length + 1 as a varint, 0 for null; tags are a varint count, nothing after 0:

    request: topics (null: all), may create 1, two kinds of authorized operations 2, tags
        topics: topic id 16, name string, tags
    response: correlation id 4, tags, throttle time 4
        brokers: node id 4, host string, port 4, rack string, tags
        cluster id string, controller id 4
        topics: error 2, name string, topic id 16, is internal 1, partitions, authorized operations 4, tags
            partitions: error 2, number 4, leader 4, leader epoch 4, replicas, in sync, offline (4 each), tags
        authorized operations 4, tags

The loop over partitions is the hot path.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.wire.reader import Reader
from ureplicator_common.kafka.wire.request import Request, compact, varint

METADATA, METADATA_VERSION = 3, 10
_NO_ID = bytes(16)
_NO_TAGS = b"\0"
_ALL = b"\0"
_NOTHING_MORE = b"\0\0\0" + _NO_TAGS
"""No creation, no authorized operations."""
_TOPIC = struct.Struct(">hB")
"""Error, first byte of the length of the name."""
_ID = struct.Struct(">16s?")
_OPERATIONS_BYTES = 4
_PARTITION = struct.Struct(">hiii")
_ARRAYS = (0, 1, 2)
"""Arrays of nodes in a partition."""


class MetadataRequest(Request):
    """`topics`: None asks for all, an empty sequence for the brokers alone."""

    __slots__ = ("topics",)

    def __init__(self, topics: Sequence[str] | None) -> None:
        self.topics = topics
        rows = _ALL
        if topics is not None:
            rows = varint(len(topics) + 1)
            rows += b"".join(_NO_ID + compact(topic) + _NO_TAGS for topic in topics)
        super().__init__(METADATA, METADATA_VERSION, rows + _NOTHING_MORE)


class TopicRow(NamedTuple):
    """`id`: 16 bytes, zeros for a topic without one. Of a partition: error, number, node and epoch of its
    leader."""

    error: int
    name: str
    id: bytes
    is_internal: bool
    partitions: Sequence[tuple[int, int, int, int]]


class BrokerRow(NamedTuple):
    node_id: int
    host: str
    port: int


class Metadata(NamedTuple):
    """There is at least one broker."""

    cluster_id: str
    brokers: Sequence[BrokerRow]
    topics: Sequence[TopicRow]


def decode_metadata(body: bytes) -> Metadata:
    """A response behind its correlation id. Raises ClusterUnavailable: it is malformed, or of a broker that
    has just started: that one knows no topics either."""
    reader = Reader(body, at=0)
    try:
        found = _metadata(reader)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ClusterUnavailable(f"malformed response to Metadata: {error}") from error
    if not found.brokers:
        raise ClusterUnavailable("a broker that has just started knows no brokers yet")
    return found


def _metadata(reader: Reader) -> Metadata:
    reader.skip_tags()
    reader.integer()
    brokers = [_broker(reader) for _ in range(reader.count())]
    cluster_id = reader.text()
    reader.integer()
    topics = _topics(reader)
    reader.integer()
    reader.skip_tags()
    if reader.at != len(reader.data):
        raise IndexError(f"{len(reader.data)} bytes, {reader.at} of them read")
    return Metadata(cluster_id, brokers, topics)


def _broker(reader: Reader) -> BrokerRow:
    row = BrokerRow(reader.integer(), reader.text(), reader.integer())
    reader.text()
    reader.skip_tags()
    return row


def _topics(reader: Reader) -> list[TopicRow]:
    """Lengths below 128 are one byte, which is nearly always so; the reader takes what is longer."""
    rows: list[TopicRow] = []
    count, body = reader.count(), reader.data
    at = reader.at
    for _ in range(count):
        error, length = _TOPIC.unpack_from(body, at)
        if 0 < length < 0x80:
            begin = at + _TOPIC.size
            at = begin + length - 1
            name = body[begin:at].decode()
        else:
            reader.at = at + _TOPIC.size - 1
            name, at = reader.text(), reader.at
        id, is_internal = _ID.unpack_from(body, at)
        reader.at = at + _ID.size
        partitions = _partitions(reader)
        reader.at += _OPERATIONS_BYTES
        reader.skip_tags()
        at = reader.at
        rows.append(TopicRow(error, name, id, is_internal, partitions))
    reader.at = at
    return rows


def _partitions(reader: Reader) -> list[tuple[int, int, int, int]]:
    rows: list[tuple[int, int, int, int]] = []
    count, body = reader.count(), reader.data
    at = reader.at
    for _ in range(count):
        rows.append(_PARTITION.unpack_from(body, at))
        at += _PARTITION.size
        for _ in _ARRAYS:
            length = body[at]
            if length >= 0x80:
                reader.at = at
                length = reader.varint()
                at = reader.at + 4 * (length - 1)
            else:
                at += 4 * length - 3 if length else 1
        if body[at]:
            reader.at = at
            reader.skip_tags()
            at = reader.at
        else:
            at += 1
    reader.at = at
    return rows
