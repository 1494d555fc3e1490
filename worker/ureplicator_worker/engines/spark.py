"""Copiers as Spark tasks.

One SparkSession per worker. A slot's copier is one job of one task, run from one thread of this
process, that lasts until the copier is stopped: `collect()` returns when the task does.

Behaviour of Spark that matters here, as observed with PySpark 4.3 in local mode:

* The end of a job that failed or was cancelled is not the end of its Python process, which may go on
  for seconds (a frozen one without end). So a copier has *ended* when its process is gone, which is
  awaited from the end of the job on. The process id comes with the copier's Hello; the token of a run
  that sent no Hello is withdrawn, so it is never admitted, whatever becomes of it. A process that cannot
  be seen from here, on another host or in another container, is *lost* when its job ends: it may go on,
  and is fenced before what it was sent counts as released (`core.fencing`).
* Python processes are not reused (`spark.python.worker.reuse=false`): a copier's memory and sockets
  end with it. It costs a fork, not the start of an interpreter.
* Python processes are forked by a daemon of Spark, in another process group: a signal to our group
  does not reach them. They get SIGHUP when the JVM is gone.
* The JVM ends when our end of its standard input closes, so a SIGKILL of this process leaves no
  JVM; the copiers end by their lifelines.
* Spark does not report the death of the JVM; one thread waits for its process. Calls into it then hang
  or raise, so nothing here waits for one without a limit.
* Job descriptions are fixed when the job starts.

Spark's log (WARN and above) goes to a file in the scratch folder (`jvm`) while the worker runs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import INPUT_CONVERTER, Py4JError  # no stubs
from pyspark import SparkConf

from ureplicator_common.clock import SilenceTimer
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Partition
from ureplicator_worker.core.events import (
    CapacityChanged,
    CopierEnded,
    CopierLost,
    CopierPlaced,
    Event,
)
from ureplicator_worker.engines import jvm, spark_entry
from ureplicator_worker.engines.cluster_capacity import CapacityProbe
from ureplicator_worker.engines.decommission import DecommissionWatch
from ureplicator_worker.engines.processes import ProcessId
from ureplicator_worker.lifeline import place
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId

logger = logging.getLogger(__name__)

END_TIMEOUT_S = 10.0
"""A copier whose job has ended ends within milliseconds; one that has not by then is killed."""
PROBE_EVERY_S = 1.0
LOCAL_EXECUTOR = "driver"
"""Spark's name for it in local mode."""
MAX_SHOWN_PARTITIONS = 10

_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM starts tasks and waits: a small heap and a quick start are all it needs."""


class SparkEngine:
    """Runs copiers. Its callbacks are called from its threads and must return at once.

    `put` gets CopierPlaced, CopierEnded, CopierLost, CapacityChanged, and a StopRequest for a copier whose
    executor is decommissioned. `on_job_ended`: the token of the run must be withdrawn. `on_jvm_failed`: the
    JVM is gone or does not respond, and nothing can be started.
    """

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        properties: Mapping[str, str],
        put: Callable[[Event], None],
        on_job_ended: Callable[[CopierId], None],
        on_jvm_failed: Callable[[str], None],
        silence_s: float,
        copier_entry: str = spark_entry.COPIER,
        secret_file: str = "",
    ) -> None:
        self._put = put
        self._on_job_ended = on_job_ended
        self._on_jvm_failed = on_jvm_failed
        self._groups: dict[CopierId, str] = {}
        self._silence_s = silence_s
        self._entry = copier_entry
        self._name, self._slots = name, slots
        self._properties = dict(properties)
        self._secret_file = secret_file
        self.local = self._properties["spark.master"].startswith("local")
        self._scratch: Path | None = None
        self._processes: dict[CopierId, ProcessId] = {}
        self._killed: dict[CopierId, str] = {}
        self._jobs: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._driver: jvm.Driver | None = None
        self._stopping = False
        self._cores = slots
        """Cores of all executors, as last seen."""

    def start(self) -> None:
        """Start the JVM. Raises PermanentError: no Java, a Java too old, a wrong property, no secret."""
        jvm.refuse_spark_submit(os.environ)
        java = jvm.find_java()
        secret = self._secret()
        self._scratch = jvm.make_scratch()
        conf = self._configuration(self._scratch)
        python = conf.get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        _convert_no_arrays()
        try:
            self._driver = jvm.start_driver(conf, java, scratch=self._scratch, secret=secret)
            self._context = self._driver.context
            jvm.silence_py4j(self._context)
            self._rows = self._context.parallelize([0], 1)
        except Py4JError as error:
            reason = jvm.brief(error)
            self.stop()
            raise PermanentError(f"Spark ends while it starts: {reason}") from error
        except BaseException:  # a signal, too
            self.stop()
            raise
        for number in range(self._slots):
            self._start_slot(number)
        self._spawn(self._wait_for_jvm, "jvm-wait")
        self._spawn(self._probe, "jvm-probe")
        if not self.local:
            watch = DecommissionWatch(self._context._jsc.sc(), put=self._put)  # noqa: SLF001
            watching = functools.partial(
                watch.watch, copiers=self._groups.copy, ended=lambda: self._stopping
            )
            self._spawn(watching, "decommission")

    @property
    def jvm_pid(self) -> int:
        """0 before the start."""
        return 0 if self._driver is None else self._driver.process.pid

    @property
    def ui_url(self) -> str:
        """Address of Spark's own page; empty if switched off."""
        return self._context.uiWebUrl or ""

    def _configuration(self, scratch: Path) -> SparkConf:
        settings = {"spark.app.name": self._name, **self._properties}
        own = settings.get("spark.driver.extraJavaOptions", "")
        options = jvm.java_options(scratch, _JAVA_OPTIONS, own)
        settings["spark.driver.extraJavaOptions"] = options
        return SparkConf(loadDefaults=False).setAll(list(settings.items()))

    def _secret(self) -> Mapping[str, str]:
        """Properties for the context alone: those of its JVM are in the list of processes.

        On Kubernetes Spark reads the file itself.
        """
        if self._properties["spark.master"].startswith("spark:") and self._secret_file:
            return {"spark.authenticate.secret": jvm.read_secret(Path(self._secret_file))}
        return {}

    # Copiers.

    def start_copier(self, copier: CopierId, config: CopierConfig, description: str) -> None:
        """One job on the slot's thread; a former run's job has ended before."""
        self._jobs[copier.slot].put(functools.partial(self._run, copier, config, description))

    def connected(self, copier: CopierId, pid: int, pid_space: str) -> None:
        """The run now ends when this process ends, if it can be seen from here."""
        process = ProcessId.of(pid) if pid_space and pid_space == place.pid_space() else None
        if process is not None:
            self._processes[copier] = process
        if copier in self._killed:  # before Spark had started it: there was no process yet
            self.kill(copier, self._killed[copier])

    def kill(self, copier: CopierId, reason: str) -> None:
        """End the run: its process if it is on this machine, its job in any case."""
        self._killed[copier] = reason
        process = self._processes.get(copier)
        if process is not None:
            process.kill()
        cancel = functools.partial(self._context.cancelJobGroup, _group(copier))
        self._spawn(functools.partial(_suppressed, cancel), f"cancel-{copier}")

    def abandon(self, timeout_s: float) -> None:
        """SIGKILL to the JVM and the copiers; the JVM first, since it would restart copiers."""
        self._stopping = True
        if self._driver is not None:
            self._driver.process.kill()
        processes = list(self._processes.values())
        for process in processes:
            process.kill()
        until_s = time.monotonic() + timeout_s
        for process in processes:
            process.wait_gone(until_s - time.monotonic())
        self._remove_scratch()

    def _start_slot(self, number: int) -> None:
        jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._jobs.append(jobs)
        self._spawn(functools.partial(_run_jobs, jobs), f"slot-{number}")

    def _run(self, copier: CopierId, config: CopierConfig, description: str) -> None:
        reason = "it returned"
        self._groups[copier] = _group(copier)
        if self.local:  # a core for each slot
            self._put(CopierPlaced(copier, LOCAL_EXECUTOR))
        try:
            self._context.setJobGroup(_group(copier), description, interruptOnCancel=False)
            self._rows.mapPartitions(
                functools.partial(spark_entry.run, self._entry, config)
            ).collect()
        except Exception as error:  # whatever Spark raises for a task
            reason = jvm.brief(error)
        del self._groups[copier]
        self._on_job_ended(copier)
        reason = self._killed.pop(copier, reason)
        process = self._processes.get(copier)
        if process is None:
            self._put(CopierLost(copier, reason))
            return
        while not process.wait_gone(END_TIMEOUT_S):
            logger.warning("copier %s (pid %d) outlived its job: killed", copier, process.pid)
            process.kill()
        self._processes.pop(copier, None)
        self._put(CopierEnded(copier, reason))

    # The JVM.

    def stop(self) -> None:
        """Stop Spark and wait until the JVM is gone."""
        self._stopping = True
        for jobs in self._jobs:
            jobs.put(None)
        if self._driver is not None:
            self._driver.stop()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _wait_for_jvm(self) -> None:
        assert self._driver is not None
        code = self._driver.process.wait()
        if not self._stopping:
            self._on_jvm_failed(f"the JVM ended with code {code}")

    def _probe(self) -> None:
        """Query the JVM every second for its context, from a thread that may hang."""
        responded_s = [time.monotonic()]
        self._spawn(functools.partial(self._query, responded_s), "jvm-query")
        if not self.local:
            self._spawn(self._watch_capacity, "capacity")
        silence = SilenceTimer(step_s=2 * PROBE_EVERY_S)
        while not self._stopping:
            time.sleep(PROBE_EVERY_S)
            silent_s = silence.observe(responded_s[0], time.monotonic())
            if silent_s > self._silence_s and not self._stopping:
                self._on_jvm_failed(f"the JVM has not responded for {silent_s:.0f} s")
                return

    def _query(self, responded_s: list[float]) -> None:
        while not self._stopping:
            try:
                spark = self._context._jsc.sc()  # noqa: SLF001
                stopped = spark.isStopped()
                self._cores = self._slots if self.local else _registered_cores(spark)
            except (Py4JError, OSError):  # the JVM is gone or going: the other thread reports it
                return
            if stopped and not self._stopping:
                self._on_jvm_failed("Spark has stopped its context")
                return
            responded_s[0] = time.monotonic()
            time.sleep(PROBE_EVERY_S)

    def _watch_capacity(self) -> None:
        """Connecting to masters may hang, as their names' resolution may: in a thread of its own."""
        assert self._scratch is not None
        master, log = self._properties["spark.master"], self._scratch / jvm.LOG
        probe = CapacityProbe(master=master, slots=self._slots, log=log, wall_s=time.time)
        before = ""
        while not self._stopping:
            missing = probe.missing(self._cores)
            if missing != before:
                self._put(CapacityChanged(missing))
                before = missing
            time.sleep(PROBE_EVERY_S)

    def _spawn(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"worker {name}", daemon=True)
        thread.start()
        return thread


def _convert_no_arrays() -> None:
    """Drop pyspark's conversion of NumPy values, which this process never sends.

    It imports pandas and pyarrow at the first call into the JVM: a second of the start, and 90 MB.
    """
    INPUT_CONVERTER[:] = [
        converter for converter in INPUT_CONVERTER if "Numpy" not in type(converter).__name__
    ]


def _registered_cores(spark: Any) -> int:
    """Cores of all executors that have registered with the driver; not in local mode."""
    return int(spark.schedulerBackend().totalCoreCount())


def _group(copier: CopierId) -> str:
    return f"copier {copier}"


def _run_jobs(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """Run jobs one after the other, until None: each thread here is one in the JVM, so it is reused."""
    while (job := jobs.get()) is not None:
        job()


def _suppressed(call: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        call()


def describe(copier: CopierId, partitions: Sequence[Partition]) -> str:
    """Description of the job on Spark's page: `slot 0: orders-3, orders-4 and 12 more`."""
    names = [f"{partition.topic}-{partition.number}" for partition in partitions]
    shown, more = names[:MAX_SHOWN_PARTITIONS], len(names) - MAX_SHOWN_PARTITIONS
    rest = f" and {more} more" if more > 0 else ""
    return f"slot {copier.slot}: {', '.join(shown)}{rest}" if names else f"slot {copier.slot}"
