"""One of three target brokers is out of the copier's reach, but not of the cluster's, exactly once.

copier --> proxies --> brokers 1, 2, 3        the brokers reach each other, so no leader moves
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from ureplicator_common.model import (
    Delivery,
    Partition,
    PartitionState,
    RouteSettings,
    position_group,
)
from ureplicator_testkit.copier.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import offsets, sample_records
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_testkit.servers.replicas import (
    create_placed,
    group_coordinator,
    transaction_coordinator,
)
from ureplicator_worker.copier.exactly_once import SETTLE_S
from ureplicator_worker.copier.raw.lane_transaction import SET_ASIDE_S
from ureplicator_worker.lifeline.messages import Grant

BROKERS = (1, 2, 3)
LISTENER = "W"
EXACTLY_ONCE = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
SLACK_S = 20.0
RECORDS = 300


class Site:
    """A target of three brokers behind proxies, each of which leads one partition."""

    def __init__(self) -> None:
        self.threads = ProxyThread()
        self.cluster = KafkaCluster(3, name="out-of-reach", listeners=[LISTENER], heap_mb=256)
        self.proxies = {broker: self._proxy(broker) for broker in BROKERS}

    def _proxy(self, broker: int) -> Proxy:
        proxy = self.threads.proxy(self.cluster.listener_port(LISTENER, broker))
        self.cluster.advertise(LISTENER, proxy.port, broker)
        return proxy

    @property
    def bootstrap(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies.values())

    def stop(self) -> None:
        self.cluster.stop()
        self.threads.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    try:
        site.cluster.start()
        yield site
    finally:
        site.stop()


@pytest.fixture
def lane(
    source_cluster: KafkaCluster, site: Site, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(source_cluster, site.cluster, topic, fleet, tmp_path)
    yield lane
    lane.close()


@pytest.fixture
def driver(lane: RealLane, site: Site) -> Iterator[StubDriver]:
    lane.make_source(len(BROKERS))
    create_placed(site.cluster, lane.topic)
    fill(lane, 0)
    driver = StubDriver(
        partitions_of(lane.topic, len(BROKERS)),
        source=lane.source.bootstrap,
        target=site.bootstrap,
        fleet=lane.fleet,
        folder=lane.folder,
        grant=lambda part, at: Grant(at, part.topic, settings=EXACTLY_ONCE),
    )
    yield driver
    driver.close()


def fill(lane: RealLane, seed: int) -> None:
    lane.fill(sample_records(RECORDS, partitions=len(BROKERS), seed=seed))


def victim(lane: RealLane) -> int:
    """A broker that coordinates neither the positions nor the transactions."""
    (id,) = lane.ids("w1")
    busy = {
        group_coordinator(lane.target, position_group(fleet=lane.fleet, route=ROUTE)),
        transaction_coordinator(lane.target, id),
    }
    return next(broker for broker in BROKERS if broker not in busy)


def committed(
    driver: StubDriver, partitions: Sequence[Partition], extents: Mapping[int, tuple[int, int]]
) -> bool:
    """All of these, up to the source's ends."""
    report = driver.report
    return all(report[part].committed >= extents[part.number][1] for part in partitions)


def test_the_partitions_of_other_leaders_go_on(
    lane: RealLane, site: Site, driver: StubDriver
) -> None:
    driver.wait_caught_up(60)
    broker = victim(lane)
    away = lane.at(broker - 1)
    site.proxies[broker].stall()
    others = [lane.at(number) for number in range(len(BROKERS)) if number != away.number]
    for seed in range(1, 4):
        fill(lane, seed)
        eventually(
            partial(committed, driver, others, offsets(lane.source.bootstrap, lane.topic)),
            SETTLE_S + SLACK_S,
            "the others are committed",
        )
    eventually(
        lambda: driver.report[away].state is PartitionState.ERROR, SETTLE_S + SLACK_S, "it is ERROR"
    )
    site.proxies[broker].heal()
    driver.wait_caught_up(sum(SET_ASIDE_S[:3]))
    driver.stop()
    lane.assert_equal()
