"""All processes of a simulated fleet: started here, and restarted after they end.

T  checked with knowledge of all processes: no worker is given a partition that a live worker, as the
   giving leader sees it, copies and could commit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.model import (
    Partition,
    Route,
    RouteSettings,
    WorkerId,
    WorkerSelection,
)
from ureplicator_common.znodes.workers import decode_known_worker
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_testkit.simulation.controllers import Controller
from ureplicator_testkit.simulation.copiers import Copier
from ureplicator_testkit.simulation.judge import PATHS, ROUTE, TAGGED, JudgedStore
from ureplicator_testkit.simulation.kafka import Kafka
from ureplicator_testkit.simulation.kernel import Process, World
from ureplicator_testkit.simulation.operators import SimulatedRest
from ureplicator_testkit.simulation.sessions import SessionProcess
from ureplicator_testkit.simulation.workers import Worker

DELAYS = Delays(rebalance_s=25.0, join_s=5.0, handover_s=10.0)
TOPICS = {"t": 3, "u": 2}
"""Topics of the first route."""
TAGGED_TOPICS = {"x": 3}
"""Topics of a second one, in one of `TAGGED_PERIOD` seeds: it asks for workers with the tag, which some
have."""
TAGGED_PERIOD = 4
TAG = "bulk"
TAGGED_IDS = ("a", "c")
IDS = ("a", "b", "c")
WRITE_S = 2.0


class SimulatedFleet:
    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance
        self.store = JudgedStore(self.world, DELAYS)
        self.store.reason_not_to_give = self._reason_not_to_give
        self.topics = {ROUTE: TOPICS}
        if self.world.seed % TAGGED_PERIOD == TAGGED_PERIOD - 1:
            self.topics[TAGGED] = TAGGED_TOPICS
        self.kafkas = {
            route: Kafka(self.world, route, topics) for route, topics in self.topics.items()
        }
        self.controllers: dict[str, Controller] = {}
        self.workers: list[Worker] = []
        self.rests: dict[str, SimulatedRest] = {}
        self._ensure_skeleton()
        self._born = 0
        self.settled = False
        """All faults are over."""
        for name in ("c1", "c2"):
            self.start_controller(name)
            self.start_rest(f"rest-{name}")
        for id in IDS[: self.chance.choice((2, 2, 3))]:
            self.start_worker(id)
        self.source = Process(self.world, "source")
        self.world.wake(self.source.actor("producer", self._produce))

    def _ensure_skeleton(self) -> None:
        hand = SessionProcess(self.world, "setup", self.store)
        for path in PATHS.skeleton:
            hand.client.ensure(path)
        for route in self.topics:
            for parent in (PATHS.topics, PATHS.ideal):
                hand.client.ensure(f"{parent}/{route}")
        hand.client.close()

    @property
    def settings(self) -> Mapping[Route, RouteSettings]:
        """Settings of the routes, as in the configuration file."""
        tagged = RouteSettings(workers=WorkerSelection(tags=(TAG,)))
        return {route: tagged if route == TAGGED else RouteSettings() for route in self.topics}

    @property
    def commits(self) -> int:
        return sum(kafka.commits for kafka in self.kafkas.values())

    @property
    def repeats(self) -> int:
        """Records that were copied more than once."""
        return sum(kafka.repeats for kafka in self.kafkas.values())

    # Processes.

    def start_controller(self, name: str) -> None:
        self.controllers[name] = Controller(
            self.world,
            name,
            store=self.store,
            kafkas=self.kafkas,
            routes=self.settings,
            delays=DELAYS,
        )

    def restart_controllers(self) -> None:
        """Start the controllers that ended, as a supervisor does."""
        for name in [name for name, controller in self.controllers.items() if not controller.alive]:
            self.start_controller(name)

    def start_rest(self, name: str) -> None:
        self.rests[name] = SimulatedRest(self.world, name, self.store, self.kafkas)

    def start_worker(self, id: str, slots: int = 0) -> None:
        """`slots`: 0 for any number; with another one than before its share changes."""
        self._born += 1
        slots = slots or self.chance.choice((1, 2))
        name = f"{id}.{self._born}"
        self.world.note(name, "starts with %d slots", slots)
        self.workers.append(
            Worker(
                self.world,
                name,
                id=id,
                slots=slots,
                tags=(TAG,) if id in TAGGED_IDS and TAGGED in self.topics else (),
                store=self.store,
                kafkas=self.kafkas,
            )
        )

    def members(self) -> Iterator[SessionProcess]:
        yield from self.controllers.values()
        yield from self.rests.values()
        yield from self.workers

    def copiers(self) -> Iterator[Copier]:
        """Including those of dead workers."""
        for worker in self.workers:
            yield from worker.copiers.values()

    def _produce(self) -> float:
        for kafka in self.kafkas.values():
            for log in kafka.source.logs.values():
                log.end += self.chance.randrange(4)
        return WRITE_S

    # Checks that need to know the processes.

    def _reason_not_to_give(self, to: WorkerId, partition: Partition, seen: Snapshot) -> str:
        for worker in self.workers:
            session = worker.client._session
            if not worker.alive or seen.sessions.get(worker.id) != session:
                continue
            if not self.store.alive(session) or not self._counts(worker):
                continue
            for copier in worker.copiers.values():
                if copier.alive and copier.copies(partition):
                    return f"{copier.name} copies it"
        return ""

    def _counts(self, worker: Worker) -> bool:
        """True for a worker that is not evicted."""
        known = self.store.node(PATHS.worker_known(worker.id))
        session = worker.client._session
        return known is None or decode_known_worker(known.data).evicted_session != session
