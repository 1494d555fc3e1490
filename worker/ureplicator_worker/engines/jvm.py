"""Java, scratch folder and output of the JVM that Spark runs in.

Nothing of Spark is imported here. Files go to one scratch folder whose name carries the process id: it
is removed at exit, and what a killed process left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from ureplicator_common.errors import PermanentError
from ureplicator_worker.engines.processes import ProcessId

MIN_JAVA = 17
MAX_TAIL_LINES = 50
_NOISE = ("Using incubator modules", "Picked up ", "SLF4J", "org.apache.hadoop.util.NativeCode")
_SCRATCH = re.compile(r"ureplicator-spark-(\d+)-(\d+)-")

_LOG4J = """
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""


def find_java() -> str:
    """The `java` that Spark will run. Raises PermanentError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on the PATH"
        raise PermanentError(f"Java is missing ({where}): install Java {MIN_JAVA} or newer")
    command = [java, "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', result.stderr)
    if result.returncode != 0 or version is None:
        raise PermanentError(f"{java} does not run: {result.stderr.strip()[:200]}")
    if int(version[1]) < MIN_JAVA:
        raise PermanentError(f"{java} is Java {version[1]}: install Java {MIN_JAVA} or newer")
    return java


def make_scratch() -> Path:
    """A scratch folder of this process, with the log configuration of the JVM in it."""
    base = Path(tempfile.gettempdir())
    _sweep(base)
    process = ProcessId.of(os.getpid())
    ticks = process.started_ticks if process else 0
    folder = Path(tempfile.mkdtemp(prefix=f"ureplicator-spark-{os.getpid()}-{ticks}-", dir=base))
    (folder / "log4j2.properties").write_text(_LOG4J.format(folder=folder))
    return folder


def _sweep(base: Path) -> None:
    for folder in base.glob("ureplicator-spark-*"):
        match = _SCRATCH.match(folder.name)
        if match and not ProcessId(int(match[1]), int(match[2])).alive():
            shutil.rmtree(folder, ignore_errors=True)


class JvmOutput:
    """Standard output and error of the JVM and the copiers, passed on without the JVM's noise.

    `end` is for the child. The last lines are kept, as the reason of a start that failed.
    """

    def __init__(self) -> None:
        read, self.end = os.pipe()
        self.tail: list[str] = []
        self._thread = threading.Thread(
            target=self._pump, args=(read,), name="worker jvm-output", daemon=True
        )
        self._thread.start()

    def handed_over(self) -> None:
        """Close our `end`, which would keep the pipe open after the child's death."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def drained(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _pump(self, read: int) -> None:
        with os.fdopen(read, errors="replace") as lines:
            for line in lines:
                if any(noise in line for noise in _NOISE):
                    continue
                self.tail = [*self.tail[1 - MAX_TAIL_LINES :], line.rstrip()]
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line)
                    sys.stderr.flush()
