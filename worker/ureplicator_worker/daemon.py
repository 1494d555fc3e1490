"""Worker process: builds the engines around the event loop, starts them, and closes them.

    ZooKeeper --> AssignmentWatch (assignment, session) --+             +--> LifelineServer (Add, ...)
    ZooKeeper --> RouteSettingsWatch (settings of routes) ---------------> LifelineServer (Settings)
    ZooKeeper --> SharesWatch (shares of byte limits) -------------------> LifelineServer (Shares)
    lifeline  --> CopierInbox (messages of copiers) ------+--> queue --+--> SparkEngine (start, kill)
    Spark     --> SparkEngine (copier ended) -------------+   step()   +--> Fencer
    clock     --> EventLoop (tick, every 100 ms) ---------+             +--> NodePublisher

Start: port, Java and Spark come first, since they fail for good; then ZooKeeper, waited for as long as
it takes. Nothing is fenced or copied before the live node is ours: if another live process had the id,
its copiers would be fenced.

End: a signal during the start ends the process at once with 0, since nothing is claimed or copied yet.
Afterwards SIGTERM drains (each partition is committed and released) and exits 0. With `worker.on_stop:
leave`, or after SIGUSR1, the leader moves the partitions to other workers before that. What the process
cannot recover from ends it at once, after its copiers are gone (`engines.watchdog`).
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ureplicator_common._version import __version__
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, SessionState, Unavailable
from ureplicator_common.coordination.zookeeper import open_coordination
from ureplicator_common.errors import PermanentError
from ureplicator_common.logging_setup import writes_json
from ureplicator_common.model import WorkerId
from ureplicator_common.pages.web import WebServer
from ureplicator_common.znode_contents import LiveWorker
from ureplicator_common.znodes.paths import Paths
from ureplicator_worker.core import state
from ureplicator_worker.core.events import DrainRequested, LeaveRequested
from ureplicator_worker.engines import spark_entry
from ureplicator_worker.engines.assignment import AssignmentWatch, RouteSettingsWatch, SharesWatch
from ureplicator_worker.engines.copier_inbox import CopierInbox
from ureplicator_worker.engines.event_loop import EventLoop
from ureplicator_worker.engines.event_queue import EventQueue
from ureplicator_worker.engines.exits import exits_unprinted
from ureplicator_worker.engines.fencing import FenceIds, Fencer, kafka_fence
from ureplicator_worker.engines.ownership_proof import OwnershipProver
from ureplicator_worker.engines.pages import Pages
from ureplicator_worker.engines.performer import Performer
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.engines.usage import UsageMeter
from ureplicator_worker.engines.watchdog import ProcessAbort, Watchdog, print_error
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.messages import CopierConfig, CopierId
from ureplicator_worker.lifeline.server import LifelineServer

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
CONNECT_RETRY_S = 0.1
FLUSH_TIMEOUT_S = 3.0
FIRST_LOOK_S = 15.0
"""A time longer than a controller takes to be elected that is started at the same time."""
LOOK_EVERY_S = 60.0


def run(settings: Settings, *, id: str) -> int:
    """Run worker `id` until SIGTERM or SIGINT; the exit code. Called from the main thread."""
    coordination = open_coordination(settings.zookeeper)
    worker = Worker(
        settings,
        id=id,
        coordination=coordination,
        connect=coordination.connect,
        fence=kafka_fence(settings),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    signal.signal(signal.SIGUSR1, lambda *_: worker.leave())
    return worker.run()


def leader_missing(coordination: Coordination, paths: Paths, fleet: str) -> str:
    """Text for a worker that waits for its fleet's leader; "" with one, or if ZooKeeper does not tell."""
    try:
        if coordination.get(paths.leader) is not None:
            return ""
    except Unavailable:
        return ""
    return (
        f"waits for a leader of fleet {fleet}, and there is none: start a controller, or correct `fleet`"
        " if it runs under another name"
    )


@dataclass(frozen=True, slots=True)
class _Started:
    """Engines that exist once the port is bound and Spark runs."""

    web: WebServer
    lifeline: LifelineServer
    spark: SparkEngine


@dataclass(frozen=True, slots=True)
class _Engines:
    assignment: AssignmentWatch
    published: tuple[RouteSettingsWatch | SharesWatch, ...]
    publisher: NodePublisher
    prover: OwnershipProver
    inbox: CopierInbox
    loop: EventLoop
    abort: ProcessAbort
    watchdog: Watchdog
    pages: Pages


class Worker:
    """`connect(timeout_s)` waits for a session; `exit_process` ends the process at once."""

    def __init__(
        self,
        settings: Settings,
        *,
        id: str,
        coordination: Coordination,
        connect: Callable[[float], None],
        fence: FenceIds,
        copier_entry: str = spark_entry.COPIER,
        exit_process: Callable[[int], Any] = os._exit,
    ) -> None:
        self._settings, self._id = settings, WorkerId(id)
        self._options = settings.worker
        self._coordination, self._connect, self._fence = coordination, connect, fence
        self._copier_entry, self._exit_process = copier_entry, exit_process
        self._clock = SystemClock()
        self._paths = Paths(settings.fleet)
        self._events = EventQueue()
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stops = 0
        self._leaves = False
        self._starting = True

    def run(self) -> int:
        with ExitStack() as closing:
            try:
                with exits_unprinted():
                    started = self._open(closing)
            except (PermanentError, SystemExit, KeyboardInterrupt) as error:
                return self._not_started(error)
            finally:
                self._starting = False
            if self._stops:
                return self._not_started(SystemExit())
            engines = self._engines(started)
            self._start(started, engines, closing)
            try:
                exit = engines.loop.run()
            except Exception as error:
                logger.exception("worker %s: invariant violated", self._id)
                engines.abort(f"invariant violated: {type(error).__name__}")
                return 1
            logger.info("worker %s: exit %d: %s", self._id, exit.code, exit.reason)
            return exit.code

    def stop(self) -> None:
        """Leave or drain, then exit; a second call exits without waiting. Safe in a signal handler.

        Raises SystemExit during the start, which waits for a JVM otherwise.
        """
        self._stops += 1
        if self._starting:
            raise SystemExit(0)
        if self._stops == 1 and (self._leaves or self._options.on_stop == "leave"):
            self.leave()
            return
        timeout_s = self._options.drain_timeout_s if self._stops == 1 else 0.0
        self._events.put(DrainRequested(timeout_s))

    def leave(self) -> None:
        """Give the partitions to other workers, then exit. Safe in a signal handler."""
        self._leaves = True
        options = self._options
        self._events.put(LeaveRequested(options.leave_timeout_s, options.drain_timeout_s))

    def _not_started(self, error: BaseException) -> int:
        """The exit code. A signal to the whole group ends the JVM, too, which is no failure of Spark."""
        if self._stops or not isinstance(error, PermanentError):
            logger.info("worker %s: exit 0: ended while it started", self._id)
            return 0
        print_error(f"worker {self._id}: {error}")
        return 1

    # Building.

    def _open(self, closing: ExitStack) -> _Started:
        """Bind the port and start Spark, which can fail for good. Raises PermanentError."""
        options = self._options
        closing.callback(self._coordination.close)
        web = WebServer(host=options.bind, port=options.port, pages=self._settings.pages)
        closing.callback(web.close)
        properties = self._settings.spark_properties
        bind = properties["spark.driver.bindAddress"]
        lifeline = LifelineServer(host=bind, port=options.lifeline_port)
        closing.callback(lifeline.close)
        spark = SparkEngine(
            name=f"ureplicator {self._settings.fleet} worker {self._id}",
            slots=options.slots,
            properties=properties,
            secret_file=options.spark_secret_file,
            put=self._events.put,
            on_job_ended=lifeline.revoke,
            on_jvm_failed=self._failures.put,
            silence_s=options.watchdog_s,
            copier_entry=self._copier_entry,
        )
        closing.callback(spark.stop)
        spark.start()
        return _Started(web, lifeline, spark)

    def _engines(self, started: _Started) -> _Engines:
        spark = started.spark
        telemetry = Telemetry(config.route for config in self._settings.routes)
        assignment = self._assignment_watch()
        settings = RouteSettingsWatch(
            coordination=self._coordination,
            path=self._paths.routes,
            send=started.lifeline.send_all,
        )
        shares = SharesWatch(
            coordination=self._coordination,
            path=self._paths.slot_shares(self._id),
            send=started.lifeline.send_all,
        )
        publisher = self._publisher(assignment, (settings, shares), started.web.port)
        prover = self._prover(publisher, started.lifeline)
        inbox = CopierInbox(engine=spark, prover=prover, put=self._events.put)
        performer = Performer(
            lifeline=started.lifeline,
            spark=spark,
            fencer=self._fencer(),
            publisher=publisher,
            assignment=assignment,
            configure=lambda copier: self._copier_config(copier, started.lifeline),
        )
        meter = UsageMeter(
            telemetry=telemetry,
            jvm_pid=lambda: spark.jvm_pid,
            started_ms=self._clock.wall_ms(),
        )
        loop = self._loop(performer, publisher, telemetry, meter)
        abort = ProcessAbort(
            name=f"worker {self._id}",
            spark=spark,
            coordination=self._coordination,
            exit_process=self._exit_process,
        )
        watchdog = Watchdog(
            failures=self._failures,
            loop=loop,
            limit_s=self._options.watchdog_s,
            clock=self._clock,
            abort=abort,
        )
        pages = Pages(
            fleet=self._settings.fleet,
            worker=self._id,
            loop=loop,
            watchdog=watchdog,
            publisher=publisher,
            inbox=inbox,
            spark=spark,
            telemetry=telemetry,
        )
        return _Engines(
            assignment, (settings, shares), publisher, prover, inbox, loop, abort, watchdog, pages
        )

    def _assignment_watch(self) -> AssignmentWatch:
        return AssignmentWatch(
            coordination=self._coordination,
            path=self._paths.assignment(self._id),
            put=self._events.put,
        )

    def _publisher(
        self,
        assignment: AssignmentWatch,
        published: Sequence[RouteSettingsWatch | SharesWatch],
        port: int,
    ) -> NodePublisher:
        def registered() -> None:
            logger.info("worker %s: registered; status on port %d", self._id, port)
            for watch in published:
                watch.start()
            assignment.start()

        return NodePublisher(
            coordination=self._coordination,
            paths=self._paths,
            worker=self._id,
            session_timeout_s=self._settings.zookeeper.session_timeout_s,
            clock=self._clock,
            on_registered=registered,
            on_taken=self._failures.put,
        )

    def _prover(self, publisher: NodePublisher, lifeline: LifelineServer) -> OwnershipProver:
        return OwnershipProver(
            coordination=self._coordination,
            paths=self._paths,
            worker=self._id,
            slots=self._options.slots,
            own_sessions=publisher.own_sessions,
            respond=lifeline.send,
        )

    def _fencer(self) -> Fencer:
        return Fencer(
            coordination=self._coordination,
            paths=self._paths,
            fleet=self._settings.fleet,
            worker=self._id,
            slots=self._options.slots,
            fence=self._fence,
            put=self._events.put,
        )

    def _loop(
        self,
        performer: Performer,
        publisher: NodePublisher,
        telemetry: Telemetry,
        meter: UsageMeter,
    ) -> EventLoop:
        return EventLoop(
            state=state.initial(
                slots=self._options.slots,
                silence_s=self._options.watchdog_s,
                now_s=self._clock.monotonic_s(),
                capacity_timeout_s=self._options.capacity_timeout_s,
                routes=tuple(config.route for config in self._settings.routes),
            ),
            events=self._events,
            performer=performer,
            publisher=publisher,
            telemetry=telemetry,
            usage=meter.usage,
            clock=self._clock,
        )

    def _copier_config(self, copier: CopierId, lifeline: LifelineServer) -> CopierConfig:
        clusters = self._settings.clusters
        return CopierConfig(
            fleet=self._settings.fleet,
            worker=self._id,
            slot=copier.slot,
            run=copier.run,
            host=self._settings.spark_properties["spark.driver.host"],
            port=lifeline.address[1],
            token=lifeline.admit(copier),
            clusters={name: dict(cluster.properties) for name, cluster in clusters.items()},
            commit_interval_s=self._options.commit_interval_s,
            transaction_interval_s=self._options.transaction_interval_ms / 1_000,
            buffer_bytes=self._options.buffer_bytes,
            silence_s=self._options.watchdog_s,
            log_json=writes_json(),
        )

    # Starting and closing.

    def _start(self, started: _Started, engines: _Engines, closing: ExitStack) -> None:
        threading.excepthook = engines.watchdog.thread_failed
        started.lifeline.start(engines.inbox.receive)
        self._coordination.on_session(engines.publisher.session_changed)
        self._coordination.on_session(engines.assignment.session_changed)
        started.web.show(engines.pages.by_path())
        engines.prover.start()
        closing.callback(engines.prover.close)
        closing.callback(engines.publisher.close)
        closing.callback(self._flush, engines.publisher)
        closing.callback(engines.assignment.close)
        for watch in engines.published:
            closing.callback(watch.close)
        threading.Thread(
            target=self._register,
            args=(engines.publisher, started.web.port),
            name="worker registration",
            daemon=True,
        ).start()
        engines.watchdog.start()

    def _register(self, publisher: NodePublisher, port: int) -> None:
        """Wait for ZooKeeper as long as it takes, then register; copiers start meanwhile."""
        while self._stops == 0:
            try:
                self._connect(CONNECT_TIMEOUT_S)
                for path in self._paths.skeleton:
                    self._coordination.ensure(path)
            except Unavailable as error:
                logger.warning("worker %s waits for ZooKeeper: %s", self._id, error)
                time.sleep(CONNECT_RETRY_S)
            else:
                publisher.start(self._live(port))
                self._await_leader()
                return

    def _await_leader(self) -> None:
        """Say from time to time that nothing is assigned because nobody leads the fleet."""
        wait_s = FIRST_LOOK_S
        while True:
            time.sleep(wait_s)
            wait_s = LOOK_EVERY_S
            missing = leader_missing(self._coordination, self._paths, self._settings.fleet)
            if self._stops or not missing:
                return
            logger.warning("worker %s: %s", self._id, missing)

    def _live(self, port: int) -> LiveWorker:
        return LiveWorker(
            slots=self._options.slots,
            host=self._options.address,
            port=port,
            pid=os.getpid(),
            version=__version__,
            tags=tuple(sorted(set(self._options.tags))),
            zone=self._options.zone,
        )

    def _flush(self, publisher: NodePublisher) -> None:
        """Publish that everything is released before the session ends."""
        if publisher.registered and self._coordination.state() is SessionState.CONNECTED:
            publisher.flush(FLUSH_TIMEOUT_S)
