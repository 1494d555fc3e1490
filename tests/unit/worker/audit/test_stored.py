"""Responses of a broker as the audit reads them: batches in order, damage, errors."""

from __future__ import annotations

import random
import socket
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterView, Leader, Opened
from ureplicator_testkit.records.batches import TRANSACTIONAL, batch, marker, patched
from ureplicator_worker.audit import stored
from ureplicator_worker.audit.stored import StoredBatches

BROKER = Broker(1, "b", 9092)
VIEW = ClusterView("c", {1: BROKER}, {("t", 0): Leader(1, 0)}, {})


class Client:
    """Client of a cluster with one broker and the topic `t`."""

    security = None
    name = "cluster west"

    def __init__(self) -> None:
        self.paused_s: list[float] = []

    def pause(self, delay_s: float) -> None:
        self.paused_s.append(delay_s)

    def view(self, topics: Sequence[str]) -> ClusterView:
        return VIEW


def response(
    correlation: int,
    records: bytes,
    *,
    error: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
) -> bytes:
    partition = FetchResponse.FetchableTopicResponse.PartitionData
    rows = [
        partition.AbortedTransaction(producer_id=producer, first_offset=first)
        for producer, first in aborted
    ]
    topic = FetchResponse.FetchableTopicResponse(
        topic="t",
        topic_id=uuid.UUID(int=0),
        partitions=[
            partition(
                partition_index=0,
                error_code=error,
                high_watermark=1_000,
                last_stable_offset=1_000,
                log_start_offset=0,
                aborted_transactions=rows,
                preferred_read_replica=-1,
                records=records,
            )
        ],
    )
    reply = FetchResponse(
        version=12, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic]
    )
    reply.with_header(correlation_id=correlation, client_id="")
    whole: bytes = reply.encode(framed=True, header=True)
    return whole


def throttled(correlation: int, throttle_ms: int) -> bytes:
    """A throttled response, without a topic."""
    reply = FetchResponse(
        version=12, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=[]
    )
    reply.with_header(correlation_id=correlation, client_id="")
    whole: bytes = reply.encode(framed=True, header=True)
    return whole


Answer = Callable[..., StoredBatches]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """A topic whose broker sends these responses, each to a request that it does not read."""
    opened: list[socket.socket] = []

    def answer(*responses: bytes, client: Client | None = None, **options: Any) -> StoredBatches:
        ours, theirs = socket.socketpair()
        opened.extend((ours, theirs))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        theirs.sendall(b"".join(responses))
        theirs.shutdown(socket.SHUT_WR)
        monkeypatch.setattr(stored, "connect", lambda *_, **__: Opened(ours, None))
        return StoredBatches(client or Client(), "t", **options)  # type: ignore[arg-type]

    yield answer
    for end in opened:
        end.close()


def large(base_offset: int) -> bytes:
    """Above what is always read whole."""
    value = random.Random(base_offset).randbytes(40_000)  # noqa: S311
    return batch([(1_000, b"k", value, ())], base_offset=base_offset)


def test_batches_of_all_responses_in_order(answering: Answer) -> None:
    small = [batch(5, base_offset=at) for at in (0, 5, 10)]
    log = answering(
        response(1, b"".join([*small, large(15), large(16)[:300]])),
        response(2, large(16) + batch(3, base_offset=17)),
        response(3, b""),
    )
    found = [(read.first, read.next) for read in log.batches(0, 7)]
    assert found == [(5, 10), (10, 15), (15, 16), (16, 17), (17, 20)]
    log.close()


@pytest.mark.parametrize(
    ("whole", "verify_every", "seen"),
    [(large(0), 1, True), (large(0), 1_000, False), (batch(5), 1_000, True)],
)
def test_damage_is_seen_where_the_records_are_read(
    answering: Answer, whole: bytes, verify_every: int, seen: bool
) -> None:
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    for data, fits in ((whole, True), (bytes(damaged), not seen)):
        log = answering(response(1, data), response(2, b""), verify_every=verify_every)
        (found,) = log.batches(0, 0)
        assert (found.form is not None) == fits


def test_a_throttled_response_is_waited_for_on_the_same_connection(answering: Answer) -> None:
    client = Client()
    log = answering(
        throttled(1, 400), response(2, batch(3)), throttled(3, 20), response(4, b""), client=client
    )
    assert [read.next for read in log.batches(0, 0)] == [3]
    assert client.paused_s == [0.4, 0.02]


def test_aborted_records_are_passed_over(answering: Answer) -> None:
    sent = [
        patched(batch(5), base_offset=at, attributes=TRANSACTIONAL, producer_id=7) for at in (0, 6)
    ]
    log = [sent[0], marker(base_offset=5, producer_id=7, commit=False), sent[1]]
    reader = answering(response(1, b"".join(log), aborted=[(7, 0)]), response(2, b""))
    assert [read.first for read in reader.batches(0, 0)] == [6]


def test_the_next_partition_is_read_after_one_that_was_left_in_the_middle(
    answering: Answer,
) -> None:
    log = answering(response(1, large(0) + large(1)), response(2, batch(2)), response(3, b""))
    first = log.batches(0, 0)
    assert next(first).first == 0
    first.close()
    assert [read.next for read in log.batches(0, 0)] == [2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (response(1, b"", error=1), "OFFSET_OUT_OF_RANGE"),
        (response(9, b""), "response 9 to 1"),
        (response(1, large(0))[:30_000], "closed by the broker"),
        (response(1, patched(batch(2), length=-7)), "-56 bytes of records"),
        (struct.pack(">i", 3) + b"abc", "4 bytes of a response"),
    ],
)
def test_what_cannot_be_read_is_one_error(answering: Answer, data: bytes, reason: str) -> None:
    log = answering(data)
    with pytest.raises(ClusterUnavailable, match=reason):
        list(log.batches(0, 0))


def test_a_partition_without_a_leader(answering: Answer) -> None:
    with pytest.raises(ClusterUnavailable, match="t/1 has no leader"):
        list(answering().batches(1, 0))
