"""All services of one REST process, built from what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ureplicator_common.coordination import Coordination
from ureplicator_controller.api.services.blacklist import BlacklistService
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.node_editor import NodeEditor
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.topic_clusters import TopicClusters
from ureplicator_controller.api.services.topic_import import TopicImporter
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.api.services.workers import WorkerService


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    intents: IntentStore
    topics: TopicService
    importer: TopicImporter
    blacklist: BlacklistService
    workers: WorkerService
    switches: SwitchService


def build_services(
    *,
    coordination: Coordination,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    new_id: Callable[[], str],
) -> Services:
    """`new_id` returns the id of the present request."""
    editor = NodeEditor(coordination=coordination, fleet=fleet, request=new_id)
    nodes = BlacklistNodes(coordination=coordination, paths=fleet.paths)
    topic_clusters = TopicClusters(fleet=fleet, clusters=clusters)
    intents = IntentStore(
        coordination=coordination, fleet=fleet, editor=editor, blacklist=nodes, new_id=new_id
    )
    return Services(
        intents=intents,
        topics=TopicService(
            fleet=fleet, intents=intents, clusters=topic_clusters, blacklist=nodes, new_id=new_id
        ),
        importer=TopicImporter(
            coordination=coordination,
            fleet=fleet,
            intents=intents,
            clusters=topic_clusters,
            blacklist=nodes,
            new_id=new_id,
        ),
        blacklist=BlacklistService(
            fleet=fleet,
            editor=editor,
            intents=intents,
            nodes=nodes,
            new_id=new_id,
        ),
        workers=WorkerService(coordination=coordination, fleet=fleet, editor=editor, new_id=new_id),
        switches=SwitchService(fleet=fleet, editor=editor, new_id=new_id),
    )
