"""An EndTxn that arrives late, under each transaction protocol.

Jepsen's finding in Kafka's own producer (KAFKA-17754): it repeats an EndTxn that got no response, goes on
with the next transaction under the same epoch, and the first EndTxn, which the network kept, ends that one.
Here the id is initialised after each unknown outcome, so what arrives late is refused by its epoch.

The copier alone, between two real brokers. What is sent and read is recorded, and the history is judged at
the end (`ureplicator_testkit.histories`).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.features import transaction_support
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Delivery, OwnerEpoch, Partition, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.observed import Observed
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_worker.lifeline.messages import Grant

PARTITIONS = 3
DELAYS = 3
END_TXN = 26
SIZE = 15
"""Of a response to EndTxn, up to its error code."""
GIVEN_UP_S = 30
RECORDS_LATER = 300
LISTENER = "PROXIED"
REFUSED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""By its epoch; or unseen, while the coordinator writes the state of a later transaction."""
EXACTLY_ONCE = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
VERSIONS = {"3.9.2": TransactionProtocol.ADDED, "4.1.0": TransactionProtocol.IMPLICIT}


@dataclass
class Target:
    """A cluster, and a proxy before it."""

    cluster: KafkaCluster
    proxy: Proxy


@pytest.fixture(scope="module", params=VERSIONS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with ProxyThread() as proxies:
        cluster = KafkaCluster(
            name="target", version=request.param, heap_mb=256, listeners=[LISTENER]
        )
        proxy = proxies.proxy(cluster.listener_port(LISTENER))
        cluster.advertise(LISTENER, proxy.port)
        with cluster:
            client = ClusterClient(cluster.bootstrap)
            assert transaction_support(client).protocol is VERSIONS[request.param]
            client.close()
            yield Target(cluster, proxy)


@pytest.fixture
def lane(
    source_cluster: KafkaCluster, target: Target, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(source_cluster, target.cluster, topic, fleet, tmp_path)
    yield lane
    lane.close()


@pytest.fixture
def observed(lane: RealLane) -> Iterator[Observed]:
    observed = Observed(lane, partitions=PARTITIONS)
    try:
        observed.start()
        yield observed
    finally:
        observed.close()


def start(lane: RealLane, *, target: str = "") -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, settings=EXACTLY_ONCE)

    return lane.start(PARTITIONS, target=target, grant=grant)


def copy_the_rest(lane: RealLane, observed: Observed) -> None:
    observed.load.stop()
    driver = start(lane)
    driver.wait_caught_up(60)
    driver.stop()


def test_a_delayed_end_of_a_transaction_ends_no_later_one(
    lane: RealLane, target: Target, observed: Observed
) -> None:
    """The network keeps an EndTxn, its sender gives up, goes on with later transactions, and then it arrives.

    If it ended one of those, a part of it would be committed without its positions. The copier is killed
    right behind it: such a part would be there for good, and be copied again.
    """
    codes = []
    for _ in range(DELAYS):
        driver = start(lane, target=target.proxy.address)
        observed.wait_visible()
        held = target.proxy.hold(END_TXN)
        eventually(lambda: held.taken, GIVEN_UP_S, "a transaction is to be ended")  # noqa: B023
        observed.fault("EndTxn is held")
        proofs = len(driver.proof_requests)
        eventually(
            lambda: len(driver.proof_requests) > proofs,  # noqa: B023
            GIVEN_UP_S,
            "the copier gives up, and begins again",
        )
        observed.wait_visible(RECORDS_LATER)
        held.release()
        observed.fault("EndTxn arrives")
        eventually(lambda: len(held.response) >= SIZE, GIVEN_UP_S, "the broker responds")  # noqa: B023
        codes.append(error_code(held.response))
        driver.process.kill_tree()
        driver.close()
    copy_the_rest(lane, observed)
    observed.judge()
    assert set(codes) <= REFUSED, codes


def error_code(response: bytes) -> int:
    """Of a response to EndTxn from version 3 on: behind size, correlation id, tags and throttle time."""
    return int(struct.unpack_from(">h", response, SIZE - 2)[0])
