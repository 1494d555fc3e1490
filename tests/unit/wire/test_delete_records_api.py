"""DeleteRecords requests and responses are those that another implementation writes and reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse

from ureplicator_worker.wire.delete_records_api import HIGH_WATERMARK, VERSION, parse, request

TOPICS = DeleteRecordsResponse.DeleteRecordsTopicResult
ROWS = TOPICS.DeleteRecordsPartitionResult
NAMES = st.text("abc.-_9", min_size=1, max_size=130)
NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(HIGH_WATERMARK, 2**63 - 1)


@given(st.dictionaries(st.tuples(NAMES, NUMBERS), OFFSETS, max_size=8), NUMBERS)
def test_a_request(before: dict[tuple[str, int], int], timeout_ms: int) -> None:
    pieces = request(before, correlation_id=77, client_id="eu-1", timeout_ms=timeout_ms)
    raw = b"".join(pieces)
    understood = DeleteRecordsRequest.decode(raw[4:], version=VERSION, header=True)
    understood.with_header(correlation_id=77, client_id="eu-1")
    assert understood.encode(framed=True, header=True) == raw
    assert understood.timeout_ms == timeout_ms
    assert {
        (topic.name, row.partition_index): row.offset
        for topic in understood.topics
        for row in topic.partitions
    } == before
    names = [topic.name for topic in understood.topics]
    assert len(names) == len(set(names))


OUTCOMES = st.tuples(st.integers(-1, 120), st.integers(-1, 2**63 - 1))


@given(st.dictionaries(NAMES, st.dictionaries(NUMBERS, OUTCOMES, max_size=4), max_size=4))
def test_a_response(outcomes: dict[str, dict[int, tuple[int, int]]]) -> None:
    response = DeleteRecordsResponse(
        version=VERSION,
        throttle_time_ms=70,
        topics=[
            TOPICS(
                name=topic,
                partitions=[
                    ROWS(partition_index=number, error_code=code, low_watermark=low)
                    for number, (code, low) in rows.items()
                ],
            )
            for topic, rows in outcomes.items()
        ],
    )
    response.with_header(correlation_id=5, client_id="")
    assert parse(memoryview(response.encode(framed=False, header=True))) == {
        (topic, number): outcome
        for topic, rows in outcomes.items()
        for number, outcome in rows.items()
    }
