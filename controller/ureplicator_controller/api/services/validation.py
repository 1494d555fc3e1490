"""Whitelist compared with the clusters, for `/validation/srcKafka` and metrics alike.

The comparison is about the source; findings at the target are an addition. So without the source there
is no result; without the target only a part is missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Node
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import SyncKind, TopicIntent
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.core.topics.cluster_comparison import (
    ClusterComparison,
    compare_with_clusters,
)
from ureplicator_controller.core.topics.rules import source_deletion
from ureplicator_controller.core.topics.source_deletion import KEEP, Outlooks
from ureplicator_controller.engines.syncs.topic_sync import TopicSyncState
from ureplicator_controller.engines.target_limits import check_limits

LIMITS_TIMEOUT_S = 5.0
"""Time for the settings of all topics on one cluster."""


def compare(
    fleet_state: FleetState,
    route: Route,
    clusters: Mapping[str, ClusterTopics],
    *,
    topics_of: Callable[[ClusterTopics, Sequence[str]], Mapping[str, TopicInfo]],
) -> tuple[ClusterComparison, str]:
    """The comparison for one route, and why the target is left out ("": it is not). `topics_of`: topics of a
    cluster, of which these are compared.

    Raises the error of the source.
    """
    intents = {
        key.topic: stored.value
        for key, stored in fleet_state.snapshot.topics.items()
        if key.route == route
    }
    source = topics_of(clusters[route.source], sorted(intents))
    target: Mapping[str, TopicInfo] | None = None
    reason = ""
    try:
        names = {intent.target_topic for topic, intent in intents.items()}
        target = topics_of(clusters[route.target], sorted(names))
    except OperatingError as error:
        reason = f"{route.target}: {error}"
    return compare_with_clusters(intents, source, target), reason


def compare_with_limits(
    fleet_state: FleetState, route: Route, clusters: Mapping[str, ClusterTopics]
) -> tuple[ClusterComparison, str]:
    """The comparison of `compare`, with the limits for records of the target topics that have no other
    finding.

    It reads the settings of all topics, so metrics do without. The reason is also that of topics whose
    limits were not checked.
    """
    comparison, reason = compare(fleet_state, route, clusters, topics_of=_described)
    if reason:
        return comparison, reason
    targets = {
        key.topic: stored.value.target_topic
        for key, stored in fleet_state.snapshot.topics.items()
        if key.route == route and _has_both_topics(key.topic, stored.value, comparison)
    }
    limits, unchecked = check_limits(
        targets,
        source=clusters[route.source].admin(),
        target=clusters[route.target].admin(),
        timeout_s=LIMITS_TIMEOUT_S,
    )
    found = {topic: "; ".join(texts) for topic, texts in limits.items()}
    return replace(comparison, target_findings={**comparison.target_findings, **found}), unchecked


def outlooks(settings: Settings, fleet_state: FleetState, route: Route) -> Outlooks:
    """Target topics of a route whose source topics are gone, by the policy that is configured here."""
    policies = (source_deletion(config) for config in settings.routes if config.route == route)
    return Outlooks(next(policies, KEEP), fleet_state.snapshot, route)


def with_outlooks(
    comparison: ClusterComparison, settings: Settings, fleet_state: FleetState, route: Route
) -> ClusterComparison:
    """The comparison, with what happens to target topics whose source topics are gone."""
    found = outlooks(settings, fleet_state, route)
    stopped = dict(comparison.stopped)
    for topic, reason in comparison.stopped.items():
        outlook = found.of(fleet_state.snapshot.topics[TopicKey(route, topic)].value)
        if outlook is not None:
            stopped[topic] = f"{reason}; {outlook.text}"
    return replace(comparison, stopped=stopped)


def _described(cluster: ClusterTopics, names: Sequence[str]) -> Mapping[str, TopicInfo]:
    """A list has no topic that the login may not describe; looked up by its name, it has an error."""
    topics = cluster.recent_topics()
    absent = [name for name in names if name not in topics]
    return {**topics, **cluster.admin().find(absent)} if absent else topics


def _has_both_topics(topic: str, intent: TopicIntent, comparison: ClusterComparison) -> bool:
    return (
        intent.state is not TopicState.DELETING
        and topic not in comparison.missing
        and topic not in comparison.source_findings
        and topic not in comparison.target_findings
    )


def harm_conditions(
    nodes: Mapping[str, Node], paths: Paths, routes: Iterable[Route]
) -> Iterator[str]:
    """A sentence for each route with target topics that do harm to records, by the leader's last round."""
    for route in routes:
        node = nodes.get(paths.sync(SyncKind.CONFIGS, route))
        try:
            report = decode_sync(node.data) if node is not None else None
        except UnreadableContent:
            continue  # it is among the unreadable nodes
        count = report.states.get(TopicSyncState.HARMFUL, 0) if report is not None else 0
        if report is not None and count:
            yield (
                f"route {route}: settings of {count} target topics refuse, change or delete records of"
                f" their source topics ({report.error}): see GET /validation/srcKafka"
            )
