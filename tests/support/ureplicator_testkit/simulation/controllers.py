"""Controller processes: the real control loop, run step by step, and its records for the judge."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Route, RouteSettings
from ureplicator_common.znode_contents import LiveController
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import BalanceLimits, Delays, Snapshot
from ureplicator_controller.engines.control_loop import (
    MAX_IDLE_S,
    SETTLE_INTERVAL_S,
    ControlLoop,
)
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.leadership import Identity, Leadership
from ureplicator_controller.engines.observer import DEBOUNCE_S, Observer
from ureplicator_controller.engines.plan_executor import Executor
from ureplicator_testkit.simulation.judge import FLEET, PATHS, JudgedStore
from ureplicator_testkit.simulation.kafka import Kafka
from ureplicator_testkit.simulation.kernel import SimulationFailure, World
from ureplicator_testkit.simulation.position_threads import PositionThreads
from ureplicator_testkit.simulation.sessions import SESSION_TIMEOUT_S, SessionProcess

VERIFIED_S = 2 * MAX_IDLE_S
"""Time after which a leader has compared all nodes of these small fleets with the servers."""
CONCURRENT_MOVES = (1, 2, 100)
"""One for each seed in turn. The last one never holds anything back here."""
PLANNED_TWICE = 4
METRICS = ControlMetrics(CollectorRegistry())
"""Shared by all: no test reads them, and creating them costs as much as a hundred turns."""


class _Observer(Observer):
    """Reports every snapshot of a leader to the judge, with its time.

    P  a plan is the same whether it uses what was found of former snapshots or not: judged at each
       PLANNED_TWICE-th snapshot, as it takes two more plans
    """

    controller: Controller
    indexer: FleetIndexer
    count = 0

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        self.controller.observed(seen)
        self.count += 1
        if self.count % PLANNED_TWICE == 0:
            self._plan_twice(seen)
        return seen

    def _plan_twice(self, seen: Snapshot) -> None:
        now_s = self.controller.world.monotonic_s()
        if plan(seen, now_s, self.indexer) != plan(seen, now_s):
            raise SimulationFailure("P", "a plan depends on former snapshots")


class Controller(SessionProcess):
    def __init__(
        self,
        world: World,
        name: str,
        *,
        store: JudgedStore,
        kafkas: Mapping[Route, Kafka],
        routes: Mapping[Route, RouteSettings],
        delays: Delays,
    ) -> None:
        super().__init__(world, name, store)
        self._kafkas = kafkas
        self._routes = routes
        self._position_threads: PositionThreads | None = None
        self._judged = store
        self._delays = delays
        self._blind_until_s = 0.0
        self._loop = self.actor("loop", self._turn)
        self._control_loop: ControlLoop | None = None
        self.leadership: Leadership | None = None
        world.soon(self._loop)

    def _turn(self) -> float | None:
        if self._control_loop is None:
            self._control_loop = self._start()
            return 0.0
        try:
            wait_s = self._control_loop.run_once()
        except PermanentError as error:
            self.kill(str(error))
            return None
        return max(wait_s, SETTLE_INTERVAL_S / 10)

    def _start(self) -> ControlLoop:
        """Start as the daemon does once ZooKeeper is connected."""
        live = LiveController(id=self.name)
        limits = BalanceLimits(concurrent_moves=CONCURRENT_MOVES[self.world.seed % 3])
        observer = _Observer(
            self.client, fleet=FLEET, clock=self.world, delays=self._delays, limits=limits
        )
        observer.controller, observer.indexer = self, FleetIndexer()
        self.leadership = Leadership(self.client, paths=PATHS, controller=live)
        self._position_threads = PositionThreads(self, self._kafkas, self.leadership, observer)
        control_loop = ControlLoop(
            identity=Identity(
                self.client,
                paths=PATHS,
                controller=live,
                clock=self.world,
                session_timeout_s=SESSION_TIMEOUT_S,
            ),
            leadership=self.leadership,
            observer=observer,
            executor=Executor(self.client, paths=PATHS, observer=observer, metrics=METRICS),
            paths=PATHS,
            routes=lambda _: self._routes,
            clock=self.world,
            metrics=METRICS,
        )
        self.client.on_session(control_loop.session_changed)
        return control_loop

    def died(self) -> None:
        super().died()
        if self._position_threads is not None:
            self._position_threads.close()

    def tree_changed(self) -> None:
        if not self.frozen:
            self.world.wake(self._loop, DEBOUNCE_S)

    def observed(self, seen: Snapshot) -> None:
        now_s = self.world.now_s
        blind = now_s < self._blind_until_s
        self._judged.seen[self] = (now_s, seen, blind)

    def hold_watches(self, for_s: float, *, lost: bool) -> None:
        super().hold_watches(for_s, lost=lost)
        late_s = VERIFIED_S + self._delays.rebalance_s if lost else self._delays.rebalance_s
        self._blind_until_s = max(self._blind_until_s, self.world.now_s + for_s + late_s)
