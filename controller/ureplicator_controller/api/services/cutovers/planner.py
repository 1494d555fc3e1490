"""Plans of cutovers: patterns are resolved, and everything that could go wrong is read from both clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.clock import Clock
from ureplicator_common.config.clusters import ClusterSettings
from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.cutovers import AclChange, CutoverPlan, FenceKind, Turn
from ureplicator_common.kafka.security.settings import PasswordLogin, parse
from ureplicator_common.model import Route, TopicKey
from ureplicator_controller.api.http.problems import bad_request, conflict
from ureplicator_controller.api.services.audit_standings import Standings
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.cutovers.rights import RightsReader
from ureplicator_controller.api.services.cutovers.writers import WriterReader
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.groups import GroupService
from ureplicator_controller.core.cutover.checks.groups import MOVABLE, group_facts
from ureplicator_controller.core.cutover.facts import Facts, GroupFacts, PlanFinding
from ureplicator_controller.core.cutover.findings import findings
from ureplicator_controller.core.cutover.plan import (
    Matched,
    UnusablePattern,
    identified,
    matched_topics,
)
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.configs import TopicDrift
from ureplicator_controller.core.syncs.topics import SyncedTopic, synced_topics
from ureplicator_controller.engines.cutover.program import FenceProgramMissing, find_program
from ureplicator_controller.engines.syncs.configs import compare_topics, config_rules


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with its id, and what is found of it."""

    plan: CutoverPlan
    findings: Sequence[PlanFinding]


class CutoverPlanner:
    """Every call may raise Problem, Unavailable and ClusterUnavailable. `clusters`: by name."""

    def __init__(
        self,
        *,
        live: LiveRoutes,
        fleet: FleetCache,
        clusters: Mapping[str, ClusterTopics],
        standings: Standings,
        groups: GroupService,
        rights: RightsReader,
        writers: WriterReader,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._live = live
        self._fleet = fleet
        self._clusters = clusters
        self._standings = standings
        self._groups = groups
        self._rights = rights
        self._writers = writers
        self._clock = clock
        self._settings = settings

    def plan(self, name: str, wanted: CutoverPlan) -> Planned:
        """The plan that this wish comes to now. Topics, groups and rights in the wish do not count."""
        fleet_state = self._fleet.current()
        snapshot, route = fleet_state.snapshot, wanted.route
        configs = self._configs(snapshot)
        if route not in configs:
            raise conflict(
                f"the route {route} is not configured",
                hint="add it to the configuration of all controllers",
            )
        topics = _matched(snapshot, wanted)
        stored = snapshot.cutovers.get(name)
        before = stored.value if stored else None
        turns = before.turns if before else ()
        groups = self._group_facts(configs[route], wanted, topics.names, turns)
        plan, refusal = self._resolved(snapshot, wanted, topics, groups)
        keys = [TopicKey(route, topic) for topic in plan.topics]
        drift, drift_back = self._drift(snapshot, configs, plan)
        facts = Facts(
            name=name,
            plan=plan,
            snapshot=snapshot,
            view=fleet_state.view,
            routes={route: config.settings for route, config in configs.items()},
            unmatched=topics.unmatched,
            drift=drift,
            drift_back=drift_back,
            standings=self._standings.of(fleet_state, keys),
            groups=groups,
            rights_here=self._rights.of(route.source, None),
            rights_there=self._rights.of(route.target, before),
            principal=plan.principal or self._own_principal(route.source),
            own_principals=frozenset({plan.principal, *map(self._own_principal, route)}),
            fence_refusal=refusal,
            writers=self._writers.read(plan, snapshot),
            now_ms=self._clock.wall_ms(),
        )
        return Planned(plan, findings(facts))

    def _configs(self, snapshot: Snapshot) -> Mapping[Route, RouteConfig]:
        live = self._live.of(snapshot.switches.route_settings)
        return {route: found.config for route, found in live.items()}

    def _group_facts(
        self,
        config: RouteConfig,
        wanted: CutoverPlan,
        topics: Sequence[str],
        turns: Sequence[Turn],
    ) -> GroupFacts:
        if not topics:
            return GroupFacts(unmatched=wanted.group_patterns)
        decisions, at_source = self._groups.on_topics(config, frozenset(topics), turns=turns)
        try:
            return group_facts(wanted.group_patterns, decisions, at_source)
        except UnusablePattern as error:
            raise bad_request(str(error), field="groups") from error

    def _resolved(
        self, snapshot: Snapshot, wanted: CutoverPlan, topics: Matched, groups: GroupFacts
    ) -> tuple[CutoverPlan, str]:
        """The plan, and why its fence cannot be raised, or ""."""
        keys = {topic: TopicKey(wanted.route, topic) for topic in topics.names}
        plan = replace(
            wanted,
            topics={topic: snapshot.topics[key].value.partitions for topic, key in keys.items()},
            groups=tuple(each.group for each in groups.chosen if each.state in MOVABLE),
            acls=AclChange(),
        )
        change, refusal = AclChange(), ""
        if plan.fence is FenceKind.ACL and plan.topics:
            change, refusal = self._rights.fence(plan)
        elif plan.fence is FenceKind.COMMAND:
            refusal = _missing_program(self._settings.controller.fence_commands, plan)
        return identified(replace(plan, acls=change)), refusal

    def _own_principal(self, cluster: str) -> str:
        return own_principal(self._settings.clusters[cluster])

    def _drift(
        self, snapshot: Snapshot, configs: Mapping[Route, RouteConfig], plan: CutoverPlan
    ) -> tuple[Sequence[TopicDrift], Sequence[TopicDrift]]:
        """Topics compared with their targets, and as the way back would."""
        route, back = plan.route, Route(plan.route.target, plan.route.source)
        topics = [topic for topic in synced_topics(snapshot, route) if topic.source in plan.topics]
        found = self._compared(topics, configs[route])
        if not plan.way_back or back not in configs:
            return found, ()
        return found, self._compared([_reversed(topic) for topic in topics], configs[back])

    def _compared(self, topics: Sequence[SyncedTopic], config: RouteConfig) -> Sequence[TopicDrift]:
        return compare_topics(
            topics,
            source=self._clusters[config.source].admin(),
            target=self._clusters[config.target].admin(),
            rules=config_rules(config),
        )


def _matched(snapshot: Snapshot, wanted: CutoverPlan) -> Matched:
    try:
        return matched_topics(snapshot, wanted.route, wanted.topic_patterns)
    except UnusablePattern as error:
        raise bad_request(str(error), field="topics") from error


def _missing_program(folder: str, plan: CutoverPlan) -> str:
    try:
        find_program(folder, plan.fence_command)
    except FenceProgramMissing as error:
        return str(error)
    return ""


def own_principal(cluster: ClusterSettings) -> str:
    """Principal under which brokers know the fleet by default; "" where the configuration does not tell."""
    security = parse(cluster.properties)
    if isinstance(security.login, PasswordLogin):
        return f"User:{security.login.username}"
    is_anonymous = security.login is None and not (security.tls and security.tls.certificate)
    return "User:ANONYMOUS" if is_anonymous else ""


def _reversed(topic: SyncedTopic) -> SyncedTopic:
    return SyncedTopic(
        source=topic.target,
        target=topic.source,
        source_id=topic.target_id,
        target_id=topic.source_id,
        is_whole=topic.is_whole,
    )
