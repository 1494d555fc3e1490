"""Produce requests and responses are those that another implementation writes and reads."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.net.produce_api import (
    BROKER_TIMEOUT_MS,
    Produced,
    parse,
    request,
)

TOPICS = st.text("abc.-_9", min_size=1, max_size=130)
ROWS = ProduceResponse.TopicProduceResponse.PartitionProduceResponse


@given(
    st.dictionaries(
        st.tuples(TOPICS, st.integers(0, 2**31 - 1)),
        st.binary(max_size=300),
        min_size=1,
        max_size=8,
    )
)
def test_a_request(parts: dict[tuple[str, int], bytes]) -> None:
    batches_of = ((*key, memoryview(data)) for key, data in parts.items())
    pieces = request(batches_of, correlation_id=77, client_id="eu-1")
    raw = b"".join(pieces)
    understood = ProduceRequest.decode(raw[4:], version=9, header=True)
    understood.with_header(correlation_id=77, client_id="eu-1")
    assert understood.encode(framed=True, header=True) == raw
    assert (understood.transactional_id, understood.acks) == (None, -1)
    assert understood.timeout_ms == BROKER_TIMEOUT_MS
    assert {
        (topic.name, row.index): bytes(row.records)
        for topic in understood.topic_data
        for row in topic.partition_data
    } == parts


def test_batches_are_not_copied() -> None:
    view = memoryview(batches.batch(3))
    assert any(piece is view for piece in request([("t", 0, view)], correlation_id=1))


def row(number: int, **fields: Any) -> Any:
    usual = {
        "error_code": 0,
        "base_offset": 5,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }
    return ROWS(index=number, **{**usual, **fields})


def encoded(topics: dict[str, list[Any]]) -> bytes:
    response = ProduceResponse(
        version=9,
        responses=[
            ProduceResponse.TopicProduceResponse(name=name, partition_responses=rows)
            for name, rows in topics.items()
        ],
        throttle_time_ms=70,
    )
    response.with_header(correlation_id=5, client_id="")
    return response.encode(framed=False, header=True)


def test_a_response() -> None:
    raw = encoded({"t": [row(0), row(1, error_code=19, base_offset=-1)], "u" * 200: [row(7)]})
    assert parse(raw).throttle_ms == 70
    assert parse(raw).partitions == [
        Produced("t", 0, 0, 5),
        Produced("t", 1, 19, -1),
        Produced("u" * 200, 7, 0, 5),
    ]


def test_errors_of_single_records() -> None:
    errors = [
        ROWS.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key"),
        ROWS.BatchIndexAndErrorMessage(batch_index=4, batch_index_error_message=None),
    ]
    bad = row(0, error_code=87, record_errors=errors, error_message="one or more records")
    silent = row(1, error_code=87, record_errors=errors[1:], error_message="some")
    response = parse(encoded({"t": [bad, silent, row(2)]}))
    assert [(each.record_index, each.message) for each in response.partitions] == [
        (3, "no key"),
        (4, "some"),
        (-1, ""),
    ]


def test_tags_of_newer_brokers_are_skipped() -> None:
    leader = ROWS.LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    raw = encoded({"t": [row(0, error_code=6, current_leader=leader), row(1)]})
    assert [each.error for each in parse(raw).partitions] == [6, 0]


@given(st.dictionaries(TOPICS, st.lists(st.integers(0, 99), max_size=5), max_size=5))
def test_every_partition_is_found(topics: dict[str, list[int]]) -> None:
    raw = encoded({name: [row(number) for number in rows] for name, rows in topics.items()})
    found = [(each.topic, each.number) for each in parse(raw).partitions]
    assert found == [(name, number) for name, rows in topics.items() for number in rows]
