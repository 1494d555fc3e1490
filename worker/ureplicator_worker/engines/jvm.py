"""Around the JVM: is there a fit Java, where does it put its files, what of its noise is shown.

Nothing of Spark is imported here. Files go to one scratch folder that carries the process it
belongs to in its name: it is removed at exit, and what a killed process left is removed by the
next one.
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

JAVA_MIN = 17
TAIL_LINES = 50
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
    """The `java` that Spark will run. Raises PermanentError if there is none, or too old a one."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on the PATH"
        raise PermanentError(f"Java is missing ({where}): install Java {JAVA_MIN} or newer")
    command = [java, "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', answer.stderr)
    if answer.returncode != 0 or version is None:
        raise PermanentError(f"{java} does not run: {answer.stderr.strip()[:200]}")
    if int(version[1]) < JAVA_MIN:
        raise PermanentError(f"{java} is Java {version[1]}: install Java {JAVA_MIN} or newer")
    return java


def make_scratch() -> Path:
    """A folder of this process, with the configuration of the JVM's log in it."""
    base = Path(tempfile.gettempdir())
    _sweep(base)
    me = ProcessId.of(os.getpid())
    ticks = me.started_ticks if me else 0
    folder = Path(tempfile.mkdtemp(prefix=f"ureplicator-spark-{os.getpid()}-{ticks}-", dir=base))
    (folder / "log4j2.properties").write_text(_LOG4J.format(folder=folder))
    return folder


def _sweep(base: Path) -> None:
    for folder in base.glob("ureplicator-spark-*"):
        match = _SCRATCH.match(folder.name)
        if match and not ProcessId(int(match[1]), int(match[2])).alive():
            shutil.rmtree(folder, ignore_errors=True)


class Output:
    """The JVM's standard output and error, which copiers write to as well: all but noise is passed
    on.

    `end` is for the child. The last lines are kept, to tell why a start failed.
    """

    def __init__(self) -> None:
        read, self.end = os.pipe()
        self.tail: list[str] = []
        self._thread = threading.Thread(
            target=self._pump, args=(read,), name="worker jvm-output", daemon=True
        )
        self._thread.start()

    def handed_over(self) -> None:
        """The child has its copy of `end`: ours would keep the pipe open after its death."""
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
                self.tail = [*self.tail[1 - TAIL_LINES :], line.rstrip()]
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line)
                    sys.stderr.flush()
