"""A worker process: the loop around `core.state`, the engines around the loop, beginning and end.

    ZooKeeper --- tree cache of assignment, session --+            +--> lifeline (add, remove, stop)
    lifeline  --- what copiers say --------------------+--> queue --+--> spark (start, kill)
    spark     --- copier ended ------------------------+    step()  +--> fencer
    clock     --- tick, every 100 ms ------------------+            +--> reporter (publish)

One thread steps; whatever takes time happens in the engines and comes back as an event.

Beginning: port, Java and Spark first, since they fail for good; then ZooKeeper, waited for as long as
it takes. Nothing is fenced or copied before the live node is ours: were the id another live process's,
we would end *its* copiers.

End: SIGTERM drains (each partition committed and let go) and exits 0. What cannot be mended from
inside, a dead JVM, a loop that does not step, a broken rule, ends the process at once with one line,
after the copiers are seen gone: a supervisor starts it again, and ZooKeeper tells the others.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from ureplicator_common import znodes
from ureplicator_common._version import __version__
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, SessionState, TreeCache, Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Assignment, LiveWorker, Partition, WorkerId, owned
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.partition import PartitionPhase
from ureplicator_worker.core.state import WorkerState, initial
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.engines import spark_entry as entry
from ureplicator_worker.engines import telemetry
from ureplicator_worker.engines.fencing import Fence, Fencer, kafka_fence
from ureplicator_worker.engines.ownership_proof import OwnershipProver
from ureplicator_worker.engines.publisher import Publisher
from ureplicator_worker.engines.spark import SparkEngine, describe
from ureplicator_worker.engines.web import WebServer, json_page
from ureplicator_worker.lifeline import messages
from ureplicator_worker.lifeline.messages import CopierId
from ureplicator_worker.lifeline.server import Disconnected, LifelineServer

logger = logging.getLogger(__name__)

TICK_S = 0.1
LOADS_EVERY_S = 10.0
CONNECT_S = 5.0
FLUSH_S = 3.0
COPIERS_GONE_S = 3.0


def run(settings: Settings, *, id: str) -> int:
    """Be worker `id` until told to stop; the exit code. Called from the main thread."""
    coordination = ZooKeeperCoordination(
        hosts=settings.zookeeper.hosts, session_timeout_s=settings.zookeeper.session_timeout_s
    )
    worker = Worker(
        settings,
        id=id,
        coordination=coordination,
        connect=coordination.connect,
        fence=kafka_fence(settings),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    return worker.run()


@dataclass(frozen=True, slots=True)
class _Poke:
    """Something that is to happen on the loop's thread."""

    action: Callable[[], None]


class Worker:
    """`connect(timeout_s)` waits for a session; `die` ends the process."""

    def __init__(
        self,
        settings: Settings,
        *,
        id: str,
        coordination: Coordination,
        connect: Callable[[float], None],
        fence: Fence,
        copier: str = entry.COPIER,
        die: Callable[[int], Any] = os._exit,
    ) -> None:
        self._settings, self._id = settings, WorkerId(id)
        self._options = settings.worker
        self._coordination, self._connect, self._fence = coordination, connect, fence
        self._copier_entry, self._exit_process = copier, die
        self._clock = SystemClock()
        self._paths = znodes.Paths(settings.fleet)
        self._queue: queue.SimpleQueue[events.Event | _Poke] = queue.SimpleQueue()
        self._stops = 0
        self._registered = False
        self._exit: instructions.Exit | None = None
        self._dying = threading.Lock()
        self._tree_cache: TreeCache | None = None
        self._pids: dict[CopierId, int] = {}
        self._stepped_s = self._loads_s = self._clock.monotonic_s()
        self._telemetry = telemetry.Telemetry()
        self._state: WorkerState = initial(
            slots=self._options.slots,
            silence_s=self._options.watchdog_s,
            now_s=self._stepped_s,
            routes=tuple(config.route for config in settings.routes),
        )

    # Beginning and end.

    def run(self) -> int:
        with ExitStack() as cleanup:
            try:
                self._open(cleanup)
            except PermanentError as error:
                return self._say(f"worker {self._id}: {error}")
            try:
                exit = self._loop()
            except Exception as error:
                logger.exception("worker %s: a rule is broken", self._id)
                self.die(f"a rule is broken: {type(error).__name__}")
                return 1
            logger.info("worker %s: exit %d: %s", self._id, exit.code, exit.reason)
            return exit.code

    def stop(self) -> None:
        """Drain and exit; asked again: without waiting. Safe in a signal handler."""
        self._stops += 1
        timeout_s = self._options.drain_timeout_s if self._stops == 1 else 0.0
        self._queue.put(events.DrainRequested(timeout_s))

    def die(self, reason: str) -> None:
        """End the process now: no copier of ours may outlive it. From any thread."""
        if not self._dying.acquire(blocking=False):
            return
        self._say(f"worker {self._id}: {reason}")
        self._spark.abandon(COPIERS_GONE_S)
        closing = threading.Thread(target=self._coordination.close, daemon=True)
        closing.start()
        closing.join(FLUSH_S)
        self._exit_process(1)

    def _say(self, line: str) -> int:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
        return 1

    def _open(self, cleanup: ExitStack) -> None:
        """What can fail for good comes first. Raises PermanentError."""
        options = self._options
        cleanup.callback(self._coordination.close)
        self._web = WebServer(host=options.host, port=options.port)
        cleanup.callback(self._web.close)
        local = options.spark_master.startswith("local")
        self._lifeline = LifelineServer(
            host="127.0.0.1" if local else options.host, heard=self._heard
        )
        cleanup.callback(self._lifeline.close)
        self._spark = SparkEngine(
            name=f"ureplicator {self._settings.fleet} worker {self._id}",
            slots=options.slots,
            host=options.host,
            properties={**options.spark, "spark.master": options.spark_master},
            over=self._lifeline.revoke,
            ended=lambda copier, reason: self._queue.put(events.CopierEnded(copier, reason)),
            died=self.die,
            silence_s=options.watchdog_s,
            copier=self._copier_entry,
        )
        self._spark.start()
        cleanup.callback(self._spark.stop)
        self._lifeline.start()
        self._make_engines()
        for close in (self._prover.close, self._publisher.close, self._last_word):
            cleanup.callback(close)
        self._start()

    def _start(self) -> None:
        threading.excepthook = self._thread_failed
        self._coordination.on_session(self._session_changed)
        self._web.show(self._pages())
        self._prover.start()
        self._thread(self._register, "registration")
        self._thread(self._watch, "watchdog")

    def _make_engines(self) -> None:
        self._publisher = Publisher(
            coordination=self._coordination,
            paths=self._paths,
            worker=self._id,
            session_timeout_s=self._settings.zookeeper.session_timeout_s,
            clock=self._clock,
            registered=lambda: self._queue.put(_Poke(self._begin)),
            taken=self.die,
        )
        self._prover = OwnershipProver(
            coordination=self._coordination,
            paths=self._paths,
            worker=self._id,
            slots=self._options.slots,
            formers=self._publisher.formers,
            answer=self._lifeline.send,
        )
        self._fencer = Fencer(
            coordination=self._coordination,
            paths=self._paths,
            fleet=self._settings.fleet,
            worker=self._id,
            slots=self._options.slots,
            fence=self._fence,
            happened=self._queue.put,
        )

    def _register(self) -> None:
        """Wait for ZooKeeper as long as it takes, then register; copiers start meanwhile."""
        while self._stops == 0:
            try:
                self._connect(CONNECT_S)
                for path in self._paths.skeleton:
                    self._coordination.ensure(path)
                break
            except Unavailable as error:
                logger.warning("worker %s waits for ZooKeeper: %s", self._id, error)
                time.sleep(TICK_S)
        else:
            return
        self._publisher.start(
            LiveWorker(
                slots=self._options.slots,
                host=self._options.host,
                port=self._web.port,
                pid=os.getpid(),
                version=__version__,
            )
        )

    def _begin(self) -> None:
        """The live node is ours: from now on the assignment counts."""
        self._registered = True
        logger.info("worker %s: registered; status on port %d", self._id, self._web.port)
        self._session_changed(self._coordination.state())
        path = self._paths.assignment(self._id)
        self._tree_cache = self._coordination.tree_cache(path, self._assignment_changed)
        self._assignment_changed()

    def _last_word(self) -> None:
        """That everything is let go should be heard before the session ends."""
        if self._tree_cache is not None:
            self._tree_cache.close()
        if self._registered and self._coordination.state() is SessionState.CONNECTED:
            self._publisher.flush(FLUSH_S)

    def _thread(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=f"worker {name}", daemon=True).start()

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """A thread of ours that ends by surprise leaves a worker that only looks alive."""
        name = failed.thread.name if failed.thread else ""
        logger.error("thread %s failed: %r", name, failed.exc_value, exc_info=failed.exc_value)
        if name.startswith("worker ") and self._exit is None:
            self.die(f"thread {name!r} failed: {type(failed.exc_value).__name__}")

    def _watch(self) -> None:
        while self._exit is None:
            time.sleep(TICK_S)
            still_s = self._clock.monotonic_s() - self._stepped_s
            if still_s > self._options.watchdog_s:
                self.die(f"no step for {still_s:.0f} s")

    # The loop.

    def _loop(self) -> instructions.Exit:
        ticked_s = 0.0
        while self._exit is None:
            now_s = self._clock.monotonic_s()
            if now_s - ticked_s >= TICK_S:
                ticked_s = now_s
                self._step(events.Tick(now_s))
                self._report_loads(now_s)
            try:
                event = self._queue.get(timeout=max(0.0, ticked_s + TICK_S - now_s))
            except queue.Empty:
                continue
            if isinstance(event, _Poke):
                event.action()
            else:
                self._step(event)
        return self._exit

    def _step(self, event: events.Event) -> None:
        before = self._state
        self._state, decided = step(before, event)
        self._stepped_s = self._clock.monotonic_s()
        if isinstance(event, events.CopierReported):
            self._telemetry.heard(event.copier, event.report, self._state.held)
        if self._state.held.keys() != before.held.keys():
            self._telemetry.keep_only(self._state.held.keys())
        log_changes(before, self._state)
        for instruction in decided:
            self._perform(instruction)

    def _perform(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartCopier(copier, partitions):
                self._start_copier(copier, partitions)
            case instructions.AddPartitions(copier, epochs):
                self._lifeline.send(copier, messages.Add(epochs))
            case instructions.RemovePartitions(copier, partitions):
                self._lifeline.send(copier, messages.Remove(partitions))
            case instructions.StopCopier(copier):
                self._lifeline.send(copier, messages.Stop())
            case instructions.KillCopier(copier, reason):
                logger.warning("copier %s is killed: %s", copier, reason)
                self._spark.kill(copier, reason)
            case instructions.FenceRoute(route):
                self._fencer.request(route)
            case instructions.Publish(current):
                self._publisher.publish(current)
            case instructions.Register():
                self._publisher.refresh()
            case instructions.ReadAssignment():
                self._thread(self._read_assignment, "assignment")
            case instructions.Exit():
                self._exit = instruction

    def _start_copier(self, copier: CopierId, partitions: Sequence[Partition]) -> None:
        host, port = self._lifeline.address
        order = messages.CopierConfig(
            fleet=self._settings.fleet,
            worker=self._id,
            slot=copier.slot,
            host=host,
            port=port,
            token=self._lifeline.admit(copier),
            clusters={
                name: dict(cluster.properties) for name, cluster in self._settings.clusters.items()
            },
            commit_interval_s=self._options.commit_interval_s,
            buffer_bytes=self._options.buffer_bytes,
        )
        self._spark.start_copier(copier, order, describe(copier, partitions))

    def _report_loads(self, now_s: float) -> None:
        if self._registered and now_s - self._loads_s >= LOADS_EVERY_S:
            self._loads_s = now_s
            self._publisher.publish_loads(self._telemetry.loads(self._state.held, now_s))

    # What happens, from other threads.

    def _heard(self, copier: CopierId, said: messages.Message | Disconnected) -> None:
        match said:
            case messages.Hello(_, pid):
                self._pids[copier] = pid
                self._spark.said_hello(copier, pid)
                self._queue.put(events.CopierConnected(copier))
            case messages.CopierReport():
                self._queue.put(events.CopierReported(copier, said))
            case messages.Released(partitions):
                self._queue.put(events.CopierReleased(copier, partitions))
            case messages.Failed(partition, reason, temporary):
                self._queue.put(events.CopierFailed(copier, partition, reason, temporary))
            case messages.ProofRequest():
                self._prover.ask(copier, said)
            case Disconnected():
                self._pids.pop(copier, None)
                self._prover.forget(copier)
                self._queue.put(events.CopierClosed(copier))
            case _:
                raise ValueError(f"a copier does not say {type(said).__name__}")

    def _session_changed(self, state: SessionState) -> None:
        session = self._coordination.session()
        if not self._registered:
            return
        if state is SessionState.CONNECTED and session is not None:
            self._publisher.refresh()
            self._queue.put(events.SessionRestored(session))
        elif state is SessionState.LOST:
            self._queue.put(events.SessionLost())
        else:
            self._queue.put(events.SessionSuspended())

    def _read_assignment(self) -> None:
        if self._tree_cache is None:
            return
        try:
            self._tree_cache.refresh()
        except Unavailable:
            return  # the next connection reads it anyway
        self._assignment_changed()

    def _assignment_changed(self) -> None:
        if self._tree_cache is None:
            return
        try:
            node = self._tree_cache.nodes().get(self._paths.assignment(self._id))
        except Unavailable:
            return
        try:
            assignment = Assignment() if node is None else znodes.decode_assignment(node.data)
        except znodes.UnreadableContent as error:
            logger.error("the assignment cannot be read, the last one stays: %s", error)
            return
        zxid = -1 if node is None else node.stat.mzxid
        self._queue.put(events.AssignmentChanged(assignment.entries, zxid))

    # Pages.

    def _pages(self) -> dict[str, Callable[[], tuple[int, str, bytes]]]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self))
        text = "text/plain; version=0.0.4; charset=utf-8"
        return {
            "/status": lambda: json_page(200, self.status()),
            "/metrics": lambda: (200, text, generate_latest(registry)),
            "/health": self._health,
            "/ready": self._ready,
        }

    def status(self) -> Mapping[str, Any]:
        shown = telemetry.status(self._state, self._telemetry)
        pids = dict(self._pids)
        for slot in shown["slots"]:
            slot["pid"] = pids.get(CopierId(slot["slot"], slot["run"]), 0)
        return {
            "id": self._id,
            "fleet": self._settings.fleet,
            "version": __version__,
            "pid": os.getpid(),
            "sparkUi": self._spark.ui_url,
            "registered": self._registered,
            **shown,
        }

    def collect(self) -> list[Metric]:
        state = self._state
        return [*telemetry.state_metrics(state), *self._telemetry.metrics(state.held)]

    def _health(self) -> tuple[int, str, bytes]:
        still_s = self._clock.monotonic_s() - self._stepped_s
        alive = still_s < max(self._options.watchdog_s / 2, 1.0)
        return json_page(
            200 if alive else 503, {"healthy": alive, "lastStepSeconds": round(still_s, 3)}
        )

    def _ready(self) -> tuple[int, str, bytes]:
        slots = sum(slot.connected_s is not None for slot in self._state.slots)
        ready = self._registered and slots == len(self._state.slots)
        body = {"ready": ready, "registered": self._registered, "copiers": slots}
        return json_page(200 if ready else 503, body)


class _Collector:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> list[Metric]:
        return self._worker.collect()


def log_changes(before: WorkerState, after: WorkerState) -> None:
    """One line for what a partition does now that it did not before."""
    if before.held is after.held:
        return
    for partition, held in after.held.items():
        old = before.held.get(partition)
        if old is None or old.phase is not held.phase:
            level = logging.WARNING if held.phase is PartitionPhase.ERROR else logging.INFO
            name = owned(partition, held.owner_epoch)
            logger.log(level, "%s: %s %s", name, held.phase, held.reason)
    for partition in before.held.keys() - after.held.keys():
        logger.info("%s: let go", owned(partition, before.held[partition].owner_epoch))
