"""The offset map at a target whose brokers know the first protocol of transactions only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import Delivery
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import (
    assert_map_true,
    copy_in_turn,
    map_settings,
    mapped,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.versions import kafka_of_version

BEFORE_TV2 = "3.9.2"
"""Partitions are added to a transaction by a request of their own."""


@pytest.fixture(scope="module")
def old_target() -> Iterator[KafkaCluster]:
    with kafka_of_version(BEFORE_TV2, name=f"target-{BEFORE_TV2}") as cluster:
        yield cluster


@pytest.fixture
def old_lane(
    source_cluster: KafkaCluster, old_target: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(source_cluster, old_target, topic, fleet, tmp_path)
    yield lane
    lane.close()


def maps_of(lane: RealLane) -> closing[KafkaOffsetMaps]:
    topic = map_topic(fleet=lane.fleet, route=ROUTE)
    return closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), topic))


@pytest.mark.parametrize("delivery", Delivery)
def test_the_first_protocol_of_transactions(old_lane: RealLane, delivery: Delivery) -> None:
    old_lane.make(1)
    copy_in_turn(old_lane, map_settings(delivery))
    with maps_of(old_lane) as maps:
        assert_map_true(old_lane, mapped(old_lane, maps))
