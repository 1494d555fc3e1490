"""Auditors that follow a route behind its copy, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.model import TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.audit_fixture import ROUTE, AuditFixture, Progress
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader
from ureplicator_worker.audit.core.batches import Matched
from ureplicator_worker.audit.result import (
    AuditOptions,
    AuditRequest,
    AuditResult,
    PartitionRange,
)
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.audit.stored import Scan, Wanted
from ureplicator_worker.auditor.following import RouteFollower
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.preparation import Described, Preparation

GROUP = position_group(fleet="test", route=ROUTE)


class PlainTopics(Preparation):
    """Topics with the settings of a fresh cluster."""

    def __init__(self, nodes: AuditNodes, config: RouteConfig) -> None:
        """Connects to nothing."""
        self._routes, self._published = {config.route: config}, nodes.settings

    def described(self, topics: Mapping[TopicKey, TopicIntent]) -> Described:
        return {}

    def comparison(
        self,
        key: TopicKey,
        intent: TopicIntent,
        ranges: Sequence[PartitionRange],
        *,
        described: Described,
        bytes_per_s: int,
        round_s: float = 15.0,
    ) -> AuditRequest:
        options = AuditOptions(rate_bytes_per_s=bytes_per_s)
        target_topic = intent.target_topic
        return AuditRequest(str(key.route), key.topic, target_topic, tuple(ranges), options)


def unreadable(wanted: Wanted, *, late: Callable[[], bool]) -> Mapping[int, Matched]:
    raise ClusterUnavailable("a broker is away")


def follower(
    audits: AuditFixture,
    positions: MemoryPositionReader,
    *,
    id: str = "a1",
    rate: int = 10_000_000,
    scanner: Scan = unreadable,
    logs: MemoryLogReader | None = None,
) -> RouteFollower:
    """`logs`: of the target."""
    config = RouteConfig.model_validate(
        {
            "source": "source",
            "target": "target",
            "audit": {"continuous": True, "bytes_per_s": rate},
            "handlers": [{"topics": "masked", "handler": "a.b:c"}],
        }
    )
    nodes, target = audits.nodes(audits.client(), id), logs or MemoryLogReader()
    return RouteFollower(
        config,
        fleet="test",
        auditor=id,
        nodes=nodes,
        positions=lambda cluster: positions,
        logs=lambda cluster: target,
        preparation=PlainTopics(nodes, config),
        compare=audits.compare,
        scanner=scanner,
        clock=audits.clock,
    )


def failing_topic(audits: AuditFixture, following: RouteFollower, topic: str) -> None:
    """Comparisons of this topic raise what Spark does."""

    def compare(
        request: AuditRequest, on_progress: Progress, watch: Watch | None = None
    ) -> AuditResult:
        if request.topic == topic:
            audits.compared.append(request)
            raise RuntimeError("Job aborted due to stage failure")
        return audits.compare(request, on_progress)

    following._compare = compare


def copied(positions: MemoryPositionReader, *offsets: int, topic: str = "orders") -> None:
    for number, offset in enumerate(offsets):
        positions.put(GROUP, topic, number, offset)


def ranges(audits: AuditFixture) -> list[list[tuple[int, int, int, int]]]:
    return [
        [
            (wanted.partition, wanted.first, wanted.end, wanted.target_first)
            for wanted in request.partitions
        ]
        for request in audits.compared
    ]
