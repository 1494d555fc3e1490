"""Whitelist compared with the clusters, for `/validation/srcKafka` and metrics alike.

The comparison is about the source; findings at the target are an addition. So without the source there
is no result; without the target only a part is missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.core.topics.cluster_comparison import (
    ClusterComparison,
    compare_with_clusters,
)


def compare(
    fleet_state: FleetState, route: Route, clusters: Mapping[str, ClusterTopics]
) -> tuple[ClusterComparison, str]:
    """The comparison for one route, and why the target is left out ("": it is not).

    Raises the error of the source.
    """
    intents = {
        key.topic: stored.value
        for key, stored in fleet_state.snapshot.topics.items()
        if key.route == route
    }
    source = clusters[route.source].recent_topics()
    target: Mapping[str, TopicInfo] | None = None
    reason = ""
    try:
        target = clusters[route.target].recent_topics()
    except OperatingError as error:
        reason = f"{route.target}: {error}"
    return compare_with_clusters(intents, source, target), reason
