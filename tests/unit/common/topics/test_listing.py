"""All topics of a cluster from a Metadata response: as the library decodes it, or refused."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from ureplicator_common.kafka import ClusterUnavailable, TopicInfo
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.topics.listing import ListingDecoder
from ureplicator_common.kafka.wire.metadata import METADATA_VERSION

REPLY: Any = MetadataResponse
TOPIC = REPLY.MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class Listed:
    """A topic of a response; `replicas` of each partition."""

    name: str
    id: uuid.UUID
    replicas: tuple[int, ...] = (1,)
    error: int = 0
    is_internal: bool = False


def response(topics: list[Listed], *, brokers: int = 1, correlation_id: int = 7) -> bytes:
    reply = REPLY(
        version=METADATA_VERSION,
        throttle_time_ms=0,
        brokers=[
            REPLY.MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9_092, rack=None)
            for n in range(brokers)
        ],
        cluster_id="a cluster",
        controller_id=0,
        topics=[_topic(topic) for topic in topics],
    )
    reply.with_header(correlation_id=correlation_id)
    return bytes(reply.encode(header=True, framed=False))


def _topic(listed: Listed) -> Any:
    return TOPIC(
        error_code=listed.error,
        name=listed.name,
        topic_id=listed.id,
        is_internal=listed.is_internal,
        partitions=[
            TOPIC.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=0,
                leader_epoch=3,
                replica_nodes=list(range(replicas)),
                isr_nodes=list(range(replicas // 2)),
                offline_replicas=[],
            )
            for number, replicas in enumerate(listed.replicas)
        ],
    )


def decoded(raw: bytes, decoder: ListingDecoder | None = None) -> Any:
    return (decoder or ListingDecoder()).decode(raw, version=METADATA_VERSION, header=True)


def shown(listed: Listed) -> TopicInfo:
    id = urlsafe_b64encode(listed.id.bytes).rstrip(b"=").decode()
    return TopicInfo(len(listed.replicas), "" if listed.id.int == 0 else id)


TOPICS = st.lists(
    st.builds(
        Listed,
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=249),
        st.uuids() | st.just(uuid.UUID(int=0)),
        st.lists(st.sampled_from([1, 3, 126, 127, 128, 300]), max_size=4).map(tuple),
    ),
    max_size=5,
    unique_by=lambda topic: topic.name,
)


@given(TOPICS, st.integers(1, 3))
def test_topics_are_those_that_the_broker_lists(topics: list[Listed], brokers: int) -> None:
    found = decoded(response(topics, brokers=brokers))
    assert found.topics == {topic.name: shown(topic) for topic in topics}
    assert found.cluster_id == "a cluster"


@given(TOPICS, st.data())
def test_a_response_that_is_cut_short_or_too_long_is_refused(
    topics: list[Listed], data: st.DataObject
) -> None:
    whole = response(topics)
    cut = data.draw(st.integers(4, len(whole) - 1))
    for raw in (whole[:cut], whole + b"\0"):
        with pytest.raises(ClusterUnavailable, match="malformed"):
            decoded(raw)


@given(st.binary(min_size=4, max_size=300))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    with suppress(ClusterUnavailable):
        decoded(raw)


def test_internal_topics_are_left_out_and_errors_are_of_their_topic() -> None:
    id = uuid.UUID(int=5)
    found = decoded(
        response(
            [
                Listed("__consumer_offsets", id, is_internal=True),
                Listed("gone", id, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                Listed("hidden", id, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                Listed("orders", id, (1, 1)),
            ]
        )
    )
    assert found.topics == {
        "hidden": TopicInfo(0, error="TOPIC_AUTHORIZATION_FAILED"),
        "orders": TopicInfo(2, "AAAAAAAAAAAAAAAAAAAABQ"),
    }


def test_a_broker_that_has_just_started_is_passed_over() -> None:
    with pytest.raises(ClusterUnavailable, match="just started"):
        decoded(response([], brokers=0))


def test_the_same_response_is_decoded_once() -> None:
    decoder, topics = ListingDecoder(), [Listed("orders", uuid.UUID(int=5))]
    first = decoded(response(topics), decoder)
    assert decoded(response(topics, correlation_id=8), decoder) is first
    grown = decoded(response([Listed("orders", uuid.UUID(int=5), (1, 1))]), decoder)
    assert grown.topics["orders"].partitions == 2


def test_a_malformed_response_does_not_end_the_use_of_the_last_one() -> None:
    decoder, whole = ListingDecoder(), response([Listed("orders", uuid.UUID(int=5))])
    first = decoded(whole, decoder)
    with pytest.raises(ClusterUnavailable):
        decoded(whole[:-1], decoder)
    assert decoded(whole, decoder) is first
