"""Copiers as Spark tasks; the only module that knows pyspark.

One SparkSession per worker. A slot's copier is one job of one task, run from one thread of this
process, that lasts until the copier is stopped: `collect()` returns when the task does.

Behaviour of Spark that matters here, as observed with PySpark 4.3 in local mode:

* The end of a job that failed or was cancelled is not the end of its Python process, which may go on
  for seconds (a frozen one without end). So a copier has *ended* when its process is gone, which is
  awaited from the end of the job on. The process id comes with the copier's Hello; the token of a run
  that sent no Hello is withdrawn, so it is never admitted, whatever becomes of it.
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
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Partition
from ureplicator_worker.engines import jvm, spark_entry
from ureplicator_worker.engines.processes import ProcessId
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 5.0
"""A JVM that has not ended by then is killed."""
END_TIMEOUT_S = 10.0
"""A copier whose job has ended ends within milliseconds; one that has not by then is killed."""
PROBE_EVERY_S = 1.0
MAX_SHOWN_PARTITIONS = 10
MAX_REASON_CHARACTERS = 300

_DEFAULTS: Mapping[str, str] = {
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "false",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "100",
}
"""All may be overridden by configuration. The history is capped because a worker runs for months; a local
socket of Unix saves each task 45 ms of delayed acknowledgements."""

_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM starts tasks and waits: a small heap and a quick start are all it needs."""

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


class SparkEngine:
    """Runs copiers. Its callbacks are called from its threads and must return at once.

    `on_job_ended`: the token of the run must be withdrawn. `on_copier_ended`: its process is gone.
    `on_jvm_failed`: the JVM is gone or does not respond, and nothing can be started.
    """

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        host: str,
        properties: Mapping[str, str],
        on_job_ended: Callable[[CopierId], None],
        on_copier_ended: Callable[[CopierId, str], None],
        on_jvm_failed: Callable[[str], None],
        silence_s: float,
        copier_entry: str = spark_entry.COPIER,
    ) -> None:
        self._on_job_ended = on_job_ended
        self._on_copier_ended = on_copier_ended
        self._on_jvm_failed = on_jvm_failed
        self._silence_s = silence_s
        self._entry = copier_entry
        self._name, self._slots = name, slots
        self._properties = dict(properties)
        self._properties["spark.master"] = properties.get("spark.master") or f"local[{slots + 1}]"
        self.local = self._properties["spark.master"].startswith("local")
        self._host = "127.0.0.1" if self.local else host
        self._scratch: Path | None = None
        self._processes: dict[CopierId, ProcessId] = {}
        self._killed: dict[CopierId, str] = {}
        self._jobs: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._jvm: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the JVM. Raises PermanentError: no Java, a Java too old, a wrong property."""
        java = jvm.find_java()
        self._scratch = jvm.make_scratch()
        conf = self._configuration()
        python = conf.get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        output = jvm.JvmOutput()
        try:
            launch: Any = launch_gateway  # carries no types
            gateway = launch(conf, {"stdout": output.end, "stderr": output.end})
            output.handed_over()
            self._gateway = gateway
            self._jvm = gateway.proc
            self._context = SparkContext(conf=conf, gateway=gateway)
            _silence_py4j(self._context)
            self._rows = self._context.parallelize([0], 1)
        except Exception as error:
            output.handed_over()
            self.stop()
            output.drained(1.0)
            cause = next((line for line in output.tail if "rror" in line), brief(error))
            raise PermanentError(f"Spark does not start with {java}: {cause}") from error
        for number in range(self._slots):
            self._start_slot(number)
        self._spawn(self._wait_for_jvm, "jvm-wait")
        self._spawn(self._probe, "jvm-probe")

    @property
    def ui_url(self) -> str:
        """Address of Spark's own page; empty if switched off."""
        return self._context.uiWebUrl or ""

    def _configuration(self) -> SparkConf:
        settings = {
            **_DEFAULTS,
            "spark.app.name": self._name,
            "spark.driver.host": self._host,
            "spark.driver.bindAddress": self._host,
            "spark.local.dir": str(self._scratch),
            **self._properties,
        }
        options = (
            f"-Dlog4j2.configurationFile=file:{self._scratch}/log4j2.properties"
            f" -Djava.io.tmpdir={self._scratch} {_JAVA_OPTIONS}"
        )
        own = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"{options} {own}".strip()
        return SparkConf(loadDefaults=False).setAll(list(settings.items()))

    # Copiers.

    def start_copier(self, copier: CopierId, config: CopierConfig, description: str) -> None:
        """One job on the slot's thread; a former run's job has ended before."""
        self._jobs[copier.slot].put(functools.partial(self._run, copier, config, description))

    def connected(self, copier: CopierId, pid: int) -> None:
        """The run now ends when this process ends, if it is on this machine."""
        process = ProcessId.of(pid) if self.local else None
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
        if self._jvm is not None:
            self._jvm.kill()
        processes = list(self._processes.values())
        for process in processes:
            process.kill()
        until_s = time.monotonic() + timeout_s
        for process in processes:
            process.wait_gone(until_s - time.monotonic())
        self._remove_scratch()

    def _start_slot(self, number: int) -> None:
        jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._jobs.append(jobs)
        self._spawn(functools.partial(_run_jobs, jobs), f"slot-{number}")

    def _run(self, copier: CopierId, config: CopierConfig, description: str) -> None:
        reason = "it returned"
        try:
            self._context.setJobGroup(_group(copier), description, interruptOnCancel=False)
            self._rows.mapPartitions(
                functools.partial(spark_entry.run, self._entry, config)
            ).collect()
        except Exception as error:  # whatever Spark raises for a task
            reason = brief(error)
        self._on_job_ended(copier)
        reason = self._killed.pop(copier, reason)
        process = self._processes.get(copier)
        while process is not None and not process.wait_gone(END_TIMEOUT_S):
            logger.warning("copier %s (pid %d) outlived its job: killed", copier, process.pid)
            process.kill()
        self._processes.pop(copier, None)
        self._on_copier_ended(copier, reason)

    # The JVM.

    def stop(self) -> None:
        """Stop Spark and wait until the JVM is gone."""
        self._stopping = True
        if self._jvm is not None and self._jvm.poll() is None:
            stopping = self._spawn(self._stop_context, "spark-stop")
            stopping.join(STOP_TIMEOUT_S)
            if self._jvm.stdin:
                with contextlib.suppress(OSError):
                    self._jvm.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._jvm.wait(STOP_TIMEOUT_S)
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.wait()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop_context(self) -> None:
        with contextlib.suppress(Exception):
            self._context.stop()
            self._gateway.shutdown()

    def _wait_for_jvm(self) -> None:
        assert self._jvm is not None
        code = self._jvm.wait()
        if not self._stopping:
            self._on_jvm_failed(f"the JVM ended with code {code}")

    def _probe(self) -> None:
        """Query the JVM every second for its context, from a thread that may hang."""
        responded_s = [time.monotonic()]
        self._spawn(functools.partial(self._query, responded_s), "jvm-query")
        while not self._stopping:
            time.sleep(PROBE_EVERY_S)
            silent_s = time.monotonic() - responded_s[0]
            if silent_s > self._silence_s and not self._stopping:
                self._on_jvm_failed(f"the JVM has not responded for {silent_s:.0f} s")
                return

    def _query(self, responded_s: list[float]) -> None:
        while not self._stopping:
            try:
                stopped = self._context._jsc.sc().isStopped()  # noqa: SLF001
            except Exception:  # the JVM is gone or going: the other thread reports it
                return
            if stopped and not self._stopping:
                self._on_jvm_failed("Spark has stopped its context")
                return
            responded_s[0] = time.monotonic()
            time.sleep(PROBE_EVERY_S)

    def _spawn(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"worker {name}", daemon=True)
        thread.start()
        return thread


def _silence_py4j(context: SparkContext) -> None:
    """Silence py4j: at the JVM's end it prints a traceback per connection; one line is enough.

    Some go to the root logger, hence the filter there.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    server: Any = context._accumulatorServer  # noqa: SLF001
    server.handle_error = lambda *_: None


def _group(copier: CopierId) -> str:
    return f"copier {copier}"


def _run_jobs(jobs: queue.SimpleQueue[Callable[[], None]]) -> None:
    """Run jobs one after the other: each thread here is one in the JVM, so it is reused."""
    while True:
        jobs.get()()


def _suppressed(call: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        call()


def describe(copier: CopierId, partitions: Sequence[Partition]) -> str:
    """Description of the job on Spark's page: `slot 0: orders-3, orders-4 and 12 more`."""
    names = [f"{partition.topic}-{partition.number}" for partition in partitions]
    shown, more = names[:MAX_SHOWN_PARTITIONS], len(names) - MAX_SHOWN_PARTITIONS
    rest = f" and {more} more" if more > 0 else ""
    return f"slot {copier.slot}: {', '.join(shown)}{rest}" if names else f"slot {copier.slot}"


def brief(error: Exception) -> str:
    """One line of a Spark error of hundreds: the Python error if there is one, else the cause."""
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    lost = re.search(r"Lost task .*?: (.*)", text)
    if python:
        return str(python[-1]).strip()[:MAX_REASON_CHARACTERS]
    if lost:
        return re.sub(r"^[\w.]+Exception: |\. Consider .*", "", lost[1])[:MAX_REASON_CHARACTERS]
    return f"{type(error).__name__}: {text.strip()}".splitlines()[0][:MAX_REASON_CHARACTERS]
