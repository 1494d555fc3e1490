"""All services of one REST process, built from what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.coordination import Coordination
from ureplicator_common.model import Route
from ureplicator_controller.api.services.blacklist import BlacklistService
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.node_editor import NodeEditor
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.api.services.topic_batch import TopicBatch
from ureplicator_controller.api.services.topic_clusters import TopicClusters
from ureplicator_controller.api.services.topic_import import TopicImporter
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.api.services.workers import WorkerService
from ureplicator_controller.engines.claims.between_fleets import FleetClaims


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    intents: IntentStore
    topics: TopicService
    importer: TopicImporter
    batch: TopicBatch
    blacklist: BlacklistService
    workers: WorkerService
    switches: SwitchService


def build_services(
    *,
    coordination: Coordination,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    replication: Mapping[Route, int],
    claims: FleetClaims,
    live: LiveRoutes,
    name: str,
    new_id: Callable[[], str],
) -> Services:
    """`replication`: see `TopicClusters`; `name` is that of the fleet; `new_id` returns the id of the present
    request."""
    topic_clusters = TopicClusters(
        fleet=fleet, clusters=clusters, replication=replication, claims=claims
    )
    parts = _Parts(coordination, fleet, topic_clusters, new_id)
    editor, intents = parts.editor(), parts.intents(parts.editor())
    unsettled = parts.intents(parts.editor(settles=False))
    return Services(
        intents=intents,
        topics=parts.topics(intents),
        importer=parts.importer(intents),
        batch=TopicBatch(
            fleet=fleet,
            importer=parts.importer(unsettled),
            topics=parts.topics(unsettled),
            clusters=parts.clusters,
            live=live,
            name=name,
        ),
        blacklist=BlacklistService(
            fleet=fleet, editor=editor, intents=intents, nodes=parts.blacklist, new_id=new_id
        ),
        workers=WorkerService(coordination=coordination, fleet=fleet, editor=editor, new_id=new_id),
        switches=SwitchService(fleet=fleet, editor=editor, new_id=new_id),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that services are built from."""

    coordination: Coordination
    fleet: FleetCache
    clusters: TopicClusters
    new_id: Callable[[], str]

    @property
    def blacklist(self) -> BlacklistNodes:
        return BlacklistNodes(coordination=self.coordination, paths=self.fleet.paths)

    def editor(self, *, settles: bool = True) -> NodeEditor:
        return NodeEditor(
            coordination=self.coordination, fleet=self.fleet, request=self.new_id, settles=settles
        )

    def intents(self, editor: NodeEditor) -> IntentStore:
        return IntentStore(
            coordination=self.coordination,
            fleet=self.fleet,
            editor=editor,
            blacklist=self.blacklist,
            new_id=self.new_id,
        )

    def topics(self, intents: IntentStore) -> TopicService:
        return TopicService(
            fleet=self.fleet,
            intents=intents,
            clusters=self.clusters,
            blacklist=self.blacklist,
            new_id=self.new_id,
        )

    def importer(self, intents: IntentStore) -> TopicImporter:
        return TopicImporter(
            coordination=self.coordination,
            fleet=self.fleet,
            intents=intents,
            clusters=self.clusters,
            blacklist=self.blacklist,
            new_id=self.new_id,
        )
