"""WriteTxnMarkers requests and responses are those that another implementation writes and reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from ureplicator_worker.wire.markers_api import VERSION, Filling, parse, request

RESULTS = WriteTxnMarkersResponse.WritableTxnMarkerResult
TOPICS = RESULTS.WritableTxnMarkerTopicResult
ROWS = TOPICS.WritableTxnMarkerPartitionResult
Key = tuple[str, int]

NAMES = st.text("abc.-_9", min_size=1, max_size=130)
KEYS = st.tuples(NAMES, st.integers(0, 2**31 - 1))
FILLINGS = st.builds(
    Filling,
    producer_id=st.sampled_from([0, 7, 2**63 - 1]),
    epoch=st.sampled_from([0, 3, 32_767]),
    count=st.integers(0, 5),
)


def understood(wanted: dict[Key, Filling], coordinator_epoch: int = 0) -> Any:
    """The request as another implementation reads it, which writes the same bytes."""
    pieces = request(
        wanted, coordinator_epoch=coordinator_epoch, correlation_id=77, client_id="eu-1"
    )
    raw = b"".join(pieces)
    found = WriteTxnMarkersRequest.decode(raw[4:], version=VERSION, header=True)
    found.with_header(correlation_id=77, client_id="eu-1")
    assert found.encode(framed=True, header=True) == raw
    return found


def entries(found: Any) -> list[tuple[tuple[int, int], list[Key]]]:
    return [
        (
            (marker.producer_id, marker.producer_epoch),
            [(topic.name, n) for topic in marker.topics for n in topic.partition_indexes],
        )
        for marker in found.markers
    ]


@given(st.dictionaries(KEYS, FILLINGS, max_size=8), st.integers(0, 2**31 - 1))
def test_a_request(wanted: dict[Key, Filling], coordinator_epoch: int) -> None:
    found = understood(wanted, coordinator_epoch)
    assert {marker.coordinator_epoch for marker in found.markers} <= {coordinator_epoch}
    assert not any(marker.transaction_result for marker in found.markers)
    named = [(key, producer) for producer, keys in entries(found) for key in keys]
    for key, filling in wanted.items():
        producers = [producer for other, producer in named if other == key]
        assert producers == [filling[:2]] * filling.count
    assert len(named) == sum(filling.count for filling in wanted.values())


def test_an_entry_names_the_partitions_that_want_more_than_those_before() -> None:
    wanted = {
        ("t", 0): Filling(7, 0, 3),
        ("u", 4): Filling(7, 0, 1),
        ("t", 2): Filling(7, 0, 3),
        ("t", 1): Filling(7, 1, 2),
        ("t", 3): Filling(7, 0, 0),
    }
    assert entries(understood(wanted)) == [
        ((7, 0), [("t", 0), ("t", 2), ("u", 4)]),
        ((7, 0), [("t", 0), ("t", 2)]),
        ((7, 0), [("t", 0), ("t", 2)]),
        ((7, 1), [("t", 1)]),
        ((7, 1), [("t", 1)]),
    ]


def test_many_control_records_are_one_request() -> None:
    found = understood({("t", 0): Filling(7, 2, 500)}, 9)
    assert entries(found) == [((7, 2), [("t", 0)])] * 500


def encoded(results: list[dict[str, dict[int, int]]]) -> memoryview:
    """A response: error codes by topic and partition, for each entry."""
    response = WriteTxnMarkersResponse(
        version=VERSION,
        markers=[
            RESULTS(
                producer_id=number,
                topics=[
                    TOPICS(
                        name=topic,
                        partitions=[
                            ROWS(partition_index=number, error_code=code)
                            for number, code in rows.items()
                        ],
                    )
                    for topic, rows in topics.items()
                ],
            )
            for number, topics in enumerate(results)
        ],
    )
    response.with_header(correlation_id=5, client_id="")
    return memoryview(response.encode(framed=False, header=True))


CODES = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 120), max_size=4)


@given(st.lists(st.dictionaries(NAMES, CODES, max_size=3), max_size=4))
def test_a_response(results: list[dict[str, dict[int, int]]]) -> None:
    expected: dict[Key, list[int]] = {}
    for topics in results:
        for topic, rows in topics.items():
            for number, code in rows.items():
                expected.setdefault((topic, number), []).append(code)
    assert parse(encoded(results)) == expected


@pytest.mark.parametrize("results", [[], [{}], [{"t": {}}]])
def test_a_response_without_partitions(results: list[dict[str, dict[int, int]]]) -> None:
    assert parse(encoded(results)) == {}
