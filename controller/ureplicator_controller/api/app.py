"""REST, put together from what it needs and nothing else: tests give it the in-memory twins.

Any controller's REST answers anything: it reads ZooKeeper and writes intents there, and the leader,
wherever it is, acts on them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from flask import Flask, Response, request
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka import LogReader, PositionReader, TopicAdmin
from ureplicator_controller.api import dashboard
from ureplicator_controller.api.http import openapi, problems
from ureplicator_controller.api.http.request_ids import RequestIds, is_write
from ureplicator_controller.api.lag import metrics as lag_metrics
from ureplicator_controller.api.lag.cache import LagCache
from ureplicator_controller.api.lag.collector import LagCollector
from ureplicator_controller.api.routes import (
    backup,
    balance,
    blacklist,
    health,
    history,
    instances,
    topics,
    workload,
)
from ureplicator_controller.api.routes import offset as offsets
from ureplicator_controller.api.routes import validation as admin
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.api.services.workers import Wishes
from ureplicator_controller.core.state.snapshot import BalanceLimits

log = logging.getLogger(__name__)

LONGEST_BODY_BYTES = 64 * 1024


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The world of one REST process. `admins`, `positions` and `logs` take a cluster's name.

    `validate_responses`: an answer that is not as its call declares becomes a fault; for tests.
    """

    settings: Settings
    coordination: Coordination
    admins: Callable[[str], TopicAdmin]
    positions: Callable[[str], PositionReader]
    logs: Callable[[str], LogReader]
    id: str = ""
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = _new_id
    validate_responses: bool = False


def create_app(needs: Dependencies) -> Flask:
    """One application; it opens nothing by itself before it is asked something."""
    settings = needs.settings
    app = openapi.new_app(__name__, validate_responses=needs.validate_responses)
    app.config["MAX_CONTENT_LENGTH"] = LONGEST_BODY_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]  # of the default provider
    fleet = FleetCache(needs.coordination, fleet=settings.fleet, clock=needs.clock)
    clusters = _clusters(needs)
    ids = RequestIds(needs.new_id)
    topic_service = TopicService(
        coordination=needs.coordination, fleet=fleet, clusters=clusters, new_id=ids.current
    )
    wishes = Wishes(coordination=needs.coordination, fleet=fleet, new_id=ids.current)
    lag_cache = _lag_cache(needs, fleet)
    registry = CollectorRegistry()
    registry.register(health.FleetMetrics(settings=settings, fleet=fleet, clusters=clusters))
    registry.register(lag_metrics.LagMetrics(lag_cache))
    for blueprint in (
        topics.blueprint(
            settings=settings, fleet=fleet, topic_service=topic_service, lag_cache=lag_cache
        ),
        offsets.blueprint(settings=settings, fleet=fleet, lag_cache=lag_cache),
        blacklist.blueprint(settings=settings, fleet=fleet, topic_service=topic_service),
        balance.blueprint(fleet=fleet, wishes=wishes, limits=_limits(settings)),
        workload.blueprint(settings=settings, fleet=fleet),
        history.blueprint(settings=settings, fleet=fleet),
        backup.blueprint(
            settings=settings, fleet=fleet, topic_service=topic_service, wishes=wishes
        ),
        instances.blueprint(fleet=fleet, wishes=wishes),
        admin.blueprint(settings=settings, fleet=fleet, clusters=clusters),
        health.blueprint(id=needs.id, fleet=fleet, registry=registry),
    ):
        app.register_api(blueprint)
    app.register_blueprint(dashboard.blueprint(settings=settings, id=needs.id))
    problems.register(app)
    health.count_requests(app, registry)
    app.after_request(partial(_log_write, ids))
    app.after_request(ids.tell)
    return app


def _lag_cache(needs: Dependencies, fleet: FleetCache) -> LagCache:
    collector = LagCollector(
        fleet=needs.settings.fleet, positions=needs.positions, logs=needs.logs, clock=needs.clock
    )
    return LagCache(collector, whitelisted=fleet.intents, clock=needs.clock)


def _limits(settings: Settings) -> BalanceLimits:
    return BalanceLimits(
        ratio=settings.controller.balance_ratio, moves=settings.controller.balance_moves
    )


def _clusters(needs: Dependencies) -> Mapping[str, ClusterTopics]:
    return {
        name: ClusterTopics(partial(needs.admins, name), clock=needs.clock)
        for name in needs.settings.clusters
    }


def _log_write(ids: RequestIds, response: Response) -> Response:
    """Who changed what is asked after every incident."""
    if is_write():
        log.info(
            "%s %s from %s: %s (request %s)",
            request.method,
            request.full_path.rstrip("?"),
            request.remote_addr,
            response.status_code,
            ids.current(),
        )
    return response
