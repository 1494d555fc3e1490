"""The copier alone between brokers that want TLS, and logins by password or certificate.

The driver is a stub (`ureplicator_testkit.copier.driver`), the copier and its sockets are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ureplicator_common.model import (
    Delivery,
    OwnerEpoch,
    Partition,
    RouteSettings,
)
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import sample_records
from ureplicator_testkit.secured.brokers import (
    by_certificate,
    by_password,
    secured_cluster,
    set_password,
)
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_worker.lifeline.messages import Grant

PARTITIONS = 2
REAUTHENTICATION_MS = 2_000


@dataclass
class Secured:
    """Both ends, and who may log in there."""

    authority: Authority
    client: Certificate
    source: KafkaCluster
    target: KafkaCluster


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    own = authority.issue("broker")
    with (
        secured_cluster(
            "source", authority=authority, own=own, reauthentication_ms=REAUTHENTICATION_MS
        ) as source,
        secured_cluster(
            "target", authority=authority, own=own, reauthentication_ms=REAUTHENTICATION_MS
        ) as target,
    ):
        for cluster in (source, target):
            set_password(cluster)
        yield Secured(authority, authority.issue("copier"), source, target)


@pytest.fixture
def lane(secured: Secured, topic: str, fleet: str, tmp_path: Path) -> Iterator[RealLane]:
    lane = RealLane(secured.source, secured.target, topic, fleet, tmp_path)
    lane.make(PARTITIONS)
    yield lane
    lane.close()


def start(
    lane: RealLane,
    properties: Mapping[str, Mapping[str, str]],
    *,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
) -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, settings=RouteSettings(delivery=delivery))

    return lane.start(PARTITIONS, grant=grant, properties=properties)


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "certificate"])
def test_all_records_arrive_once_over_tls(
    lane: RealLane, secured: Secured, mechanism: str, delivery: Delivery
) -> None:
    lane.fill(sample_records(2_000, partitions=PARTITIONS, seed=1))
    if mechanism == "certificate":
        ends = [by_certificate(each, secured.authority, secured.client) for each in both(secured)]
    else:
        ends = [by_password(each, secured.authority, mechanism) for each in both(secured)]
    driver = start(lane, dict(zip(("source", "target"), ends, strict=True)), delivery=delivery)
    driver.wait_caught_up(60)
    driver.stop()
    lane.assert_equal()


def both(secured: Secured) -> tuple[KafkaCluster, KafkaCluster]:
    return secured.source, secured.target
