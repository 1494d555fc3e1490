"""The thread of the cutovers, with all that it needs of its process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ureplicator_common.clock import Clock
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.cutover.clusters import open_clusters
from ureplicator_controller.engines.cutover.program import FolderPrograms
from ureplicator_controller.engines.cutover.thread import CutoverNeeds, CutoverThread
from ureplicator_controller.engines.fenced_writer import FencedWriter
from ureplicator_controller.engines.leader_proof import LeaderProof


def open_cutovers(
    settings: Settings,
    coordination: Coordination,
    *,
    connect: Callable[[str], ClusterClient],
    proof: LeaderProof,
    clock: Clock,
    metrics: ControlMetrics,
) -> CutoverThread:
    """`connect`: a client of a cluster by its name; nothing is connected before a cutover is requested."""
    paths = Paths(settings.fleet)
    return CutoverThread(
        CutoverNeeds(
            fleet=settings.fleet,
            coordination=coordination,
            paths=paths,
            writer=FencedWriter(coordination, paths=paths, metrics=metrics),
            open_clusters=partial(open_clusters, fleet=settings.fleet, connect=connect),
            program=FolderPrograms(settings.controller.fence_commands),
            seen=proof.latest_of_epoch,
            proven=proof.proven,
            clock=clock,
        )
    )
