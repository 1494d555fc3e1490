"""Headers of the stored batches of partitions, read over sockets of the audit's own.

A broker sends whole batches. What is not looked at is discarded (`received`). One of `VERIFY_EVERY`
responses is read whole, and the checksums of its batches are computed: a log that was damaged after the
broker had accepted a batch is found there, in time. Such a batch is not comparable by its checksum, and the
reader of its records says why.

A response without a batch is taken for the end of the log. Nothing is concluded from it: the records that
follow are compared one by one. A throttled response is waited for on its connection (KIP-219).

Requests are those of `log_offsets`; nothing is shared with the copiers but the opening of connections.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient, connect, open_client
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.log_offsets import fetch_request
from ureplicator_common.model import Route
from ureplicator_worker.audit.core.batches import (
    HEADER,
    Aborted,
    Batch,
    Lockstep,
    Matched,
    Place,
    parsed,
)
from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim
from ureplicator_worker.audit.received import DISCARD_BYTES, Received

CLIENT_ID = "ureplicator-audit"
FETCH_BYTES = 4 << 20
VERIFY_EVERY = 16

_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">ihi")
"""Throttle time, error, session."""
_TRANSACTION = struct.Struct(">qq")
_PARTITION = struct.Struct(">ihqqq")
"""Number, error, high watermark, last stable offset, start of the log."""


Clusters = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`places`: where each partition is known to be aligned; `ends`: source offsets; `claims`: of positions,
    about offsets."""

    route: Route
    topic: str
    target_topic: str
    places: Mapping[int, Place]
    ends: Mapping[int, int]
    timestamps: bool = True
    claims: Mapping[int, Claim] = field(default_factory=dict)


class StoredBatches:
    """Partitions of one topic of a cluster, one after the other. For one thread.

    `verify_every`: 1 to compute all checksums.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        timestamps: bool = True,
        verify_every: int = VERIFY_EVERY,
    ) -> None:
        self._client, self._topic, self._timestamps = client, topic, timestamps
        self._verify_every = verify_every
        self._connections: dict[Broker, tuple[socket.socket, Received]] = {}
        self._requests = 0
        self._throttle_ms = 0

    def batches(self, partition: int, first: int) -> Generator[Batch]:
        """Batches with committed records, from the one that holds `first` on, to the end of the log.

        Raises ClusterUnavailable, OldFormat.
        """
        broker = self._leader(partition)
        offset = first
        while True:
            received = self._sent(broker, partition, offset)
            before = offset
            try:
                for batch, after in self._read(received):
                    if after <= offset:
                        continue
                    offset = after
                    if batch is not None:
                        yield batch
            except (OSError, ValueError) as error:
                self._close(broker)
                raise ClusterUnavailable(f"{broker}: {error}") from error
            finally:
                self._drain(broker)
            if self._throttle_ms:
                self._client.pause(self._throttle_ms / 1_000)
            elif offset == before:
                return

    def _leader(self, partition: int) -> Broker:
        view = self._client.view([self._topic])
        leader = view.leader_of(self._topic, partition)
        if leader is None:
            raise ClusterUnavailable(f"{self._topic}/{partition}{view.leaderless(self._topic)}")
        return leader

    def _sent(self, broker: Broker, partition: int, offset: int) -> Received:
        wanted = {(self._topic, partition): offset}
        request = fetch_request(wanted, max_bytes_each=FETCH_BYTES, max_bytes=FETCH_BYTES)
        self._requests += 1
        request.with_header(correlation_id=self._requests, client_id=CLIENT_ID)
        try:
            connection, received = self._connected(broker)
            connection.sendall(request.encode(framed=True, header=True))
            received.begin()
        except OSError as error:
            self._close(broker)
            raise ClusterUnavailable(f"{broker}: {error}") from error
        return received

    def _connected(self, broker: Broker) -> tuple[socket.socket, Received]:
        if broker not in self._connections:
            opened = connect(broker, security=self._client.security, client_id=CLIENT_ID)
            self._connections[broker] = opened.connection, Received(opened.connection)
        return self._connections[broker]

    def _read(self, received: Received) -> Iterator[tuple[Batch | None, int]]:
        """Each batch, None if it is not of interest, and the offset behind it."""
        aborted, left = self._begun(received)
        computes = not self._requests % self._verify_every
        while left >= HEADER.size:
            header = received.take(HEADER.size)
            batch, after, size = parsed(header, timestamps=self._timestamps, aborted=aborted)
            if size < 0:
                raise ValueError(f"{size} bytes of records in the batch before offset {after}")
            left -= HEADER.size + size
            if left < 0:
                return
            if batch is not None and batch.form and (computes or size <= DISCARD_BYTES):
                if received.checksum(size, batch.head) != batch.crc:
                    batch = batch._replace(form=None)
            else:
                received.skip(size)
            yield batch, after

    def _begun(self, received: Received) -> tuple[Aborted, int]:
        """Read up to the batches: the aborted transactions, and the bytes of the batches."""
        (correlation,) = received.number(_SIZE)
        if correlation != self._requests:
            raise ConnectionAbortedError(f"response {correlation} to {self._requests}")
        received.tags()
        self._throttle_ms, error, _ = received.number(_ERROR)
        topics = 0 if error else received.varint() - 1
        if topics <= 0 and not error and self._throttle_ms:
            return Aborted(), 0
        if topics == 1:
            received.skip(received.varint() - 1)
            if received.varint() == 2:
                _, error, *_ = received.number(_PARTITION)
        if error:
            right = f"READ on topic {self._topic}"
            raise ClusterUnavailable(f"{self._topic}: {refusal(error, right, self._client.name)}")
        aborted: list[tuple[int, int]] = []
        for _ in range(max(0, received.varint() - 1)):
            producer, first = received.number(_TRANSACTION)
            aborted.append((producer, first))
            received.tags()
        received.skip(4)
        return Aborted(aborted), max(0, received.varint() - 1)

    def _drain(self, broker: Broker) -> None:
        """Pass over the rest of a response, if there is one to come."""
        if broker in self._connections:
            received = self._connections[broker][1]
            try:
                received.skip(received.left)
            except OSError:
                self._close(broker)

    def _close(self, broker: Broker) -> None:
        opened = self._connections.pop(broker, None)
        if opened is not None:
            opened[0].close()

    def close(self) -> None:
        for broker in list(self._connections):
            self._close(broker)


class Scan(Protocol):
    """Places at which the partitions stop to be equal. Raises OperatingError, OldFormat."""

    def __call__(self, wanted: Wanted, *, late: Callable[[], bool]) -> Mapping[int, Matched]: ...


class Scanner:
    """Passes over what is provably equal, with the clusters' properties by their names."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def __call__(self, wanted: Wanted, *, late: Callable[[], bool]) -> dict[int, Matched]:
        """Places at which the partitions stop to be equal. Raises OperatingError, OldFormat."""
        with (
            self._opened(wanted.route.source, wanted.topic, wanted) as source,
            self._opened(wanted.route.target, wanted.target_topic, wanted) as target,
        ):
            return {
                number: _matched(source, target, number, wanted, late) for number in wanted.places
            }

    @contextmanager
    def _opened(self, cluster: str, topic: str, wanted: Wanted) -> Iterator[StoredBatches]:
        client = open_client(cluster, self._clusters[cluster], client_id=CLIENT_ID)
        with (
            closing(client),
            closing(StoredBatches(client, topic, timestamps=wanted.timestamps)) as batches,
        ):
            yield batches


def _matched(
    source: StoredBatches,
    target: StoredBatches,
    number: int,
    wanted: Wanted,
    late: Callable[[], bool],
) -> Matched:
    place, claim = wanted.places[number], wanted.claims.get(number, UNCLAIMED)
    with (
        closing(source.batches(number, place.source)) as ours,
        closing(target.batches(number, place.target)) as theirs,
    ):
        return Lockstep(
            ours, theirs, place=place, end=wanted.ends[number], claim=claim, late=late
        ).run()
