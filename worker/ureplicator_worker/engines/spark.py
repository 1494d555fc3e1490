"""Copiers as Spark tasks; the only module that knows pyspark.

One SparkSession per worker. A slot's copier is one job of one task, run from one thread of this
process, that lasts until the copier is told to stop: `collect()` returns when the task does.

What Spark does that matters here, as observed with PySpark 4.3 in local mode:

* A job that failed or was cancelled says nothing about its Python process, which may go on for
  seconds (a frozen one: for ever). So a copier has *ended* when its process is gone, and the job's
  end is only the moment from which we look. Its id comes with the copier's Hello; a run that never
  said Hello holds a token that is withdrawn, so whatever becomes of it, it is never let in.
* Python processes are not reused (`spark.python.worker.reuse=false`): a copier's memory and sockets
  end with it, and "gone" has one meaning. It costs a fork, not an interpreter's start.
* Python processes are forked by a daemon of Spark's, in a process group of their own: a signal to
  our group does not reach them. They get SIGHUP when the JVM is gone.
* The JVM ends when our end of its standard input closes, so a SIGKILL of this process leaves no
  JVM; the copiers end by their lifelines.
* The JVM's death is not told to us; `alive` looks at the process. Calls into it then hang or raise,
  so nothing here waits for one without a limit.
* Job descriptions are fixed when the job starts.

Spark's log (WARN and above) goes to a file in the scratch folder (`jvm`), to be looked at while the
worker runs.
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
from ureplicator_worker.engines import jvm
from ureplicator_worker.engines import spark_entry as entry
from ureplicator_worker.engines.processes import ProcessId
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId

logger = logging.getLogger(__name__)

STOP_S = 5.0
"""A JVM that has not ended by then is killed."""
GONE_S = 10.0
"""A copier whose job has ended ends within milliseconds; one that has not by then is killed."""
PROBE_S = 1.0
SHOWN_PARTITIONS = 10
REASON_CHARACTERS = 300

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
"""All may be configured otherwise. The history is capped because a worker runs for months; a local
socket of Unix saves each task 45 ms of delayed acknowledgements."""

_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM starts tasks and waits: a small heap and a quick start are all it needs."""

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)


class SparkEngine:
    """Runs copiers. Its callbacks come from threads of its own and must return at once.

    `over`: a run's job has ended, so its token is to be withdrawn. `ended`: its process is gone.
    `died`: the JVM is gone, or does not answer any more, and nothing can be started.
    """

    def __init__(
        self,
        *,
        name: str,
        slots: int,
        host: str,
        properties: Mapping[str, str],
        over: Callable[[CopierId], None],
        ended: Callable[[CopierId, str], None],
        died: Callable[[str], None],
        silence_s: float,
        copier: str = entry.COPIER,
    ) -> None:
        self._over, self._ended, self._died = over, ended, died
        self._silence_s = silence_s
        self._entry = copier
        self._name, self._slots = name, slots
        self._properties = dict(properties)
        self._properties["spark.master"] = properties.get("spark.master") or f"local[{slots + 1}]"
        self.local = self._properties["spark.master"].startswith("local")
        self._host = "127.0.0.1" if self.local else host
        self._scratch: Path | None = None
        self._processes: dict[CopierId, ProcessId] = {}
        self._killed: dict[CopierId, str] = {}
        self._orders: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._jvm: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self) -> None:
        """Start the JVM. Raises PermanentError: no Java, too old a one, a wrong property."""
        java = jvm.find_java()
        self._scratch = jvm.make_scratch()
        conf = self._configuration()
        python = conf.get("spark.pyspark.python", sys.executable)
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
        output = jvm.Output()
        try:
            launch: Any = launch_gateway  # carries no types
            gateway = launch(conf, {"stdout": output.end, "stderr": output.end})
            output.handed_over()
            self._gateway = gateway
            self._jvm = gateway.proc
            self._context = SparkContext(conf=conf, gateway=gateway)
            _hush(self._context)
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
        """Where Spark shows what runs; empty if switched off."""
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

    def start_copier(self, copier: CopierId, order: CopierConfig, description: str) -> None:
        """One job on the slot's thread; a former run's job has ended before."""
        self._orders[copier.slot].put(functools.partial(self._run, copier, order, description))

    def said_hello(self, copier: CopierId, pid: int) -> None:
        """From then on the end of the run is the end of this process, if it is on this machine."""
        process = ProcessId.of(pid) if self.local else None
        if process is not None:
            self._processes[copier] = process
        if copier in self._killed:  # before Spark had begun with it: there was nothing to end then
            self.kill(copier, self._killed[copier])

    def kill(self, copier: CopierId, reason: str) -> None:
        """End the run: its process at once where it is ours, its job in any case."""
        self._killed[copier] = reason
        process = self._processes.get(copier)
        if process is not None:
            process.kill()
        cancel = functools.partial(self._context.cancelJobGroup, _group(copier))
        self._spawn(functools.partial(_quietly, cancel), f"cancel-{copier}")

    def abandon(self, timeout_s: float) -> None:
        """SIGKILL to JVM and copiers, the JVM first: it would start copiers again."""
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
        orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._orders.append(orders)
        self._spawn(functools.partial(_work, orders), f"slot-{number}")

    def _run(self, copier: CopierId, order: CopierConfig, description: str) -> None:
        reason = "it returned"
        try:
            self._context.setJobGroup(_group(copier), description, interruptOnCancel=False)
            self._rows.mapPartitions(functools.partial(entry.run, self._entry, order)).collect()
        except Exception as error:  # whatever Spark may say of a task
            reason = brief(error)
        self._over(copier)
        reason = self._killed.pop(copier, reason)
        process = self._processes.get(copier)
        while process is not None and not process.wait_gone(GONE_S):
            logger.warning("copier %s (pid %d) outlived its job: killed", copier, process.pid)
            process.kill()
        self._processes.pop(copier, None)
        self._ended(copier, reason)

    # The JVM.

    def stop(self) -> None:
        """Stop Spark and see the JVM gone."""
        self._stopping = True
        if self._jvm is not None and self._jvm.poll() is None:
            stopping = self._spawn(self._stop_context, "spark-stop")
            stopping.join(STOP_S)
            if self._jvm.stdin:
                with contextlib.suppress(OSError):
                    self._jvm.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._jvm.wait(STOP_S)
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
            self._died(f"the JVM ended with code {code}")

    def _probe(self) -> None:
        """Ask the JVM every second whether it still has a context, from a thread that may hang."""
        answered_s = [time.monotonic()]
        self._spawn(functools.partial(self._ask, answered_s), "jvm-ask")
        while not self._stopping:
            time.sleep(PROBE_S)
            silent_s = time.monotonic() - answered_s[0]
            if silent_s > self._silence_s and not self._stopping:
                self._died(f"the JVM has not answered for {silent_s:.0f} s")
                return

    def _ask(self, answered_s: list[float]) -> None:
        while not self._stopping:
            try:
                stopped = self._context._jsc.sc().isStopped()  # noqa: SLF001
            except Exception:  # the JVM is gone or going: the other thread says so
                return
            if stopped and not self._stopping:
                self._died("Spark has stopped its context")
                return
            answered_s[0] = time.monotonic()
            time.sleep(PROBE_S)

    def _spawn(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"worker {name}", daemon=True)
        thread.start()
        return thread


def _hush(context: SparkContext) -> None:
    """The JVM's end would print a traceback per connection; we say it ourselves, in one line.

    py4j writes some of them to the root logger, hence the filter there.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    server: Any = context._accumulatorServer  # noqa: SLF001
    server.handle_error = lambda *_: None


def _group(copier: CopierId) -> str:
    return f"copier {copier}"


def _work(orders: queue.SimpleQueue[Callable[[], None]]) -> None:
    """Life of a slot's thread: each thread here is one thread in the JVM, so it is kept."""
    while True:
        orders.get()()


def _quietly(call: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        call()


def describe(copier: CopierId, partitions: Sequence[Partition]) -> str:
    """What Spark's page shows of the job: `slot 0: orders-3, orders-4 and 12 more`."""
    names = [f"{partition.topic}-{partition.number}" for partition in partitions]
    shown, more = names[:SHOWN_PARTITIONS], len(names) - SHOWN_PARTITIONS
    rest = f" and {more} more" if more > 0 else ""
    return f"slot {copier.slot}: {', '.join(shown)}{rest}" if names else f"slot {copier.slot}"


def brief(error: Exception) -> str:
    """One line of what Spark says in hundreds: the Python error if there is one, else the cause."""
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    lost = re.search(r"Lost task .*?: (.*)", text)
    if python:
        return str(python[-1]).strip()[:REASON_CHARACTERS]
    if lost:
        return re.sub(r"^[\w.]+Exception: |\. Consider .*", "", lost[1])[:REASON_CHARACTERS]
    return f"{type(error).__name__}: {text.strip()}".splitlines()[0][:REASON_CHARACTERS]
