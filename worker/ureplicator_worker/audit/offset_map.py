"""Offset map of what was copied before the route had one, from the records that an audit has compared.

A copier writes the map of what it copies. So the map of a route that gets `offset_map` later begins in the
middle of the log, and groups that have read less cannot fail over. An audit pairs each record of the source
with its copy; these pairs are the missing part, in front of what the copiers have written.

Nothing is written where records differ: an offset would then lead past a record that is missing. The chunks
are of level 1 (`offset_map.chunks`), so they end nothing of what copiers wrote behind them, and later owners
adopt them as those of former owners. They need no transaction: no position refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import topic_id_uuid
from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.map_log.creation import create_map_topic
from ureplicator_common.kafka.map_log.reading import KafkaOffsetMaps
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION, Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import Row, row
from ureplicator_common.offset_map.partition_map import PartitionMap
from ureplicator_common.offset_map.segments import MapSegment, cut
from ureplicator_common.offset_map.topic import map_topic
from ureplicator_common.offset_map.writing import CHUNK_SEGMENTS
from ureplicator_worker.audit.result import AuditResult, PartitionResult
from ureplicator_worker.audit.streams import PartitionWriter

LEVEL = 1


@dataclass(frozen=True, slots=True)
class Mapped:
    """Additions for one partition: source offsets from `first` to before `end`, else `reason`."""

    partition: int
    segments: tuple[MapSegment, ...] = ()
    reason: str = ""

    @property
    def first(self) -> int:
        return self.segments[0].first

    @property
    def end(self) -> int:
        return max(segment.end for segment in self.segments)


def add_to_map(
    result: AuditResult,
    *,
    fleet: str,
    clusters: Mapping[str, Mapping[str, str]],
    replication_factor: int = BROKER_DEFAULT_REPLICATION,
) -> Sequence[Mapped]:
    """`replication_factor`: of the topic, should it be created.

    Raises ClusterUnavailable, UnknownMapFormat, MapRefused, PermanentError."""
    route = Route.parse(result.route)
    topic = map_topic(fleet=fleet, route=route)
    properties = clusters[route.target]
    numbers = [Partition(route, result.topic, done.partition) for done in result.partitions]
    maps = KafkaOffsetMaps(open_client(route.target, properties), topic, only=numbers)
    try:
        maps.update()
        found = plan(result, maps.partitions)
        rows = list(rows_of(result, found))
        if rows:
            _create(topic, route.target, properties, replication_factor)
            _write(rows, topic, properties)
    finally:
        maps.close()
    return found


def plan(result: AuditResult, known: Mapping[Partition, PartitionMap]) -> Sequence[Mapped]:
    """Additions for each partition of a result that has ended. `known`: what the topic holds of them."""
    route = Route.parse(result.route)
    return [
        _planned(result, done, known.get(Partition(route, result.topic, done.partition)))
        for done in result.partitions
    ]


def _planned(result: AuditResult, done: PartitionResult, known: PartitionMap | None) -> Mapped:
    reason = _unusable(result, done)
    if reason:
        return Mapped(done.partition, reason=reason)
    segments = result.segments.get(done.partition, ())
    if known is not None and known.entries and known.topics == _ids(result):
        segments = cut(segments, known.entries[0].target)
    if not segments:
        return Mapped(done.partition, reason="the map has all that was compared")
    return Mapped(done.partition, segments)


def _unusable(result: AuditResult, done: PartitionResult) -> str:
    if result.not_comparable:
        return result.not_comparable
    if done.differences:
        return f"records differ: {done.differences:,}"
    if done.uncompared:
        return done.uncompared
    return "" if done.complete else "it was not compared to the end"


def rows_of(result: AuditResult, planned: Sequence[Mapped]) -> Iterator[Row]:
    route = Route.parse(result.route)
    source_id, target_id = _ids(result)
    for mapped in planned:
        for at in range(0, len(mapped.segments), CHUNK_SEGMENTS):
            part = mapped.segments[at : at + CHUNK_SEGMENTS]
            chunk = Chunk(source_id, target_id, part, level=LEVEL)
            yield row(Partition(route, result.topic, mapped.partition), chunk)


def _ids(result: AuditResult) -> tuple[str, str]:
    """Topic ids as positions and chunks have them."""
    return str(topic_id_uuid(result.source_topic_id)), str(topic_id_uuid(result.target_topic_id))


def _create(
    topic: str, cluster: str, properties: Mapping[str, Any], replication_factor: int
) -> None:
    client = open_client(cluster, properties)
    try:
        create_map_topic(client, topic, replication_factor=replication_factor)
    finally:
        client.close()


def _write(
    rows: Sequence[Row],
    topic: str,
    properties: Mapping[str, Any],
    clock: Clock | None = None,
) -> None:
    now_ms = (clock or SystemClock()).wall_ms()
    writer = PartitionWriter(properties, topic, 0)
    refused = writer.write({n: (key, value, (), now_ms) for n, (key, value) in enumerate(rows)})
    if refused:
        raise PermanentError(f"{topic}: {next(iter(refused.values()))}")
