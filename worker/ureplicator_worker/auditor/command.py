"""One audit from a terminal: clients, Spark and the result's folder around `run_audit`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ureplicator_common.audits import TopicAudit
from ureplicator_common.audits.ranges import recreated_sides
from ureplicator_common.config.settings import Settings
from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import ClusterClient, open_client
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_worker.audit import store
from ureplicator_worker.audit.job import run_audit
from ureplicator_worker.audit.offset_map import Mapped, add_to_map
from ureplicator_worker.audit.prepare import Wanted, prepare
from ureplicator_worker.audit.repair import Repaired, repair
from ureplicator_worker.audit.result import AuditOptions, AuditRequest, AuditResult
from ureplicator_worker.auditor.session import SPARK_ERRORS, AuditorSession
from ureplicator_worker.engines.jvm import brief, silence_py4j

SPARK_MODULES = ("pyspark", "py4j")
JVM_END_S = 2.0
"""A JVM whose connections broke has ended by then, or goes on."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result, and what was done with it."""

    result: AuditResult
    repaired: Sequence[Repaired] = ()
    mapped: Sequence[Mapped] = ()


Progress = Callable[[AuditRequest, AuditResult, int], None]
"""Gets the result so far, and the source offsets that were compared since."""


@dataclass(frozen=True, slots=True)
class Command:
    """`folder`: of the result, None to keep none. `offset_map`: add to the route's map what was copied before
    it. `spark`: properties of the session."""

    wanted: Wanted
    options: AuditOptions
    folder: Path | None = None
    resume: bool = False
    repair: bool = False
    offset_map: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)


def execute(settings: Settings, command: Command, *, on_progress: Progress) -> Done:
    """Raises OperatingError, and KeyboardInterrupt: then the folder has what was compared."""
    former = _former(command)
    request = _request(settings, command)
    if former is not None:
        assert command.folder is not None, "checked with the options"
        refuse_other_topics(former, request, command.folder)
    names = (command.wanted.route.source, command.wanted.route.target)
    clusters = {name: settings.cluster(name) for name in names}

    so_far: list[AuditResult] = []

    def progress(result: AuditResult) -> None:
        so_far[:] = [result]
        if command.folder is not None:
            store.save(command.folder, result)
        on_progress(request, result, 0)

    with spark_session(command.spark) as spark:
        with interruptible() as refuse_if_interrupted:

            def watch(passed: int) -> None:
                refuse_if_interrupted()
                if so_far:
                    on_progress(request, so_far[0], passed)

            result = run_audit(
                spark, request, clusters=clusters, on_progress=progress, former=former, watch=watch
            )
        progress(result)
        if command.folder is not None:
            store.save_parquet(spark, command.folder, result)
    return Done(
        result,
        repair(request, result, clusters=clusters) if command.repair else (),
        _mapped(settings, command, result, clusters) if command.offset_map else (),
    )


def _mapped(
    settings: Settings,
    command: Command,
    result: AuditResult,
    clusters: Mapping[str, Mapping[str, str]],
) -> Sequence[Mapped]:
    route = next(config for config in settings.routes if config.route == command.wanted.route)
    return add_to_map(
        result,
        fleet=settings.fleet,
        clusters=clusters,
        replication_factor=route.replication_factor,
    )


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """A function that raises KeyboardInterrupt after SIGINT; a second one is raised where the main thread is.

    Spark's own handler ends all jobs at once, and what they have compared would be lost.
    """
    interrupted = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    def check() -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
    check()


@contextmanager
def spark_session(properties: Mapping[str, str]) -> Iterator[Any]:
    """A session, and failures of Spark in the block as PermanentError with one line.

    The end of the JVM is noticed by the next call into it; its exit code is the better reason. An OSError of
    the block's own files or output is no failure of Spark.
    """
    refuse_other_machines(properties.get("spark.master", ""))
    ends: list[str] = []
    session = AuditorSession(name="ureplicator audit", properties=properties, on_failed=ends.append)
    try:
        spark = session.start()
        silence_py4j(spark.sparkContext)
        yield spark
    except SPARK_ERRORS as error:
        if isinstance(error, OSError) and not _is_of_spark(error):
            raise PermanentError(f"the audit failed: {error}") from error
        session.wait_failed(JVM_END_S)
        raise PermanentError(f"Spark failed: {ends[0] if ends else brief(error)}") from error
    finally:
        session.close()


def _is_of_spark(error: OSError) -> bool:
    """True if a call into Spark raised it."""
    names = (str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__))
    return any(name.partition(".")[0] in SPARK_MODULES for name in names)


def refuse_other_machines(master: str) -> None:
    """Raises PermanentError for a Spark cluster: a driver that it can reach, this package on each executor
    and the network's secret are settings of workers alone."""
    if not master.startswith("local"):
        raise PermanentError(
            f"--master {master}: an audit runs on this machine, with local[N] for N partitions at a time"
        )


def refuse_other_topics(former: AuditResult, request: AuditRequest, folder: Path) -> None:
    """Raises PermanentError if a topic was remade since: offsets of the result are of another one."""
    compared = TopicAudit(former.source_topic_id, former.target_topic_id)
    sides = list(recreated_sides(compared, request.source_topic_id, request.target_topic_id))
    if sides:
        raise PermanentError(
            f"{folder} cannot be resumed: the {' and the '.join(sides)} topic was remade since; begin again"
            " without --resume"
        )


def _former(command: Command) -> AuditResult | None:
    if not command.resume:
        return None
    assert command.folder is not None, "checked with the options"
    former = store.load(command.folder)
    wanted = command.wanted
    if former is None:
        raise PermanentError(
            f"{command.folder} has no {store.RESULT} to resume: begin without --resume"
        )
    if (former.route, former.topic) != (str(wanted.route), wanted.topic):
        raise PermanentError(
            f"{command.folder} holds an audit of {former.topic} on {former.route}: give another folder"
        )
    return former


def _request(settings: Settings, command: Command) -> AuditRequest:
    route = command.wanted.route
    with ExitStack() as stack:
        source, target = (
            stack.enter_context(_closing(ConfluentTopicAdmin(settings.cluster(name), name=name)))
            for name in (route.source, route.target)
        )
        logs = KafkaLogReader(_client(settings, route.source))
        stack.callback(logs.close)
        copies = KafkaLogReader(_client(settings, route.target))
        stack.callback(copies.close)
        positions = KafkaPositionReader(_client(settings, route.target))
        stack.callback(positions.close)
        return prepare(
            command.wanted,
            command.options,
            source=source,
            target=target,
            logs=logs,
            copies=copies,
            positions=positions,
        )


@contextmanager
def _closing(admin: ConfluentTopicAdmin) -> Iterator[ConfluentTopicAdmin]:
    try:
        yield admin
    finally:
        admin.close()


def _client(settings: Settings, name: str) -> ClusterClient:
    return open_client(name, settings.cluster(name))
