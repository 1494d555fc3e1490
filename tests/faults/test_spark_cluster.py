"""Copiers on a standalone Spark cluster: executors, Spark workers, the master and drivers break.

w1 has two slots on executors of two Spark workers, w2 one slot in its own JVM. The Spark cluster has room
for two drivers, so an executor that is lost has a free core. Each test ends with both logs, and all commits,
read from the beginning (`Flow.judge`), and prints how long copying took to be back. The freeze of a driver,
under a load of both deliveries, lasts seconds here; three minutes and more with

    UREPLICATOR_FREEZE_S=180 scripts/test tests/faults/test_spark_cluster.py -k frozen -s
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ureplicator_common.model import Delivery, Route
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.histories.checker import Promise
from ureplicator_testkit.histories.events import Fault
from ureplicator_testkit.histories.repeats import NO_LOST_WRITER, late, lost
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.topics import read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually, spawn_ureplicator
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_testkit.spark.standalone import SparkStandalone, kill_executor

ONCE = Route("source", "once")
FREEZE_S = float(os.environ.get("UREPLICATOR_FREEZE_S", "12"))
pytestmark = [pytest.mark.timeout(600 + FREEZE_S), pytest.mark.usefixtures("quick_java")]
SLOTS = 2
PARTITIONS = 8
SHARE = PARTITIONS * SLOTS // (SLOTS + 1)
"""Of w1, at least, for each topic: w2 has one slot."""
RATE = 150
REBALANCE_S = 5
CAPACITY_TIMEOUT_S = 15
BACK_S = 60
"""For what starts a JVM on a machine that does much else; the promise of 5 s is measured, and printed."""


@dataclass(frozen=True, slots=True)
class SparkSite:
    """A ZooKeeper and two Kafka clusters that nothing happens to, and a Spark cluster."""

    zookeeper: ZooKeeperServer
    source: KafkaCluster
    target: KafkaCluster
    spark: SparkStandalone

    def cluster(self, end: str) -> KafkaCluster:
        return {"source": self.source, "target": self.target, ONCE.target: self.target}[end]

    def heal(self) -> None:
        self.spark.resume()
        self.spark.start()


@pytest.fixture(scope="module")
def site(
    zookeeper: ZooKeeperServer, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> Iterator[SparkSite]:
    with SparkStandalone(workers=2, cores=SLOTS) as spark:
        yield SparkSite(zookeeper, source_cluster, target_cluster, spark)


@pytest.fixture(scope="module")
def fleet(site: SparkSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(
        name="on-spark",
        folder=tmp_path_factory.mktemp("on-spark"),
        zookeeper=site.zookeeper.hosts,
        source=site.source.bootstrap,
        target=site.target.bootstrap,
        controller={"rebalance_delay_s": REBALANCE_S, "join_delay_s": 1},
        worker={"capacity_timeout_s": CAPACITY_TIMEOUT_S},
        routes=[
            {"source": "source", "target": "target"},
            {"source": ONCE.source, "target": ONCE.target, "delivery": "exactly_once"},
        ],
        aliases={ONCE.target: "target"},
        workers_own={
            "w1": {
                "slots": SLOTS,
                "spark": {"spark.master": site.spark.url, "spark.executor.memory": "512m"},
            }
        },
    )
    try:
        yield fleet.start(workers=2)
    finally:
        fleet.kill()


@pytest.fixture
def flow(site: SparkSite, fleet: Fleet, topic: str) -> Iterator[Flow]:
    fleet.heal()
    wait_ready(fleet)
    flow = Flow(site, fleet, topic, partitions=PARTITIONS, rate=RATE)
    try:
        flow.start()
        yield flow
        flow.delete()
    finally:
        flow.close()


@pytest.fixture
def flow_of_each_delivery(site: SparkSite, fleet: Fleet, topic: str) -> Iterator[tuple[Flow, Flow]]:
    """Two flows: one at least once, and beside it one exactly once."""
    fleet.heal()
    wait_ready(fleet)
    flow = Flow(site, fleet, topic, partitions=PARTITIONS, rate=RATE)
    once = Flow(
        site,
        fleet,
        f"{topic}-once",
        partitions=PARTITIONS,
        rate=RATE // 2,
        route=ONCE,
        promise=Promise(Delivery.EXACTLY_ONCE),
    )
    try:
        flow.start(once)
        yield flow, once
        flow.delete()
    finally:
        flow.close()
        once.close()


def wait_ready(fleet: Fleet) -> None:
    """Every slot of w1 has a copier."""
    eventually(lambda: len(pids(fleet)) == SLOTS, 60, "all copiers of w1 run")


def slots(fleet: Fleet, worker: str = "w1") -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = fleet.status(worker)["slots"]
    return found


def pids(fleet: Fleet, worker: str = "w1") -> dict[int, int]:
    """Slot -> process of its copier."""
    return {slot["slot"]: slot["pid"] for slot in slots(fleet, worker) if slot["pid"]}


def others(pids: Mapping[int, int]) -> dict[int, int]:
    """Partitions of all slots but slot 0."""
    return {slot: pid for slot, pid in pids.items() if slot}


def wait_back(flow: Flow, fleet: Fleet, what: str) -> None:
    """Wait until every partition is ONLINE and copied; print how long that took."""
    began_s = time.monotonic()
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=BACK_S)
    took_s = time.monotonic() - began_s
    flow.assert_copying(deadline_s=BACK_S)
    print(f"{what}: back within {took_s:.1f} s")


def follow_replacement(
    site: SparkSite, fleet: Fleet, executors: list[int], copiers: Mapping[int, int]
) -> str:
    """Wait for another executor in place of a killed one, and for its copier; the times since now."""
    began_s = time.monotonic()
    eventually(lambda: set(site.spark.executors()) - set(executors), BACK_S, "another executor")
    executor_s = time.monotonic() - began_s
    eventually(
        lambda: len(now := pids(fleet)) == SLOTS and now != copiers, BACK_S, "another copier"
    )
    copier_s = time.monotonic() - began_s
    return f"another executor starts after {executor_s:.1f} s, its copier connects after {copier_s:.1f} s"


def wait_missed(fleet: Fleet, flow: Flow, copiers: Mapping[int, int]) -> None:
    """The fleet has noticed that some partition is not copied, or its slot has another copier already: on a
    busy machine a look at it may come after both."""
    eventually(
        lambda: len(fleet.owners(flow.topic)) < flow.partitions or pids(fleet) != copiers,
        15,
        "the loss is noticed",
    )


def reasons(fleet: Fleet) -> set[str]:
    """Reasons of all partitions of w1 that are in ERROR."""
    rows = fleet.status("w1")["partitions"].values()
    return {row["reason"] for row in rows if row["state"] == "ERROR"}


def owned_by(flow: Flow, worker: str) -> int:
    return sum(owner == worker for owner in flow.owners().values())


def test_two_drivers_under_one_id(fleet: Fleet, flow: Flow) -> None:
    """The second one is refused while the first lives, and touches nothing.

    The first test: what a fault does to a copier may come late, when its lifeline has been silent.
    """
    before = pids(fleet)
    second = spawn_ureplicator(
        *("worker", fleet.config_of("w1"), "--id", "w1"), log=fleet.folder / "second.log"
    )
    try:
        assert second.wait(60) == 1
        assert "another live worker has the id w1" in second.log_text()
    finally:
        second.kill_tree()
    flow.assert_copying()
    assert pids(fleet) == before, "nothing was interrupted"
    flow.judge(NO_LOST_WRITER)


def test_a_killed_executor_costs_one_slot(site: SparkSite, fleet: Fleet, flow: Flow) -> None:
    """A killed copier costs one, too, and a Spark worker costs its executors."""
    kill_one_executor(site, fleet, flow)
    let_memory_run_out(site, fleet, flow)
    kill_spark_worker(site, fleet, flow)
    flow.judge(lost("w1"))


def kill_one_executor(site: SparkSite, fleet: Fleet, flow: Flow) -> None:
    executors, before = site.spark.executors(), pids(fleet)
    assert len(executors) == SLOTS
    flow.history.add(Fault("SIGKILL: executor"))
    began_s = time.monotonic()
    kill_executor(executors[0])
    steps = follow_replacement(site, fleet, executors, before)
    fleet.wait_online(flow.topic, flow.partitions, deadline_s=BACK_S)
    print(f"executor killed: {steps}, copied again after {time.monotonic() - began_s:.1f} s")
    flow.assert_copying(deadline_s=BACK_S)
    after = pids(fleet)
    kept = [slot for slot in before if after.get(slot) == before[slot]]
    assert len(kept) == SLOTS - 1, "the other slots are untouched"


def let_memory_run_out(site: SparkSite, fleet: Fleet, flow: Flow) -> None:
    """The system ends the largest process, as in a container: a copier, under its executor."""
    executors, before = site.spark.executors(), pids(fleet)
    flow.history.add(Fault("SIGKILL: copier of an executor"))
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: pids(fleet).get(0) not in (None, before[0]), BACK_S, "another one runs")
    wait_back(flow, fleet, "copier out of memory")
    assert others(pids(fleet)) == others(before), "the other slots are untouched"
    assert set(executors) == set(site.spark.executors())


def kill_spark_worker(site: SparkSite, fleet: Fleet, flow: Flow) -> None:
    before, number = pids(fleet), 0 if site.spark.executors(0) else 1
    here = site.spark.executors(number)
    flow.history.add(Fault("SIGKILL: Spark worker"))
    site.spark.kill_worker(number)
    wait_missed(fleet, flow, before)
    wait_back(flow, fleet, f"Spark worker with {len(here)} executors killed")
    kept = [slot for slot, pid in pids(fleet).items() if before.get(slot) == pid]
    assert len(kept) == SLOTS - len(here)
    assert len(site.spark.executors(1 - number)) == SLOTS, "the other Spark worker has all"


def test_without_a_master_copiers_go_on_and_a_worker_without_any_gives_its_share_back(
    site: SparkSite, fleet: Fleet, flow: Flow
) -> None:
    """The driver is killed and started again once the master is back."""
    before = pids(fleet)
    flow.history.add(Fault("SIGKILL: Spark master"))
    site.spark.kill_master()
    flow.assert_copying()
    assert pids(fleet) == before, "no copier needs the master"
    for pid in site.spark.executors():
        kill_executor(pid)
    began_s = time.monotonic()
    address = site.spark.url.removeprefix("spark://")
    eventually(
        lambda: any(f"Spark master {address} is away since" in reason for reason in reasons(fleet)),
        15,
        "the reason says what is missing",
    )
    flow.wait_owned_by({"w2"}, BACK_S)
    print(f"share given back after {time.monotonic() - began_s:.1f} s")
    shown = fleet.rest("GET", "/instances")["workers"]["w1"]
    assert f"Spark master {address} is away since" in shown["noCapacity"]
    flow.assert_copying()
    began_s = time.monotonic()
    site.spark.start()
    eventually(lambda: owned_by(flow, "w1") >= SHARE, 90, "w1 has its share again")
    print(f"share taken up again {time.monotonic() - began_s:.1f} s after the master's start")
    assert fleet.rest("GET", "/instances")["workers"]["w1"]["noCapacity"] == ""
    kill_driver(site, fleet, flow)
    flow.judge(lost("w1"))


def kill_driver(site: SparkSite, fleet: Fleet, flow: Flow) -> None:
    flow.history.add(Fault("SIGKILL: driver"))
    fleet.workers["w1"].kill_tree()
    began_s = time.monotonic()
    eventually(lambda: not site.spark.executors(), 30, "its executors end")
    print(f"executors of a killed driver ended after {time.monotonic() - began_s:.1f} s")
    fleet.start_worker("w1")
    fleet.wait_workers("w1")
    flow.wait_owned_by({"w1", "w2"}, BACK_S)
    flow.assert_copying(deadline_s=BACK_S)
    print(f"driver killed: all is copied again after {time.monotonic() - began_s:.1f} s")


def test_a_frozen_driver_is_replaced_and_its_copiers_copy_nothing_more(
    site: SparkSite, fleet: Fleet, flow_of_each_delivery: tuple[Flow, Flow]
) -> None:
    flow, once = flow_of_each_delivery
    before = pids(fleet, "w2")
    flow.history.add(Fault(f"SIGSTOP: driver, for {FREEZE_S:.0f} s"))
    fleet.workers["w1"].pause()
    began_s = time.monotonic()
    flow.wait_owned_by({"w2"}, BACK_S)
    print(f"driver frozen: partitions elsewhere after {time.monotonic() - began_s:.1f} s")
    fleet.wait_seconds(max(0.0, FREEZE_S - (time.monotonic() - began_s)))
    fleet.workers["w1"].resume()
    thawed_s = time.monotonic()
    flow.assert_copying()
    eventually(
        lambda: sum(owned_by(either, "w1") for either in (flow, once)) >= 2 * SHARE,
        2 * BACK_S,
        "w1 has its share of both topics again",
    )
    print(f"driver thawed: it has its share again after {time.monotonic() - thawed_s:.1f} s")
    flow.assert_copying(deadline_s=BACK_S)
    assert pids(fleet, "w2") == before, "the slots of the other worker are untouched"
    flow.judge(late("w1"))
    for either in (flow, once):
        print(f"{either.topic}: nothing lost, {repeated(site, either)} repeated")
    assert repeated(site, once) == 0


def repeated(site: SparkSite, flow: Flow) -> int:
    """Records of the target beyond those of the source, all of which it has."""
    source = read_all(site.source.bootstrap, flow.topic)
    target = read_all(site.target.bootstrap, flow.copy)
    return sum(len(target.get(number, ())) - len(source[number]) for number in source)
