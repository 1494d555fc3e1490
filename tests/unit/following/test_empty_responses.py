"""Readers of single topics conclude nothing from a response without records, nor from a throttled one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.claims.records import CLAIMS_TOPIC, Claim, encode_key, encode_value
from ureplicator_common.kafka.claims.requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.heartbeats.requests import KafkaHeartbeats
from ureplicator_common.kafka.map_log.batches import encode_batch
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import row
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
    return maps.segments(P0)


def stepped(client: ClusterClient) -> Any:
    maps = KafkaOffsetMaps(client, MAP)
    while not maps.step():
        pass
    return maps.segments(P0)


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


def test_a_hole_of_compaction_before_an_open_transaction(kafka: MemoryKafka) -> None:
    log = kafka.logs[MAP, 0]
    log.put(rows(FIRST), ended(), rows(SECOND, producer=8))
    del log.taken[2:4]
    maps = KafkaOffsetMaps(MemoryCluster(kafka), MAP)
    maps.update()
    assert maps.segments(P0) == (FIRST,)
    log.put(ended(producer=8))
    maps.update()
    assert maps.segments(P0)[-1] == SECOND
