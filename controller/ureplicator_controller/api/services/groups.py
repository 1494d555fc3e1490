"""Consumer groups of a route for people: their state now, translated offsets, and failover.

Everything is read from both clusters when it is requested, by the code that syncs groups (`engines.groups`).
A failover writes by the rules of the sync: never for a group with members at the target, never lower than
the target's offset, never past what is copied. The way back has the same rules, with both clusters changed
over. It is not fenced by an epoch, as it is requested by an operator; the coordinator refuses groups with
members, and what is too old is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.cutovers import Turn
from ureplicator_common.kafka import LogReader
from ureplicator_common.kafka.groups import GroupList
from ureplicator_common.model import DeletionPolicy, Delivery, Route, TopicKey
from ureplicator_common.znode_contents import SyncKind
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.routes import decode_gone
from ureplicator_controller.api.http.models.groups import FailoverBody, TranslateQuery
from ureplicator_controller.api.http.models.routes import shown_sync
from ureplicator_controller.api.http.problems import Problem, bad_request, conflict, not_found
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import (
    not_whitelisted,
    require_partition,
    similar,
)
from ureplicator_controller.core.groups.decisions import (
    CopiedPartition,
    GroupDecision,
    SyncState,
    measured,
    source_offset,
    translated_offset,
)
from ureplicator_controller.core.groups.gone import outlook
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic, route_topics
from ureplicator_controller.core.groups.way_back import reversed_topics
from ureplicator_controller.core.syncs.topics import route_settings
from ureplicator_controller.engines.cutover.era_reader import EraReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_controller.engines.groups.way_back import reversed_clusters
from ureplicator_controller.engines.syncs.thread import MAX_AGE_S

_ALL = GroupFilter.of([".*"], [])
_NO_MAP = "the offset map has no segment for this offset"
_MAP_HINT = (
    "set offset_map: true for the route; ureplicator audit --offset-map adds what was copied before"
)


@dataclass(frozen=True, slots=True)
class _Way:
    """Clusters and topics in the direction in which groups go."""

    config: RouteConfig
    clusters: RouteClusters
    topics: Mapping[str, RouteTopic]
    back: bool = False

    @property
    def origin(self) -> str:
        """Name of the cluster that groups leave."""
        return self.config.target if self.back else self.config.source

    def close(self) -> None:
        self.clusters.close()


class GroupService:
    """Every call may raise Problem, Unavailable and ClusterUnavailable. `clusters` connects to both ends of a
    route, `logs` to a cluster by its name."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        clusters: Callable[[Route], RouteClusters],
        logs: Callable[[str], LogReader],
        clock: Clock,
    ) -> None:
        self._fleet = fleet
        self._clusters = clusters
        self._logs = logs
        self._clock = clock

    def listed(self, config: RouteConfig) -> Sequence[GroupDecision]:
        """Groups with offsets on the route that its settings select."""
        groups = config.sync_group_offsets.groups
        selected = GroupFilter.of(groups.include, groups.exclude)
        with closing(self._clusters(config.route)) as clusters:
            found = _measured(Survey(clusters, selected=selected).read(self._topics(config.route)))
        gone = self._gone(config)
        for decision in found:
            gone.pop(decision.group, None)
        return [
            *(decision for decision in found if decision.partitions or decision.reason),
            *gone.values(),
        ]

    def find(self, config: RouteConfig, group: str) -> GroupDecision:
        with closing(self._clusters(config.route)) as clusters:
            way = _Way(config, clusters, self._topics(config.route))
            found, missing = self._survey(way, [group])
            found = _measured(found)
        if not missing:
            return found[0]
        gone = self._gone(config).get(group)
        if gone is None:
            raise _not_there(way, missing)
        return gone

    def _gone(self, config: RouteConfig) -> dict[str, GroupDecision]:
        """Groups that the source has no more, and whose offsets at the target the leader will delete."""
        policy = config.sync_group_offsets
        if policy.on_source_deletion is DeletionPolicy.KEEP or not policy.enabled:
            return {}
        node = self._fleet.current().nodes.get(self._fleet.paths.gone_groups(config.route))
        try:
            gone = decode_gone(node.data).groups if node is not None else {}
        except UnreadableContent:  # the leader writes it anew
            return {}
        grace_s = policy.source_deletion_grace_s
        return {
            id: GroupDecision(
                group=id, state=SyncState.GONE, reason=outlook(group, grace_s=grace_s)
            )
            for id, group in gone.items()
        }

    def sync(self, config: RouteConfig) -> Mapping[str, object] | None:
        """Last passes of the leader's sync of groups; None if the route has none."""
        if not config.sync_group_offsets.enabled:
            return None
        path = self._fleet.paths.sync(SyncKind.GROUPS, config.route)
        return shown_sync(SyncKind.GROUPS, self._fleet.current().nodes.get(path))

    def fail_over(
        self, config: RouteConfig, wanted: FailoverBody, *, dry_run: bool, back: bool = False
    ) -> Sequence[GroupDecision]:
        """Sync groups once: all of them, or none if one is not there. `dry_run`: write nothing; `back`: from
        the target to the source."""
        wanted.require_one()
        began_s = self._clock.monotonic_s()
        with closing(self._way(config, back=back)) as way:
            if wanted.groups is not None:
                found, missing = self._survey(way, wanted.groups)
                if missing:
                    raise _not_there(way, missing)
            else:
                found = self._on_topics(way, wanted.topics or [])
            if not dry_run:
                found = write(
                    way.clusters.target,
                    found,
                    may_write=lambda: self._clock.monotonic_s() - began_s <= MAX_AGE_S,
                )
            return _measured(found)

    def _way(self, config: RouteConfig, *, back: bool) -> _Way:
        topics = self._topics(config.route)
        if not back:
            return _Way(config, self._clusters(config.route), topics)
        snapshot = self._fleet.current().snapshot
        settings = route_settings(snapshot, config.route, config.settings)
        with ExitStack() as opened:
            clusters = opened.enter_context(closing(self._clusters(config.route)))
            reversed_ = reversed_clusters(
                clusters,
                source_logs=self._logs(config.source),
                exactly_once=settings.delivery is Delivery.EXACTLY_ONCE,
            )
            opened.pop_all()
        return _Way(config, reversed_, reversed_topics(topics), back=True)

    def on_topics(
        self, config: RouteConfig, names: Collection[str], *, turns: Sequence[Turn] = ()
    ) -> tuple[Sequence[GroupDecision], GroupList]:
        """Decisions about all groups of the source with regard to these topics, and the list of groups.
        `turns`: of the topics, where they were copied in the other direction before."""
        chosen = {
            name: topic for name, topic in self._topics(config.route).items() if name in names
        }
        with ExitStack() as opened:
            clusters = opened.enter_context(closing(self._clusters(config.route)))
            if turns:
                back = self._clusters(Route(config.target, config.source))
                opened.enter_context(closing(back))
                copied = EraReader(clusters.copied, back.copied, route=config.route, turns=turns)
                clusters = replace(clusters, copied=copied)
            survey = Survey(clusters, selected=_ALL)
            return survey.read(chosen), survey.source_list

    def translate(self, config: RouteConfig, wanted: TranslateQuery) -> tuple[str, int, int]:
        """Target topic, source offset and target offset."""
        topic = self._topics(config.route).get(wanted.topic)
        if topic is None:
            raise self._not_whitelisted(config.route, wanted.topic)
        topic_key = TopicKey(config.route, wanted.topic)
        intent = self._fleet.current().snapshot.topics[topic_key].value
        require_partition(topic_key, intent, wanted.partition)
        key = (wanted.topic, wanted.partition)
        with closing(self._clusters(config.route)) as clusters:
            copied = clusters.copied.read({wanted.topic: topic}, [key])[key]
        if wanted.to == "target":
            return topic.target, wanted.offset, _to_target(copied, wanted.offset)
        return topic.target, _to_source(copied, wanted.offset), wanted.offset

    def _survey(
        self, way: _Way, names: Sequence[str]
    ) -> tuple[Sequence[GroupDecision], Sequence[str]]:
        """Decisions about these groups, and those that are not there."""
        found = Survey(way.clusters, selected=GroupFilter.named(names)).read(way.topics)
        return found, sorted(set(names) - {decision.group for decision in found})

    def _on_topics(self, way: _Way, names: Collection[str]) -> Sequence[GroupDecision]:
        """`names`: at the source, whatever the way is."""
        at_source = {
            topic.target if way.back else topic.source: topic for topic in way.topics.values()
        }
        for name in names:
            if name not in at_source:
                raise self._not_whitelisted(way.config.route, name)
        chosen = {at_source[name].source: at_source[name] for name in names}
        found = Survey(way.clusters, selected=_ALL).read(chosen)
        return [decision for decision in found if decision.partitions]

    def _not_whitelisted(self, route: Route, name: str) -> Problem:
        like = similar(TopicKey(route, name), self._fleet.current().snapshot.topics.keys())
        return not_whitelisted(f"{name!r} is not whitelisted on {route}{like}")

    def _topics(self, route: Route) -> Mapping[str, RouteTopic]:
        return route_topics(self._fleet.current().snapshot, route)


def _measured(found: Sequence[GroupDecision]) -> Sequence[GroupDecision]:
    """Measure groups while the map can be read."""
    return [measured(decision) for decision in found]


def _not_there(way: _Way, missing: Sequence[str]) -> Problem:
    return not_found(
        f"{way.origin} has no group {', '.join(map(repr, missing))}",
        field="groups",
        hint="GET /groups lists the groups of a route",
    )


def _to_target(copied: CopiedPartition, offset: int) -> int:
    if copied.position is None:
        raise conflict(f"nothing to translate: {copied.reason}", field="partition")
    if offset > copied.position:
        raise bad_request(
            f"offset {offset} is not copied yet: the position is {copied.position}",
            field="offset",
            hint=f"give an offset up to {copied.position}",
        )
    found = translated_offset(copied, offset)
    if found is None:
        raise conflict(_NO_MAP, field="offset", hint=_MAP_HINT)
    return found


def _to_source(copied: CopiedPartition, offset: int) -> int:
    if copied.position is None:
        raise conflict(f"nothing to translate: {copied.reason}", field="partition")
    end = copied.log.end if copied.log is not None else None
    if end is not None and offset > end:
        raise bad_request(
            f"offset {offset} is beyond the end of the target's log, {end}",
            field="offset",
            hint=f"give an offset up to {end}",
        )
    found = source_offset(copied, offset)
    if found is None:
        raise conflict(_NO_MAP, field="offset", hint=_MAP_HINT)
    return found
