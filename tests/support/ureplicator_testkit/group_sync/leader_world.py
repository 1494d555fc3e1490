"""The sync of groups of a controller that leads, between two clusters in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry

from ureplicator_common.coordination import Set
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import GoneGroup, Switches, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_gone
from ureplicator_controller.core.groups.decisions import SyncState
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.groups.gone import GoneGroupDeletion
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import GroupSync
from ureplicator_controller.engines.syncs.reports import ReportNeeds
from ureplicator_controller.engines.syncs.thread import SyncThread
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.control.memory_copied import MemoryCopied
from ureplicator_testkit.control.memory_reports import MemoryReports
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups

ROUTE = Route("a", "b")
HERE, OTHER = ("t", 0), ("t", 1)
INTERVAL_S = 5.0
SESSION = SessionId(0)


class LeaderWorld:
    """`epoch`: of this process; None: another one leads. `grace_s`: groups that are gone at the source are
    deleted after it; None: they are kept."""

    def __init__(self, *, include: str = ".*", grace_s: float | None = None) -> None:
        self.source, self.target = MemoryConsumerGroups(), MemoryConsumerGroups()
        self.copied = MemoryCopied()
        self.clock = ManualClock()
        self.epoch: int | None = 0
        intent = TopicIntent(partitions=2, initial_partitions=2, target_topic="t")
        self.snapshot = Snapshot(
            fleet="f",
            epoch=0,
            routes={ROUTE: Stored(RouteSettings(), 0, 0, SESSION)},
            topics={TopicKey(ROUTE, "t"): Stored(intent, 0, 0, SESSION)},
        )
        self.metrics = ControlMetrics(CollectorRegistry())
        clusters = RouteClusters(source=self.source, target=self.target, copied=self.copied)
        self.reports = MemoryReports()
        self.paths = Paths("f")
        self.store = MemoryCoordination(MemoryStore())
        for path in self.paths.skeleton:
            self.store.ensure(path)
        self._clusters, self._include, self._grace_s = clusters, include, grace_s
        self.sync = self.restarted()

    def restarted(self) -> SyncThread:
        """The sync of a process that has just started."""
        sync = GroupSync(
            route=ROUTE,
            survey=Survey(self._clusters, selected=GroupFilter.of([self._include], [])),
            clusters=self._clusters,
            metrics=self.metrics,
            gone=None if self._grace_s is None else self._deletion(self._grace_s),
        )
        return SyncThread(
            route=ROUTE,
            sync=sync,
            seen=lambda: None if self.epoch is None else (self.epoch, self.snapshot),
            interval_s=INTERVAL_S,
            clock=self.clock,
            reports=self.reports,
        )

    def _deletion(self, grace_s: float) -> GoneGroupDeletion:
        return GoneGroupDeletion(
            route=ROUTE,
            grace_s=grace_s,
            source=self.source,
            target=self.target,
            needs=ReportNeeds(
                coordination=self.store, paths=self.paths, clock=self.clock, metrics=self.metrics
            ),
        )

    def freeze(self) -> None:
        self.snapshot = replace(self.snapshot, switches=Switches(frozen=True))

    def gone(self) -> Mapping[str, GoneGroup]:
        """Groups that are noted as gone."""
        node = self.store.get(self.paths.gone_groups(ROUTE))
        return {} if node is None else decode_gone(node.data).groups

    def elect_another(self) -> None:
        """Have another process lead, while this one goes on as if it led."""
        node = self.store.get(self.paths.epoch)
        assert node is not None
        self.store.transact([Set(self.paths.epoch, b"", node.stat.version)])

    def groups(self, state: SyncState) -> float:
        labels = {"route": str(ROUTE), "state": state.value}
        found = self.metrics.registry.get_sample_value("ureplicator_controller_groups", labels)
        return found or 0.0

    def deleted(self) -> float:
        """Groups whose offsets at the target were deleted."""
        name = "ureplicator_controller_groups_deleted_total"
        return self.metrics.registry.get_sample_value(name, {"route": str(ROUTE)}) or 0.0

    def failures(self) -> float:
        name = "ureplicator_controller_group_sync_failures_total"
        return self.metrics.registry.get_sample_value(name, {"route": str(ROUTE)}) or 0.0
