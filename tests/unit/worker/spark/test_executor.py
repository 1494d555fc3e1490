"""The command of an executor's pod, from the variables that Spark gives it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.control.command import run
from ureplicator_worker.engines import spark_executor as executor

VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:9012",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "app-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "w-exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}


def made(**more: str) -> list[str]:
    return executor.executor_command({**VARIABLES, **more}, java="java", home=Path("/s"))


def test_the_command_is_that_of_sparks_own_images_with_the_kind_of_master() -> None:
    """Their `entrypoint.sh`, case `executor`."""
    assert made(SPARK_JAVA_OPT_0="-Da=1 2") == [
        *("java", "-Da=1 2", "-Dspark.master=k8s://", "-Xms512m", "-Xmx512m"),
        *("-cp", "/opt/spark/conf:/s/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@10.1.2.3:9012"),
        *("--executor-id", "7", "--cores", "1", "--app-id", "app-1", "--hostname", "10.1.2.4"),
        *("--resourceProfileId", "0", "--podName", "w-exec-7"),
    ]


def test_java_options_are_in_the_order_of_their_numbers() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 9, 0)}
    assert made(**options)[1:4] == ["-Dn=0", "-Dn=9", "-Dn=10"]


def test_classes_of_the_application_are_found_before_those_of_spark() -> None:
    assert "/opt/spark/conf:/own/*:/s/jars/*" in made(SPARK_CLASSPATH="/own/*")


def test_a_start_by_hand_is_refused_with_what_starts_executors() -> None:
    result = run("executor")
    assert result.exit_code == 1
    assert "SPARK_DRIVER_URL, " in result.stderr
    assert "start `ureplicator worker`" in result.stderr


def test_a_user_without_a_name_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's login in the JVM would end with `invalid null input: name`."""
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    with pytest.raises(PermanentError, match=r"user id 987654321 has no name.*runAsUser"):
        executor.run(VARIABLES)
