"""All topics of a cluster, read from one Metadata response.

The leader lists the topics of each cluster every few seconds, and clusters have tens of thousands. librdkafka
lists them without their ids, and describing each of 10,000 topics to get these takes 0.8 s of a core. A
Metadata response has both, and in a quiet cluster it is byte for byte the last one.

Layout (Metadata v10, flexible; https://kafka.apache.org/protocol#The_Messages_Metadata). A compact array or
string begins with its length + 1 as a varint, 0 for null; tags are a varint count, nothing after 0:

    correlation id 4, tags, throttle time 4
    brokers: node id 4, host string, port 4, rack string, tags
    cluster id string, controller id 4
    topics: error 2, name string, topic id 16, is internal 1, partitions, authorized operations 4, tags
        partitions: error 2, number 4, leader 4, leader epoch 4, replicas, in sync, offline (4 each), tags
    authorized operations 4, tags

The loop over partitions is the hot path: it only counts them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest

from ureplicator_common.kafka import ClusterUnavailable, TopicInfo, topic_id_text
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.cluster_view import CORRELATION_ID_BYTES, METADATA_VERSION
from ureplicator_common.kafka.errors import ErrorCode, error_name
from ureplicator_common.kafka.wire.reader import Reader

_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)
_PARTITION_BYTES = 14
"""Error, number, leader and its epoch."""
_ARRAYS = 3
"""Of nodes, in a partition."""


class TopicListing:
    """Lists the topics of a cluster, from any thread; `open` makes the client of it."""

    def __init__(self, open: Callable[[], ClusterClient]) -> None:
        self._open = open
        self._lock = threading.Lock()
        self._client: ClusterClient | None = None
        self._decoder = ListingDecoder()

    def topics(self) -> Mapping[str, TopicInfo]:
        """All that are not internal; the same object as before if nothing has changed. Raises
        ClusterUnavailable."""
        with self._lock:
            if self._client is None:
                self._client = self._open()
            found: Mapping[str, TopicInfo] = self._client.call_any(_request, self._decoder)
            return found

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _request() -> MetadataRequest:
    return MetadataRequest(
        version=METADATA_VERSION,
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


class ListingDecoder:
    """Decodes Metadata responses, in place of the library's class; one that is the last one only once."""

    def __init__(self) -> None:
        self._body = b""
        self._topics: Mapping[str, TopicInfo] | None = None

    def decode(self, raw: bytes, *, version: int, header: bool) -> Mapping[str, TopicInfo]:
        """Raises ClusterUnavailable: the response is malformed, or of a broker that has just started."""
        assert (version, header) == (METADATA_VERSION, True)
        body = raw[CORRELATION_ID_BYTES:]
        if self._topics is None or body != self._body:
            try:
                self._topics = _Response(body).topics()
            except (IndexError, struct.error, UnicodeDecodeError) as error:
                raise ClusterUnavailable(f"malformed response to Metadata: {error}") from error
            self._body = body
        return self._topics


class _Response:
    """One response behind its correlation id. Reads raise what those of `Reader` do."""

    def __init__(self, body: bytes) -> None:
        self._reader = Reader(body, at=0)

    def topics(self) -> dict[str, TopicInfo]:
        reader = self._reader
        reader.skip_tags()
        reader.integer()
        self._skip_brokers()
        reader.text()
        reader.integer()
        found: dict[str, TopicInfo] = {}
        for _ in range(reader.count()):
            name, info = self._topic()
            if info is not None:
                found[name] = info
        reader.integer()
        reader.skip_tags()
        if reader.at != len(reader.data):
            raise IndexError(f"{len(reader.data)} bytes, {reader.at} of them read")
        return found

    def _skip_brokers(self) -> None:
        reader = self._reader
        brokers = reader.count()
        if not brokers:
            raise ClusterUnavailable("a broker that has just started knows no brokers yet")
        for _ in range(brokers):
            reader.integer()
            reader.text()
            reader.integer()
            reader.text()
            reader.skip_tags()

    def _topic(self) -> tuple[str, TopicInfo | None]:
        """The topic; None if it is internal, or does not exist."""
        reader = self._reader
        error, name = reader.short(), reader.text()
        id = reader.data[reader.at : reader.at + _ID_BYTES]
        reader.at += _ID_BYTES
        is_internal = reader.data[reader.at] != 0
        reader.at += 1
        partitions = self._skip_partitions()
        reader.integer()
        reader.skip_tags()
        if is_internal or error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return name, None
        if error:
            return name, TopicInfo(partitions=0, error=error_name(error))
        text = "" if id == _NO_ID else topic_id_text(UUID(bytes=id))
        return name, TopicInfo(partitions=partitions, topic_id=text)

    def _skip_partitions(self) -> int:
        """Pass over the partitions; their number."""
        reader = self._reader
        count, body = reader.count(), reader.data
        for _ in range(count):
            at = reader.at + _PARTITION_BYTES
            for _ in range(_ARRAYS):
                length = body[at]
                if length >= 0x80:
                    reader.at = at
                    length = reader.varint()
                    at = reader.at - 1
                at += 1 + 4 * max(0, length - 1)
            reader.at = at
            reader.skip_tags()
        return count
