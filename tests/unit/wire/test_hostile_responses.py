"""Responses that are none: parsing raises MalformedResponse, and nothing else."""

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DeleteRecordsResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse, WriteTxnMarkersResponse

from ureplicator_testkit.records import batches
from ureplicator_worker.wire import (
    delete_records_api,
    fetch_api,
    markers_api,
    produce_api,
    varint,
)
from ureplicator_worker.wire.varint import MalformedResponse

PRODUCE: Any = ProduceResponse
FETCH: Any = FetchResponse
TOPICS = FetchResponse.FetchableTopicResponse
ROWS = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
MANY = settings(max_examples=300)


def fetched(version: int) -> bytes:
    rows = [
        TOPICS.PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            aborted_transactions=[
                TOPICS.PartitionData.AbortedTransaction(producer_id=4, first_offset=2)
            ],
            preferred_read_replica=-1,
            current_leader=TOPICS.PartitionData.LeaderIdAndEpoch(leader_id=3, leader_epoch=9),
            records=batches.batch(3),
        )
        for number in range(3)
    ]
    topic = TOPICS(topic="topic", topic_id=uuid.UUID(int=7), partitions=rows)
    place = FETCH.NodeEndpoint(node_id=3, host="b3", port=9_092, rack="r")
    response = FetchResponse(
        version=version,
        throttle_time_ms=0,
        error_code=0,
        session_id=5,
        responses=[topic] * 2,
        node_endpoints=[place] * 2,
    )
    response.with_header(correlation_id=1, client_id="")
    return bytes(response.encode(framed=False, header=True))


def produced(version: int) -> bytes:
    rows = [
        ROWS(
            index=number,
            error_code=87,
            base_offset=5,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=[
                ROWS.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="why")
            ],
            error_message="text",
            current_leader=ROWS.LeaderIdAndEpoch(leader_id=3, leader_epoch=9),
        )
        for number in range(3)
    ]
    topic = ProduceResponse.TopicProduceResponse(
        name="topic", topic_id=uuid.UUID(int=7), partition_responses=rows
    )
    place = PRODUCE.NodeEndpoint(node_id=3, host="b3", port=9_092, rack="r")
    response = ProduceResponse(
        version=version, responses=[topic] * 2, throttle_time_ms=0, node_endpoints=[place] * 2
    )
    response.with_header(correlation_id=1, client_id="")
    return bytes(response.encode(framed=False, header=True))


def marked(version: int) -> bytes:
    results = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topics = results.WritableTxnMarkerTopicResult
    rows = [
        topics.WritableTxnMarkerPartitionResult(partition_index=number, error_code=6)
        for number in range(3)
    ]
    result = results(producer_id=7, topics=[topics(name="topic", partitions=rows)] * 2)
    response = WriteTxnMarkersResponse(version=version, markers=[result] * 2)
    response.with_header(correlation_id=1, client_id="")
    return bytes(response.encode(framed=False, header=True))


def deleted(version: int) -> bytes:
    topics = DeleteRecordsResponse.DeleteRecordsTopicResult
    rows = [
        topics.DeleteRecordsPartitionResult(partition_index=number, error_code=0, low_watermark=9)
        for number in range(3)
    ]
    topic = topics(name="topic", partitions=rows)
    response = DeleteRecordsResponse(version=version, throttle_time_ms=0, topics=[topic] * 2)
    response.with_header(correlation_id=1, client_id="")
    return bytes(response.encode(framed=False, header=True))


WHOLE = (
    {f"fetch {version}": fetched(version) for version in (12, 13, 16)}
    | {f"produce {version}": produced(version) for version in (9, 10, 13)}
    | {"mark 1": marked(1), "delete 2": deleted(2)}
)


def parse(kind: str, raw: bytes) -> None:
    """Inside of an exact buffer, as a lease is."""
    view = memoryview(bytearray(raw))
    with contextlib.suppress(MalformedResponse):
        api, version = kind.split()
        if api == "produce":
            produce_api.parse(view, int(version))
        elif api == "mark":
            markers_api.parse(view)
        elif api == "delete":
            delete_records_api.parse(view)
        else:
            for row in fetch_api.parse(view, int(version)).partitions:
                assert 0 <= row.start <= row.end <= len(raw)


@pytest.mark.parametrize("kind", WHOLE)
@MANY
@given(st.binary(max_size=200))
def test_random_bytes(kind: str, raw: bytes) -> None:
    parse(kind, raw)


@pytest.mark.parametrize("kind", WHOLE)
@MANY
@given(st.data())
def test_responses_with_some_bytes_changed(kind: str, data: st.DataObject) -> None:
    raw = bytearray(WHOLE[kind])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
    parse(kind, bytes(raw))


@pytest.mark.parametrize("kind", WHOLE)
def test_every_cut_and_every_byte_replaced(kind: str) -> None:
    whole = WHOLE[kind]
    for at in range(len(whole)):
        parse(kind, whole[:at])
        for byte in (b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 20):
            parse(kind, whole[:at] + byte + whole[at + 1 :])


def test_a_long_varint_is_refused() -> None:
    assert varint.read(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(MalformedResponse):
        varint.read(b"\xff" * 19 + b"\x01", 0)
