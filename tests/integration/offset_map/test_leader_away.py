"""The offset map while its broker, or a replica that it needs, is away: copying goes on, and the map is
completed later."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.kafka.provenance import NOT_MAPPED, Provenance
from ureplicator_common.model import Delivery
from ureplicator_common.offset_map.topic import CONFIGS, map_topic
from ureplicator_testkit.copier.driver import ROUTE, StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.mapped_lane import (
    assert_map_true,
    map_settings,
    mapped,
    start_mapped,
)
from ureplicator_testkit.records.topics import NewRecord, offsets
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.replicas import create_placed, in_sync, settle

DATA_BROKER, MAP_BROKER = 1, 2
ISOLATION = ("read_committed", "read_uncommitted")
PROPERTIES = {
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
}


@pytest.fixture(scope="module")
def pair() -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(2, name="pair", properties=PROPERTIES, heap_mb=256, combined=True)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def lane(
    source_cluster: KafkaCluster, pair: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    if not pair.process(MAP_BROKER).running:
        pair.restart(MAP_BROKER)
    settle(pair)
    lane = RealLane(source_cluster, pair, topic, fleet, tmp_path)
    lane.make_source(1)
    create_placed(pair, topic, ((DATA_BROKER,),))
    yield lane
    lane.close()


def mapped_segment(lane: RealLane) -> int:
    """The newest one that the stored position names."""
    provenance = Provenance.decode(lane.stored(1)[0].metadata)
    assert provenance is not None
    return provenance.mapped


def has_moved(lane: RealLane, before: int) -> bool:
    return lane.stored(1)[0].offset > before


def write_map(lane: RealLane, driver: StubDriver, name: str) -> None:
    """Returns when its transaction has ended in the map, too: a coordinator that cannot write the marker
    there begins no other one for the copier."""
    lane.fill_in_turn(0)
    driver.wait_caught_up()
    eventually(lambda: mapped_segment(lane) != NOT_MAPPED, 20, "the map is written")
    eventually(partial(is_ended, lane, name), 20, "no transaction is open in the map")


def is_ended(lane: RealLane, name: str) -> bool:
    ends = (offsets(lane.target.bootstrap, name, isolation=level) for level in ISOLATION)
    return len({end for found in ends for _, end in found.values()}) == 1


def copy_without_map(lane: RealLane, driver: StubDriver, reason: str) -> None:
    for turn in (1, 2):
        before = lane.stored(1)[0].offset
        lane.fill_in_turn(turn)
        driver.wait_caught_up()
        eventually(partial(has_moved, lane, before), 30, "a position moves")
    assert mapped_segment(lane) == NOT_MAPPED
    assert reason in driver.process.log_text()


def complete_map(lane: RealLane, driver: StubDriver, name: str) -> None:
    numbers = itertools.count()

    def is_mapped() -> bool:
        lane.fill([NewRecord(b"%s-later-%d" % (lane.topic.encode(), next(numbers)))])
        driver.wait_caught_up()
        return mapped_segment(lane) != NOT_MAPPED

    eventually(is_mapped, 60, "the map is written again")
    driver.stop()
    with closing(KafkaOffsetMaps(ClusterClient(lane.target.bootstrap), name)) as maps:
        assert_map_true(lane, mapped(lane, maps))


@pytest.mark.parametrize("delivery", Delivery)
def test_without_the_leader_of_the_map_copying_goes_on(
    lane: RealLane, pair: KafkaCluster, delivery: Delivery
) -> None:
    name = map_topic(fleet=lane.fleet, route=ROUTE)
    create_placed(pair, name, ((MAP_BROKER,),), config=CONFIGS)
    driver = start_mapped(lane, map_settings(delivery), resumed=False)
    write_map(lane, driver, name)
    pair.kill(MAP_BROKER)
    copy_without_map(lane, driver, "offset map is not written")
    pair.restart(MAP_BROKER)
    complete_map(lane, driver, name)


def test_with_too_few_replicas_of_the_map_in_sync_copying_goes_on(
    lane: RealLane, pair: KafkaCluster
) -> None:
    """Its leader lives, and would refuse rows and the markers that end their transaction."""
    name = map_topic(fleet=lane.fleet, route=ROUTE)
    config = {**CONFIGS, "min.insync.replicas": "2"}
    create_placed(pair, name, ((DATA_BROKER, MAP_BROKER),), config=config)
    driver = start_mapped(lane, map_settings(Delivery.EXACTLY_ONCE), resumed=False)
    write_map(lane, driver, name)
    pair.kill(MAP_BROKER)
    eventually(lambda: in_sync(pair, name, 0) == {DATA_BROKER}, 30, "the replica is out of sync")
    copy_without_map(lane, driver, "1 of 2 replicas are in sync, min.insync.replicas requires 2")
    pair.restart(MAP_BROKER)
    complete_map(lane, driver, name)
