"""All topics of a cluster, read from one Metadata response.

The leader lists the topics of each cluster every few seconds, and clusters have tens of thousands. librdkafka
lists them without their ids, and describing each of 10,000 topics to get these takes 0.8 s of a core. A
Metadata response has both, and in a quiet cluster it is byte for byte the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID

from ureplicator_common.kafka import ListedTopics, TopicInfo, topic_id_text
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, error_name
from ureplicator_common.kafka.wire.metadata import (
    METADATA_VERSION,
    MetadataRequest,
    TopicRow,
    decode_metadata,
)
from ureplicator_common.kafka.wire.reader import CORRELATION_ID_BYTES

_NO_ID = bytes(16)


class TopicListing:
    """Lists the topics of a cluster, from any thread; `open` makes the client of it."""

    def __init__(self, open: Callable[[], ClusterClient]) -> None:
        self._open = open
        self._lock = threading.Lock()
        self._client: ClusterClient | None = None
        self._decoder = ListingDecoder()

    def read(self) -> ListedTopics:
        """All that are not internal; the same object as before if nothing has changed. Raises
        ClusterUnavailable."""
        with self._lock:
            if self._client is None:
                self._client = self._open()
            found: ListedTopics = self._client.call_any(
                lambda: MetadataRequest(None), self._decoder
            )
            return found

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


class ListingDecoder:
    """Decodes Metadata responses, in place of the library's class; one that is the last one only once."""

    def __init__(self) -> None:
        self._body = b""
        self._listed: ListedTopics | None = None

    def decode(self, raw: bytes, *, version: int, header: bool) -> ListedTopics:
        """Raises ClusterUnavailable: the response is malformed, or of a broker that has just started."""
        assert (version, header) == (METADATA_VERSION, True)
        body = raw[CORRELATION_ID_BYTES:]
        if self._listed is None or body != self._body:
            found = decode_metadata(body)
            topics = {row.name: _info(row) for row in found.topics if _is_listed(row)}
            self._listed = ListedTopics(found.cluster_id, topics)
            self._body = body
        return self._listed


def _is_listed(row: TopicRow) -> bool:
    return not row.is_internal and row.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _info(row: TopicRow) -> TopicInfo:
    if row.error:
        return TopicInfo(partitions=0, error=error_name(row.error))
    text = "" if row.id == _NO_ID else topic_id_text(UUID(bytes=row.id))
    return TopicInfo(partitions=len(row.partitions), topic_id=text)
