"""Control loop of a controller: elect, observe, plan, execute.

One thread does everything that writes, so there is nothing to interleave. A cycle never waits for
Kafka or for REST. An exception ends the cycle, not the loop: the one catch-all is here; it counts the
failure, backs off and goes on. Only an error that no later cycle can recover from (another live
process has this controller's id) ends the loop, and with it the process.

A cycle that wrote something ends in one log line: outcome, reasons, number of steps, duration.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from ureplicator_common.backoff import Backoff
from ureplicator_common.clock import Clock
from ureplicator_common.coordination import (
    SessionState,
    Unavailable,
    create_or_set,
    version_of,
)
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Route, RouteSettings
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.fleet import encode_history, encode_isolated
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_controller.core.planning.invariants import InvariantWatch, Violation
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import Step
from ureplicator_controller.core.reporting.event_history import blocks_to_write
from ureplicator_controller.core.reporting.events import fleet_events, log_line
from ureplicator_controller.core.reporting.move_causes import move_causes
from ureplicator_controller.core.routes import WITHDRAW_AFTER_S, unknown_routes, withdrawals
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.vetting import Isolated, VettedSteps, subjects, vetted_plan
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import WriteOutcome
from ureplicator_controller.engines.leadership import Identity, Leadership
from ureplicator_controller.engines.observer import Observer
from ureplicator_controller.engines.plan_executor import Executor, PlanOutcome

log = logging.getLogger(__name__)

MAX_IDLE_S = 5.0
"""Longest wait without a deadline, and between two looks of a standby at the leader node itself: bounds the
failover time if a watch on that node is lost."""
SETTLE_INTERVAL_S = 0.2
"""Time between two rounds while a change is expected at any moment (the own id, the own writes)."""
MAX_EVENT_LINES = 10_000
"""Events logged for one cycle, in about a tenth of a second; a longer list is not readable."""
RETRY_DELAYS_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class ControlLoop:
    """The control thread; `run_once` is one round of it, for tests to call. `routes`: the configured routes
    with the settings to publish."""

    def __init__(
        self,
        *,
        identity: Identity,
        leadership: Leadership,
        observer: Observer,
        executor: Executor,
        paths: Paths,
        routes: Callable[[Switches], Mapping[Route, RouteSettings]],
        clock: Clock,
        metrics: ControlMetrics,
    ) -> None:
        self._identity = identity
        self._leadership = leadership
        self._observer = observer
        self._executor = executor
        self._paths = paths
        self._routes = routes
        self._clock = clock
        self._metrics = metrics
        self._begun_epoch: int | None = None
        self._leads_since_s = clock.monotonic_s()
        self._recorded: Snapshot | None = None
        self._indexer = FleetIndexer()
        self._invariants = InvariantWatch()
        self._isolated: tuple[str, ...] = ()
        self._wake_at_s: float | None = None
        self._attempt_at_s = clock.monotonic_s()
        self._backoff = Backoff(RETRY_DELAYS_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control loop", daemon=True)
        self.failure: PermanentError | None = None
        """The error that ended the loop."""
        self.last_cycle_at_s = clock.monotonic_s()

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def session_changed(self, state: SessionState) -> None:
        """Count the states of the session. For `Coordination.on_session`; also to be called with the
        first state."""
        self._metrics.session_connected.set(state is SessionState.CONNECTED)
        if state is SessionState.LOST:
            self._metrics.sessions_lost.inc()
        if state is not SessionState.CONNECTED:
            self._metrics.leading.set(0)
        self._observer.wake()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop after the present round and resign, so that another leader can be elected at once."""
        self._stopping.set()
        self._observer.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        try:
            self._leadership.resign()
        except Unavailable:
            log.debug("not resigned: the leader node ends with the session")

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.is_set():
            if self._backoff.failures:
                self._stopping.wait(wait_s)
            else:
                self._observer.wait(wait_s)
            try:
                wait_s = 0.0 if self._stopping.is_set() else self.run_once()
            except PermanentError as error:
                self.failure = error
                return

    def run_once(self) -> float:
        """One round; returns how long to wait if nothing changes. Raises PermanentError."""
        try:
            wait_s = self._round()
            self._backoff = self._backoff.reset()
        except PermanentError:
            raise
        except Unavailable as error:
            wait_s = self._back_off()
            log.warning("ZooKeeper unavailable, retrying in %g s: %s", wait_s, error)
        except Exception:
            self._metrics.cycles.labels("failed").inc()
            self._indexer = FleetIndexer()  # the other one may have stopped halfway
            wait_s = self._back_off()
            log.exception("control cycle failed, retrying in %g s", wait_s)
        self.last_cycle_at_s = self._clock.monotonic_s()
        return wait_s

    def _back_off(self) -> float:
        self._observer.force_plan()
        self._backoff = self._backoff.failed()
        return self._backoff.delay_s

    def _round(self) -> float:
        self._observer.verify()
        if not self._identity.claim():
            self._metrics.leading.set(0)
            return SETTLE_INTERVAL_S
        epoch = self._elect()
        self._metrics.leading.set(0 if epoch is None else 1)
        if epoch is None:
            self._metrics.braked.set(0)
            prepared = self._observer.prepared()
            if prepared is not None:
                self._indexer.of(prepared)
            return MAX_IDLE_S
        if not self._observer.is_ready():
            return SETTLE_INTERVAL_S
        now_s = self._clock.monotonic_s()
        if self._observer.has_changed() or self._is_due(now_s):
            return self._cycle(epoch, now_s)
        return self._wait_s(now_s)

    def _elect(self) -> int | None:
        """The epoch to lead with, after an election if the leader node is vacant.

        The tree cache may have missed its end: from time to time it is attempted in any case.
        """
        epoch, now_s = self._leadership.epoch(), self._clock.monotonic_s()
        due = now_s >= self._attempt_at_s
        if epoch is None and (due or self._leadership.is_vacant(self._observer.nodes())):
            self._attempt_at_s = now_s + MAX_IDLE_S
            self._leadership.attempt()
            epoch = self._leadership.epoch()
        if epoch is not None and epoch != self._begun_epoch:
            self._begin(epoch)
        return epoch

    def _begin(self, epoch: int) -> None:
        self._metrics.epoch.set(epoch)
        self._observer.begin_leadership()
        self._recorded = None
        self._leads_since_s = self._clock.monotonic_s()
        self._begun_epoch = epoch

    def _publishes_routes(
        self, routes: Mapping[Route, RouteSettings], snapshot: Snapshot, epoch: int
    ) -> bool:
        """Publish the settings of routes that differ; True if there were any. Those that are published stay
        while the switches, which have their changes, cannot be read."""
        nodes = self._observer.nodes()
        published = False
        for route, settings in sorted(routes.items()):
            path, data = self._paths.route(route), encode_route(settings)
            stored = nodes.get(path)
            is_kept = stored is not None and not snapshot.are_switches_readable
            if is_kept or (stored is not None and stored.data == data):
                continue
            outcome = self._executor.write([create_or_set(path, data, version_of(stored))], epoch)
            if outcome is WriteOutcome.DEPOSED:
                self._leadership.depose()
            if outcome is not WriteOutcome.DONE:
                raise Unavailable(f"{path} was not written: {outcome}")
            log.info("route %s: settings published", route)
            published = True
        return published

    def _cycle(self, epoch: int, began_s: float) -> float:
        snapshot = self._observer.snapshot()
        self._metrics.unreadable_nodes.set(len(snapshot.unreadable_nodes))
        routes = self._routes(snapshot.switches)
        if snapshot.epoch == epoch and self._publishes_routes(routes, snapshot, epoch):
            return SETTLE_INTERVAL_S
        if self._withdraws_routes(routes, snapshot, epoch, began_s):
            return SETTLE_INTERVAL_S
        index = self._indexer.of(snapshot)
        violations = self._invariants.violations(snapshot, index)
        self._metrics.invariant_violations.inc(len(violations))
        _log_violations(violations)
        around = vetted_plan(
            snapshot,
            plan=lambda seen: plan(seen, began_s, self._indexer),
            paths=self._paths,
            assigned=index.assigned,
        )
        self._report(around.isolated, epoch)
        decided = around.plan
        self._observer.remember(decided.pending_releases, decided.load_review_at_s)
        times = (decided.wake_at_s, self._next_withdrawal_s(routes, snapshot, began_s))
        self._wake_at_s = min((at_s for at_s in times if at_s is not None), default=None)
        self._metrics.waiting_partitions.set(len(decided.waiting))
        self._metrics.braked.set(snapshot.is_braked)
        outcome = self._execute(around.vetted, snapshot, epoch)
        if outcome in (PlanOutcome.DONE, PlanOutcome.QUIET):
            outcome = self._record(around.vetted.steps, snapshot, epoch, outcome)
        took_s = self._clock.monotonic_s() - began_s
        self._metrics.cycles.labels(outcome.value).inc()
        self._metrics.cycle_seconds.observe(took_s)
        if decided.steps:
            why = "; ".join(decided.reasons) or "fences removed"
            log.info("%s: %s (%d steps, %.0f ms)", outcome, why, len(decided.steps), took_s * 1_000)
        if outcome is PlanOutcome.DEPOSED:
            self._leadership.depose()
        return self._wait_s(began_s) if outcome is PlanOutcome.QUIET else SETTLE_INTERVAL_S

    def _withdraws_routes(
        self, routes: Collection[Route], snapshot: Snapshot, epoch: int, now_s: float
    ) -> bool:
        """Withdraw routes that are not configured, if it is time to; True if there were any."""
        if now_s < self._leads_since_s + WITHDRAW_AFTER_S or snapshot.epoch != epoch:
            return False
        found = withdrawals(snapshot, routes, self._paths)
        if not found:
            return False
        outcome = self._executor.write(list(found.values()), epoch)
        if outcome is WriteOutcome.DEPOSED:
            self._leadership.depose()
        log.warning("not configured, withdrawn: routes %s: %s", ", ".join(map(str, found)), outcome)
        return True

    def _next_withdrawal_s(
        self, routes: Collection[Route], snapshot: Snapshot, now_s: float
    ) -> float | None:
        at_s = self._leads_since_s + WITHDRAW_AFTER_S
        return at_s if now_s < at_s and unknown_routes(snapshot, routes) else None

    def _report(self, isolated: Sequence[Isolated], epoch: int) -> None:
        """Count what the plan leaves alone, log it and write it for REST when it changes."""
        self._metrics.isolated.set(
            sum(len(subject.topics) + len(subject.workers) for subject in isolated)
        )
        self._metrics.invariant_violations.inc(sum(subject.violations for subject in isolated))
        texts = tuple(map(str, isolated))
        if texts != self._isolated:
            _log_isolated(texts)
        self._isolated = texts
        path, shown = self._paths.isolated, subjects(isolated)
        stored, data = self._observer.nodes().get(path), encode_isolated(shown)
        if (stored.data == data) if stored is not None else not shown:
            return
        written = self._executor.write([create_or_set(path, data, version_of(stored))], epoch)
        if written is not WriteOutcome.DONE:  # the next cycle tries again
            log.warning("%s was not written: %s", path, written)

    def _execute(self, vetted: VettedSteps, snapshot: Snapshot, epoch: int) -> PlanOutcome:
        if snapshot.epoch != epoch:
            return PlanOutcome.DEPOSED
        return self._executor.execute(vetted, epoch)

    def _record(
        self, done: Sequence[Step], snapshot: Snapshot, epoch: int, outcome: PlanOutcome
    ) -> PlanOutcome:
        """Write what happened and what was decided to the log and to the history."""
        events = fleet_events(self._recorded, snapshot, done, leader=self._leadership.leader)
        for event in events[:MAX_EVENT_LINES]:
            log.info("%s", log_line(event))
        if len(events) > MAX_EVENT_LINES:
            log.info("and %d more events", len(events) - MAX_EVENT_LINES)
        blocks = [
            create_or_set(self._paths.history_block(number), encode_history(block), version)
            for number, block, version in blocks_to_write(snapshot, events)
        ]
        written = self._executor.write(blocks, epoch) if blocks else WriteOutcome.DONE
        if written is not WriteOutcome.DONE:
            log.warning("events above are missing in the history: %s", written)
            return PlanOutcome(written)
        self._recorded = snapshot
        for cause in move_causes(snapshot, done):
            self._metrics.moves.labels(cause.value).inc()
        return outcome

    def _is_due(self, now_s: float) -> bool:
        return self._wake_at_s is not None and now_s >= self._wake_at_s

    def _wait_s(self, now_s: float) -> float:
        if self._wake_at_s is None:
            return MAX_IDLE_S
        return min(MAX_IDLE_S, max(0.0, self._wake_at_s - now_s))


def _log_isolated(texts: Sequence[str]) -> None:
    for text in texts[:MAX_EVENT_LINES]:
        log.error("step refused, the plan leaves alone %s", text)
    if not texts:
        log.info("all steps are admitted again")


def _log_violations(found: Sequence[Violation]) -> None:
    """Log what violates the invariants in the stored state, after a manual write for example; the plan
    may repair it."""
    if found:
        log.error("invariant violated in ZooKeeper (%d in all): %s", len(found), found[0])
