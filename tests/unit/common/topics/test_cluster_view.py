"""Leaders and topic ids from a Metadata response: as the library decodes it, or refused."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest as LibraryRequest
from kafka.protocol.metadata import MetadataResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.cluster_view import (
    Broker,
    ClusterView,
    Leader,
    ViewDecoder,
)
from ureplicator_common.kafka.errors import ErrorCode, refusal
from ureplicator_common.kafka.wire.metadata import METADATA_VERSION, MetadataRequest

REPLY: Any = MetadataResponse
TOPIC = REPLY.MetadataResponseTopic
NODES = st.integers(-1, 5)
EPOCHS = st.integers(-1, 2**31 - 1)
ERRORS = st.sampled_from((0, 0, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 5))


@st.composite
def partitions(draw: st.DrawFn, number: int) -> Any:
    return TOPIC.MetadataResponsePartition(
        error_code=draw(st.sampled_from((0, 5))),
        partition_index=number,
        leader_id=draw(NODES),
        leader_epoch=draw(EPOCHS),
        replica_nodes=draw(st.lists(NODES, max_size=200)),
        isr_nodes=draw(st.lists(NODES, max_size=3)),
        offline_replicas=draw(st.lists(NODES, max_size=1)),
    )


@st.composite
def topics(draw: st.DrawFn, number: int) -> Any:
    error = draw(ERRORS)
    count = 0 if error else draw(st.integers(0, 5))
    return TOPIC(
        error_code=error,
        name=f"topic-{number}-{draw(st.text(max_size=3))}",
        topic_id=uuid.UUID(int=draw(st.integers(0, 2**128 - 1))),
        is_internal=draw(st.booleans()),
        partitions=[draw(partitions(index)) for index in range(count)],
    )


@st.composite
def replies(draw: st.DrawFn) -> Any:
    return REPLY(
        version=METADATA_VERSION,
        throttle_time_ms=0,
        brokers=[
            REPLY.MetadataResponseBroker(
                node_id=node, host=draw(st.text(max_size=5)), port=9_092 + node, rack=draw(RACKS)
            )
            for node in range(draw(st.integers(1, 4)))
        ],
        cluster_id=draw(st.one_of(st.none(), st.text(max_size=5))),
        controller_id=0,
        topics=[draw(topics(number)) for number in range(draw(st.integers(0, 5)))],
    )


RACKS = st.one_of(st.none(), st.text(max_size=3))


def encoded(reply: Any, *, correlation_id: int = 7) -> bytes:
    reply.with_header(correlation_id=correlation_id)
    return bytes(reply.encode(header=True, framed=False))


def decoded(raw: bytes, decoder: ViewDecoder | None = None) -> ClusterView:
    return (decoder or ViewDecoder("cluster west")).decode(
        raw, version=METADATA_VERSION, header=True
    )


def expected(reply: Any) -> ClusterView:
    known = [topic for topic in reply.topics if not topic.error_code]
    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ClusterView(
        cluster_id=reply.cluster_id or "",
        brokers={row.node_id: Broker(row.node_id, row.host, row.port) for row in reply.brokers},
        leaders={
            (topic.name, row.partition_index): Leader(row.leader_id, row.leader_epoch)
            for topic in known
            for row in topic.partitions
        },
        topic_ids={topic.name: str(topic.topic_id) for topic in known},
        missing=frozenset(topic.name for topic in reply.topics if topic.error_code == absent),
        refused={
            topic.name: refusal(topic.error_code, f"DESCRIBE on topic {topic.name}", "cluster west")
            for topic in reply.topics
            if topic.error_code not in (0, absent)
        },
    )


@given(reply=replies())
def test_the_view_is_that_of_the_response(reply: Any) -> None:
    assert decoded(encoded(reply)) == expected(reply)


@given(reply=replies())
def test_a_response_is_decoded_once(reply: Any) -> None:
    decoder = ViewDecoder("cluster west")
    view = decoded(encoded(reply), decoder)
    assert decoded(encoded(reply, correlation_id=8), decoder) is view


@given(reply=replies(), data=st.data())
def test_a_response_that_is_cut_off_is_refused(reply: Any, data: st.DataObject) -> None:
    raw = encoded(reply)
    with pytest.raises(ClusterUnavailable):
        decoded(raw[: data.draw(st.integers(4, len(raw) - 1))])


@given(raw=st.binary(max_size=60))
def test_random_bytes_are_refused_or_a_view(raw: bytes) -> None:
    with suppress(ClusterUnavailable):
        assert isinstance(decoded(bytes(4) + raw), ClusterView)


def test_a_broker_that_has_just_started_is_refused() -> None:
    reply = REPLY(
        version=METADATA_VERSION,
        throttle_time_ms=0,
        brokers=[],
        cluster_id="a cluster",
        controller_id=0,
        topics=[],
    )
    with pytest.raises(ClusterUnavailable, match="just started"):
        decoded(encoded(reply))


@given(topics=st.one_of(st.none(), st.lists(st.text(max_size=300), max_size=5)))
def test_a_request_is_that_of_the_library(topics: list[str] | None) -> None:
    theirs: Any = LibraryRequest
    wanted = None
    if topics is not None:
        no_id = uuid.UUID(int=0)
        wanted = [theirs.MetadataRequestTopic(name=name, topic_id=no_id) for name in topics]
    library = theirs(
        version=METADATA_VERSION,
        topics=wanted,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    own = MetadataRequest(topics)
    for request in (library, own):
        request.with_header(correlation_id=7, client_id="test")
    assert own.encode(framed=True, header=True) == library.encode(framed=True, header=True)
