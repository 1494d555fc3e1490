"""The REST application, assembled from its dependencies: tests pass the in-memory ones.

Every controller's REST serves every call: it reads ZooKeeper and writes intents there, and the leader,
wherever it runs, acts on them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from flask import Flask, Response, request
from flask_openapi3 import APIBlueprint, OpenAPI
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka import ClusterUnavailable, LogReader, PositionReader, TopicAdmin
from ureplicator_common.kafka.acls import AclAdmin
from ureplicator_common.kafka.claims import ClaimLog
from ureplicator_common.kafka.principals import PrincipalReader
from ureplicator_common.kafka.transactions.writers import Writers
from ureplicator_common.model import Route
from ureplicator_common.pages.metrics import FleetRegistry
from ureplicator_controller.api import dashboard
from ureplicator_controller.api.access import login, schema
from ureplicator_controller.api.access.gate import Gate, caller
from ureplicator_controller.api.access.roles import check_declared, viewer
from ureplicator_controller.api.http import browsers, openapi, problems
from ureplicator_controller.api.http.load import limit_load
from ureplicator_controller.api.http.request_ids import RequestIds, is_write
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.lag_collection.collector import LagCollector
from ureplicator_controller.api.lag_collection.metrics import LagMetrics
from ureplicator_controller.api.routes import (
    admin,
    audits,
    blacklist,
    claims,
    cutovers,
    events,
    export,
    groups,
    health,
    history,
    import_,
    instances,
    limits,
    noprogress,
    offset,
    overview,
    positions,
    principals,
    rebalance,
    routes,
    tasks,
    timeline,
    topics,
    validation,
)
from ureplicator_controller.api.services.assembly import Services, build_services
from ureplicator_controller.api.services.audit_metrics import AuditMetrics
from ureplicator_controller.api.services.audit_standings import Standings
from ureplicator_controller.api.services.audits import AuditService
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.cutovers.planner import CutoverPlanner
from ureplicator_controller.api.services.cutovers.rights import RightsReader
from ureplicator_controller.api.services.cutovers.service import CutoverService
from ureplicator_controller.api.services.cutovers.writers import WriterReader
from ureplicator_controller.api.services.event_feed import EventFeed
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.groups import GroupService
from ureplicator_controller.api.services.instances import EncodedInstances
from ureplicator_controller.api.services.node_editor import NodeEditor
from ureplicator_controller.api.services.positions import PositionService
from ureplicator_controller.api.services.timeline.metrics import UsageMetrics
from ureplicator_controller.api.services.timeline.sampler import TimelineSampler
from ureplicator_controller.api.services.timeline.store import TimelineStore, TimelineUnavailable
from ureplicator_controller.api.serving.request_end import MAX_BODY_BYTES
from ureplicator_controller.api.serving.streams import FEED
from ureplicator_controller.api.tracing import requests as tracing
from ureplicator_controller.api.tracing.sink import NoSpans, Spans
from ureplicator_controller.core.state.snapshot import BalanceLimits
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_controller.engines.groups.survey import RouteClusters

R = TypeVar("R")

log = logging.getLogger(__name__)

SCRAPE_TIMEOUT_S = 0.1
"""Time for each of three kinds of figures that clusters are asked for: a scrape shows what is known by
then, the next one the rest. Prometheus has a time limit, and metrics are needed most while clusters are
away."""
LAG_CACHE = "lag_cache"
"""Key of the lag cache in `Flask.extensions`: close it to end an application before its process."""
TIMELINE = "timeline"
"""Key of the timeline's sampler in `Flask.extensions`; a thread is to run it."""


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of one REST process. `admins`, `positions`, `logs`, `claims`, `principals`, `acls` and
    `writers` take a cluster's name, `groups` a route.

    `validate_responses`: a response that does not match its model becomes an error; for tests.
    `scrape_timeout_s`: see `SCRAPE_TIMEOUT_S`.
    """

    settings: Settings
    coordination: Coordination
    admins: Callable[[str], TopicAdmin]
    positions: Callable[[str], PositionReader]
    logs: Callable[[str], LogReader]
    groups: Callable[[Route], RouteClusters]
    claims: Callable[[str], ClaimLog]
    principals: Callable[[str], PrincipalReader]
    acls: Callable[[str], AclAdmin]
    writers: Callable[[str], Writers]
    id: str = ""
    clock: Clock = field(default_factory=SystemClock)
    spans: Spans = field(default_factory=NoSpans)
    new_id: Callable[[], str] = _new_id
    validate_responses: bool = False
    scrape_timeout_s: float = SCRAPE_TIMEOUT_S


def create_app(needs: Dependencies) -> Flask:
    """One application; it opens no connection before the first request."""
    settings = needs.settings
    app = openapi.new_app(__name__, validate_responses=needs.validate_responses)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.before_request(browsers.refuse_foreign(settings.controller.allowed_hosts))
    gate = Gate(settings.controller, clock=needs.clock)
    gate.register(app)
    limit_load(app)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider
    fleet = FleetCache(
        needs.coordination,
        fleet=settings.fleet,
        clock=needs.clock,
        limits=BalanceLimits.of(settings.controller),
    )
    clusters = _clusters(needs)
    ids = RequestIds(needs.new_id, caller=caller)
    fleet_claims, live = _fleet_claims(needs), LiveRoutes(settings.routes)
    services = _services(needs, fleet, clusters, ids, fleet_claims, live)
    lag_cache = app.extensions[LAG_CACHE] = _lag_cache(needs, fleet)
    standings = Standings(
        lag_cache=lag_cache, clock=needs.clock, stale_after_s=settings.audit.stale_after_s
    )
    store = _timeline_store(needs)
    registry = _registry(needs, fleet, clusters, lag_cache, standings, store)
    workers = EncodedInstances()
    app.extensions[TIMELINE] = TimelineSampler(
        settings=settings,
        fleet=fleet,
        lag_cache=lag_cache,
        store=store,
        prepare=workers.prepare,
        spans=needs.spans,
        id=needs.id,
        clock=needs.clock,
    )
    app.register_api(timeline.blueprint(settings=settings, store=store, clock=needs.clock))
    for blueprint in _blueprints(
        needs, fleet, clusters, services, lag_cache, registry, workers, live
    ):
        app.register_api(blueprint)
    position_service = _position_service(needs, fleet, services, ids)
    app.register_api(
        positions.blueprint(settings=settings, fleet=fleet, positions=position_service, ids=ids)
    )
    group_service = GroupService(
        fleet=fleet, clusters=needs.groups, logs=needs.logs, clock=needs.clock
    )
    app.register_api(groups.blueprint(settings=settings, groups=group_service))
    app.register_api(_cutovers(needs, fleet, clusters, ids, live, standings, group_service))
    app.register_api(claims.blueprint(settings=settings, claims=fleet_claims))
    app.register_api(_audits(needs, fleet, services, ids, position_service, standings))
    _register_pages(app, needs, fleet=fleet, lag_cache=lag_cache, standings=standings)
    app.register_blueprint(login.blueprint(gate))
    _register_around(app, needs, ids, registry)
    return app


def _register_around(
    app: OpenAPI, needs: Dependencies, ids: RequestIds, registry: CollectorRegistry
) -> None:
    """What is done before and behind each call, when all are there."""
    schema.register(app)
    files: Callable[..., Any] = app.view_functions["dashboard.static"]
    app.view_functions["dashboard.static"] = viewer(lambda **path: files(**path))
    check_declared(app)
    problems.register(app)
    tracing.register(app, spans=needs.spans, ids=ids, caller=caller, clock=needs.clock)
    health.count_requests(app, registry)
    app.after_request(browsers.add_headers)
    app.after_request(partial(_log_write, ids))
    app.after_request(ids.add_header)


def _register_pages(
    app: OpenAPI,
    needs: Dependencies,
    *,
    fleet: FleetCache,
    lag_cache: LagCache,
    standings: Standings,
) -> None:
    """The dashboard, and the calls that are made for it."""
    encoded = overview.EncodedOverview(
        settings=needs.settings, fleet=fleet, lag_cache=lag_cache, find=standings.of
    )
    feed = EventFeed(fleet=fleet, lag_cache=lag_cache, clock=needs.clock)
    app.extensions[FEED] = feed
    app.register_api(overview.blueprint(encoded))
    app.register_api(events.blueprint(feed))
    app.register_blueprint(
        dashboard.blueprint(settings=needs.settings, id=needs.id, overview=encoded.document)
    )


def _registry(
    needs: Dependencies,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    lag_cache: LagCache,
    standings: Standings,
    store: TimelineStore,
) -> CollectorRegistry:
    settings, timeout_s = needs.settings, needs.scrape_timeout_s
    registry = FleetRegistry(settings.fleet)
    for collector in (
        health.FleetMetrics(settings=settings, fleet=fleet, clusters=clusters, timeout_s=timeout_s),
        LagMetrics(lag_cache, timeout_s=timeout_s),
        AuditMetrics(settings=settings, fleet=fleet, standings=standings, timeout_s=timeout_s),
        UsageMetrics(store=store, clock=needs.clock),
    ):
        registry.register(collector)
    return registry


def _services(
    needs: Dependencies,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    ids: RequestIds,
    fleet_claims: FleetClaims,
    live: LiveRoutes,
) -> Services:
    return build_services(
        coordination=needs.coordination,
        fleet=fleet,
        clusters=clusters,
        replication={config.route: config.replication_factor for config in needs.settings.routes},
        claims=fleet_claims,
        live=live,
        name=needs.settings.fleet,
        new_id=ids.reference,
    )


def _fleet_claims(needs: Dependencies) -> FleetClaims:
    return FleetClaims(
        fleet=needs.settings.fleet,
        routes={config.route: config for config in needs.settings.routes},
        logs=needs.claims,
        clock=needs.clock,
    )


def _blueprints(
    needs: Dependencies,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    services: Services,
    lag_cache: LagCache,
    registry: CollectorRegistry,
    workers: EncodedInstances,
    live: LiveRoutes,
) -> Iterable[APIBlueprint]:
    settings = needs.settings
    return (
        topics.blueprint(
            settings=settings,
            live=live,
            fleet=fleet,
            topics=services.topics,
            lag_cache=lag_cache,
        ),
        offset.blueprint(settings=settings, fleet=fleet, lag_cache=lag_cache),
        blacklist.blueprint(settings=settings, fleet=fleet, blacklist=services.blacklist),
        admin.blueprint(settings=settings, fleet=fleet, switches=services.switches),
        limits.blueprint(settings=settings, fleet=fleet, switches=services.switches),
        routes.blueprint(settings=settings, live=live, fleet=fleet, switches=services.switches),
        rebalance.blueprint(
            fleet=fleet, switches=services.switches, limits=BalanceLimits.of(settings.controller)
        ),
        noprogress.blueprint(settings=settings, fleet=fleet),
        history.blueprint(settings=settings, fleet=fleet),
        export.blueprint(fleet=fleet),
        import_.blueprint(
            settings=settings,
            fleet=fleet,
            importer=services.importer,
            batch=services.batch,
            blacklist=services.blacklist,
            workers=services.workers,
            switches=services.switches,
        ),
        instances.blueprint(
            fleet=fleet, workers=services.workers, switches=services.switches, encoded=workers
        ),
        tasks.blueprint(fleet=fleet, workers=services.workers, switches=services.switches),
        validation.blueprint(
            settings=settings, live=live, fleet=fleet, clusters=clusters, lag_cache=lag_cache
        ),
        principals.blueprint(settings=settings, readers=needs.principals),
        health.blueprint(id=needs.id, fleet=fleet, registry=registry),
    )


def _position_service(
    needs: Dependencies, fleet: FleetCache, services: Services, ids: RequestIds
) -> PositionService:
    return PositionService(
        fleet=fleet,
        intents=services.intents,
        positions=needs.positions,
        logs=needs.logs,
        clock=needs.clock,
        new_id=ids.reference,
    )


def _audits(
    needs: Dependencies,
    fleet: FleetCache,
    services: Services,
    ids: RequestIds,
    position_service: PositionService,
    standings: Standings,
) -> APIBlueprint:
    service = AuditService(
        coordination=needs.coordination,
        fleet=fleet,
        editor=NodeEditor(coordination=needs.coordination, fleet=fleet, request=ids.reference),
        intents=services.intents,
        positions=position_service,
        logs=needs.logs,
        clock=needs.clock,
        new_id=ids.current,
    )
    return audits.blueprint(
        settings=needs.settings, fleet=fleet, audits=service, standings=standings
    )


def _cutovers(
    needs: Dependencies,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    ids: RequestIds,
    live: LiveRoutes,
    standings: Standings,
    group_service: GroupService,
) -> APIBlueprint:
    planner = CutoverPlanner(
        live=live,
        fleet=fleet,
        clusters=clusters,
        standings=standings,
        groups=group_service,
        rights=RightsReader(needs.acls),
        writers=WriterReader(needs.writers, clock=needs.clock),
        clock=needs.clock,
        settings=needs.settings,
    )
    service = CutoverService(
        fleet=fleet,
        editor=NodeEditor(coordination=needs.coordination, fleet=fleet, request=ids.reference),
        planner=planner,
        clusters=needs.settings.clusters,
        clock=needs.clock,
        ids=ids,
    )
    return cutovers.blueprint(settings=needs.settings, cutovers=service, clock=needs.clock)


def _timeline_store(needs: Dependencies) -> TimelineStore:
    """The store of the timeline, in memory where the configured file cannot be had: REST must not
    depend on it."""
    folder = needs.settings.controller.timeline.folder
    if not folder:
        return TimelineStore()
    try:
        return TimelineStore(str(Path(folder) / f"{needs.settings.fleet}-{needs.id}.sqlite"))
    except TimelineUnavailable as error:
        log.error("the timeline is kept in memory: %s", error)
        return TimelineStore()


def _lag_cache(needs: Dependencies, fleet: FleetCache) -> LagCache:
    collector = LagCollector(
        fleet=needs.settings.fleet,
        positions=_configured(needs.settings, needs.positions),
        logs=_configured(needs.settings, needs.logs),
        clock=needs.clock,
    )
    return LagCache(collector, whitelisted=fleet.intents, clock=needs.clock)


def _configured(settings: Settings, connect: Callable[[str], R]) -> Callable[[str], R]:
    """Connect to a cluster by its name; one that only the tree names is an operating error."""

    def connected(name: str) -> R:
        if name not in settings.clusters:
            raise ClusterUnavailable(f"cluster {name} is not configured")
        return connect(name)

    return connected


def _clusters(needs: Dependencies) -> Mapping[str, ClusterTopics]:
    return {
        name: ClusterTopics(partial(needs.admins, name), clock=needs.clock)
        for name in needs.settings.clusters
    }


def _log_write(ids: RequestIds, response: Response) -> Response:
    """Log every write with its client: the audit trail of an incident."""
    if is_write():
        log.info(
            "%s %s by %s from %s: %s (request %s)",
            request.method,
            quote(request.full_path.rstrip("?"), safe="/?&=:,%~"),
            caller() or "anyone",
            request.remote_addr,
            response.status_code,
            ids.current(),
        )
    return response
