"""Locations of Java and the jars, as `scripts/setup` determines them.

ZooKeeper runs from the jars that pyspark includes; Kafka's are fetched once by `scripts/setup`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ureplicator_worker.engines.class_archive import SILENT

KAFKA_VERSION = "4.1.0"
KAFKA_VERSIONS = ("2.8.2", "3.9.2", KAFKA_VERSION, "4.4.0")
"""Those that the whole copy is tested with: the oldest and the newest that are supported, and between."""
ZOOKEEPER_JARS = (
    *("zookeeper-", "slf4j-api-", "log4j-api-", "log4j-core-", "log4j-slf4j2-impl-"),
    *("netty-", "metrics-core-", "snappy-java-", "commons-cli-", "commons-io-"),
    *("audience-annotations-", "jackson-core-", "jackson-databind-"),
)

# Servers log to standard output: Kafka before 4.0 by Log4j 1, all others by Log4j 2.
LOG4J1 = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""
LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class NotSetUpError(Exception):
    """Java or a jar is missing: `scripts/setup` was not run."""


QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""Options for a JVM that ends before the second compiler could pay."""


@dataclass(frozen=True, slots=True)
class Java:
    """One way to start a Java program."""

    executable: Path
    classpath: str
    options: tuple[str, ...] = ()

    def command(self, main_class: str, *arguments: str | Path) -> list[str]:
        tail = [main_class, *(str(argument) for argument in arguments)]
        return [str(self.executable), *self.options, "-cp", self.classpath, *tail]


def kafka_java(
    heap_mb: int,
    folder: Path,
    *,
    version: str = KAFKA_VERSION,
    options: Sequence[str] = QUICK_START,
) -> Java:
    """Java for Kafka's classes; its log settings are written into the folder."""
    options = (*_options(heap_mb, folder), *_shared(archive_of_classes(version)), *options)
    if version < "4":
        settings = folder / "log4j.properties"
        settings.write_text(LOG4J1)
        options = (*options, f"-Dlog4j.configuration=file:{settings}")
    return Java(java_executable(), f"{kafka_jars(version)}/*", options)


def zookeeper_java(heap_mb: int, folder: Path, *, options: Sequence[str] = QUICK_START) -> Java:
    """Java for ZooKeeper's classes; its log settings are written into the folder."""
    options = (
        *_options(heap_mb, folder),
        *_shared(zookeeper_archive()),
        *options,
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-Dzookeeper.4lw.commands.whitelist=*",
        # Without fsync: a killed process loses nothing that it wrote, only a killed machine would.
        "-Dzookeeper.forceSync=no",
    )
    return Java(java_executable(), os.pathsep.join(zookeeper_jars()), options)


def archive_of_classes(version: str = KAFKA_VERSION) -> Path:
    """Kafka's classes as this Java maps them into memory: a broker starts at half the cost.

    `scripts/setup --tests` makes it by a first start and end. Java takes it only with the very same jars.
    """
    return jars_folder() / f"kafka_2.13-{version}-java-{java_version()}.jsa"


def zookeeper_archive() -> Path:
    """ZooKeeper's classes, likewise; its jars are those of the environment."""
    return Path(sys.prefix) / f"zookeeper-java-{java_version()}.jsa"


def _shared(archive: Path) -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def _options(heap_mb: int, folder: Path) -> tuple[str, ...]:
    settings = folder / "log4j2.properties"
    settings.write_text(LOG4J)
    return (
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",  # fewest threads and the fastest start on few cores
        "-XX:-UsePerfData",  # else a killed JVM leaves a file in /tmp
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={settings}",
    )


@cache
def java_executable() -> Path:
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    candidates += [
        "java",
        *(str(p) for p in Path("/usr/lib/jvm").glob("java-*-openjdk-*/bin/java")),
    ]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and _major(_version(found)) >= 17:
            return Path(found)
    raise NotSetUpError("Java 17 or later is needed: run scripts/setup")


@contextmanager
def new_archive(archive: Path) -> Iterator[tuple[str, ...]]:
    """Options of a JVM that writes the classes it loaded when it ends; no half of a file gets the name."""
    part = archive.with_suffix(f".{os.getpid()}.part")
    yield (*QUICK_START, f"-XX:ArchiveClassesAtExit={part}", *SILENT)
    if not part.exists():
        raise SystemExit(f"this Java has not written {part}")
    part.rename(archive)


def java_version() -> str:
    """Version of Java, as `17.0.15`."""
    return _version(str(java_executable()))


@cache
def _version(executable: str) -> str:
    """The version as `17.0.15`; empty: it does not run."""
    shown = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    return shown.stderr.partition('version "')[2].partition('"')[0]


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else 0


def jars_folder() -> Path:
    default = Path.home() / ".cache" / "ureplicator"
    return Path(os.environ.get("UREPLICATOR_JARS") or default)


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    folder = jars_folder() / f"kafka_2.13-{version}"
    if not (folder / f"kafka_2.13-{version}.jar").exists():
        option = "" if version == KAFKA_VERSION else " --tests"
        raise NotSetUpError(f"no Kafka jars in {folder}: run scripts/setup{option}")
    return folder


def zookeeper_jars() -> Sequence[str]:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise NotSetUpError("pyspark is not installed: run scripts/setup")
    jars = sorted((Path(pyspark.origin).parent / "jars").glob("*.jar"))
    return [str(jar) for jar in jars if jar.name.startswith(ZOOKEEPER_JARS)]
