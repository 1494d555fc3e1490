"""A standalone Spark cluster on this machine: a master, Spark workers, and what they start.

All of it runs from the classes that pyspark includes, on 127.0.0.1. A *Spark worker* is the daemon that
starts executors; it is no worker of the fleet. Executors, and the Python processes of their tasks, inherit
the mark of the Spark worker, so they are found by it.

The master keeps its applications and Spark workers in files (`spark.deploy.recoveryMode`): one that was
killed and started again knows them, as a production master must. Without that it would have the
executors of all running applications killed when it is back.

A Spark worker that dies closes its connection, which the master notices at once. One that is only silent is
given up after Spark's own 60 s, with all its executors: on a busy machine a shorter time would be a fault
that no test injects.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import psutil
import requests

from ureplicator_testkit.servers.java import LOG4J, Java, NotSetUpError, java_executable
from ureplicator_testkit.servers.processes import Process, eventually
from ureplicator_testkit.servers.server import START_DEADLINE_S, Server

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
HEAP_MB = 192
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
"""Packages that Spark reaches into (`org.apache.spark.launcher.JavaModuleOptions`)."""


class SparkStandalone(Server):
    """`workers` Spark workers with `cores` each; they are numbered from 0."""

    def __init__(
        self,
        *,
        workers: int = 2,
        cores: int = 2,
        memory_mb: int = 4096,
        name: str = "spark",
        folder: Path | None = None,
        detached: bool = False,
    ) -> None:
        """`memory_mb` is what a Spark worker may promise to executors, not what it takes."""
        super().__init__(name, folder, detached)
        self.port = self._claim(None)
        self._page_port = self._claim(None)
        self._count, self._cores, self._memory_mb = workers, cores, memory_mb
        self._master: Process | None = None
        self._workers: dict[int, Process] = {}

    @property
    def url(self) -> str:
        """The address for `spark.master`."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def master(self) -> Process:
        assert self._master is not None, "not started"
        return self._master

    def worker(self, number: int) -> Process:
        return self._workers[number]

    def processes(self) -> list[Process]:
        """Master first; the executors are descendants of the others."""
        return [*([self._master] if self._master else []), *self._workers.values()]

    # Start.

    def start(self) -> Self:
        """Start what does not run, and wait until the master counts every Spark worker."""
        try:
            self.start_master()
            for number in range(self._count):
                self.start_worker(number)
            eventually(self._complete, START_DEADLINE_S, f"{self.name} has its workers")
        except BaseException:
            self.stop()
            raise
        return self

    def start_master(self) -> None:
        """Start a master with what a former one knew; without waiting."""
        if self._master is None or not self._master.running:
            address = ("--port", str(self.port), "--webui-port", str(self._page_port))
            self._master = self._launch("master", MASTER, *address)

    def start_worker(self, number: int) -> None:
        """Start a worker without waiting."""
        former = self._workers.get(number)
        if former is not None and former.running:
            return
        if former is not None:
            former.kill_tree()
        limits = ("--cores", str(self._cores), "--memory", f"{self._memory_mb}m")
        places = ("--webui-port", "0", "--work-dir", str(self.folder / f"work-{number}"))
        name = f"worker-{number}"
        self._workers[number] = self._launch(name, WORKER, *limits, *places, self.url)

    def _launch(self, name: str, main_class: str, *arguments: str) -> Process:
        return Process(
            f"{self.name}-{name}",
            _java(self.folder).command(main_class, "--host", "127.0.0.1", *arguments),
            log=self.folder / f"{name}.log",
            env={
                "SPARK_HOME": str(spark_home()),
                "SPARK_SCALA_VERSION": _scala_version(),  # else sought in a source tree
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
                "PYSPARK_PYTHON": sys.executable,
            },
            detached=self.detached,
        )

    def _complete(self) -> bool:
        for process in self.processes():
            process.assert_running()
        return len(self.live_workers()) == self._count

    # What the master knows.

    def state(self) -> dict[str, Any]:
        """The master's own page; empty if it does not respond."""
        with suppress(requests.RequestException):
            url = f"http://127.0.0.1:{self._page_port}/json/"
            found: dict[str, Any] = requests.get(url, timeout=2).json()
            return found
        return {}

    def live_workers(self) -> Sequence[dict[str, Any]]:
        return [worker for worker in self.state().get("workers", []) if worker["state"] == "ALIVE"]

    # Faults.

    def executors(self, number: int | None = None) -> list[int]:
        """Process ids of executors, of one Spark worker or of all, oldest first."""
        chosen = self._workers.values() if number is None else [self._workers[number]]
        return [pid for process in chosen for pid in process.tree() if _is_executor(pid)]

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a Spark worker alone: its executors notice and end by themselves."""
        self._workers[number].send(signal.SIGKILL)
        self._workers[number].wait(10)

    def kill_master(self) -> None:
        self.master.kill_tree()


def kill_executor(pid: int) -> None:
    """SIGKILL to an executor alone: its Python processes notice and end by themselves."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def spark_home() -> Path:
    """The folder of pyspark, which is a whole Spark."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise NotSetUpError("pyspark is not installed: run scripts/setup")
    return Path(pyspark.origin).parent


def _scala_version() -> str:
    (jar,) = (spark_home() / "jars").glob("spark-core_*.jar")
    return jar.name.removeprefix("spark-core_").partition("-")[0]


def _java(folder: Path) -> Java:
    settings = folder / "log4j2.properties"
    settings.write_text(LOG4J)
    options = (
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-modules=jdk.incubator.vector",
        f"-Xmx{HEAP_MB}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Djava.io.tmpdir={folder}",
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={settings}",
        "-Dspark.deploy.recoveryMode=FILESYSTEM",
        f"-Dspark.deploy.recoveryDirectory={folder / 'recovery'}",
        "-Dspark.worker.cleanup.enabled=true",
        "-Dspark.master.rest.enabled=false",
    )
    home = spark_home()
    (logging,) = (home / "jars").glob("slf4j-api-*.jar")
    # As for drivers, or Java would not take their archive of classes.
    return Java(java_executable(), f"{home / 'conf'}:{logging}:{home / 'jars'}/*", options)


def _is_executor(pid: int) -> bool:
    with suppress(psutil.Error):
        return EXECUTOR in psutil.Process(pid).cmdline()
    return False
