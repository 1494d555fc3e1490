"""What the leader's thread sees of the clusters: each request may fail, or be the last one of its process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.errors import OperatingError, TemporaryError
from ureplicator_common.kafka import Extent, PartitionUnavailable, Position
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.kafka.transactions.writers import (
    TopicTransaction,
    TopicTransactions,
    TransactionKind,
)
from ureplicator_common.model import Partition, Route
from ureplicator_controller.core.groups.decisions import CopiedPartition
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.cutover.clusters import CutoverClusters
from ureplicator_controller.engines.groups.survey import RouteClusters
from ureplicator_testkit.cutover_histories.clusters import Cluster
from ureplicator_testkit.cutover_histories.copying import CopyingFleet
from ureplicator_testkit.kafka.memory_writers import MemoryWriters

Point = Callable[[str, bool], Callable[[], None]]
"""Called before a request, with its name and whether it changes something; the result is called after it."""
CHANGES = frozenset({"add", "remove", "commit", "delete_offsets", "call", "fence", "abort"})


class Guarded:
    """Requests to a twin, each between two points."""

    def __init__(self, twin: object, point: Point) -> None:
        self._twin, self._point = twin, point

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._twin, name)
        if name == "close" or not callable(request):
            return request

        def called(*arguments: Any, **named: Any) -> Any:
            done = self._point(name, name in CHANGES)
            result = request(*arguments, **named)
            done()
            return result

        return called


class SimulatedLogs:
    """`LogReader` of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TopicPartition, Extent | PartitionUnavailable]:
        logs = self._cluster.logs
        keys = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
        return {
            key: logs[key].extent if key in logs else PartitionUnavailable(f"{key} is not there")
            for key in keys
        }

    def close(self) -> None: ...


class SimulatedPositions:
    """`PositionReader` and `CopyFence` of a route."""

    def __init__(self, route: Route, fleet: CopyingFleet) -> None:
        self._route, self._fleet = route, fleet

    def read(
        self, _: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TopicPartition, Position]:
        return {
            (topic, number): Position(self._stored(topic, number))
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def fence(
        self, partitions: Collection[TopicPartition], ids: Collection[str]
    ) -> tuple[str, ...]:
        for id in ids:
            self._fleet.ledger.initialise(id)
        for topic, number in partitions:
            self._fleet.fence_data(Partition(self._route, topic, number))
        return ()

    def _stored(self, topic: str, number: int) -> int:
        return self._fleet.copies[Partition(self._route, topic, number)].stored.offset

    def close(self) -> None: ...


class SimulatedCopied:
    """`CopiedReader` of a route."""

    def __init__(self, route: Route, fleet: CopyingFleet) -> None:
        self._route, self._fleet = route, fleet

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        return {key: self._copied(Partition(self._route, *key)) for key in sorted(wanted)}

    def _copied(self, partition: Partition) -> CopiedPartition:
        copies = self._fleet.copies[partition]
        position = copies.stored.offset
        return CopiedPartition(
            target=(partition.topic, partition.number),
            position=position if position >= 0 else None,
            translate=copies.forward,
            translate_back=copies.backward,
            end=copies.stored.end,
            log=self._fleet.log(partition.route.target, partition).extent,
            source_log=self._fleet.log(partition.route.source, partition).extent,
            reason="" if position >= 0 else "nothing was copied yet",
        )

    def close(self) -> None: ...


class SimulatedWriters(MemoryWriters):
    """`Writers` of a cluster. `time`: number of the next event."""

    def __init__(self, cluster: Cluster, time: Callable[[], int]) -> None:
        super().__init__()
        self._cluster, self._time = cluster, time

    def transactions_on(self, topics: Collection[str]) -> TopicTransactions:
        self.transactions = [
            TopicTransaction(TransactionKind.OPEN, number, writer, partitions=frozenset(keys))
            for number, (writer, keys) in enumerate(self._cluster.transactions.items())
        ]
        return super().transactions_on(topics)

    def abort(
        self, transactions: Iterable[TopicTransaction], *, now_ms: int
    ) -> Mapping[TopicTransaction, OperatingError]:
        for one in transactions:
            for key in self._cluster.transactions.get(one.transactional_id, ()):
                log = self._cluster.logs[key]
                log.finish(one.transactional_id, self._time(), commits=False)
        return {}


class Gateway:
    """Program of the fence `command`. `fails`: says whether it does, before or after its work."""

    def __init__(self, clusters: Mapping[str, Cluster], fails: Callable[[], bool]) -> None:
        self._clusters, self._fails = clusters, fails

    def call(self, verb: str, name: str, plan: CutoverPlan) -> None:
        if self._fails():
            raise TemporaryError(f"the program does not begin to {verb} {name}")
        route = plan.route
        closed, open = (route.source, "") if verb == "fence" else ("", route.source)
        if verb == "open":
            open = route.target
        for cluster, is_closed in ((closed, True), (open, False)):
            if cluster:
                self._clusters[cluster].gateway_closed = is_closed
        if self._fails():
            raise TemporaryError(f"the program to {verb} {name} exited with 1")


def guarded_clusters(
    route: Route,
    clusters: Mapping[str, Cluster],
    fleet: CopyingFleet,
    *,
    point: Point,
    time: Callable[[], int],
) -> CutoverClusters:
    source, target = clusters[route.source], clusters[route.target]
    back = Route(route.target, route.source)

    def guarded(twin: object) -> Any:
        return Guarded(twin, point)

    return CutoverClusters(
        source_logs=guarded(SimulatedLogs(source)),
        target_logs=guarded(SimulatedLogs(target)),
        positions=guarded(SimulatedPositions(route, fleet)),
        copies=guarded(SimulatedPositions(route, fleet)),
        groups=RouteClusters(
            source=guarded(source.groups),
            target=guarded(target.groups),
            copied=guarded(SimulatedCopied(route, fleet)),
        ),
        back=guarded(SimulatedCopied(back, fleet)),
        source_writers=guarded(SimulatedWriters(source, time)),
        source_acls=guarded(source.acls),
        target_acls=guarded(target.acls),
    )
