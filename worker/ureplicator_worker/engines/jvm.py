"""The JVM of a Spark driver: Java, scratch folder, output, start and end.

Its users are the engine of a worker, the session of an auditor and that of a slot's queries. Files go to
one scratch folder, which the process holds a lock on: it is removed at exit, and what a killed process left
is removed by the next one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from ureplicator_common.errors import PermanentError
from ureplicator_common.logging_setup import writes_json
from ureplicator_worker.engines import class_archive
from ureplicator_worker.engines.java_errors import cause_of, unregistered
from ureplicator_worker.engines.processes import ProcessId, children, scratch_folder

MIN_JAVA = 17
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the JVM in which Spark puts the command of the driver's JVM together; it ends at once."""
LOG = "spark.log"
"""Spark's own log, in the scratch folder."""
MAX_TAIL_LINES = 50
STOP_TIMEOUT_S = 5.0
"""A JVM that has not ended by then is killed."""
_NOISE = ("Using incubator modules", "Picked up ", "SLF4J", "org.apache.hadoop.util.NativeCode")
MAX_REASON_CHARACTERS = 300
_NOT_CREATED = "Error: Could not create the Java Virtual Machine"
_NOT_INITIALIZED = "Error occurred during initialization of VM"
_ADVICE = re.compile(r"([.!]) Consider explicitly setting .*")
"""Spark's, about ports: its properties are not named as ours."""
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit)\b.*)$", re.MULTILINE)

_LOG4J = """
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
logger.executors.name = org.apache.spark.deploy.client
logger.executors.level = info
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/{log}
appender.file.filePattern = {folder}/spark.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""


def refuse_spark_submit(environ: Mapping[str, str]) -> None:
    """Raises PermanentError in a process that spark-submit started: its JVM is the parent, and not ours.

    A worker ends its JVM when it must, and has its log, its memory and its scratch folder for itself.
    """
    if "PYSPARK_GATEWAY_PORT" in environ:
        raise PermanentError(
            "a worker starts its own JVM and cannot run under spark-submit: start it with"
            " `ureplicator worker`, and name the cluster in worker.spark (spark.master)"
        )


def read_secret(path: Path) -> str:
    """The secret in a file, without the white space around it. Raises PermanentError."""
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise PermanentError(f"worker.spark_secret_file {path}: {reason}") from error
    if not secret:
        raise PermanentError(f"worker.spark_secret_file {path}: is empty")
    return secret


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
    folder = scratch_folder("ureplicator-spark")
    (folder / "log4j2.properties").write_text(_LOG4J.format(folder=folder, log=LOG))
    return folder


def java_options(scratch: Path, *more: str) -> str:
    """Options of the JVM: its log and its files are in the scratch folder.

    So is its home where the system knows none for this user: Java has "?" then, and Spark's resolver of
    packages wants a path.
    """
    log4j = f"-Dlog4j2.configurationFile=file:{scratch}/log4j2.properties"
    home = "" if has_user_name() else f"-Duser.home={scratch}"
    own = (log4j, f"-Djava.io.tmpdir={scratch}", *class_archive.options())
    return " ".join((*own, *filter(None, (home, *more))))


def has_user_name() -> bool:
    """False for a user id that the system has no name for, as OpenShift gives them out."""
    try:
        return bool(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


def name_host(environ: MutableMapping[str, str], address: str) -> None:
    """Give Spark an address for this host where its name has none, which Spark looks up at its start.

    SPARK_LOCAL_IP would have Spark's page listen there alone, too; this does not.
    """
    try:
        socket.gethostbyname(socket.gethostname())
    except (OSError, UnicodeError):
        environ.setdefault("SPARK_LOCAL_HOSTNAME", address)


@dataclass(frozen=True, slots=True)
class Driver:
    """A context of Spark, and the JVM that it lives in. pyspark keeps both in its classes, too."""

    context: SparkContext
    gateway: Any

    @property
    def process(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = self.gateway.proc
        return process

    def stop(self) -> None:
        """Stop Spark and wait until the JVM is gone. Another driver may be started then."""
        process = self.process
        stopping = threading.Thread(target=self._stop, name="worker spark-stop", daemon=True)
        if process.poll() is None:
            stopping.start()
            stopping.join(STOP_TIMEOUT_S)
            if process.stdin:
                with contextlib.suppress(OSError):
                    process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        self.kill()
        if stopping.ident is not None:  # it ends with the JVM, and must not touch the next context
            stopping.join(STOP_TIMEOUT_S)
        # Else the next driver gets them, or is refused: a context that hung stays the active one.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        SparkContext._active_spark_context = None  # noqa: SLF001

    def _stop(self) -> None:
        """Stop the context, which may hang with the JVM, and the threads of both, which pyspark leaves where
        the JVM ends meanwhile."""
        accumulators: Any = self.context._accumulatorServer  # noqa: SLF001
        for step in (self.context.stop, self.gateway.shutdown, accumulators.shutdown):
            with contextlib.suppress(Exception):  # the JVM is killed next
                step()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def start_driver(
    conf: SparkConf,
    java: str,
    *,
    scratch: Path,
    secret: Mapping[str, str] = MappingProxyType({}),
    show: Callable[[str], None] | None = None,
) -> Driver:
    """Start a JVM with a context. `scratch`: as in its options. `secret`: properties that must not be in its
    command line.

    `show` takes each line that the JVM writes; None: they go to standard error. Raises PermanentError.
    """
    output = JvmOutput(show or _to_stderr)
    gateway: Any = None
    before = children()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a traceback where the JVM ends meanwhile
    os.environ["PYTHONSAFEPATH"] = "1"  # of Spark's Python processes: no code of the current folder
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
    name_host(os.environ, conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1")
    master = conf.get("spark.master", "") or ""
    try:
        launch: Any = launch_gateway  # carries no types
        gateway = launch(conf, {"stdout": output.end, "stderr": output.end})
        output.handed_over()
        if not has_user_name():
            _log_in(gateway)
        conf.setAll(list(secret.items()))
        driver = Driver(_context(conf, gateway), gateway)
        _check_registered(driver, master, scratch)
        return driver
    except Exception as error:
        output.handed_over()
        reason = unregistered(master, "", _log_of(scratch)) or brief(error)
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.wait()
        output.drained(1.0)
        if not isinstance(error, Py4JJavaError | PermanentError):
            reason = written_cause(output.tail) or reason  # the JVM ended, and told why before
        raise PermanentError(f"Spark does not start with {java}: {reason}") from error
    except BaseException:  # a signal's
        output.handed_over()
        _kill_all(children() - before)
        raise


def _kill_all(started: Iterable[ProcessId]) -> None:
    """A JVM whose launch is interrupted does not end with its standard input.

    pyspark removes the folder into which the JVM is to write its port, so its main thread fails, and the
    others keep it alive. Its process is not known before it has written the port.
    """
    for process in started:
        process.kill()
        process.wait_gone(STOP_TIMEOUT_S)


def _context(conf: SparkConf, gateway: Any) -> SparkContext:
    """A context that leaves SIGINT to its process.

    In the main thread pyspark sets a handler that ends all jobs and raises KeyboardInterrupt.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        return SparkContext(conf=conf, gateway=gateway)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _check_registered(driver: Driver, master: str, scratch: Path) -> None:
    """Raises PermanentError, after the driver's end."""
    application_id = driver.context.applicationId
    refusal = unregistered(master, application_id, _log_of(scratch))
    if refusal:
        driver.stop()
        raise PermanentError(refusal)


def _log_of(scratch: Path) -> str:
    try:
        return (scratch / LOG).read_text(errors="replace")
    except OSError:
        return ""


def _log_in(gateway: Any) -> None:
    """Name the user to Hadoop, which takes it from the system otherwise and fails where there is none.

    The id stands for the name. A login that is there already is not made again
    (`UserGroupInformation.getLoginUser`).
    """
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser(f"uid{os.getuid()}"))


def written_cause(lines: Sequence[str]) -> str:
    """Reason of a JVM's end in what it wrote; "" if it wrote none.

    A JVM that is not created names the option in the lines before it says so, or in the next one.
    """
    lines = [line for line in lines if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith(_NOT_CREATED) and number:
            return ": ".join(lines[max(0, number - 2) : number])
        if line.startswith(_NOT_INITIALIZED):
            return ": ".join(lines[number : number + 2])
    return cause_of("\n".join(lines)) or next((line for line in lines if "rror" in line), "")


def silence_py4j(context: SparkContext) -> None:
    """Silence py4j: at the JVM's end it prints a traceback per connection; one line is enough.

    Some go to the root logger, hence the filter there.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    server: Any = context._accumulatorServer  # noqa: SLF001
    server.handle_error = lambda *_: None


def brief(error: Exception) -> str:
    """One line of a Spark error of hundreds: the Python error if there is one, else the cause."""
    text = _text_of(error)
    if isinstance(error, PermanentError):
        return text[:MAX_REASON_CHARACTERS]
    python = _PYTHON_ERROR.findall(text)
    lost = re.search(r"Lost task .*?: (.*)", text)
    if python:
        return str(python[-1]).strip()[:MAX_REASON_CHARACTERS]
    if lost:
        return re.sub(r"^[\w.]+Exception: |\. Consider .*", "", lost[1])[:MAX_REASON_CHARACTERS]
    first = f"{type(error).__name__}: {text.strip()}".splitlines()[0]
    return _ADVICE.sub(r"\1", cause_of(text) or first)[:MAX_REASON_CHARACTERS]


def _text_of(error: Exception) -> str:
    """An exception of Java has its text in the JVM, and none once that is gone."""
    try:
        return str(error)
    except (OSError, Py4JError):
        return "the JVM is gone, and its text with it"


def _to_stderr(line: str) -> None:
    """Write a line as it is, or as a line of JSON where this process logs such lines and the JVM,
    unlike a copier, does not."""
    if writes_json() and not line.startswith("{"):
        logging.getLogger("jvm").warning("%s", line)
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class JvmOutput:
    """Standard output and error of the JVM and its Python processes, passed on without the JVM's noise.

    `end` is for the child. `show` takes each line, without its end. The last lines are kept, as the reason
    of a start that failed.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        read, self.end = os.pipe()
        self._show = show
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
                text = line.rstrip()
                self.tail = [*self.tail[1 - MAX_TAIL_LINES :], text]
                self._show(text)
