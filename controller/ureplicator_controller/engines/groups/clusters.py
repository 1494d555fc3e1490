"""Connections of the sync of groups to both ends of a route."""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.model import DeletionPolicy, Route, position_group
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.groups.copied import KafkaCopiedReader
from ureplicator_controller.engines.groups.gone import GoneGroupDeletion
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import GroupSync
from ureplicator_controller.engines.syncs.reports import ReportNeeds, Reports
from ureplicator_controller.engines.syncs.thread import Seen, SyncThread


def open_route(
    *, fleet: str, route: Route, source: ClusterClient, target: ClusterClient
) -> RouteClusters:
    """All of it is for one thread; nothing is connected before the first request."""
    return RouteClusters(
        source=KafkaConsumerGroups(source),
        target=KafkaConsumerGroups(target),
        copied=KafkaCopiedReader(
            route=route,
            group=position_group(fleet=fleet, route=route),
            positions=KafkaPositionReader(target),
            logs=KafkaLogReader(target),
            source_logs=KafkaLogReader(source),
            maps=KafkaOffsetMaps(target, map_topic(fleet=fleet, route=route)),
        ),
    )


def open_sync(
    *,
    config: RouteConfig,
    fleet: str,
    source: ClusterClient,
    target: ClusterClient,
    seen: Seen,
    clock: Clock,
    metrics: ControlMetrics,
    reports: Reports,
    deletion: Callable[[RouteClusters], GoneGroupDeletion | None] = lambda clusters: None,
) -> SyncThread:
    """The engine of a route by its configuration. `deletion`: see `open_deletion`."""
    clusters = open_route(fleet=fleet, route=config.route, source=source, target=target)
    groups = config.sync_group_offsets.groups
    return SyncThread(
        route=config.route,
        sync=GroupSync(
            route=config.route,
            survey=Survey(clusters, selected=GroupFilter.of(groups.include, groups.exclude)),
            clusters=clusters,
            metrics=metrics,
            gone=deletion(clusters),
        ),
        seen=seen,
        interval_s=config.sync_group_offsets.interval_s,
        clock=clock,
        reports=reports,
    )


def open_deletion(
    config: RouteConfig, needs: ReportNeeds, clusters: RouteClusters
) -> GoneGroupDeletion | None:
    """None if the route keeps the offsets of groups that are gone at the source."""
    policy = config.sync_group_offsets
    if policy.on_source_deletion is DeletionPolicy.KEEP:
        return None
    return GoneGroupDeletion(
        route=config.route,
        grace_s=policy.source_deletion_grace_s,
        source=clusters.source,
        target=clusters.target,
        needs=needs,
    )
