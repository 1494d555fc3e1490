"""What is whitelisted beside what the clusters have, for pages and metrics alike.

The answer is about the source; what is wrong at the target is an addition. So a source that is away
means that there is no answer, and a target that is away only that a part is missing, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ureplicator_common.errors import OperatingError
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
    """The difference of one route, and why the target is left out ("": it is not).

    Raises what the source raises.
    """
    intents = {
        key.topic: stored.value
        for key, stored in fleet_state.snapshot.topics.items()
        if key.route == route
    }
    source = clusters[route.source].recent_topics()
    try:
        return compare_with_clusters(intents, source, clusters[route.target].recent_topics()), ""
    except OperatingError as error:
        without_target = replace(compare_with_clusters(intents, source, {}), target_findings={})
        return without_target, f"{route.target}: {error}"
