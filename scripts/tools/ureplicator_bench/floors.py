"""The least that both clusters need for a copy of a topic, by any replicator.

A reader fetches every byte of the source and throws it away; a writer sends stored batches from memory.
Both are bare sockets: nothing is decoded, checked, ordered or committed. A replicator does at least this,
so it takes at least

    the longer one of both, and all processor time of both, brokers included, divided by the cores.

Each has two connections, as a worker with two slots has, and keeps them busy as Kafka's protocol allows:
the next Fetch is sent when the last one has been received, and five Produce requests are on their way.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import cpu_s
from ureplicator_common.kafka.client import ClusterClient, Leader, open_client
from ureplicator_testkit.records.topics import create_topic, delete_topic
from ureplicator_worker.records.fetch_connection import FetchConnection, opener
from ureplicator_worker.wire import fetch_api, produce_api
from ureplicator_worker.wire.fetch_api import Wanted
from ureplicator_worker.wire.topic_keys import TopicKey, TopicKeys

CONNECTIONS = 2
IN_FLIGHT = 5
FETCH_BYTES = 8 << 20
REQUEST_BYTES = 1 << 20
STORED_BYTES = 64 << 20
"""Bytes of batches that the writer repeats."""
CLIENT_ID = "bench-floor"
TARGET_TOPIC = "bench-floor"

_BATCH = struct.Struct(">qi11xi30xi")
"""base_offset, length; last_offset_delta; count of records."""
_HEADER_BYTES = 12
_INT32 = struct.Struct(">i")
_NO_EPOCH = -1
_NO_OFFSET = bytes(8)
"""Brokers give the offsets, and refuse batches of clients with others than 0."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Floor:
    """`read_s`, `write_s`: durations; `used_s`: processor time of both and of the brokers meanwhile."""

    records: int
    read_s: float
    write_s: float
    used_s: float

    @property
    def records_per_s(self) -> float:
        """No replicator on this machine can be faster."""
        cores = os.cpu_count() or 1
        return self.records / max(self.read_s, self.write_s, self.used_s / cores)


def measure(servers: Servers, topic: str, profile: Profile) -> Floor:
    """Floors of a full topic of the source."""
    bootstrap = servers.target.bootstrap
    create_topic(bootstrap, TARGET_TOPIC, partitions=profile.partitions)
    stored = [*_in_parallel(profile, lambda numbers: _read(servers, topic, numbers, keep=True))]
    used_before = _used_s(servers)
    read_s = _timed(profile, lambda numbers: _read(servers, topic, numbers))
    used_s = _used_s(servers) - used_before
    batches = [batch for part in stored for batch in part]
    per_partition = profile.records // profile.partitions
    used_before = _used_s(servers)
    write_s = _timed(profile, lambda numbers: _write(bootstrap, numbers, batches, per_partition))
    used_s += _used_s(servers) - used_before
    delete_topic(bootstrap, TARGET_TOPIC)
    return Floor(per_partition * profile.partitions, read_s, write_s, used_s)


def _used_s(servers: Servers) -> float:
    return cpu_s(servers.brokers()) + time.process_time()


def _timed(profile: Profile, work: Callable[[Sequence[int]], object]) -> float:
    began_s = time.monotonic()
    deque(_in_parallel(profile, work), maxlen=0)
    return time.monotonic() - began_s


def _in_parallel(profile: Profile, work: Callable[[Sequence[int]], _Result]) -> Iterator[_Result]:
    shares = [range(n, profile.partitions, CONNECTIONS) for n in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        yield from threads.map(work, [share for share in shares if share])


def _leader(client: ClusterClient, topic: str, number: int) -> tuple[Leader, TopicKeys]:
    view = client.view([topic])
    return view.leaders[topic, number], TopicKeys.of(topic, view.topic_ids[topic], number)


# Reading.


def _read(
    servers: Servers, topic: str, numbers: Sequence[int], *, keep: bool = False
) -> list[tuple[bytes, int]]:
    """Each partition up to its end, or as many batches with their records as the writer needs (`keep`)."""
    client = open_client("", {"bootstrap.servers": servers.source.bootstrap}, client_id=CLIENT_ID)
    kept: list[tuple[bytes, int]] = []
    for number in numbers:
        leader, keys = _leader(client, topic, number)
        broker = client.view([topic]).brokers[leader.node_id]
        connection = FetchConnection(broker, keys, open_connection=opener(client.security))
        position = 0
        while True:
            connection.send(Wanted(position, leader.epoch, _NO_EPOCH, FETCH_BYTES))
            view, result = connection.receive()
            (fetched,) = result.partitions
            before = position
            for start, end, last, count in _batches(view, fetched):
                position = last + 1
                if keep:
                    kept.append((_NO_OFFSET + view[start + len(_NO_OFFSET) : end], count))
            enough = keep and sum(len(batch) for batch, _ in kept) > STORED_BYTES
            if position == before or position >= fetched.high_watermark or enough:
                break
        connection.close()
    return kept


def _batches(view: memoryview, fetched: fetch_api.Fetched) -> Iterator[tuple[int, int, int, int]]:
    """Start and end in the response, last offset and count of records of each whole batch."""
    at = fetched.start
    while at + _BATCH.size <= fetched.end:
        base, length, delta, count = _BATCH.unpack_from(view, at)
        end = at + _HEADER_BYTES + length
        if end > fetched.end:
            return
        yield at, end, base + delta, count
        at = end


# Writing.


def _write(
    bootstrap: str, numbers: Sequence[int], batches: Sequence[tuple[bytes, int]], records: int
) -> None:
    """Write so many records to each partition."""
    client = open_client("", {"bootstrap.servers": bootstrap}, client_id=CLIENT_ID)
    leader, _ = _leader(client, TARGET_TOPIC, numbers[0])
    connection, newest = opener(client.security)(
        client.view([TARGET_TOPIC]).brokers[leader.node_id]
    )
    version = produce_api.version_for(newest[produce_api.API_KEY], has_ids=True)
    keys = [
        _leader(client, TARGET_TOPIC, number)[1].key(ids=version >= produce_api.IDS)
        for number in numbers
    ]
    waiting = 0
    for number, rows in enumerate(_requests(keys, batches, records)):
        if waiting == IN_FLIGHT:
            _acknowledged(connection, version)
            waiting -= 1
        pieces = produce_api.request(rows, version=version, correlation_id=number)
        _send(connection, pieces)
        waiting += 1
    for _ in range(waiting):
        _acknowledged(connection, version)
    connection.close()


def _requests(
    keys: Sequence[TopicKey], batches: Sequence[tuple[bytes, int]], records: int
) -> Iterator[list[tuple[TopicKey, memoryview]]]:
    """One batch of each partition in turn, up to `REQUEST_BYTES`."""
    left = dict.fromkeys(keys, records)
    stored = itertools.cycle(batches)
    rows: list[tuple[TopicKey, memoryview]] = []
    size = 0
    while left:
        for key in [*left]:
            batch, count = next(stored)
            rows.append((key, memoryview(batch)))
            size += len(batch)
            left[key] -= count
            if left[key] <= 0:
                del left[key]
            if size >= REQUEST_BYTES:
                yield rows
                rows, size = [], 0
        if rows:
            yield rows
            rows, size = [], 0


def _send(connection: socket.socket, pieces: Sequence[produce_api.Piece]) -> None:
    sent = connection.sendmsg(pieces)
    for piece in pieces:
        if sent < len(piece):
            connection.sendall(memoryview(piece)[sent:])
        sent = max(0, sent - len(piece))


def _acknowledged(connection: socket.socket, version: int) -> None:
    (size,) = _INT32.unpack(connection.recv(_INT32.size, socket.MSG_WAITALL))
    body = connection.recv(size, socket.MSG_WAITALL)
    refused = [
        partition for partition in produce_api.parse(body, version).partitions if partition.error
    ]
    assert not refused, refused
