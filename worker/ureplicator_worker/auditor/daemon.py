"""Process of an auditor.

    main thread   waits for the end; registers again when ZooKeeper gave it another session
    requests      one requested audit after the other
    following R   one pass over the topics of route R after the other, for each followed route

They share the Spark session (`on_demand`), each with a scheduler pool and cores of its own. What fails in a
pass or a request is logged and tried again; the process ends with 1 when its JVM dies, its id is taken or a
thread hangs (`heartbeats`). SIGTERM ends it at once with 0, also while it starts. Either way its claims go
with its session, and another auditor takes the requests over.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from ureplicator_common._version import __version__
from ureplicator_common.audits import LiveAuditor
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import (
    EXPIRY_ROUNDING_S,
    Coordination,
    OutcomeUnknown,
    Unavailable,
)
from ureplicator_common.coordination.zookeeper import open_coordination
from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.client import ClusterClient, open_client
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.model import Route, SessionId, TopicKey
from ureplicator_common.pages.web import WebServer
from ureplicator_common.stop_flag import StopFlag
from ureplicator_common.whole_file import whole_file
from ureplicator_common.znodes.paths import Paths
from ureplicator_worker.audit.job import run_audit
from ureplicator_worker.audit.result import AuditRequest, AuditResult
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.audit.stored import Scanner
from ureplicator_worker.auditor.cores import default_master, shared
from ureplicator_worker.auditor.following import RouteFollower
from ureplicator_worker.auditor.heartbeats import Heartbeats
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.on_demand import SparkOnDemand
from ureplicator_worker.auditor.pages import AuditorPages
from ureplicator_worker.auditor.preparation import Preparation, continuous_routes
from ureplicator_worker.auditor.requests import Compare, RequestedAudits
from ureplicator_worker.auditor.session import AuditorSession
from ureplicator_worker.engines.exits import exits_unprinted
from ureplicator_worker.engines.watchdog import print_error

logger = logging.getLogger(__name__)

REQUESTS = "requests"
CONNECT_TIMEOUT_S = 5.0
POLL_S = 1.0
REGISTER_S = 10.0
"""Time between two looks at the live node of a session that goes on: only a hand in ZooKeeper removes
it."""
RETRY_S = 5.0
CLUSTER_TIMEOUT_S = 10.0


def run(settings: Settings, *, id: str) -> int:
    """Run auditor `id` until SIGTERM or SIGINT; the exit code. Called from the main thread."""
    coordination = open_coordination(settings.zookeeper)
    auditor = Auditor(settings, id=id, coordination=coordination, connect=coordination.connect)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: auditor.stop())
    return auditor.run()


class Auditor:
    """`connect(timeout_s)` waits for a session."""

    def __init__(
        self,
        settings: Settings,
        *,
        id: str,
        coordination: Coordination,
        connect: Callable[[float], None],
    ) -> None:
        self._settings, self._id = settings, id
        self._coordination, self._connect = coordination, connect
        self._paths = Paths(settings.fleet)
        self._nodes = AuditNodes(coordination, paths=self._paths, auditor=id)
        self._clock = SystemClock()
        self._heartbeats = Heartbeats(self._clock)
        self._preparation = Preparation(
            settings=settings,
            admins=self._admin,
            positions=self._positions,
            logs=self._logs,
            published=self._nodes.settings,
        )
        self._followed = continuous_routes(settings.routes)
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = StopFlag()
        self._starting = False

    def run(self) -> int:
        with ExitStack() as closing:
            closing.callback(self._coordination.close)
            self._starting = True
            try:
                if self._stopping.is_set():
                    return self._ended()
                with exits_unprinted():
                    web, spark = self._open(closing)
                    requests, followers = self._parts(spark)
            except PermanentError as error:  # also if a signal to the whole group ended the JVM
                self._failures.put(str(error))
                return self._ended()
            except (SystemExit, KeyboardInterrupt):
                self._stopping.set()
                return self._ended()
            finally:
                self._starting = False
            pages = AuditorPages(
                id=self._id,
                fleet=self._settings.fleet,
                requests=requests,
                followers=followers,
                spark=spark,
                clock=self._clock,
            )
            web.show(pages.by_path())
            if not self._register(web.port):
                return self._ended()
            pages.registered = True
            logger.info("auditor %s: registered; status on port %d", self._id, web.port)
            self._spawn(REQUESTS, lambda: 0.0 if requests.step() else POLL_S)
            for follower in followers:
                self._spawn(_following(follower.route), follower.repeated)
            return self._wait(web.port, spark)

    def stop(self) -> None:
        """End at once. Safe in a signal handler.

        Raises SystemExit during the start, which waits for a JVM otherwise.
        """
        self._stopping.set()
        if self._starting:
            raise SystemExit(0)

    def _open(self, closing: ExitStack) -> tuple[WebServer, SparkOnDemand]:
        """Bind the port. Raises PermanentError."""
        options = self._settings.audit
        web = WebServer(
            host=options.host, port=options.port, role="auditor", pages=self._settings.pages
        )
        closing.callback(web.close)
        spark = SparkOnDemand(
            open=self._session,
            idle_s=options.idle_spark_s,
            on_failed=self._failures.put,
            clock=self._clock,
        )
        closing.callback(spark.close)
        return web, spark

    def _session(self) -> AuditorSession:
        properties = self._settings.audit.spark
        master = properties.get("spark.master") or default_master(len(self._followed))
        return AuditorSession(
            name=f"ureplicator {self._settings.fleet} auditor {self._id}",
            properties={**properties, "spark.master": master},
            on_failed=self._failures.put,
        )

    def _parts(self, spark: SparkOnDemand) -> tuple[RequestedAudits, list[RouteFollower]]:
        """Raises PermanentError: Spark does not start."""
        with spark.session() as session:
            total = session.sparkContext.defaultParallelism
        cores = shared(total, routes=len(self._followed))
        requests = RequestedAudits(
            auditor=self._id,
            nodes=self._nodes,
            prepare=self._preparation.requested,
            compare=self._comparison(spark, REQUESTS, cores.requests),
            report=self._report,
            clock=self._clock,
            wait=self._wait_for_zookeeper,
        )
        followers = [
            RouteFollower(
                config,
                fleet=self._settings.fleet,
                auditor=self._id,
                nodes=self._nodes,
                positions=self._positions,
                logs=self._logs,
                preparation=self._preparation,
                compare=self._comparison(spark, _following(config.route), cores.route),
                scanner=Scanner(self._clusters()),
                clock=self._clock,
            )
            for config in self._followed.values()
        ]
        return requests, followers

    def _comparison(self, spark: SparkOnDemand, thread: str, cores: int) -> Compare:
        clusters = self._clusters()

        def compare(
            request: AuditRequest,
            on_progress: Callable[[AuditResult], None],
            watch: Watch | None = None,
        ) -> AuditResult:
            def beating(result: AuditResult) -> None:
                self._heartbeats.beat(thread)
                on_progress(result)

            self._heartbeats.beat(thread)
            with spark.session() as session:
                session.sparkContext.setLocalProperty("spark.scheduler.pool", thread)
                return run_audit(
                    session,
                    request,
                    clusters=clusters,
                    on_progress=beating,
                    parallelism=cores,
                    watch=watch,
                )

        return compare

    def _clusters(self) -> dict[str, dict[str, str]]:
        return {name: dict(cluster.properties) for name, cluster in self._settings.clusters.items()}

    def _admin(self, cluster: str) -> ConfluentTopicAdmin:
        return ConfluentTopicAdmin(
            self._settings.cluster(cluster), name=cluster, timeout_s=CLUSTER_TIMEOUT_S
        )

    def _positions(self, cluster: str) -> KafkaPositionReader:
        return KafkaPositionReader(self._client(cluster))

    def _logs(self, cluster: str) -> KafkaLogReader:
        return KafkaLogReader(self._client(cluster))

    def _client(self, cluster: str) -> ClusterClient:
        properties = self._settings.cluster(cluster)
        return open_client(cluster, properties, timeout_s=CLUSTER_TIMEOUT_S)

    def _report(self, key: TopicKey, request: str, result: AuditResult) -> str:
        """Write the whole result below `audit.reports`; a folder that cannot be written is logged."""
        if not self._settings.audit.reports:
            return ""
        path = Path(self._settings.audit.reports) / str(key.route) / key.topic / f"{request}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(json.dumps(result.to_json(), indent=1).encode() + b"\n")
        except OSError as error:
            logger.error("the result of audit %s is not kept: %s", request, error)
            return ""
        return str(path)

    # Threads.

    def _wait_for_zookeeper(self, seconds: float) -> None:
        self._heartbeats.beat(REQUESTS)
        self._stopping.wait(seconds)

    def _spawn(self, name: str, step: Callable[[], float]) -> None:
        """Call `step` again and again; it returns the seconds from its begin to the next call."""

        def repeat() -> None:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                self._heartbeats.beat(name)
                try:
                    due_s = began_s + step()
                except OperatingError as error:
                    logger.warning("%s: %s", name, error)
                    due_s = time.monotonic() + RETRY_S
                except Exception:  # of Spark, whatever it is; a dead JVM ends the process
                    logger.exception("%s failed", name)
                    due_s = time.monotonic() + RETRY_S
                self._stopping.wait(max(0.0, due_s - time.monotonic()))

        threading.Thread(target=repeat, name=f"auditor {name}", daemon=True).start()

    def _wait(self, port: int, spark: SparkOnDemand) -> int:
        """Wait until the end; the live node is written again for each session, and looked at once in a
        while."""
        session, due_s = self._coordination.session(), self._clock.monotonic_s() + REGISTER_S
        while not self._stopping.wait(POLL_S) and self._failures.empty():
            now_s = self._clock.monotonic_s()
            if self._coordination.session() != session or now_s >= due_s:
                session, due_s = self._register_again(port), now_s + REGISTER_S
            if hanging := self._heartbeats.hanging:
                self._failures.put(hanging)
            spark.end_idle()
        return self._ended()

    def _register_again(self, port: int) -> SessionId | None:
        """The session that the live node is of; None without one: it is tried again at once."""
        session = self._coordination.session()
        try:
            if not self._nodes.register(self._live(port)):
                self._failures.put("its id is taken by another live process")
        except OperatingError as error:
            logger.warning("auditor %s is not registered: %s", self._id, error)
            return None
        return session

    def _register(self, port: int) -> bool:
        """Wait for ZooKeeper as long as it takes; False if the process is to end."""
        taken_since_s: float | None = None
        patience_s = self._settings.zookeeper.session_timeout_s + EXPIRY_ROUNDING_S
        while not self._stopping.is_set() and self._failures.empty():
            try:
                self._connect(CONNECT_TIMEOUT_S)
                for path in self._paths.skeleton:
                    self._coordination.ensure(path)
                if self._nodes.register(self._live(port)):
                    return True
                taken_since_s = taken_since_s or time.monotonic()
                if time.monotonic() - taken_since_s > patience_s:
                    self._failures.put("its id is taken by another live process")
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("auditor %s waits for ZooKeeper: %s", self._id, error)
            self._stopping.wait(POLL_S)
        return False

    def _ended(self) -> int:
        if self._stopping.is_set() or self._failures.empty():
            logger.info("auditor %s: exit 0", self._id)
            return 0
        print_error(f"auditor {self._id}: {self._failures.get()}")
        return 1

    def _live(self, port: int) -> LiveAuditor:
        host = self._settings.audit.address
        return LiveAuditor(host=host, port=port, pid=os.getpid(), version=__version__)


def _following(route: Route) -> str:
    """Name of the thread."""
    return f"following {route}"
