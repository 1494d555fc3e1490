"""Requests for audits: their ranges are resolved against both clusters, and written for an auditor.

The response has the very offsets that will be compared. What is not copied yet cannot be verified, so a range
ends at the position at most; what the source has deleted cannot either, so it begins at the log's start at
least. One audit of a topic is requested at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

from ureplicator_common.audits import OffsetRange, RequestedAudit
from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Coordination, Create, Delete, Node
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.kafka import Extent, LogReader, PartitionUnavailable, Position
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import decode_audit_request, encode_audit_request
from ureplicator_controller.api.http import times
from ureplicator_controller.api.http.models.audits import AuditBody
from ureplicator_controller.api.http.problems import conflict, not_found
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.node_editor import NodeEditor, decoded
from ureplicator_controller.api.services.positions import PositionReading, PositionService
from ureplicator_controller.api.services.topic_checks import (
    require_changeable,
    require_partition,
)

Ranges = Mapping[int, OffsetRange]
T = TypeVar("T", int, Extent, Position)


class AuditService:
    """Every call may raise Problem, Unavailable and ClusterUnavailable."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        editor: NodeEditor,
        intents: IntentStore,
        positions: PositionService,
        logs: Callable[[str], LogReader],
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._coordination = coordination
        self._paths = fleet.paths
        self._editor = editor
        self._intents = intents
        self._positions = positions
        self._logs = logs
        self._clock = clock
        self._new_id = new_id

    def plan(self, config: RouteConfig, topic: str, wanted: AuditBody) -> Ranges:
        """Ranges to compare, without those that are empty."""
        wanted.require_order()
        key = TopicKey(config.route, topic)
        intent = self._auditable(config, key)
        numbers = _numbers(key, intent, wanted)
        readings = self._positions.read(key, intent, numbers)
        starts = self._resolved(key, numbers, wanted.start)
        ends = self._resolved(key, numbers, wanted.to)
        ranges = {
            number: _range(readings[number], starts.get(number), ends.get(number))
            for number in numbers
        }
        found = {
            number: offsets for number, offsets in ranges.items() if offsets.first < offsets.next
        }
        if not found:
            raise conflict(
                f"nothing of {topic} was copied in this range",
                field="from",
                hint="GET /positions shows positions and logs",
            )
        return found

    def request(self, config: RouteConfig, topic: str, wanted: AuditBody) -> RequestedAudit:
        key = TopicKey(config.route, topic)
        requested = RequestedAudit(
            self._new_id(),
            self._clock.wall_ms(),
            self.plan(config, topic, wanted),
            wanted.bytes_per_second or 0,
        )
        path = self._paths.audits.request(key)

        def decide(node: Node | None) -> Edit[RequestedAudit]:
            if node is not None:
                raise conflict(
                    f"an audit of {topic} is already requested",
                    field="topic",
                    hint="wait for its end, or cancel it with DELETE",
                )
            return Edit(requested, [Create(path, encode_audit_request(requested))])

        def applied(node: Node | None) -> bool:
            return node is not None and _decoded(path, node).id == requested.id

        self._coordination.ensure(path.rpartition("/")[0])
        return self._editor.edit(path, decide, applied)

    def cancel(self, config: RouteConfig, topic: str) -> RequestedAudit:
        """Withdraw the request. An auditor that carries it out stops."""
        path = self._paths.audits.request(TopicKey(config.route, topic))

        def decide(node: Node | None) -> Edit[RequestedAudit]:
            if node is None:
                raise not_found(
                    f"no audit of {topic} is requested",
                    field="topic",
                    hint="GET /audits lists requests",
                )
            return Edit(_decoded(path, node), [Delete(path, node.stat.version)])

        return self._editor.edit(path, decide, lambda node: node is None)

    def _auditable(self, config: RouteConfig, key: TopicKey) -> TopicIntent:
        intent = require_changeable(key, self._intents.find(key), self._intents.known)
        if intent.stopped:
            raise conflict(
                f"{key.topic} was stopped: {intent.stopped}",
                field="topic",
                hint="decide first how it goes on: restart or delete the topic",
            )
        if config.settings.transform(key.topic) is not None:
            raise conflict(
                f"the records of {key.topic} go through a handler or a query: source and target differ",
                field="topic",
                hint="audits compare topics that are copied as they are",
            )
        return intent

    def _resolved(
        self, key: TopicKey, numbers: Sequence[int], bound: str | None
    ) -> Mapping[int, int]:
        """Offset of a bound in each partition; empty without one."""
        if bound is None:
            return {}
        if bound.isdecimal():
            return dict.fromkeys(numbers, int(bound))
        time_ms = times.milliseconds(bound)
        with closing(self._logs(key.route.source)) as logs:
            found = logs.offsets_at({(key.topic, number): time_ms for number in numbers})
        return {number: _known(found[key.topic, number]) for number in numbers}


def _numbers(key: TopicKey, intent: TopicIntent, wanted: AuditBody) -> Sequence[int]:
    if wanted.partitions is None:
        return range(intent.partitions)
    for number in wanted.partitions:
        require_partition(key, intent, number)
    return sorted(set(wanted.partitions))


def _range(reading: PositionReading, start: int | None, end: int | None) -> OffsetRange:
    """Raises PartitionUnavailable. Nothing is compared of a partition without a position."""
    log = _known(reading.extent)
    position = _known(reading.stored).offset
    first = log.start if start is None else max(start, log.start)
    return OffsetRange(first, position if end is None else min(end, position))


def _decoded(path: str, node: Node) -> RequestedAudit:
    return decoded(path, node, decode_audit_request)


def _known(found: T | PartitionUnavailable) -> T:
    if isinstance(found, PartitionUnavailable):
        raise found
    return found
