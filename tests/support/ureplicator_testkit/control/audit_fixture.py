"""Auditors on in-memory ZooKeeper, with comparisons that a test decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ureplicator_common.audits import (
    AuditRun,
    OffsetRange,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
)
from ureplicator_common.coordination import Create, Delete, Set
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import (
    decode_audit_claim,
    decode_audit_state,
    encode_audit_request,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.audit.result import (
    AuditOptions,
    AuditRequest,
    AuditResult,
    Finding,
    PartitionRange,
    PartitionResult,
)
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.auditor.nodes import AuditNodes
from ureplicator_worker.auditor.requests import RequestedAudits

ROUTE = Route("source", "target")
KEY = TopicKey(ROUTE, "orders")
Progress = Callable[[AuditResult], None]


class AuditFixture:
    """`orders` with 2 partitions; `before_end` is called in the middle of each comparison. `differing`:
    findings of each comparison. `compared`: its requests."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.operator = MemoryCoordination(self.store)
        self.paths = Paths("test")
        self.clock = ManualClock(start_s=1_769_860_800)
        self.compared: list[AuditRequest] = []
        self.differing: Sequence[Finding] = ()
        self.before_end: Callable[[], None] = lambda: None
        self.reports: list[str] = []
        for path in self.paths.skeleton:
            self.operator.ensure(path)
        self.whitelist(
            "orders",
            TopicIntent(2, 2, source_topic_id="s", target_topic_id="t", target_topic="orders"),
        )

    def whitelist(self, topic: str, intent: TopicIntent) -> None:
        path = self.paths.topic(TopicKey(ROUTE, topic))
        self.operator.ensure(path.rpartition("/")[0])
        there = self.operator.get(path)
        data = encode_intent(intent)
        self.operator.transact([Set(path, data, -1) if there else Create(path, data)])

    def publish(self, settings: RouteSettings) -> None:
        """Publish as the leader does."""
        path, data = self.paths.route(ROUTE), encode_route(settings)
        there = self.operator.get(path)
        self.operator.transact([Set(path, data, -1) if there else Create(path, data)])

    def remove(self) -> None:
        self.operator.transact([Delete(self.paths.topic(KEY))])

    def request(self, id: str = "r1", *, topic: str = "orders", next: int = 50) -> None:
        path = self.paths.audits.request(TopicKey(ROUTE, topic))
        ranges = {number: OffsetRange(0, next) for number in range(2)}
        wanted = RequestedAudit(id, self.clock.wall_ms(), ranges)
        self.operator.ensure(path.rpartition("/")[0])
        self.operator.transact([Create(path, encode_audit_request(wanted))])

    def cancel(self) -> None:
        self.operator.transact([Delete(self.paths.audits.request(KEY))])

    @property
    def is_requested(self) -> bool:
        return self.operator.get(self.paths.audits.request(KEY)) is not None

    def state(self, topic: str = "orders") -> TopicAudit | None:
        node = self.operator.get(self.paths.audits.state(TopicKey(ROUTE, topic)))
        return decode_audit_state(node.data) if node else None

    def written(self, topic: str = "orders") -> TopicAudit:
        """The state of a topic that has one."""
        state = self.state(topic)
        assert state is not None, f"{topic} has no state"
        return state

    def last_run(self) -> AuditRun:
        run = self.written().last
        assert run is not None, "no requested audit has ended"
        return run

    def running(self) -> RunningAudit | None:
        node = self.operator.get(self.paths.audits.claim(KEY))
        return decode_audit_claim(node.data) if node else None

    def client(self) -> MemoryCoordination:
        return MemoryCoordination(self.store)

    def nodes(self, client: MemoryCoordination, auditor: str = "a1") -> AuditNodes:
        return AuditNodes(client, paths=self.paths, auditor=auditor)

    def auditor(self, client: MemoryCoordination, id: str = "a1") -> RequestedAudits:
        return RequestedAudits(
            auditor=id,
            nodes=self.nodes(client, id),
            prepare=prepared,
            compare=self.compare,
            report=self._report,
            clock=self.clock,
            wait=lambda seconds: client.restore(),
        )

    def compare(
        self, request: AuditRequest, on_progress: Progress, watch: Watch | None = None
    ) -> AuditResult:
        """Half of each range, a progress, `before_end`, a look of `watch`, a progress, and the rest."""
        self.compared.append(request)
        on_progress(self._result(request, lambda wanted: (wanted.first + wanted.end) // 2))
        self.before_end()
        if watch is not None:
            watch(10)
        half = self._result(request, lambda wanted: (wanted.first + wanted.end) // 2)
        on_progress(half)
        return self._result(request, lambda wanted: wanted.end)

    def _result(self, request: AuditRequest, end: Callable[[PartitionRange], int]) -> AuditResult:
        found = [finding for finding in self.differing if finding.source_offset < 10**9]
        partitions = [
            PartitionResult(
                wanted.partition,
                max(wanted.first, 0),
                end(wanted),
                end(wanted),
                wanted.end,
                compared=end(wanted) - wanted.first,
                compared_bytes=100 * (end(wanted) - wanted.first),
                **_counts(found, wanted.partition),
            )
            for wanted in request.partitions
        ]
        return AuditResult(
            request.route,
            request.topic,
            request.target_topic,
            tuple(partitions),
            tuple(found),
            request.options.delivery,
            request.not_comparable,
        )

    def _report(self, key: TopicKey, request: str, result: AuditResult) -> str:
        self.reports.append(request)
        return f"/reports/{request}.json"


def _counts(found: Sequence[Finding], partition: int) -> dict[str, Any]:
    return Counter(finding.kind.value for finding in found if finding.partition == partition)


def prepared(key: TopicKey, intent: TopicIntent, wanted: RequestedAudit) -> AuditRequest:
    ranges = [
        PartitionRange(number, span.next, span.first) for number, span in wanted.ranges.items()
    ]
    request = AuditRequest(str(key.route), key.topic, intent.target_topic, tuple(ranges))
    return replace(request, options=AuditOptions(rate_bytes_per_s=wanted.bytes_per_s))
