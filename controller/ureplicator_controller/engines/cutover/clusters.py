"""Connections of a cutover to both ends of its route, and what it needs of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.kafka import LogReader, PositionReader
from ureplicator_common.kafka.acl_requests import KafkaAclAdmin
from ureplicator_common.kafka.acls import AclAdmin
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.kafka.transactions.writer_requests import KafkaWriters
from ureplicator_common.kafka.transactions.writers import Writers
from ureplicator_common.model import Route, position_group
from ureplicator_controller.engines.cutover.copy_fence import KafkaCopyFence
from ureplicator_controller.engines.groups.clusters import open_route
from ureplicator_controller.engines.groups.copied import CopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters


class FenceProgram(Protocol):
    """The program of a fence of the kind `command`."""

    def call(self, verb: str, name: str, plan: CutoverPlan) -> None:
        """Call it with `fence`, `open` or `abort`; a successor may call it again. Raises OperatingError."""
        ...


class CopyFence(Protocol):
    """Producers of workers that were lost with partitions of the route."""

    def fence(
        self, partitions: Collection[TopicPartition], ids: Collection[str]
    ) -> tuple[str, ...]:
        """Fence those of target partitions, and the transactional ids by which the workers commit positions;
        what is not fenced, in words. Raises ClusterUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverClusters:
    """Both ends of a route. `back`: what the route in the other direction has copied. They belong to one
    thread."""

    source_logs: LogReader
    target_logs: LogReader
    positions: PositionReader
    copies: CopyFence
    groups: RouteClusters
    back: CopiedReader
    source_writers: Writers
    source_acls: AclAdmin
    target_acls: AclAdmin

    def close(self) -> None:
        for client in (
            self.source_logs,
            self.target_logs,
            self.positions,
            self.groups,
            self.back,
            self.source_writers,
            self.source_acls,
            self.target_acls,
        ):
            client.close()


OpenClusters = Callable[[Route], CutoverClusters]
"""Nothing is connected before the first request."""


def open_clusters(
    route: Route, *, fleet: str, connect: Callable[[str], ClusterClient]
) -> CutoverClusters:
    """`connect`: a client of a cluster by its name."""
    source, target = connect(route.source), connect(route.target)
    back = Route(route.target, route.source)
    positions = KafkaPositionReader(target)
    return CutoverClusters(
        source_logs=KafkaLogReader(source),
        target_logs=KafkaLogReader(target),
        positions=positions,
        copies=KafkaCopyFence(target, positions, group=position_group(fleet=fleet, route=route)),
        groups=open_route(fleet=fleet, route=route, source=source, target=target),
        back=open_route(fleet=fleet, route=back, source=target, target=source).copied,
        source_writers=KafkaWriters(source),
        source_acls=KafkaAclAdmin(source, name=route.source),
        target_acls=KafkaAclAdmin(target, name=route.target),
    )
