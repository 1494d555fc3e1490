"""An executor that Spark decommissions: noticed by the driver, and the next copier runs on another one."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_properties
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.spark import engines
from ureplicator_testkit.spark.standalone import SparkStandalone
from ureplicator_worker.core.events import CopierEnded, CopierLost, Event, FromCopier
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.lifeline import messages
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId
from ureplicator_worker.lifeline.server import LifelineServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("quick_java")]

NOTICED_S = 10.0


class Driver:
    def __init__(self, cluster: SparkStandalone) -> None:
        self.received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.decommissioned: queue.SimpleQueue[CopierId] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.lifeline = LifelineServer(host="127.0.0.1")
        self.lifeline.start(lambda copier, message: self.received.put(message))
        properties = {
            **engines.stub_properties(),
            "spark.master": cluster.url,
            "spark.executor.memory": "512m",
            "spark.decommission.enabled": "true",
        }
        self.spark = SparkEngine(
            name="decommission",
            slots=1,
            properties=spark_properties(WorkerSettings(slots=1, spark=properties), ()),
            put=self.put,
            on_job_ended=self.lifeline.revoke,
            on_jvm_failed=lambda reason: None,
            silence_s=60,
            copier_entry=engines.STUB,
        )
        self.spark.start()

    def put(self, event: Event) -> None:
        match event:
            case CopierEnded(reason=reason):
                self.ended.put(reason)
            case CopierLost(reason=reason):
                self.ended.put(f"lost: {reason}")
            case FromCopier(copier):
                self.decommissioned.put(copier)

    def start(self, copier: CopierId) -> None:
        """Start a run, and wait for its Hello."""
        config = CopierConfig(
            fleet="f",
            worker="w",
            slot=copier.slot,
            run=copier.run,
            host=self.lifeline.address[0],
            port=self.lifeline.address[1],
            token=self.lifeline.admit(copier),
            clusters={},
            commit_interval_s=1.0,
            transaction_interval_s=0.1,
            buffer_bytes=1,
            silence_s=60.0,
        )
        self.spark.start_copier(copier, config, "")
        while not isinstance(hello := self.received.get(timeout=90), messages.Hello):
            pass
        assert hello.copier == copier
        self.spark.connected(copier, hello.pid, hello.pid_space)

    def close(self) -> None:
        engines.stop(self.spark)
        self.lifeline.close()


@pytest.fixture
def cluster() -> Iterator[SparkStandalone]:
    with SparkStandalone(workers=2, cores=1) as cluster:
        yield cluster


@pytest.fixture
def driver(cluster: SparkStandalone) -> Iterator[Driver]:
    driver = Driver(cluster)
    yield driver
    driver.close()


def test_a_copier_on_a_decommissioned_executor_is_reported_and_started_on_another(
    cluster: SparkStandalone, driver: Driver
) -> None:
    first, second = CopierId(0, 1), CopierId(0, 2)
    driver.start(first)
    (executor,) = cluster.executors()
    os.kill(executor, signal.SIGPWR)
    began_s = time.monotonic()
    assert driver.decommissioned.get(timeout=60) == first
    assert time.monotonic() - began_s < NOTICED_S
    driver.lifeline.send(first, messages.Stop())
    assert driver.ended.get(timeout=60) == "it returned"
    driver.start(second)
    eventually(lambda: executor not in cluster.executors(), 30, "the executor ends")
    assert len(cluster.executors()) == 1
    assert driver.decommissioned.empty()
