"""Operators: the calls behind REST, each in a process that may die or lose its responses.

A  a call that returns (2xx in REST) is durable: the node had the requested value at some time between
   the call and its return. What the leader does with it later is checked at each write (`judge`), and
   at the end by what is copied.

Waiting is virtual: the simulation continues while a call waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Conflict, OutcomeUnknown, Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import (
    BROKER_DEFAULT_REPLICATION,
    Limited,
    Route,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import Switches, TopicIntent
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_common.znodes.topics import decode_intent
from ureplicator_common.znodes.workers import decode_known_worker
from ureplicator_controller.api.http.problems import Problem
from ureplicator_controller.api.services import node_editor
from ureplicator_controller.api.services.assembly import build_services
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_testkit.kafka.claims.memory import claims_of
from ureplicator_testkit.simulation.judge import FLEET, PATHS, ROUTE, JudgedStore
from ureplicator_testkit.simulation.kafka import Kafka, SimulatedAdmin
from ureplicator_testkit.simulation.kernel import Process, SimulationFailure, World
from ureplicator_testkit.simulation.sessions import SessionProcess
from ureplicator_testkit.simulation.waiting import virtual_waiting

Check = Callable[[bytes | None], bool]


class _SimulatedFleetCache(FleetCache):
    """Waits in virtual time."""

    process: Process

    def settle(self, *paths: str, wait: Callable[[float], None] | None = None) -> None:
        super().settle(*paths, wait=wait or partial(self.process.world.sleep, self.process))


class SimulatedRest(SessionProcess):
    """A REST process with its own session; `submit` makes one call at a time."""

    def __init__(
        self, world: World, name: str, store: JudgedStore, kafkas: Mapping[Route, Kafka]
    ) -> None:
        super().__init__(world, name, store)
        self._kafkas = kafkas
        self._judged = store
        self._requests = 0
        self._call: Callable[[], None] | None = None
        self._actor = self.actor("request", self._turn)
        fleet = _SimulatedFleetCache(self.client, fleet=FLEET, clock=world)
        fleet.process = self
        models = [
            (name, model)
            for route, kafka in kafkas.items()
            for name, model in zip(route, (kafka.source, kafka.target), strict=True)
        ]
        self.services = build_services(
            coordination=self.client,
            fleet=fleet,
            clusters={
                name: ClusterTopics(partial(SimulatedAdmin, model=model), clock=world)
                for name, model in models
            },
            replication=dict.fromkeys(kafkas, BROKER_DEFAULT_REPLICATION),
            claims=claims_of(),
            live=LiveRoutes([]),
            name=FLEET,
            new_id=self._new_id,
        )

    def _key(self, topic: str) -> TopicKey:
        """No two routes have a topic of the same name."""
        (route,) = (
            route
            for route, kafka in self._kafkas.items()
            if any(name == topic for name, _ in kafka.source.logs)
        )
        return TopicKey(route, topic)

    def _config(self, topic: str) -> RouteConfig:
        route = self._key(topic).route
        return RouteConfig(source=route.source, target=route.target)

    def _new_id(self) -> str:
        self._requests += 1
        return f"{self.client._session:x}-{self._requests}"

    def submit(self, what: str, path: str, call: Callable[[], object], fulfilled: Check) -> None:
        """Start the call, unless another one is in progress."""
        if self._call is None:
            self._call = lambda: self._make(what, path, call, fulfilled)
            self.world.wake(self._actor)

    def _turn(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()

    def _make(self, what: str, path: str, call: Callable[[], object], fulfilled: Check) -> None:
        started_s = self.world.now_s
        try:
            with virtual_waiting(self, node_editor):
                call()
        except (Problem, Conflict, Unavailable, OutcomeUnknown, OperatingError) as error:
            self.world.note(self.name, "%s: refused: %s", what, error)
            return
        self.world.note(self.name, "%s: done", what)
        if not any(fulfilled(data) for data in self._values_since(path, started_s)):
            raise SimulationFailure(
                "A", f"{what} got a 2xx response, but {path} never had that value"
            )

    def _values_since(self, path: str, started_s: float) -> Iterator[bytes | None]:
        held = self._judged.operator_values.get(path, [])
        for number, (since_s, data) in enumerate(held):
            until_s = held[number + 1][0] if number + 1 < len(held) else self.world.now_s
            if until_s >= started_s and since_s <= self.world.now_s:
                yield data
        if not held:
            yield None

    # The calls.

    def add(self, topic: str, partitions: int) -> None:
        def fulfilled(data: bytes | None) -> bool:
            return data is not None and decode_intent(data).partitions == partitions

        self._submit_topic(
            "add",
            topic,
            lambda: self.services.topics.add(self._config(topic), topic, partitions),
            fulfilled,
        )

    def expand(self, topic: str, partitions: int) -> None:
        def fulfilled(data: bytes | None) -> bool:
            return data is not None and decode_intent(data).partitions >= partitions

        self._submit_topic(
            "expand",
            topic,
            lambda: self.services.topics.expand(self._config(topic), topic, partitions),
            fulfilled,
        )

    def delete(self, topic: str, *, forget: bool) -> None:
        def fulfilled(data: bytes | None) -> bool:
            return data is None or decode_intent(data).state is TopicState.DELETING

        self._submit_topic(
            "delete for good" if forget else "delete",
            topic,
            lambda: self.services.topics.delete(
                self._key(topic),
                is_auto_whitelisted=self._config(topic).auto_whitelist.enabled,
                forget_positions=forget,
            ),
            fulfilled,
        )

    def pause(self, topic: str, *, paused: bool) -> None:
        state = TopicState.PAUSED if paused else TopicState.ACTIVE

        def fulfilled(data: bytes | None) -> bool:
            return data is not None and decode_intent(data).state is state

        def change() -> TopicIntent:
            if paused:
                return self.services.topics.pause(self._config(topic), topic)
            return self.services.topics.resume(self._config(topic), topic, restart=False)

        self._submit_topic("pause" if paused else "resume", topic, change, fulfilled)

    def blacklist(self, topic: str, number: int, *, listed: bool) -> None:
        def fulfilled(data: bytes | None) -> bool:
            return data is not None and (number in decode_intent(data).blacklisted) == listed

        self._submit_topic(
            f"blacklist {number}: {listed}",
            topic,
            lambda: self.services.blacklist.set_partition(
                self._config(topic), topic, number, listed=listed
            ),
            fulfilled,
        )

    def _submit_topic(
        self, what: str, topic: str, call: Callable[[], object], fulfilled: Check
    ) -> None:
        self.submit(f"{what} {topic}", PATHS.topic(self._key(topic)), call, fulfilled)

    def leave(self, id: str, *, leaving: bool) -> None:
        worker, workers = WorkerId(id), self.services.workers

        def fulfilled(data: bytes | None) -> bool:
            return (data is not None and decode_known_worker(data).draining) == leaving

        def call() -> object:
            return (workers.drain if leaving else workers.undrain)(worker)

        what = f"{'drain' if leaving else 'take back'} {id}"
        self.submit(what, PATHS.worker_known(worker), call, fulfilled)

    def switch(self, *, auto_balancing: bool, frozen: bool) -> None:
        def change(now: Switches) -> Switches:
            return replace(now, auto_balancing=auto_balancing, frozen=frozen)

        def fulfilled(data: bytes | None) -> bool:
            now = decode_switches(data) if data else Switches()
            return (now.auto_balancing, now.frozen) == (auto_balancing, frozen)

        what = f"auto-balancing {auto_balancing}, frozen {frozen}"
        self.submit(what, PATHS.settings, lambda: self.services.switches.set(change), fulfilled)

    def unfreeze(self) -> None:
        """Unfreeze the fleet, and confirm the loss of the workers that are lost."""

        def fulfilled(data: bytes | None) -> bool:
            return not (decode_switches(data) if data else Switches()).frozen

        self.submit("unfreeze", PATHS.settings, self.services.switches.unfreeze, fulfilled)

    def pause_route(self, *, paused: bool) -> None:
        def fulfilled(data: bytes | None) -> bool:
            now = decode_switches(data) if data else Switches()
            return (ROUTE in now.paused_routes) == paused

        what = f"{'pause' if paused else 'resume'} the route"
        call = partial(self.services.switches.pause_route, ROUTE, paused=paused)
        self.submit(what, PATHS.settings, call, fulfilled)

    def limit_route(self, rate: int | None) -> None:
        """Set the byte limit of the route, or remove it."""
        limits = {} if rate is None else {Limited.route(ROUTE): rate}

        def fulfilled(data: bytes | None) -> bool:
            return (decode_switches(data) if data else Switches()).limits == limits

        def call() -> object:
            return self.services.switches.set(lambda now: replace(now, limits=limits))

        self.submit(f"limit {rate}", PATHS.settings, call, fulfilled)

    def rebalance(self) -> None:
        requested: list[str] = []

        def fulfilled(data: bytes | None) -> bool:
            return data is not None and decode_switches(data).rebalance_requested in requested

        def call() -> None:
            requested.append(self.services.switches.rebalance())

        self.submit("rebalance", PATHS.settings, call, fulfilled)
