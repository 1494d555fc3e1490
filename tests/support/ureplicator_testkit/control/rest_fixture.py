"""REST on in-memory ZooKeeper and Kafka: a fleet that a test can put into any state, and a client.

To describe the calls for /openapi.json is most of the work of making an application, so it is left
out unless a test asks for it (`described`); requests and responses are validated in both cases. Most of the
rest is the same for each application, and done once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, MappingProxyType
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_openapi3 import APIBlueprint
from flask_openapi3.utils import parse_parameters
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Create, Delete, Node, Operation, Set
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    LiveController,
    LiveWorker,
    PartitionLoad,
    TopicIntent,
)
from ureplicator_common.znodes.fleet import encode_controller
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import decode_intent, encode_ideal, encode_intent
from ureplicator_common.znodes.workers import encode_current, encode_live_worker, encode_loads
from ureplicator_controller.api.app import LAG_CACHE, Dependencies, create_app
from ureplicator_controller.api.http import openapi
from ureplicator_controller.core.spans import Span
from ureplicator_controller.engines.groups.survey import RouteClusters
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.control.memory_copied import MemoryCopied
from ureplicator_testkit.control.memory_principals import MemoryPrincipals
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic
from ureplicator_testkit.kafka.clients import (
    MemoryLogReader,
    MemoryPositionReader,
    MemoryTopicAdmin,
)
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups
from ureplicator_testkit.kafka.memory_writers import MemoryWriters

ONE_ROUTE = ({"source": "source", "target": "target"},)
ROUTE = Route("source", "target")


class MemorySpans:
    """`Spans` that are kept."""

    def __init__(self) -> None:
        self.sent: list[Span] = []

    def send(self, span: Span) -> None:
        self.sent.append(span)


class RestFixture:
    """A source with `orders` (4 partitions) and `quiet` (1), an empty target, no worker."""

    def __init__(
        self,
        routes: tuple[Mapping[str, Any], ...] = ONE_ROUTE,
        *,
        client: type[MemoryCoordination] = MemoryCoordination,
        described: bool = False,
        allowed_hosts: Sequence[str] = (),
        access: Mapping[str, str] = MappingProxyType({}),
        scrape_timeout_s: float = 10.0,
        fleet: str = "test",
    ) -> None:
        names = {route[end] for route in routes for end in ("source", "target")}
        self.settings = Settings.model_validate(
            {
                "fleet": fleet,
                "zookeeper": {"hosts": "z:1"},
                "clusters": {name: {"bootstrap.servers": f"{name}:1"} for name in names},
                "routes": list(routes),
                "controller": {"allowed_hosts": list(allowed_hosts), "access": dict(access)},
            }
        )
        self.clusters = {name: MemoryTopicAdmin() for name in sorted(names)}
        self.principals = {name: MemoryPrincipals() for name in sorted(names)}
        self.acls = {name: MemoryAclAdmin() for name in sorted(names)}
        self.writers = {name: MemoryWriters() for name in sorted(names)}
        self.positions = MemoryPositionReader()
        self.source_groups = MemoryPositionReader()
        """Groups of the cluster `source`; `positions` are of all others."""
        self.logs = {str(route["source"]): MemoryLogReader() for route in routes}
        self.groups = MemoryConsumerGroups()
        """Consumer groups of each route's source; `groups_there`: of its target."""
        self.groups_there = MemoryConsumerGroups()
        self.copied = MemoryCopied()
        self.claims = {name: MemoryClaimTopic(f"{name}-id") for name in self.settings.clusters}
        self.store = MemoryStore()
        self.other_client = MemoryCoordination(self.store)
        self.coordination = client(self.store)
        self.paths = Paths(fleet)
        self.clock = ManualClock()
        for path in self.paths.skeleton:
            self.other_client.ensure(path)
        for name in {str(route["source"]) for route in routes}:
            self.clusters[name].put("orders", 4)
            self.clusters[name].put("quiet", 1)
        self.spans = MemorySpans()
        needs = Dependencies(
            settings=self.settings,
            coordination=self.coordination,
            admins=self.clusters.__getitem__,
            positions=self._positions_of,
            logs=self.logs.__getitem__,
            principals=self.principals.__getitem__,
            acls=self.acls.__getitem__,
            writers=self.writers.__getitem__,
            claims=lambda name: self.claims[name].log(),
            groups=lambda _: RouteClusters(
                source=self.groups, target=self.groups_there, copied=self.copied
            ),
            id="c1",
            clock=self.clock,
            spans=self.spans,
            validate_responses=True,
            scrape_timeout_s=scrape_timeout_s,
        )
        self.app = create_app(needs) if described else _undescribed(needs)
        self.client: FlaskClient = self.app.test_client()

    def _positions_of(self, cluster: str) -> MemoryPositionReader:
        return self.source_groups if cluster == "source" else self.positions

    def close(self) -> None:
        """End the threads that read lag."""
        self.app.extensions[LAG_CACHE].close()

    @property
    def source(self) -> MemoryTopicAdmin:
        return self.clusters["source"]

    @property
    def target(self) -> MemoryTopicAdmin:
        return self.clusters["target"]

    # --- Nodes written by the leader, by workers and by other REST processes

    def put(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Write a node as another client, existing or not."""
        self.other_client.ensure(path.rpartition("/")[0])
        there = self.other_client.get(path)
        operation: Operation = (
            Set(path, data, -1) if there else Create(path, data, ephemeral=ephemeral)
        )
        self.other_client.transact([operation])

    def put_intent(self, topic: str, intent: TopicIntent, *, route: Route = ROUTE) -> None:
        self.put(self.paths.topic(TopicKey(route, topic)), encode_intent(intent))

    def intent(self, topic: str, *, route: Route = ROUTE) -> TopicIntent | None:
        node = self.other_client.get(self.paths.topic(TopicKey(route, topic)))
        return decode_intent(node.data) if node else None

    def remove(self, topic: str, *, route: Route = ROUTE) -> None:
        """Remove a topic as the leader does when no worker holds it any more."""
        self.other_client.transact([Delete(self.paths.topic(TopicKey(route, topic)))])

    def tree(self) -> Mapping[str, Node]:
        """All nodes in ZooKeeper."""
        return self.store.subtree("/")

    def publish(self, settings: RouteSettings, *, route: Route = ROUTE) -> None:
        self.put(self.paths.route(route), encode_route(settings))

    def put_leader(self, id: str = "c2") -> None:
        self.put(self.paths.leader, encode_controller(LiveController(id=id)), ephemeral=True)
        path = self.paths.controller(id)
        self.put(path, encode_controller(LiveController(id=id)), ephemeral=True)

    def add_worker(self, worker: str, *, slots: int = 2, tags: tuple[str, ...] = ()) -> None:
        path = self.paths.worker_live(WorkerId(worker))
        live = LiveWorker(slots=slots, host="h", port=7, version="1", tags=tags)
        self.put(path, encode_live_worker(live), ephemeral=True)

    def place(self, topic: str, owners: Mapping[int, str | None], *, since_ms: int = 5) -> None:
        entries = {
            number: IdealEntry(
                worker=WorkerId(owner) if owner else None,
                owner_epoch=OwnerEpoch(1),
                since_ms=since_ms,
                reason="placed" if owner else "no live worker",
            )
            for number, owner in owners.items()
        }
        path = self.paths.ideal_topic(TopicKey(ROUTE, topic))
        self.put(path, encode_ideal(IdealTopic(entries=entries)))

    def put_states(
        self, worker: str, topic: str, states: Mapping[int, PartitionState], *, reason: str = ""
    ) -> None:
        entries = {
            Partition(ROUTE, topic, number): CurrentEntry(
                state=state, owner_epoch=OwnerEpoch(1), reason=reason
            )
            for number, state in states.items()
        }
        path = self.paths.current_state(WorkerId(worker))
        self.put(path, encode_current(CurrentState(seen_zxid=1, entries=entries)), ephemeral=True)

    def put_loads(self, worker: str, loads: Mapping[Partition, PartitionLoad]) -> None:
        self.put(self.paths.measures.load(WorkerId(worker)), encode_loads(loads), ephemeral=True)

    # --- Calls of an operator

    def call(self, method: str, path: str, **request: Any) -> TestResponse:
        return self.client.open(path, method=method, **request)

    @contextmanager
    def zookeeper_unavailable(self) -> Iterator[None]:
        self.coordination.suspend()
        try:
            yield
        finally:
            self.coordination.restore()


NewRest = Callable[..., RestFixture]
"""The fixture `new_rest`: makes one, and closes it at the end of the test."""


def problem_of(response: TestResponse, status: int) -> dict[str, Any]:
    """The body of a problem, checked for what every problem must have."""
    assert response.status_code == status, response.text
    assert response.content_type == "application/problem+json"
    body = response.get_json(force=True)
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert "\n" not in body["detail"]
    return dict(body)


_compile = Rule.compile
_COMPILED = ("_parts", "_trace", "_converters", "arguments", "_build", "_build_unknown")
_compiled_rules: dict[tuple[str, str], Mapping[str, Any]] = {}
_parameters: dict[CodeType, Any] = {}


class _Undescribed(APIBlueprint):
    """Validates parameters without generating the OpenAPI document."""

    def _collect_openapi_info(self, rule: str, func: Any, **_: Any) -> Any:
        code = inspect.unwrap(func).__code__
        if code not in _parameters:
            _parameters[code] = parse_parameters(func, doc_ui=False)
        return _parameters[code]


def _compile_once(rule: Rule) -> None:
    """Compile a rule for the first application, and take what was compiled for the others."""
    key = rule.rule, str(rule.defaults)
    if key not in _compiled_rules:
        _compile(rule)
        _compiled_rules[key] = {name: getattr(rule, name) for name in _COMPILED}
    vars(rule).update(_compiled_rules[key])


def _undescribed(needs: Dependencies) -> Flask:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "APIBlueprint", _Undescribed)
        patch.setattr(Rule, "compile", _compile_once)
        return create_app(needs)
