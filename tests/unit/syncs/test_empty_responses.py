"""Readers of single topics conclude nothing from a response without records, nor from a throttled or damaged
one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.claim_records import (
    CLAIMS_TOPIC,
    Claim,
    ClaimsUnreadable,
    encode_key,
    encode_value,
)
from ureplicator_common.kafka.claim_requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.heartbeat_requests import KafkaHeartbeats
from ureplicator_common.kafka.map_log.batches import encode_batch
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import UnknownMapFormat, row
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches

MAP, BEATS = "map", "beats"
P0 = Partition(Route("a", "b"), "t", 0)
FIRST, SECOND = MapSegment(0, 1, 0), MapSegment(5, 9, 0)
CLAIM = Claim("east", "orders", "a.b", "c", "orders")

Read = Callable[[ClusterClient], Any]


def rows(segment: MapSegment, producer: int = 7) -> bytes:
    chunk = row(P0, Chunk("s", "t", (segment,), open=True))
    return encode_batch([chunk], producer_id=producer, producer_epoch=0, sequence=0, time_ms=1)


def ended(producer: int = 7) -> bytes:
    return batches.marker(base_offset=0, producer_id=producer, commit=True)


def segments(client: ClusterClient) -> Any:
    maps = KafkaOffsetMaps(client, MAP)
    maps.update()
    return maps.view(P0).segments()


def stepped(client: ClusterClient) -> Any:
    maps = KafkaOffsetMaps(client, MAP)
    while not maps.step():
        pass
    return maps.view(P0).segments()


def holder(client: ClusterClient) -> Any:
    return KafkaClaimLog(client).read().holder("orders")


def newest_ms(client: ClusterClient) -> Any:
    return KafkaHeartbeats(client).newest_ms(BEATS)


READERS = [
    (MAP, segments, (FIRST,)),
    (MAP, stepped, (FIRST,)),
    (CLAIMS_TOPIC, holder, CLAIM),
    (BEATS, newest_ms, 1_000),
]


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    kafka = MemoryKafka("A", {MAP: 1, CLAIMS_TOPIC: 1, BEATS: 1})
    kafka.logs[MAP, 0].put(rows(FIRST), ended())
    claim = (1_000, encode_key(CLAIM), encode_value(CLAIM), ())
    kafka.logs[CLAIMS_TOPIC, 0].put(batches.batch([claim]))
    kafka.logs[BEATS, 0].put(batches.batch([(1_000, None, b"1000", ())]))
    yield kafka
    kafka.close()


@pytest.mark.parametrize(("topic", "read", "found"), READERS)
def test_a_response_without_records(
    kafka: MemoryKafka, topic: str, read: Read, found: object
) -> None:
    client = MemoryCluster(kafka)
    kafka.empty_fetches[topic, 0] = 1
    with pytest.raises(ClusterUnavailable, match=f"{topic}.* response"):
        read(client)
    assert read(client) == found


@pytest.mark.parametrize(("topic", "read", "found"), READERS)
def test_a_throttled_response(kafka: MemoryKafka, topic: str, read: Read, found: object) -> None:
    client = MemoryCluster(kafka)
    kafka.throttled_fetches.append(1_500)
    with pytest.raises(ClusterUnavailable, match=rf"{topic}.* throttled for 1\.5 s") as raised:
        read(client)
    assert raised.value.delay_s == 1.5
    assert read(client) == found


@pytest.mark.parametrize(
    ("topic", "read", "error"),
    [
        (MAP, segments, UnknownMapFormat),
        (CLAIMS_TOPIC, holder, ClaimsUnreadable),
        (BEATS, newest_ms, ClusterUnavailable),
    ],
)
def test_a_damaged_batch(
    kafka: MemoryKafka, topic: str, read: Read, error: type[Exception]
) -> None:
    """Copiers do without the map, claims fail safe, and the next heartbeat may be better."""
    broken = bytearray(kafka.logs[topic, 0].taken[0])
    broken[-1] ^= 1
    kafka.logs[topic, 0].taken[0] = bytes(broken)
    with pytest.raises(error, match=f"topic {topic} cannot be read: .*checksum"):
        read(MemoryCluster(kafka))


def test_a_hole_of_compaction_before_an_open_transaction(kafka: MemoryKafka) -> None:
    log = kafka.logs[MAP, 0]
    log.put(rows(FIRST), ended(), rows(SECOND, producer=8))
    del log.taken[2:4]
    maps = KafkaOffsetMaps(MemoryCluster(kafka), MAP)
    maps.update()
    assert maps.view(P0).segments() == (FIRST,)
    log.put(ended(producer=8))
    maps.update()
    assert maps.view(P0).segments()[-1] == SECOND


LARGE = Chunk("s", "t", tuple(MapSegment(2 * n, 2 * n + 1, n, follows=n > 0) for n in range(4_000)))


def large_map(kafka: MemoryKafka) -> KafkaOffsetMaps:
    """The first chunk is too large to be kept in memory."""
    newest = Chunk("s", "t", (MapSegment(9_000, 9_001, 4_000),), open=True)
    sent = [row(P0, LARGE), row(P0, newest)]
    log = kafka.logs[MAP, 0]
    log.put(encode_batch(sent, producer_id=7, producer_epoch=0, sequence=0, time_ms=1))
    log.put(ended())
    maps = KafkaOffsetMaps(MemoryCluster(kafka), MAP)
    maps.update()
    return maps


def test_a_large_row_of_the_map_is_fetched_again_where_an_offset_is_looked_up(
    kafka: MemoryKafka,
) -> None:
    view = large_map(kafka).view(P0)
    assert [view.forward(offset) for offset in (0, 1, 4_001, 7_998)] == [0, 1, 2_001, 3_999]
    assert view.backward(2_001) == 4_002


def test_a_large_row_that_is_gone_is_said_and_not_guessed(kafka: MemoryKafka) -> None:
    view = large_map(kafka).view(P0)
    kafka.logs[MAP, 0].taken.clear()
    with pytest.raises(ClusterUnavailable, match="have changed"):
        view.forward(1)
