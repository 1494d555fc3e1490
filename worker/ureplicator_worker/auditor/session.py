"""Spark session of an auditor: a JVM of its own, and its end.

It is configured as a worker's (`engines.spark`), except that Python processes are used again: tasks of an
audit are short. Spark does not report the death of its JVM; one thread waits for it.

What the JVM and its Python processes write is logged (INFO). A Python process that is idle when the JVM
ends writes a traceback, which is no failure: an auditor has it in its log, a command does not show it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from py4j.protocol import Py4JError  # no stubs
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ureplicator_worker.engines import jvm

SPARK_ERRORS = (Py4JError, PySparkException, EOFError, OSError)
"""Errors raised by calls into Spark: jobs that failed, and a JVM that is gone."""

logger = logging.getLogger(__name__)

_DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "512m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""All may be overridden. FAIR: a long audit does not hold up what follows behind the copy."""

_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""An auditor mostly waits: without counters for `jstat`, which wake the JVM twenty times a second."""


class AuditorSession:
    """`on_failed` is called once, from a thread, when the JVM ends by itself."""

    def __init__(
        self, *, name: str, properties: Mapping[str, str], on_failed: Callable[[str], None]
    ) -> None:
        self._settings = {**_DEFAULTS, "spark.app.name": name, **properties}
        self._on_failed = on_failed
        self._scratch: Path | None = None
        self._driver: jvm.Driver | None = None
        self._waiting: threading.Thread | None = None
        self._stopping = False

    def start(self) -> SparkSession:
        """Raises PermanentError: no Java, a Java too old, a wrong property."""
        java = jvm.find_java()
        self._scratch = jvm.make_scratch()
        os.environ["PYSPARK_PYTHON"] = self._settings.get("spark.pyspark.python", sys.executable)
        try:
            conf = self._configuration(self._scratch)
            self._driver = jvm.start_driver(conf, java, scratch=self._scratch, show=_log)
        except BaseException:  # a signal, too
            self.close()
            raise
        self._waiting = threading.Thread(target=self._wait, name="auditor jvm-wait", daemon=True)
        self._waiting.start()
        return SparkSession(self._driver.context)

    def wait_failed(self, timeout_s: float) -> None:
        """Return when `on_failed` was called, or after this time."""
        if self._waiting is not None:
            self._waiting.join(timeout_s)

    def close(self) -> None:
        self._stopping = True
        if self._driver is not None:
            self._driver.stop()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _configuration(self, scratch: Path) -> SparkConf:
        own = self._settings.get("spark.driver.extraJavaOptions", "")
        options = jvm.java_options(scratch, _JAVA_OPTIONS, own)
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            **self._settings,
            "spark.driver.extraJavaOptions": options,
        }
        return SparkConf(loadDefaults=False).setAll(list(settings.items()))

    def _wait(self) -> None:
        assert self._driver is not None
        code = self._driver.process.wait()
        if not self._stopping:
            self._on_failed(f"the JVM ended with code {code}")


def _log(line: str) -> None:
    logger.info("jvm: %s", line)
