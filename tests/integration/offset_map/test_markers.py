"""Rows of the map whose transaction is being ended while the position that belongs to them is seen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import MARKER_WAIT_S, KafkaOffsetMaps
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import row
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.records.topics import QUIET, create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster

P0 = Partition(Route("a", "b"), "t", 0)
SEGMENT = MapSegment(0, 10, 3)
STORED = Position(10, metadata=Provenance("c", "s", "t", "w", 0, 1, 13, 3).encode())


@pytest.fixture
def sent(target_cluster: KafkaCluster, topic: str) -> Iterator[Producer]:
    """A chunk of the map, in a transaction that is open."""
    bootstrap = target_cluster.bootstrap
    create_topic(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, **QUIET})
    producer.init_transactions(30)
    producer.begin_transaction()
    written = row(P0, Chunk("s", "t", (SEGMENT,), open=True))
    producer.produce(topic, key=written.key, value=written.value)
    producer.flush(30)
    yield producer
    producer.abort_transaction(30)


@pytest.fixture
def maps(target_cluster: KafkaCluster, topic: str) -> Iterator[KafkaOffsetMaps]:
    with closing(KafkaOffsetMaps(ClusterClient(target_cluster.bootstrap), topic)) as maps:
        yield maps


def test_a_reader_with_positions_waits_for_their_rows(
    sent: Producer, maps: KafkaOffsetMaps
) -> None:
    maps.update()
    assert maps.view(P0, STORED).segments() == ()
    marker = threading.Timer(MARKER_WAIT_S / 4, sent.commit_transaction, [30])
    marker.start()
    maps.update({P0: STORED})
    assert maps.view(P0, STORED).segments() == (SEGMENT,)
    marker.join()
    sent.begin_transaction()


def test_a_reader_waits_a_bounded_time_for_rows_that_never_come(
    sent: Producer, maps: KafkaOffsetMaps
) -> None:
    """Its transaction may belong to another partition, and the rows be lost with a former topic."""
    maps.update({P0: STORED})
    assert maps.view(P0, STORED).segments() == ()
