"""Controllers run step by step over one store in memory: the real engines without their threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry

from ureplicator_common.clock import Clock
from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Coordination, Create, Set
from ureplicator_common.model import (
    Delivery,
    PartitionState,
    Route,
    RouteSettings,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    CurrentEntry,
    CurrentState,
    LiveController,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import decode_assignment, encode_current, encode_live_worker
from ureplicator_controller.core.routes import published_settings
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_controller.engines.control_loop import ControlLoop
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.leadership import Identity, Leadership
from ureplicator_controller.engines.observer import Observer
from ureplicator_controller.engines.plan_executor import Executor
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

FLEET = "test"
PATHS = Paths(FLEET)
ROUTE = Route("source", "target")
KEY = TopicKey(ROUTE, "t")
SETTINGS = RouteSettings(delivery=Delivery.EXACTLY_ONCE, prefix="copy-")
REBALANCE_S = 20.0


C = TypeVar("C", bound=Coordination)


def config_of(route: Route, **settings: object) -> RouteConfig:
    """A route as a file has it."""
    return RouteConfig.model_validate({"source": route.source, "target": route.target, **settings})


class ManualController(Generic[C]):
    """One controller, run step by step."""

    def __init__(
        self,
        client: C,
        id: str,
        clock: Clock,
        *,
        routes: Sequence[Route] = (ROUTE,),
        file: Sequence[RouteConfig] = (),
    ) -> None:
        """`file`: the routes of its file, else `routes` with the same settings in all controllers."""
        self.client = client
        for path in PATHS.skeleton:
            self.client.ensure(path)
        live = LiveController(id=id)
        configs = [config_of(route, naming={"prefix": SETTINGS.prefix}) for route in routes]
        self.routes = LiveRoutes(file or configs)
        self.metrics = ControlMetrics(CollectorRegistry())
        self.observer = Observer(
            self.client, fleet=FLEET, clock=clock, delays=Delays(rebalance_s=REBALANCE_S, join_s=5)
        )
        self.identity = Identity(
            self.client, paths=PATHS, controller=live, clock=clock, session_timeout_s=10
        )
        self.leadership = Leadership(self.client, paths=PATHS, controller=live)
        self.executor = Executor(
            self.client, paths=PATHS, observer=self.observer, metrics=self.metrics
        )
        self.loop = ControlLoop(
            identity=self.identity,
            leadership=self.leadership,
            observer=self.observer,
            executor=self.executor,
            paths=PATHS,
            routes=partial(published_settings, self.routes),
            clock=clock,
            metrics=self.metrics,
        )

    def run(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.run_once()

    @property
    def leads(self) -> bool:
        return self.leadership.epoch() is not None

    def figure(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"ureplicator_controller_{name}", labels) or 0


class ControllerFleet:
    """The store, two controllers, and a client for everything else."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.one = ManualController(MemoryCoordination(self.store), "one", self.clock)
        self.two = ManualController(MemoryCoordination(self.store), "two", self.clock)
        self.client = MemoryCoordination(self.store)

    def worker(self, id: str, *, slots: int = 2) -> MemoryCoordination:
        client = MemoryCoordination(self.store)
        live = encode_live_worker(LiveWorker(slots=slots))
        client.transact([Create(PATHS.worker_live(WorkerId(id)), live, ephemeral=True)])
        return client

    def topic(self, partitions: int, name: str = "t", *, route: Route = ROUTE) -> None:
        self.client.ensure(f"{PATHS.topics}/{route}")
        data = encode_intent(
            TopicIntent(partitions=partitions, initial_partitions=partitions, target_topic=name)
        )
        self.client.transact([Create(PATHS.topic(TopicKey(route, name)), data)])

    def assignment_of(self, worker: str) -> Assignment:
        node = self.client.get(PATHS.assignment(WorkerId(worker)))
        return decode_assignment(node.data) if node else Assignment()

    def report_online(self, client: MemoryCoordination, worker: str) -> None:
        """Report every assigned partition ONLINE."""
        node = self.client.get(PATHS.assignment(WorkerId(worker)))
        assert node is not None
        assigned = decode_assignment(node.data).entries
        entries = {
            partition: CurrentEntry(PartitionState.ONLINE, entry.owner_epoch)
            for partition, entry in assigned.items()
        }
        path = PATHS.current_state(WorkerId(worker))
        data = encode_current(CurrentState(node.stat.mzxid, entries))
        before = self.client.get(path)
        if before is None:
            client.transact([Create(path, data, ephemeral=True)])
        else:
            client.transact([Set(path, data, before.stat.version)])
