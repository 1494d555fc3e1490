"""Controller process: election, control loop and engines here, REST in a child process.

    main thread ---- REST process (gunicorn, own ZooKeeper session)
        |   watches REST, the progress of the control loop, and signals
        +-- control loop (election, snapshot, plan, writes)
        +-- topic observer (Kafka metadata)
        +-- position renewal (of orphaned partitions)
        +-- position deletion (of topics deleted with their positions)
        +-- position changes (that operators request)
        +-- cutovers
        +-- groups of each route whose offsets are synced
        +-- syncs of settings and access rights of topics, for each route
        +-- heartbeats of each route that has them
        +-- metrics server

gunicorn forks, and a ZooKeeper client that was opened before a fork hangs: so REST is started by exec,
and shares nothing with this process but the listening socket and a pipe.

Start: the ports first, since a port that is taken is a permanent error; then REST, which responds with
503 and the reason while ZooKeeper is unavailable; then ZooKeeper, retried for as long as it takes. Stop:
SIGTERM resigns, so that another leader is elected at once, and exits 0. A control loop that hangs cannot
be recovered from inside: the process exits 1 with one line, and a supervisor restarts it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from prometheus_client import make_wsgi_app

from ureplicator_common._version import __version__
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.live_routes import LiveRoutes, routes_digest
from ureplicator_common.config.roles import ControllerSettings
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination, open_coordination
from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.garbage_collection import collect_seldom
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.kafka.claim_requests import KafkaClaimLog
from ureplicator_common.kafka.client import ClusterClient, open_client
from ureplicator_common.kafka.heartbeat_requests import KafkaHeartbeats
from ureplicator_common.model import Route
from ureplicator_common.pages.certificates import new_context
from ureplicator_common.pages.metrics import FleetRegistry
from ureplicator_common.pages.web import WebServer
from ureplicator_common.stop_flag import StopFlag
from ureplicator_common.znode_contents import LiveController, SyncKind
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.api.access.gate import Gate
from ureplicator_controller.api.rest_process import RestProcess, WsgiConfig, bind
from ureplicator_controller.core.routes import published_settings
from ureplicator_controller.core.state.snapshot import BalanceLimits, Delays
from ureplicator_controller.core.topics.rules import live_rules
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_controller.engines.claims.unused import ClaimRemover
from ureplicator_controller.engines.control_loop import ControlLoop
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.cutover.opening import open_cutovers
from ureplicator_controller.engines.groups.clusters import open_deletion, open_sync
from ureplicator_controller.engines.leader_proof import LeaderProof
from ureplicator_controller.engines.leadership import Identity, Leadership
from ureplicator_controller.engines.observer import Observer
from ureplicator_controller.engines.plan_executor import Executor
from ureplicator_controller.engines.position_changes import PositionChanger
from ureplicator_controller.engines.position_deletion import PositionDeleter
from ureplicator_controller.engines.position_renewal import (
    PositionRenewer,
    RemainsRemover,
    Renewal,
    open_renewal,
)
from ureplicator_controller.engines.syncs.heartbeats import HeartbeatClusters, HeartbeatThread
from ureplicator_controller.engines.syncs.opening import SyncNeeds, open_syncs
from ureplicator_controller.engines.syncs.reports import ReportNeeds
from ureplicator_controller.engines.topic_observer import TopicObserver

log = logging.getLogger(__name__)

POLL_S = 0.2
CONNECT_S = 5.0
STALL_TIMEOUT_S = 60.0
"""A cycle of the control loop takes seconds in the largest fleet. On top of it comes a request to ZooKeeper
without response: it ends with the session timeout, and the cycle with it."""


def run(
    settings: Settings,
    *,
    id: str,
    config: Path,
    overrides: Sequence[str] = (),
    log_json: bool = False,
) -> int:
    """Run controller `id` until a signal stops it; returns the exit code. For the main thread."""
    stopping = StopFlag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    collect_seldom()
    wsgi = WsgiConfig(config=str(config), overrides=tuple(overrides), id=id, log_json=log_json)
    try:
        with ExitStack() as closing:
            Controller(settings, id=id, wsgi=wsgi, stopping=stopping, closing=closing).run()
    except OperatingError as error:
        print(f"ureplicator controller: {error}", file=sys.stderr)
        return 1
    return 0


class Engine(Protocol):
    """A thread of its own."""

    def start(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Control:
    """The control loop, and what other engines need of it."""

    loop: ControlLoop
    proof: LeaderProof


class Controller:
    """Starts everything; what it opens is closed by `closing`, last first."""

    def __init__(
        self,
        settings: Settings,
        *,
        id: str,
        wsgi: WsgiConfig,
        stopping: StopFlag,
        closing: ExitStack,
    ) -> None:
        self._settings = settings
        self._routes = LiveRoutes(settings.routes)
        self._id = id
        self._wsgi = wsgi
        self._stopping = stopping
        self._closing = closing
        self._clock = SystemClock()
        self._paths = Paths(settings.fleet)
        self._metrics = ControlMetrics(FleetRegistry(settings.fleet))

    def run(self) -> None:
        """Run until `stopping` is set. Raises OperatingError if the process cannot continue."""
        check_access(self._settings.controller)
        listener = self._closing.enter_context(
            bind(self._settings.controller.host, self._settings.controller.port)
        )
        live = self._live(listener, self._serve_metrics())
        rest = self._start_rest(listener)
        coordination = self._connect(rest)
        if coordination is None:
            return
        control = self._control(coordination, live)
        for engine in self._engines(coordination, control.proof):
            engine.start()
            self._closing.callback(engine.close)
        self._closing.callback(control.loop.close)  # closed first: another leader can be elected
        control.loop.start()
        while not self._stopping.wait(POLL_S):
            rest.watch()
            self._check_stalled(control.loop)
        log.info("stopping on a signal")

    def _serve_metrics(self) -> int:
        """Serve the metrics; returns the port."""
        options = self._settings.controller
        server = WebServer(
            host=options.host,
            port=options.metrics_port,
            role="controller",
            pages=self._settings.pages,
        )
        self._closing.callback(server.close)
        server.show({"/metrics": make_wsgi_app(self._metrics.registry)})
        return server.port

    def _live(self, listener: socket.socket, metrics_port: int) -> LiveController:
        return LiveController(
            id=self._id,
            host=self._settings.controller.address,
            port=listener.getsockname()[1],
            metrics_port=metrics_port,
            pid=os.getpid(),
            version=__version__,
            routes_digest=routes_digest(self._settings.routes),
        )

    def _start_rest(self, listener: socket.socket) -> RestProcess:
        rest = RestProcess(
            listener=listener,
            config=self._wsgi,
            environment=os.environ,
            clock=self._clock,
            tls=self._settings.controller.tls,
        )
        self._closing.callback(rest.close)
        rest.watch()
        host, port = listener.getsockname()[:2]
        scheme = "https" if self._settings.controller.tls.enabled else "http"
        log.info("controller %s: REST at %s://%s:%d", self._id, scheme, host, port)
        return rest

    def _connect(self, rest: RestProcess) -> Coordination | None:
        """Connect, however long it takes; None: stopped meanwhile."""
        coordination = open_coordination(self._settings.zookeeper)
        self._closing.callback(coordination.close)
        while not self._stopping.is_set():
            rest.watch()
            try:
                coordination.connect(CONNECT_S)
                for path in self._paths.skeleton:
                    coordination.ensure(path)
                check_tree(coordination, self._paths.root)
                return coordination
            except Unavailable as error:
                log.warning("waiting for ZooKeeper: %s", error)
                self._stopping.wait(POLL_S)
        return None

    def _control(self, coordination: Coordination, live: LiveController) -> _Control:
        observer = self._observer(coordination)
        leadership = Leadership(coordination, paths=self._paths, controller=live)
        loop = ControlLoop(
            identity=Identity(
                coordination,
                paths=self._paths,
                controller=live,
                clock=self._clock,
                session_timeout_s=self._settings.zookeeper.session_timeout_s,
            ),
            leadership=leadership,
            observer=observer,
            executor=Executor(
                coordination, paths=self._paths, observer=observer, metrics=self._metrics
            ),
            paths=self._paths,
            routes=partial(published_settings, self._routes),
            clock=self._clock,
            metrics=self._metrics,
        )
        coordination.on_session(loop.session_changed)
        loop.session_changed(coordination.state())
        return _Control(loop=loop, proof=LeaderProof(leadership=leadership, observer=observer))

    def _observer(self, coordination: Coordination) -> Observer:
        limits = self._settings.controller
        return Observer(
            coordination,
            fleet=self._settings.fleet,
            clock=self._clock,
            delays=Delays(
                rebalance_s=limits.rebalance_delay_s,
                join_s=limits.join_delay_s,
                handover_s=limits.handover_timeout_s,
            ),
            limits=BalanceLimits.of(limits),
        )

    def _engines(self, coordination: Coordination, proof: LeaderProof) -> Sequence[Engine]:
        """Engines that run in every controller and act only while this one leads."""
        topics = TopicObserver(
            rules=partial(live_rules, self._routes, fleet=self._settings.fleet),
            admins=self._admin,
            claims=FleetClaims(
                fleet=self._settings.fleet,
                routes={config.route: config for config in self._settings.routes},
                logs=self._claim_log,
                clock=self._clock,
            ),
            seen=proof.latest_of_epoch,
            metrics=self._metrics,
            coordination=coordination,
            paths=self._paths,
            clock=self._clock,
        )
        renewer = PositionRenewer(
            renewals=self._renewals(),
            orphaned=proof.orphaned,
            remains=RemainsRemover(
                coordination=coordination,
                paths=self._paths,
                seen=proof.latest,
                proof=proof.proven,
            ),
            leads=proof.leads,
        )
        deleter = PositionDeleter(
            coordination=coordination,
            paths=self._paths,
            renewals=self._renewals(),
            seen=proof.latest,
            proof=proof.proven,
        )
        changer = PositionChanger(
            coordination=coordination,
            paths=self._paths,
            renewals=self._renewals(),
            sources=self._sources(),
            seen=proof.latest,
            proof=proof.proven,
        )
        needs = SyncNeeds(
            topics=self._admin,
            acls=self._acl_admin,
            claims=self._claim_log,
            fleet=self._settings.fleet,
            routes=[config.route for config in self._settings.routes],
            coordination=coordination,
            paths=self._paths,
            seen=proof.latest_of_epoch,
            clock=self._clock,
            metrics=self._metrics,
        )
        unused = ClaimRemover(
            coordination, paths=self._paths, seen=proof.latest_of_epoch, metrics=self._metrics
        )
        syncs = *self._group_syncs(proof, needs.reports), *self._topic_syncs(needs)
        heartbeats = self._heartbeats(proof, needs.reports)
        cutovers = open_cutovers(
            self._settings,
            coordination,
            connect=self._client,
            proof=proof,
            clock=self._clock,
            metrics=self._metrics,
        )
        return topics, renewer, deleter, changer, unused, cutovers, *syncs, *heartbeats

    def _admin(self, cluster: str) -> ConfluentTopicAdmin:
        return ConfluentTopicAdmin(self._settings.cluster(cluster), name=cluster)

    def _acl_admin(self, cluster: str) -> KafkaAclAdmin:
        return KafkaAclAdmin(self._client(cluster), name=cluster)

    def _claim_log(self, cluster: str) -> KafkaClaimLog:
        return KafkaClaimLog(self._client(cluster))

    def _client(self, cluster: str) -> ClusterClient:
        return open_client(cluster, self._settings.cluster(cluster))

    def _topic_syncs(self, needs: SyncNeeds) -> Iterator[Engine]:
        for config in self._settings.routes:
            yield from open_syncs(config, needs)

    def _group_syncs(self, proof: LeaderProof, reports: ReportNeeds) -> Iterator[Engine]:
        for config in self._settings.routes:
            if config.sync_group_offsets.enabled:
                yield open_sync(
                    config=config,
                    fleet=self._settings.fleet,
                    source=self._client(config.source),
                    target=self._client(config.target),
                    seen=proof.latest_of_epoch,
                    clock=self._clock,
                    metrics=self._metrics,
                    reports=reports.of(SyncKind.GROUPS, config.route),
                    deletion=partial(open_deletion, config, reports),
                )

    def _heartbeats(self, proof: LeaderProof, reports: ReportNeeds) -> Iterator[Engine]:
        for config in self._settings.routes:
            if config.heartbeats.enabled:
                yield HeartbeatThread(
                    fleet=self._settings.fleet,
                    config=config,
                    clusters=HeartbeatClusters(
                        admin=partial(self._admin, config.source),
                        source=partial(self._beats, config.source),
                        target=partial(self._beats, config.target),
                    ),
                    seen=proof.latest_of_epoch,
                    clock=self._clock,
                    metrics=self._metrics,
                    reports=reports.of(SyncKind.HEARTBEATS, config.route),
                )

    def _beats(self, cluster: str) -> KafkaHeartbeats:
        return KafkaHeartbeats(self._client(cluster))

    def _renewals(self) -> Mapping[Route, Renewal]:
        """Clients for one thread: they are not shared."""
        return {
            config.route: open_renewal(
                fleet=self._settings.fleet,
                route=config.route,
                client=self._client(config.target),
            )
            for config in self._settings.routes
        }

    def _sources(self) -> Mapping[Route, ClusterClient]:
        return {config.route: self._client(config.source) for config in self._settings.routes}

    def _check_stalled(self, control_loop: ControlLoop) -> None:
        if control_loop.failure is not None:
            raise control_loop.failure
        silent_s = self._clock.monotonic_s() - control_loop.last_cycle_at_s
        limit_s = STALL_TIMEOUT_S + self._settings.zookeeper.session_timeout_s
        if not control_loop.is_alive() or silent_s > limit_s:
            raise PermanentError(f"the control loop has made no progress for {silent_s:.0f} s")


def check_access(controller: ControllerSettings) -> None:
    """Say that REST has no login. Raises ConfigurationError: tokens and certificates that cannot be used
    end this process rather than, again and again, its child."""
    if controller.tls.enabled:
        new_context(controller.tls)
    if not Gate(controller, clock=SystemClock()).is_closed:
        log.warning("REST has no login (controller.access.mode: %s)", controller.access.mode)


def check_tree(coordination: ZooKeeperCoordination, root: str) -> None:
    """Say that everyone may change the fleet's nodes."""
    if coordination.is_open(root):
        log.warning(
            "everyone who reaches ZooKeeper may change %s: set zookeeper.digest_file, and run"
            " 'ureplicator zookeeper secure' once",
            root,
        )
