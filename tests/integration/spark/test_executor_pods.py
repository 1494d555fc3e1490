"""Copiers in pods that Spark starts with the entry point of the worker's image; the pods are processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_faults, spark_properties
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.spark import engines
from ureplicator_testkit.spark.kubernetes import POLLING, KubernetesApi
from ureplicator_worker.engines.spark_executor import MAIN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SLOTS = 2
START_S = 120.0
ENDED_S = 20.0


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesApi]:
    with KubernetesApi(tmp_path / "pods") as api:
        yield api


def worker_settings(kubernetes: KubernetesApi, folder: Path) -> WorkerSettings:
    """Settings of the worker with the properties that the chart sets."""
    secret = folder / "spark-secret"
    secret.write_text("secret")
    return WorkerSettings(
        slots=SLOTS,
        bind="0.0.0.0",  # noqa: S104
        advertise="10.1.2.3",
        spark_secret_file=str(secret),
        spark={
            "spark.master": kubernetes.master,
            "spark.kubernetes.namespace": "replication",
            "spark.kubernetes.container.image": "registry.example/ureplicator:0.1.0",
            "spark.kubernetes.executor.secrets.ureplicator-spark": str(folder),
            **POLLING,
        },
    )


def on_this_machine(settings: WorkerSettings) -> dict[str, str]:
    """Driver and executors have an address of this machine only, which the configuration would refuse."""
    assert list(spark_faults(settings, ())) == []
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {**spark_properties(settings, ()), **here}


def test_copiers_run_in_pods_of_the_workers_image(
    kubernetes: KubernetesApi, tmp_path: Path
) -> None:
    properties = on_this_machine(worker_settings(kubernetes, tmp_path))
    with engines.running_stubs(properties, slots=SLOTS) as stubs:
        copiers = {stubs.hellos.get(timeout=START_S).pid for _ in range(SLOTS)}
        pods = [process for process in kubernetes.processes.values() if process.running]
        assert [MAIN in psutil.Process(process.pid).cmdline() for process in pods] == [True] * SLOTS
        assert copiers == {pid for pod in pods for pid in copiers.intersection(pod.tree())}
        assert stubs.ended == []
    eventually(
        lambda: not any(process.running for process in kubernetes.processes.values()),
        ENDED_S,
        "the pods end with their driver",
    )
    assert kubernetes.unknown == []
