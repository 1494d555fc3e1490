"""The threads of a route by its configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka import TopicAdmin
from ureplicator_common.kafka.acls import AclAdmin
from ureplicator_common.kafka.claims import ClaimLog
from ureplicator_common.model import Route
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter
from ureplicator_controller.engines.syncs.acls import AclWork
from ureplicator_controller.engines.syncs.claims import INTERVAL_S, ClaimWork
from ureplicator_controller.engines.syncs.configs import ConfigWork
from ureplicator_controller.engines.syncs.reports import ReportNeeds
from ureplicator_controller.engines.syncs.thread import Seen, SyncThread
from ureplicator_controller.engines.syncs.topic_sync import TopicWorkSync, Work

CHECK_INTERVAL_S = 300.0
"""Time between two rounds that read the settings of all topics and change none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncNeeds:
    """Everything that the threads of all routes share. `topics`, `acls`, `claims`: clients by the
    name of a cluster; `routes`: all that are configured."""

    topics: Callable[[str], TopicAdmin]
    acls: Callable[[str], AclAdmin]
    claims: Callable[[str], ClaimLog]
    fleet: str
    routes: Collection[Route]
    coordination: Coordination
    paths: Paths
    seen: Seen
    clock: Clock
    metrics: ControlMetrics

    @property
    def reports(self) -> ReportNeeds:
        return ReportNeeds(
            coordination=self.coordination,
            paths=self.paths,
            clock=self.clock,
            metrics=self.metrics,
        )


def open_syncs(config: RouteConfig, needs: SyncNeeds) -> Iterator[SyncThread]:
    """Syncs that the route has enabled, and the check of settings that every route has. Nothing is connected
    before this process leads."""
    configs = config.sync_topic_configs
    interval_s = configs.interval_s if configs.enabled else CHECK_INTERVAL_S
    yield _thread(_configs(config, needs), config, needs, interval_s)
    if config.sync_topic_acls.enabled:
        yield _thread(_acls(config, needs), config, needs, config.sync_topic_acls.interval_s)
    if config.claim_targets:
        yield _thread(_claims(config, needs), config, needs, INTERVAL_S)


def _claims(config: RouteConfig, needs: SyncNeeds) -> ClaimWork:
    return ClaimWork(
        fleet=needs.fleet,
        config=config,
        routes=needs.routes,
        source=lambda: needs.claims(config.source),
        target=lambda: needs.claims(config.target),
        clock=needs.clock,
    )


def _configs(config: RouteConfig, needs: SyncNeeds) -> ConfigWork:
    return ConfigWork(
        config=config,
        source=lambda: needs.topics(config.source),
        target=lambda: needs.topics(config.target),
    )


def _acls(config: RouteConfig, needs: SyncNeeds) -> AclWork:
    return AclWork(
        config=config,
        source=lambda: needs.acls(config.source),
        target=lambda: needs.acls(config.target),
        coordination=needs.coordination,
        paths=needs.paths,
        writer=FencedWriter(needs.coordination, paths=needs.paths, metrics=needs.metrics),
    )


def _thread(work: Work, config: RouteConfig, needs: SyncNeeds, interval_s: float) -> SyncThread:
    return SyncThread(
        route=config.route,
        sync=TopicWorkSync(config.route, work, metrics=needs.metrics),
        seen=needs.seen,
        interval_s=interval_s,
        clock=needs.clock,
        reports=needs.reports.of(work.kind, config.route),
    )
