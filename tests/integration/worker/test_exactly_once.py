"""The copier alone, exactly once, between two real brokers of each transaction protocol.

What is sent, read and committed is recorded, and the history is judged at the end (`histories`).
"""

import json
import os
import signal
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.features import transaction_support
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import (
    Delivery,
    HandlerSettings,
    OwnerEpoch,
    Partition,
    RouteSettings,
)
from ureplicator_testkit.copier.driver import StubDriver, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.lanes import LANES
from ureplicator_testkit.copier.observed import Observed
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.records.labels import labelled_records
from ureplicator_testkit.records.topics import ConsumedRecord, create_topic, produce, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process, eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_worker.lifeline.messages import Add, Grant
from ureplicator_worker.wire.produce_api import API_KEY as PRODUCE

PARTITIONS = 3
KILLS = 3
DELAYS = 2
OWNERS = 3
END_TXN = 26
INVALID_EPOCH = struct.pack(">h", ErrorCode.INVALID_PRODUCER_EPOCH)
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
IN_TRANSACTIONS = LANES["exactly_once-handled"]
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


def start(
    lane: RealLane, *, target: str = "", settings: RouteSettings = EXACTLY_ONCE, epoch: int = 1
) -> StubDriver:
    """`target`: its address, if not its own. Each owner epoch is another worker's, which fences the former
    ones."""
    fence = tuple(id for former in range(1, epoch) for id in lane.ids(f"w{former}"))

    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, settings=settings, fence=fence)

    return lane.start(PARTITIONS, target=target, grant=grant, epoch=epoch, worker=f"w{epoch}")


@pytest.fixture
def observed(lane: RealLane) -> Iterator[Observed]:
    observed = Observed(lane, partitions=PARTITIONS)
    yield observed
    observed.close()


@pytest.fixture
def in_transactions(lane: RealLane) -> Iterator[Observed]:
    """A lane with a handler, observed as `observed` is."""
    observed = Observed(lane, partitions=PARTITIONS, transactional=True)
    yield observed
    observed.close()


def copy_the_rest(
    lane: RealLane,
    observed: Observed,
    *,
    settings: RouteSettings = EXACTLY_ONCE,
    epoch: int = 1,
) -> None:
    observed.load.stop()
    driver = start(lane, settings=settings, epoch=epoch)
    driver.wait_caught_up(60)
    driver.stop()
    observed.judge()


def test_a_copier_killed_again_and_again_repeats_nothing(
    lane: RealLane, observed: Observed
) -> None:
    """The first one starts behind a large batch and two long transactions."""
    observed.start()
    for turn in range(KILLS):
        driver = start(lane)
        driver.wait_online()
        observed.follow(300 * (turn + 1), driver)
        observed.fault("SIGKILL: copier")
        driver.process.kill_tree()
        driver.close()
    copy_the_rest(lane, observed)


def test_what_replaced_copiers_had_sent_arrives_late(
    lane: RealLane, target: Target, observed: Observed
) -> None:
    """Three owners in a row freeze with a request on its way. When all thaw, and their requests arrive, each
    is refused by its epoch."""
    observed.start()
    replaced = []
    for epoch in range(1, OWNERS + 1):
        driver = start(lane, target=target.proxy.address, epoch=epoch)
        observed.wait_visible(RECORDS_LATER)
        held = target.proxy.hold(PRODUCE)
        eventually(lambda: held.taken, GIVEN_UP_S, "records are to be sent")  # noqa: B023
        driver.process.pause()
        observed.fault("SIGSTOP: copier; its request is held")
        replaced.append((driver, held))
    successor = start(lane, epoch=OWNERS + 1)
    observed.wait_visible(RECORDS_LATER)
    for driver, held in replaced:
        driver.mode = "refuse"
        held.release()
        driver.process.resume()
    observed.fault("SIGCONT: copiers; their requests arrive")
    for driver, held in replaced:
        eventually(lambda: INVALID_EPOCH in held.response, GIVEN_UP_S, "it is refused")  # noqa: B023
        eventually(lambda: len(driver.failed) == PARTITIONS, GIVEN_UP_S, "the copier gives up")  # noqa: B023
    observed.wait_visible(RECORDS_LATER)
    successor.stop()
    copy_the_rest(lane, observed, epoch=OWNERS + 2)


def test_both_lanes_of_one_copier_killed_again_and_again(
    lane: RealLane, observed: Observed
) -> None:
    """One topic is copied as it is, and judged; another one goes through a handler, in transactions. The
    positions of both are in the same commits."""
    other = f"{lane.topic}-handled"
    for cluster in (lane.source, lane.target):
        create_topic(cluster.bootstrap, other, partitions=PARTITIONS)
    keep = HandlerSettings(other, f"{MODULE}:fan_out", json.dumps({"topics": []}), timeout_s=5.0)
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(keep,))
    observed.start()
    for turn in range(KILLS + 1):
        driver = start(lane, settings=settings)
        driver.send(Add(partitions_of(other, PARTITIONS)))
        records = labelled_records(other, partitions=PARTITIONS, count=90, first=90 * turn)
        produce(lane.source.bootstrap, other, records)
        if turn == KILLS:
            break
        driver.wait_online()
        observed.follow(300, driver)
        observed.fault("SIGKILL: copier")
        driver.process.kill_tree()
        driver.close()
    observed.load.stop()
    driver.wait_caught_up(60)
    wanted = values(read_all(lane.source.bootstrap, other))
    eventually(
        lambda: values(read_all(lane.target.bootstrap, other)) == wanted,
        GIVEN_UP_S,
        "the handled topic is there once",
    )
    driver.stop()
    observed.judge()


def test_what_a_handler_emits_is_there_once_whatever_is_killed(
    lane: RealLane, in_transactions: Observed
) -> None:
    """All source partitions share the partition of one topic; the broker is the coordinator, too."""
    observed = in_transactions
    other, shared = f"{lane.topic}-copy", f"{lane.topic}-shared"
    create_topic(lane.target.bootstrap, other, partitions=PARTITIONS)
    create_topic(lane.target.bootstrap, shared)
    handler = HandlerSettings(
        ".*", f"{MODULE}:three", json.dumps({"others": [other, shared]}), timeout_s=5.0
    )
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(handler,))
    observed.start()
    driver = start(lane, settings=settings)
    driver.wait_online()
    for what in ("handler", "broker", "copier"):
        observed.follow(300, driver)
        observed.fault(f"SIGKILL: {what}")
        harm(what, lane, driver.process)
    driver.close()
    copy_the_rest(lane, observed, settings=settings)
    wanted = values(read_all(lane.source.bootstrap, lane.topic))
    assert values(read_all(lane.target.bootstrap, other)) == wanted
    (mixed,) = values(read_all(lane.target.bootstrap, shared)).values()
    assert sorted(mixed) == sorted(value for found in wanted.values() for value in found)
    for of_partition in wanted.values():
        labelled = [value for value in of_partition if value]
        known = set(labelled)
        assert [value for value in mixed if value in known] == labelled


def test_a_delayed_end_of_a_transaction_ends_no_later_one(
    lane: RealLane, target: Target, in_transactions: Observed
) -> None:
    """The network keeps an EndTxn, its sender gives up, goes on with later transactions, and then it arrives.

    Jepsen's finding in Kafka's own producer (KAFKA-17754): it repeats an EndTxn that got no response, goes on
    with the next transaction under the same epoch, and the first one ends that. Here the id is initialised
    after each unknown outcome, so what arrives late is refused by its epoch. If it ended a later transaction,
    a part of that would be committed without its positions. The copier is killed right behind it: such a part
    would be there for good, and be copied again.
    """
    observed = in_transactions
    observed.start()
    codes = []
    for _ in range(DELAYS):
        driver = start(lane, target=target.proxy.address, settings=IN_TRANSACTIONS)
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
    copy_the_rest(lane, observed, settings=IN_TRANSACTIONS)
    assert set(codes) <= REFUSED, codes


def error_code(response: bytes) -> int:
    """Error code of a response to EndTxn from version 3 on: behind size, correlation id, tags and throttle
    time."""
    return int(struct.unpack_from(">h", response, SIZE - 2)[0])


def harm(what: str, lane: RealLane, copier: Process) -> None:
    """Kill the copier, or something that it goes on without."""
    if what == "broker":
        lane.target.restart(clean=False)
    elif what == "handler":
        for pid in set(copier.tree()) - {copier.pid}:
            os.kill(pid, signal.SIGKILL)
    else:
        copier.kill_tree()


def values(log: Mapping[int, Sequence[ConsumedRecord]]) -> dict[int, list[bytes]]:
    return {number: [record.value or b"" for record in found] for number, found in log.items()}
