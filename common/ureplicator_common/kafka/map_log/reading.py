"""Offset maps of a route, read on a cluster: read_committed, from the beginning, incrementally.

Rows of the map and the position that they belong to are committed in one transaction. Its marker reaches the
partition of the positions and that of the map one after the other, so a position may be seen before its rows.
Readers that have positions wait for the rows that these name, while a transaction is open in the map.

A response without a batch does not show that the log has ended before its last stable offset. Compaction
leaves holes there, and the batch behind one may be of an open transaction, which only read_uncommitted shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from kafka.protocol.consumer import FetchResponse

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import EARLIEST, READ_UNCOMMITTED, Broker, ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, refusal
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.log_offsets import fetch_request, fetched_row, first_offset
from ureplicator_common.kafka.map_log.batches import decode_batches
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.codec import MapKey, encode_key
from ureplicator_common.offset_map.partition_map import MapView, PartitionMap
from ureplicator_common.offset_map.route_maps import RouteMaps

FETCH_BYTES = 4 << 20
LOAD_BYTES = 64 << 10
"""Bytes of one row that is read again; the broker returns a whole batch in any case (KIP-74)."""
NUMBER = 0
"""The topic has one partition."""
MARKER_WAIT_S = 1.0
MARKER_POLL_S = 0.02


class OffsetMaps(Protocol):
    """Offset maps of the partitions of one route."""

    def update(self, positions: Mapping[Partition, Position] | None = None) -> None:
        """Read to the end of what is committed, which includes the rows that belong to these positions.
        Raises ClusterUnavailable, UnknownMapFormat."""
        ...

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        """See `RouteMaps.view`. Its calls may raise ClusterUnavailable, too."""
        ...

    def close(self) -> None: ...


class KafkaOffsetMaps:
    """`OffsetMaps` and `MapReading` in this topic. Belongs to one thread at a time.

    `only`: see `RouteMaps`.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        only: Collection[Partition] | None = None,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._client = client
        self._topic = topic
        self._topic_id = ""
        self._only = only
        self._fetch_bytes = fetch_bytes
        self._maps = self._new()
        self._stable_end = self._end = 0
        self._goal: int | None = None

    def _new(self) -> RouteMaps:
        return RouteMaps(self._only, load=self._load)

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        return self._maps.view(partition, stored)

    @property
    def partitions(self) -> Mapping[Partition, PartitionMap]:
        return self._maps.partitions

    def close(self) -> None:
        self._client.close()

    def step(self) -> bool:
        """See `MapReading`."""
        leader = self._leader()
        if leader is None:
            return True
        more = self._fetch(leader)
        if self._goal is None:
            self._goal = self._end
        return not more and self._stable_end >= self._goal

    def update(self, positions: Mapping[Partition, Position] | None = None) -> None:
        """A topic that does not exist has no maps. Rows that are missing for good are waited for in vain, for
        `MARKER_WAIT_S` at most."""
        deadline_s = self._client.deadline_s(MARKER_WAIT_S)
        self._read_to_end()
        while self._stable_end < self._end and self._is_behind(positions or {}):
            if self._client.now_s() > deadline_s:
                return
            self._client.pause(MARKER_POLL_S)
            self._read_to_end()

    def _is_behind(self, positions: Mapping[Partition, Position]) -> bool:
        return not all(self._maps.reaches(*item) for item in positions.items())

    def _read_to_end(self) -> None:
        leader = self._leader()
        while leader is not None and self._fetch(leader):
            pass

    def _leader(self) -> Broker | None:
        view = self._client.view([self._topic])
        topic_id = view.topic_ids.get(self._topic, "")
        if topic_id != self._topic_id:
            self._maps, self._topic_id = self._new(), topic_id
            self._goal = None
        if not topic_id:
            if self._topic in view.missing:
                return None
            raise ClusterUnavailable(f"{self._topic}: {view.absence(self._topic)}")
        leader = view.leaders.get((self._topic, NUMBER))
        broker = view.brokers.get(leader.node_id) if leader else None
        if broker is None:
            raise ClusterUnavailable(f"{self._topic} has no leader", delay_s=0.2)
        return broker

    def _fetch(self, leader: Broker) -> bool:
        """One response; True if there may be more."""
        maps = self._maps
        before = maps.next_offset
        request = fetch_request(
            {(self._topic, NUMBER): before},
            max_bytes_each=self._fetch_bytes,
            max_bytes=self._fetch_bytes,
        )
        row = fetched_row(self._client.call(leader, request, FetchResponse), self._topic)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._restart(leader)
        if row.error_code:
            right = f"READ on topic {self._topic}"
            reason = refusal(row.error_code, right, self._client.name)
            raise ClusterUnavailable(f"{self._topic}: {reason}", delay_s=0.2)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in row.aborted_transactions or ()
        ]
        maps.fetched(decode_batches(bytes(row.records or b"")), aborted)
        self._stable_end, self._end = int(row.last_stable_offset), int(row.high_watermark)
        if before == maps.next_offset < self._stable_end:
            self._pass_hole(leader)
        return maps.next_offset < self._stable_end

    def _pass_hole(self, leader: Broker) -> None:
        """Go on at the last stable offset if the next batch is not before it. Raises ClusterUnavailable."""
        maps, key = self._maps, (self._topic, NUMBER)
        request = fetch_request(
            {key: maps.next_offset},
            max_bytes_each=self._fetch_bytes,
            max_bytes=self._fetch_bytes,
            isolation=READ_UNCOMMITTED,
        )
        row = fetched_row(self._client.call(leader, request, FetchResponse), self._topic)
        first = first_offset(bytes(row.records or b""))
        if first is None or first < self._stable_end:
            raise ClusterUnavailable(
                f"{self._topic}: a response without records at offset {maps.next_offset}, though the "
                f"log is committed up to {self._stable_end}",
                delay_s=0.2,
            )
        maps.next_offset = self._stable_end

    def _load(self, partition: Partition, at: int, target: int) -> bytes:
        """Value of a row of the batch at this offset. Raises ClusterUnavailable, also where the row was
        replaced meanwhile and compaction has removed it: the next update shows what took its place."""
        leader = self._leader()
        if leader is not None:
            request = fetch_request(
                {(self._topic, NUMBER): at}, max_bytes_each=LOAD_BYTES, max_bytes=LOAD_BYTES
            )
            row = fetched_row(self._client.call(leader, request, FetchResponse), self._topic)
            key = encode_key(MapKey(partition, target))
            for batch in decode_batches(bytes(row.records or b"")):
                found = [map_row.value for map_row in batch.rows if map_row.key == key]
                if batch.first == at and found and found[-1] is not None:
                    return found[-1]
        raise ClusterUnavailable(
            f"{self._topic}: the rows at offset {at} have changed, they are read anew", delay_s=0.2
        )

    def _restart(self, leader: Broker) -> bool:
        """The log was truncated, or begins later: everything is read again from its start."""
        self._maps = self._new()
        key = self._topic, NUMBER
        self._maps.next_offset = offset_at(self._client, leader, key, EARLIEST)
        return True
