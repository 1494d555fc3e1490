"""Fetch requests and responses are those that another implementation writes and reads."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from ureplicator_common.kafka.client import Broker, Leader
from ureplicator_testkit.records import batches
from ureplicator_worker.wire.fetch_api import (
    IDS,
    LEADERS,
    NAMES,
    FetchResult,
    FetchSession,
    Wanted,
    parse,
    version_for,
)
from ureplicator_worker.wire.topic_keys import TopicKey, by_id, by_name

FETCH: Any = FetchResponse
ROWS = FetchResponse.FetchableTopicResponse.PartitionData
NAMED = st.text("abc.-_9", min_size=1, max_size=130)
INT31 = st.integers(-1, 2**31 - 1)
WANTED = st.builds(
    Wanted,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=INT31,
    last_fetched_epoch=INT31,
    max_bytes=st.integers(0, 2**31 - 1),
)


def requests(topics: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[TopicKey, Wanted]]:
    return st.dictionaries(st.tuples(topics, st.integers(0, 2**31 - 1)), WANTED, max_size=8)


def with_version(
    version: int, topics: st.SearchStrategy[bytes]
) -> st.SearchStrategy[tuple[int, list[dict[TopicKey, Wanted]]]]:
    return st.tuples(st.just(version), st.lists(requests(topics), min_size=1, max_size=4))


IDENTIFIED = st.uuids().filter(lambda id: id.int != 0).map(str)
ROUNDS = st.one_of(
    with_version(NAMES, NAMED.map(by_name)),
    with_version(IDS, IDENTIFIED.map(by_id)),
    with_version(LEADERS, IDENTIFIED.map(by_id)),
)
T = by_name("t")


def sent(session: FetchSession, wanted: dict[TopicKey, Wanted], number: int = 1) -> Any:
    """The next request, as the library understands it; what it writes for it is the same."""
    changes: dict[TopicKey, Wanted | None] = {
        **dict.fromkeys(session.known.keys() - wanted),
        **wanted,
    }
    raw = session.request(changes, correlation_id=number, max_wait_ms=100, max_bytes=8 << 20)
    request = FetchRequest.decode(raw[4:], version=session.version, header=True)
    request.with_header(correlation_id=number, client_id="ureplicator")
    assert request.encode(framed=True, header=True) == raw
    return request


def on_the_wire(topic: Any) -> bytes:
    return by_name(topic.topic) if topic.topic else by_id(str(topic.topic_id))


def named(request: Any) -> dict[TopicKey, Wanted]:
    return {
        (on_the_wire(topic), row.partition): Wanted(
            row.fetch_offset,
            row.current_leader_epoch,
            row.last_fetched_epoch,
            row.partition_max_bytes,
        )
        for topic in request.topics
        for row in topic.partitions
    }


def forgotten(request: Any) -> set[TopicKey]:
    return {
        (on_the_wire(topic), number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    }


@given(ROUNDS)
def test_a_full_request(rounds: tuple[int, list[dict[TopicKey, Wanted]]]) -> None:
    version, (wanted, *_) = rounds
    request = sent(FetchSession(version), wanted, 77)
    assert named(request) == wanted
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (100, 1, 8 << 20)
    assert (request.replica_id, request.isolation_level, request.rack_id) == (-1, 1, "")
    assert all(row.log_start_offset == -1 for t in request.topics for row in t.partitions)


@given(ROUNDS)
def test_a_session_names_what_changed(rounds: tuple[int, list[dict[TopicKey, Wanted]]]) -> None:
    version, turns = rounds
    session = FetchSession(version)
    at_broker: dict[TopicKey, Wanted] = {}
    for epoch, wanted in enumerate(turns):
        request = sent(session, wanted)
        assert request.session_epoch == epoch
        assert request.session_id == (9 if epoch else 0)
        assert not named(request).items() & at_broker.items()
        for key in forgotten(request):
            del at_broker[key]
        at_broker |= named(request)
        assert at_broker == wanted == session.known
        session.on_response(FetchResult(0, 0, 9, []))


def test_a_cluster_older_than_topic_ids_gives_none() -> None:
    assert by_id("00000000-0000-0000-0000-000000000000") == b""


@pytest.mark.parametrize("response", [FetchResult(0, 70, 0, []), FetchResult(0, 0, 0, [])])
def test_without_a_session_the_next_request_is_full(response: FetchResult) -> None:
    session = FetchSession(NAMES)
    wanted = {(T, 0): Wanted(1, 2, 3, 4)}
    sent(session, wanted)
    session.on_response(FetchResult(0, 0, 9, []))
    sent(session, wanted)
    session.on_response(response)
    request = sent(session, wanted)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == wanted
    assert not forgotten(request)


def test_the_epoch_of_a_session_wraps_to_one() -> None:
    session = FetchSession(NAMES)
    session._id, session._epoch = 9, 0x7FFFFFFF
    session.on_response(FetchResult(0, 0, 9, []))
    assert sent(session, {}).session_epoch == 1


ID = uuid.UUID("6a5f0d4e-5b0f-4d57-9a43-1f1f4f1b7a01")


def encoded(*rows: tuple[str, Any], version: int = NAMES, **fields: Any) -> bytes:
    """A response; with `version=IDS` the topics' names become ids, each its own."""
    topics: dict[str, Any] = {}
    for topic, row in rows:
        id = uuid.uuid5(ID, topic)
        entry = FetchResponse.FetchableTopicResponse(topic=topic, topic_id=id, partitions=[])
        topics.setdefault(topic, entry).partitions.append(row)
    response = FetchResponse(version=version, responses=list(topics.values()), **fields)
    response.with_header(correlation_id=5, client_id="")
    return response.encode(framed=False, header=True)


def wired(topic: str, version: int) -> bytes:
    return by_id(str(uuid.uuid5(ID, topic))) if version >= IDS else by_name(topic)


def row(number: int, **fields: Any) -> Any:
    usual = {
        "error_code": 0,
        "high_watermark": 100,
        "last_stable_offset": 90,
        "log_start_offset": 10,
        "aborted_transactions": [],
        "preferred_read_replica": -1,
        "records": b"",
    }
    return ROWS(partition_index=number, **{**usual, **fields})


@pytest.mark.parametrize("version", [NAMES, IDS, LEADERS])
def test_a_response(version: int) -> None:
    data = batches.batch(3)
    raw = encoded(
        ("t", row(0, records=data)),
        ("u" * 200, row(7, error_code=6, high_watermark=-1)),
        ("t", row(1, records=None, aborted_transactions=None)),
        throttle_time_ms=12,
        error_code=0,
        session_id=99,
        version=version,
    )
    response = parse(raw, version)
    assert (response.throttle_ms, response.error, response.session_id) == (12, 0, 99)
    found = {fetched.key: fetched for fetched in response.partitions}
    t, u = wired("t", version), wired("u" * 200, version)
    assert set(found) == {(t, 0), (t, 1), (u, 7)}
    whole, empty, refused = found[(t, 0)], found[(t, 1)], found[(u, 7)]
    assert raw[whole.start : whole.end] == data
    assert (whole.error, whole.high_watermark) == (0, 100)
    assert (whole.aborted, whole.diverging) == ([], None)
    assert empty.start == empty.end
    assert refused.error == 6


def test_aborted_transactions_and_a_diverging_epoch() -> None:
    aborted = [ROWS.AbortedTransaction(producer_id=n, first_offset=10 * n) for n in (1, 2**58)]
    diverging = ROWS.EpochEndOffset(epoch=4, end_offset=55)
    raw = encoded(
        ("t", row(0, aborted_transactions=aborted, records=b"tail")),
        ("t", row(1, diverging_epoch=diverging)),
        ("t", row(2, diverging_epoch=ROWS.EpochEndOffset(epoch=-1, end_offset=-1))),
    )
    first, second, third = parse(raw, NAMES).partitions
    assert first.aborted == [(1, 10), (2**58, 10 * 2**58)]
    assert raw[first.start : first.end] == b"tail"
    assert second.diverging == (4, 55)
    assert third.diverging is None


def test_new_leaders_and_where_they_are() -> None:
    leaders = [ROWS.LeaderIdAndEpoch(leader_id=n, leader_epoch=9) for n in (3, 4, -1)]
    rows = [row(n, error_code=6, current_leader=leader) for n, leader in enumerate(leaders)]
    places = [
        FETCH.NodeEndpoint(node_id=node, host="b" * 150, port=9_000 + node, rack=rack)
        for node, rack in ((7, "r1"), (3, None))
    ]
    raw = encoded(*(("t", partition) for partition in rows), version=LEADERS, node_endpoints=places)
    found = parse(raw, LEADERS).partitions
    assert [partition.error for partition in found] == [6, 6, 6]
    assert [partition.leader for partition in found] == [Leader(3, 9), Leader(4, 9), None]
    assert [partition.broker for partition in found] == [Broker(3, "b" * 150, 9_003), None, None]


def test_leaders_without_endpoints() -> None:
    leader = ROWS.LeaderIdAndEpoch(leader_id=3, leader_epoch=9)
    raw = encoded(("t", row(0, error_code=6, current_leader=leader)), ("t", row(1)))
    found = parse(raw, NAMES).partitions
    assert [(partition.error, partition.leader, partition.broker) for partition in found] == [
        (6, Leader(3, 9), None),
        (0, None, None),
    ]


@pytest.mark.parametrize(
    ("newest", "has_ids", "version"),
    [
        (12, True, 12),
        (13, True, 13),
        (15, True, 13),
        (16, True, 16),
        (18, True, 16),
        (18, False, 12),
    ],
)
def test_the_version_for_a_broker(newest: int, has_ids: bool, version: int) -> None:
    assert version_for(newest, has_ids=has_ids) == version


def test_a_response_without_data() -> None:
    response = parse(encoded(error_code=70, session_id=0), NAMES)
    assert (response.error, response.partitions) == (70, [])


@given(st.lists(st.binary(max_size=300), max_size=5), st.sampled_from([NAMES, IDS, LEADERS]))
def test_records_are_found_wherever_they_lie(datas: list[bytes], version: int) -> None:
    rows = (("t", row(number, records=data)) for number, data in enumerate(datas))
    raw = encoded(*rows, version=version)
    assert [
        raw[partition.start : partition.end] for partition in parse(raw, version).partitions
    ] == datas
