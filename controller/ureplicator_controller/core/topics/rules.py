"""Topic rules of a route: its configuration, compiled for decisions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.heartbeats import heartbeat_topic, is_heartbeat_topic
from ureplicator_common.kafka.claim_records import CLAIMS_TOPIC
from ureplicator_common.kafka.transactions.probe_topic import is_probe_topic
from ureplicator_common.model import (
    BROKER_DEFAULT_REPLICATION,
    DeletionPolicy,
    GapPolicy,
    Route,
    RouteSettings,
)
from ureplicator_common.offset_map.topic import is_map_topic
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.topics.source_deletion import KEEP, SourceDeletion


@dataclass(frozen=True, slots=True)
class AutoWhitelist:
    """Patterns of source topics to whitelist automatically: full match, exclusion wins.

    Offset maps, probes, heartbeats of other routes and claims of fleets are never matched.
    """

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()
    require_target: bool = False

    def matches(self, topic: str) -> bool:
        if is_map_topic(topic) or is_heartbeat_topic(topic) or is_probe_topic(topic):
            return False
        if topic == CLAIMS_TOPIC:
            return False
        is_included = any(pattern.fullmatch(topic) for pattern in self.include)
        return is_included and not any(pattern.fullmatch(topic) for pattern in self.exclude)


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Rules of one route. `auto` None: topics are whitelisted by hand only. `heartbeat_topic`: whitelisted
    when the source has it, whatever the patterns; "" without heartbeats. `replication_factor`: of target
    topics that are created."""

    route: Route
    settings: RouteSettings
    auto: AutoWhitelist | None = None
    auto_expand: bool = True
    heartbeat_topic: str = ""
    source_deletion: SourceDeletion = KEEP
    replication_factor: int = BROKER_DEFAULT_REPLICATION

    @property
    def adopts_recreated_topics(self) -> bool:
        """True if a recreated source topic is copied without a request of operators."""
        return self.settings.on_gap is not GapPolicy.STOP

    @classmethod
    def of(cls, config: RouteConfig, *, fleet: str) -> TopicRules:
        """Compile the configuration of a route."""
        auto = config.auto_whitelist
        return cls(
            route=config.route,
            settings=config.settings,
            auto=AutoWhitelist(
                include=tuple(re.compile(pattern) for pattern in auto.include),
                exclude=tuple(re.compile(pattern) for pattern in auto.exclude),
                require_target=auto.require_target,
            )
            if auto.enabled
            else None,
            auto_expand=config.auto_expand,
            heartbeat_topic=heartbeat_topic(fleet=fleet, route=config.route)
            if config.heartbeats.enabled
            else "",
            source_deletion=source_deletion(config),
            replication_factor=config.replication_factor,
        )


def live_rules(routes: LiveRoutes, switches: Switches, *, fleet: str) -> list[TopicRules]:
    """Rules of the configured routes, with what operators have changed since."""
    found = routes.of(switches.route_settings).values()
    return [TopicRules.of(live.config, fleet=fleet) for live in found]


def source_deletion(config: RouteConfig) -> SourceDeletion:
    """Policy of a route as it is configured."""
    if config.on_source_deletion is DeletionPolicy.KEEP:
        return KEEP
    return SourceDeletion(config.source_deletion_grace_s)
