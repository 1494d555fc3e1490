"""Pods of executors, as Spark itself renders them from the properties of a worker; no cluster is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_faults, spark_properties

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TEMPLATE = """
apiVersion: v1
kind: Pod
spec:
  tolerations: [{key: kafka, operator: Exists}]
"""


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    launch: Any = launch_gateway
    conf = SparkConf(loadDefaults=False).set("spark.driver.memory", "256m")
    gateway = launch(conf)
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(20)


def settings(folder: Path) -> WorkerSettings:
    """The example of the documentation, with files of the test."""
    secret, template = folder / "spark-secret", folder / "executor.yaml"
    secret.write_text("secret")
    template.write_text(TEMPLATE)
    return WorkerSettings(
        slots=4,
        bind="0.0.0.0",  # noqa: S104
        advertise="10.1.2.3",
        spark_secret_file=str(secret),
        spark={
            "spark.master": "k8s://https://kubernetes.default.svc",
            "spark.driver.port": "9012",
            "spark.driver.blockManager.port": "9013",
            "spark.kubernetes.namespace": "replication",
            "spark.kubernetes.container.image": "registry.example/ureplicator:0.1.0",
            "spark.kubernetes.authenticate.executor.serviceAccountName": "ureplicator-executor",
            "spark.kubernetes.executor.secrets.ureplicator-spark": str(folder),
            "spark.kubernetes.executor.podTemplateFile": str(template),
        },
    )


def pod(jvm: Any, worker: WorkerSettings) -> dict[str, Any]:
    """Pod and container of executor 1, by the classes that the driver uses."""
    assert list(spark_faults(worker, ())) == []
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in spark_properties(worker, ()).items():
        conf.set(name, value)
    none = jvm.scala.Option.empty()
    kubernetes = jvm.org.apache.spark.deploy.k8s.KubernetesConf
    spec = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
        kubernetes.createExecutorConf(conf, "1", "app-1", none, 0),
        jvm.org.apache.spark.SecurityManager(
            conf, none, _object(jvm, "internal.config.package").AUTH_SECRET_FILE_DRIVER()
        ),
        jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build(),
        _object(jvm, "resource.ResourceProfile").getOrCreateDefaultProfile(conf),
    )
    write = jvm.io.fabric8.kubernetes.client.utils.Serialization.asYaml
    rendered: dict[str, Any] = yaml.safe_load(write(spec.pod().pod()))
    rendered["container"] = yaml.safe_load(write(spec.pod().container()))
    return rendered


def _object(jvm: Any, name: str) -> Any:
    """A singleton of Scala."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName(f"org.apache.spark.{name}$", True, loader)
    return found.getField("MODULE$").get(None)


def test_the_pod_of_an_executor(jvm: Any, tmp_path: Path) -> None:
    rendered = pod(jvm, settings(tmp_path))
    container = rendered["container"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert container["image"] == "registry.example/ureplicator:0.1.0"
    assert (container.get("command"), container["args"]) == (None, ["executor"])
    assert container["resources"]["limits"]["memory"] == "896Mi"  # 512 and 384
    assert container["resources"]["requests"]["cpu"] == env["SPARK_EXECUTOR_CORES"] == "1"
    assert env["SPARK_DRIVER_URL"] == "spark://CoarseGrainedScheduler@10.1.2.3:9012"
    assert rendered["spec"]["serviceAccountName"] == "ureplicator-executor"
    assert rendered["spec"]["restartPolicy"] == "Never"
    assert rendered["spec"]["tolerations"] == [{"key": "kafka", "operator": "Exists"}]


def test_the_secret_is_mounted_and_is_in_no_variable(jvm: Any, tmp_path: Path) -> None:
    rendered = pod(jvm, settings(tmp_path))
    container = rendered["container"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in rendered["spec"]["volumes"]}
    assert volumes[mounted[str(tmp_path)]]["secret"]["secretName"] == "ureplicator-spark"
    assert "_SPARK_AUTH_SECRET" not in {variable["name"] for variable in container["env"]}
    options = [variable.get("value", "") for variable in container["env"]]
    assert "-Dspark.authenticate=true" in options
    assert "-Dspark.network.crypto.enabled=true" in options


def test_no_file_of_the_driver_is_a_path_of_executors(jvm: Any, tmp_path: Path) -> None:
    """Spark gives executors folders of their own, whatever the driver's scratch folder is."""
    env = {
        variable["name"]: variable.get("value")
        for variable in pod(jvm, settings(tmp_path))["container"]["env"]
    }
    assert env["SPARK_LOCAL_DIRS"].startswith("/var/data/spark-")
