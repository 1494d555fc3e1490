"""Produce requests and responses are those that another implementation writes and reads."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka.client import Broker, Leader
from ureplicator_testkit.records import batches
from ureplicator_worker.wire.produce_api import (
    BROKER_TIMEOUT_MS,
    IDS,
    LEADERS,
    NAMES,
    Produced,
    parse,
    request,
    version_for,
)
from ureplicator_worker.wire.topic_keys import TopicKey, by_id, by_name

PRODUCE: Any = ProduceResponse
TOPICS = st.text("abc.-_9", min_size=1, max_size=130)
TOPIC_IDS = st.uuids().filter(lambda id: id.int != 0).map(str)
ROWS = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
VERSIONS = [NAMES, LEADERS, IDS]


def parts_of(topics: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[TopicKey, bytes]]:
    keys = st.tuples(topics, st.integers(0, 2**31 - 1))
    return st.dictionaries(keys, st.binary(max_size=300), min_size=1, max_size=8)


def key(topic: Any, number: int) -> TopicKey:
    return (by_name(topic.name) if topic.name else by_id(str(topic.topic_id)), number)


@given(
    st.one_of(
        st.tuples(st.sampled_from([NAMES, LEADERS]), parts_of(TOPICS.map(by_name))),
        st.tuples(st.just(IDS), parts_of(TOPIC_IDS.map(by_id))),
    )
)
def test_a_request(case: tuple[int, dict[TopicKey, bytes]]) -> None:
    version, parts = case
    batches_of = ((key, memoryview(data)) for key, data in parts.items())
    pieces = request(batches_of, version=version, correlation_id=77, client_id="eu-1")
    raw = b"".join(pieces)
    understood = ProduceRequest.decode(raw[4:], version=version, header=True)
    understood.with_header(correlation_id=77, client_id="eu-1")
    assert understood.encode(framed=True, header=True) == raw
    assert (understood.transactional_id, understood.acks) == (None, -1)
    assert understood.timeout_ms == BROKER_TIMEOUT_MS
    assert {
        key(topic, row.index): bytes(row.records)
        for topic in understood.topic_data
        for row in topic.partition_data
    } == parts


T = by_name("t")
ID = uuid.UUID("6a5f0d4e-5b0f-4d57-9a43-1f1f4f1b7a01")


def test_batches_are_not_copied() -> None:
    view = memoryview(batches.batch(3))
    assert any(
        piece is view for piece in request([((T, 0), view)], version=NAMES, correlation_id=1)
    )


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


def encoded(topics: dict[str, list[Any]], version: int = NAMES, **fields: Any) -> bytes:
    """A response; with `version=IDS` the topics' names become ids, each its own."""
    response = ProduceResponse(
        version=version,
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=name, topic_id=uuid.uuid5(ID, name), partition_responses=rows
            )
            for name, rows in topics.items()
        ],
        throttle_time_ms=70,
        **fields,
    )
    response.with_header(correlation_id=5, client_id="")
    return response.encode(framed=False, header=True)


def wired(topic: str, version: int) -> bytes:
    return by_id(str(uuid.uuid5(ID, topic))) if version == IDS else by_name(topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response(version: int) -> None:
    rows = {"t": [row(0), row(1, error_code=19, base_offset=-1)], "u" * 200: [row(7)]}
    found = parse(encoded(rows, version), version)
    t, u = wired("t", version), wired("u" * 200, version)
    assert found.throttle_ms == 70
    assert found.partitions == [
        Produced((t, 0), 0, 5),
        Produced((t, 1), 19, -1),
        Produced((u, 7), 0, 5),
    ]


def test_errors_of_single_records() -> None:
    errors = [
        ROWS.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key"),
        ROWS.BatchIndexAndErrorMessage(batch_index=4, batch_index_error_message=None),
    ]
    bad = row(0, error_code=87, record_errors=errors, error_message="one or more records")
    silent = row(1, error_code=87, record_errors=errors[1:], error_message="some")
    response = parse(encoded({"t": [bad, silent, row(2)]}), NAMES)
    assert [(partition.record_index, partition.message) for partition in response.partitions] == [
        (3, "no key"),
        (4, "some"),
        (-1, ""),
    ]


@pytest.mark.parametrize("version", [LEADERS, IDS])
def test_new_leaders_and_where_they_are(version: int) -> None:
    leaders = [ROWS.LeaderIdAndEpoch(leader_id=node, leader_epoch=9) for node in (3, 4, -1)]
    rows = [row(n, error_code=6, current_leader=leader) for n, leader in enumerate(leaders)]
    places = [
        PRODUCE.NodeEndpoint(node_id=node, host=f"b{node}", port=9_000 + node, rack=rack)
        for node, rack in ((7, "r1"), (3, None))
    ]
    raw = encoded({"t": [*rows, row(3)]}, version, node_endpoints=places)
    found = parse(raw, version)
    assert found.throttle_ms == 70
    assert [partition.error for partition in found.partitions] == [6, 6, 6, 0]
    assert [partition.leader for partition in found.partitions] == [
        Leader(3, 9),
        Leader(4, 9),
        None,
        None,
    ]
    assert [partition.broker for partition in found.partitions] == [
        Broker(3, "b3", 9_003),
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("newest", "has_ids", "version"),
    [(9, True, 9), (10, True, 10), (12, True, 10), (13, True, 13), (13, False, 10)],
)
def test_the_version_for_a_broker(newest: int, has_ids: bool, version: int) -> None:
    assert version_for(newest, has_ids=has_ids) == version


@given(st.dictionaries(TOPICS, st.lists(st.integers(0, 99), max_size=5), max_size=5))
def test_every_partition_is_found(topics: dict[str, list[int]]) -> None:
    raw = encoded({name: [row(number) for number in rows] for name, rows in topics.items()})
    found = [partition.key for partition in parse(raw, NAMES).partitions]
    assert found == [(by_name(name), number) for name, rows in topics.items() for number in rows]
