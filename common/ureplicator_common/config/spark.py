"""Spark properties of a worker: which are pinned, with what reason, and what all of them are.

A copier is a task that never ends, computes nothing for Spark and speaks to Kafka by itself. Many settings
of Spark are made for tasks that end: with them Spark would run a copier twice, kill it while it is idle
from Spark's point of view, or take an executor from it. Such settings are pinned: they are always sent to
Spark, so that no `spark-defaults.conf` changes them, and a configuration that wants another value is
refused with the reason.

One executor has one core and so one copier. An executor that is lost costs one slot, and the memory of an
executor is that of one slot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Fault
from ureplicator_common.config.spark_master import (
    Master,
    executors_elsewhere,
    is_any,
    is_loopback,
)

MIB = 1024 * 1024
COPIER_MIB = 180
"""A copier's Python process and the daemon that it was forked from, without `worker.buffer_bytes`."""
SQL_MIB = 300
"""A process of queries without the heap of its JVM: Python with pyarrow, and what the JVM has beside it."""
MIN_OVERHEAD_MIB = 384
"""Spark's own minimum, for the JVM of an executor."""

MIN_DRIVER_MIB = 450
"""1.5 times the 300 MiB that Spark reserves of a heap: `UnifiedMemoryManager.getMaxMemory` refuses less."""

_SIZE = re.compile(r"(\d+)([kmgtp]b?|b?)")
_UNITS_MIB = {"": 1, "b": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20, "p": 2**30}
"""MiB of a unit, by its first letter. A number alone is in MiB for the properties that are checked here."""


class On(StrEnum):
    """Masters that a pin is for. AUTHENTICATED: clusters whose traffic leaves this machine."""

    ANY = "any"
    CLUSTER = "`spark://`, `k8s://`"
    STANDALONE = "`spark://`"
    KUBERNETES = "`k8s://`"
    AUTHENTICATED = "executors on other machines"


@dataclass(frozen=True, slots=True)
class Pin:
    """A property with its one value; `{slots}` stands for `worker.slots`."""

    name: str
    value: str
    on: On
    reason: str

    def value_for(self, worker: WorkerSettings) -> str:
        return self.value.format(slots=worker.slots)


PINS = (
    Pin(
        "spark.task.maxFailures",
        "1",
        On.ANY,
        "only the worker starts a copier again, with a new token",
    ),
    Pin("spark.speculation", "false", On.ANY, "a copier never ends, so Spark would run it twice"),
    Pin("spark.task.cpus", "1", On.ANY, "a slot is one core"),
    Pin(
        "spark.task.reaper.enabled",
        "false",
        On.ANY,
        "it ends the JVM of a cancelled copier, which may be committing",
    ),
    Pin(
        "spark.python.worker.reuse",
        "false",
        On.ANY,
        "memory and connections of a copier end with its process",
    ),
    Pin(
        "spark.python.worker.idleTimeoutSeconds",
        "0",
        On.ANY,
        "a copier sends Spark nothing, so Spark takes it for idle",
    ),
    Pin(
        "spark.python.worker.killOnIdleTimeout",
        "false",
        On.ANY,
        "a copier sends Spark nothing, so Spark takes it for idle",
    ),
    Pin(
        "spark.dynamicAllocation.enabled",
        "false",
        On.ANY,
        "a worker has a fixed number of slots, and none of them is ever idle",
    ),
    *(
        Pin(
            f"spark.excludeOnFailure.{part}enabled",
            "false",
            On.ANY,
            "a copier that fails because of Kafka would cost the worker its executors",
        )
        for part in ("", "application.", "taskAndStage.")
    ),
    Pin("spark.submit.deployMode", "client", On.ANY, "the worker itself is the driver"),
    Pin("spark.ui.killEnabled", "false", On.ANY, "who sees Spark's page could end copiers"),
    Pin("spark.executor.cores", "1", On.CLUSTER, "losing one executor costs one slot"),
    Pin("spark.executor.instances", "{slots}", On.CLUSTER, "one executor for each slot"),
    Pin(
        "spark.cores.max",
        "{slots}",
        On.STANDALONE,
        "a worker would take every core of the cluster, or fewer than it has slots",
    ),
    Pin(
        "spark.executor.failuresValidityInterval",
        "1h",
        On.CLUSTER,
        "failures of executors over months would add up until Spark ends the worker",
    ),
    Pin(
        "spark.kubernetes.executor.useDriverPodIP",
        "false",
        On.KUBERNETES,
        "executors would connect to worker.bind instead of worker.advertise",
    ),
    Pin(
        "spark.kubernetes.executor.rollInterval",
        "0",
        On.KUBERNETES,
        "rolling takes executors from copiers that run",
    ),
    Pin(
        "spark.authenticate",
        "true",
        On.AUTHENTICATED,
        "who reaches the driver could run code in it and on its executors",
    ),
    Pin(
        "spark.network.crypto.enabled",
        "true",
        On.AUTHENTICATED,
        "what the driver sends to executors names clusters and admits copiers",
    ),
    Pin(
        "spark.network.crypto.saslFallback",
        "false",
        On.AUTHENTICATED,
        "it would accept peers without encryption",
    ),
)

REFUSED: Mapping[str, str] = {
    "spark.driver.host": "set worker.advertise",
    "spark.driver.bindAddress": "set worker.bind",
    "spark.authenticate.secret": "it would be readable here and in Spark: set worker.spark_secret_file",
    "spark.authenticate.secret.file": "set worker.spark_secret_file",
    "spark.authenticate.secret.driver.file": "set worker.spark_secret_file",
    "spark.authenticate.secret.executor.file": "set worker.spark_secret_file",
    "spark.executor.pyspark.memory": "it limits the address space of a copier, whose memory is bounded by"
    " worker.buffer_bytes",
}
"""Properties that are not set, with what to do instead."""

DEFAULTS: Mapping[str, str] = {
    "spark.python.daemon.module": "ureplicator_worker.engines.fork_server",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "100",
}
"""All may be overridden by configuration. Copiers are forked with their modules loaded. The history is
capped because a worker runs for months; a local socket of Unix saves each task 45 ms of delayed
acknowledgements."""

CLUSTER_DEFAULTS: Mapping[str, str] = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""An executor's JVM only starts tasks and waits. A slot starts when its executor is there, whether the
others are or not."""

_DRIVER_PORTS = ("spark.driver.port", "spark.driver.blockManager.port")


# Properties.


def spark_properties(worker: WorkerSettings, routes: Sequence[RouteConfig]) -> dict[str, str]:
    """All properties of a configuration without faults, but for secrets and the worker's own files."""
    url = worker.spark_master
    master = Master.of(url)
    local = master is Master.LOCAL
    properties = {**DEFAULTS, **({} if local else CLUSTER_DEFAULTS)}
    if any(name in worker.spark for name in _DRIVER_PORTS) and (
        "spark.blockManager.port" not in worker.spark
    ):
        properties["spark.port.maxRetries"] = "0"
    if not local:
        properties["spark.executor.memoryOverhead"] = f"{overhead_mib(worker, routes)}m"
    properties |= {name: value for name, value in worker.spark.items() if value}
    properties |= {pin.name: pin.value_for(worker) for pin in _pins(worker)}
    if master is Master.KUBERNETES:
        properties["spark.authenticate.secret.file"] = worker.spark_secret_file
    return properties | {
        "spark.master": url,
        "spark.driver.host": "127.0.0.1" if local else worker.address,
        "spark.driver.bindAddress": "127.0.0.1" if local else worker.bind,
    }


def overhead_mib(worker: WorkerSettings, routes: Sequence[RouteConfig]) -> int:
    """Memory of an executor beside its heap: one copier, its buffer, and the processes of its handlers
    and queries."""
    processes_mib = sum(map(_processes_mib, routes))
    slot_mib = COPIER_MIB + math.ceil(worker.buffer_bytes / MIB) + processes_mib
    return max(MIN_OVERHEAD_MIB, slot_mib)


def _processes_mib(route: RouteConfig) -> int:
    """Each handler has a process in a slot; queries share one where its settings are equal."""
    handlers_mib = sum(handler.memory_mib for handler in route.handlers)
    sessions = {query.settings.process for query in route.sql}
    return handlers_mib + sum(SQL_MIB + session.memory_bytes // MIB for session in sessions)


def _pins(worker: WorkerSettings) -> Iterator[Pin]:
    master = Master.of(worker.spark_master)
    present = {On.ANY}
    if master is not Master.LOCAL:
        present |= {
            On.CLUSTER,
            On.KUBERNETES if master is Master.KUBERNETES else On.STANDALONE,
        }
        if worker.spark_secret_file or executors_elsewhere(worker.spark_master):
            present.add(On.AUTHENTICATED)
    return (pin for pin in PINS if pin.on in present)


# Faults.


def spark_faults(worker: WorkerSettings, routes: Sequence[RouteConfig]) -> Iterator[Fault]:
    """Faults that Spark, or the executors, could not work with; each in one line with its reason."""
    url = worker.spark_master
    master = Master.of(url)
    if master is None:
        yield Fault(
            "worker.spark.spark.master",
            f"{url!r} is not local[n], spark://host:port or k8s://...: copiers run on no other master",
        )
        return
    yield from _pin_faults(worker)
    yield from driver_faults("worker.spark", worker.spark)
    if master is not Master.LOCAL:
        yield from _memory_faults(worker, routes)
    if executors_elsewhere(url):
        yield from _address_faults(worker)
        yield from _secret_faults(worker)
    if master is Master.KUBERNETES:
        yield from _image_faults(worker)


def _pin_faults(worker: WorkerSettings) -> Iterator[Fault]:
    for pin in _pins(worker):
        given, value = worker.spark.get(pin.name, ""), pin.value_for(worker)
        if given and given.strip().lower() != value:
            yield Fault(f"worker.spark.{pin.name}", f"must be {value}, not {given}: {pin.reason}")
    for name, instead in REFUSED.items():
        if worker.spark.get(name):
            yield Fault(f"worker.spark.{name}", f"must not be set: {instead}")


def driver_faults(key: str, properties: Mapping[str, str]) -> Iterator[Fault]:
    """A heap in which Spark does not start. Between this and about 470m it depends on the collector."""
    name = "spark.driver.memory"
    given = properties.get(name, "")
    if given and 0 < _size_mib(given) < MIN_DRIVER_MIB:
        yield Fault(
            f"{key}.{name}",
            f"{given} is less than the {MIN_DRIVER_MIB}m that Spark demands: give 512m, or leave it out",
        )


def _memory_faults(worker: WorkerSettings, routes: Sequence[RouteConfig]) -> Iterator[Fault]:
    name = "spark.executor.memoryOverhead"
    given, least_mib = worker.spark.get(name, ""), overhead_mib(worker, routes)
    if given and _size_mib(given) < least_mib:
        yield Fault(
            f"worker.spark.{name}",
            f"must be at least {least_mib}m, not {given}: a copier takes {COPIER_MIB} MiB,"
            " worker.buffer_bytes and the memory of its handlers and queries",
        )


def _size_mib(text: str) -> float:
    """0 for what is no size."""
    match = _SIZE.fullmatch(text.strip().lower())
    return int(match[1]) * _UNITS_MIB[match[2][:1]] if match else 0.0


def _address_faults(worker: WorkerSettings) -> Iterator[Fault]:
    url = worker.spark_master
    if is_loopback(worker.bind):
        yield Fault(
            "worker.bind",
            f"{worker.bind} accepts no connection of another machine, and executors of {url} are elsewhere",
        )
    if is_any(worker.address):
        yield Fault(
            "worker.advertise",
            f"is required with worker.bind {worker.bind}: it is the address that executors of {url}"
            " connect to",
        )
    elif is_loopback(worker.advertise):
        yield Fault(
            "worker.advertise",
            f"{worker.advertise} is this machine for each that reads it, and executors of {url} are"
            " elsewhere",
        )


def _secret_faults(worker: WorkerSettings) -> Iterator[Fault]:
    if not worker.spark_secret_file:
        yield Fault(
            "worker.spark_secret_file",
            f"is required with {worker.spark_master}: driver and executors authenticate each other",
        )


def _image_faults(worker: WorkerSettings) -> Iterator[Fault]:
    names = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
    if not any(worker.spark.get(name) for name in names):
        yield Fault(
            f"worker.spark.{names[0]}", "is required with k8s://: the image of the executors"
        )
