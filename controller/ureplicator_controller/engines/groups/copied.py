"""Partitions of a route as they are copied: positions, logs of the target, and the offset map."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol
from uuid import UUID

from ureplicator_common.kafka import (
    ClusterUnavailable,
    Extent,
    LogReader,
    PartitionUnavailable,
    Position,
    PositionOrError,
    PositionReader,
    topic_id_text,
)
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.kafka.list_offsets import by_topic
from ureplicator_common.kafka.map_log.reading import OffsetMaps
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.position_rows import readable
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_controller.core.groups.decisions import CopiedPartition, Translate
from ureplicator_controller.core.groups.topics import RouteTopic

NOT_COPIED = "nothing was copied yet"
OTHER_TOPIC = "the position belongs to another target topic of this name"


class CopiedReader(Protocol):
    """Reads what was copied."""

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        """Source partitions of the route. Raises OperatingError."""
        ...

    def close(self) -> None: ...


class KafkaCopiedReader:
    """`CopiedReader` of a route. `group` holds its positions. Belongs to one thread."""

    def __init__(
        self,
        *,
        route: Route,
        group: str,
        positions: PositionReader,
        logs: LogReader,
        source_logs: LogReader,
        maps: OffsetMaps,
    ) -> None:
        """`logs`: of the target."""
        self._route = route
        self._group = group
        self._positions = positions
        self._logs = logs
        self._source_logs = source_logs
        self._maps = maps

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        """Positions first: the map and both logs, read later, reach at least as far."""
        at = {key: (topics[key[0]], (topics[key[0]].target, key[1])) for key in sorted(wanted)}
        if not at:
            return {}
        there = by_topic(target for _, target in at.values())
        found = self._positions.read(self._group, there)
        positions = readable(found)
        extents = self._logs.extents(there)
        partitions = {key: Partition(self._route, *key) for key in at}
        self._maps.update(
            {
                partitions[key]: positions[target]
                for key, (_, target) in at.items()
                if target in positions
            }
        )
        source = self._source_extents(at)
        return {
            key: self._copied(
                partitions[key], topic, found.get(target), extents.get(target), source.get(key)
            )
            for key, (topic, target) in at.items()
        }

    def _source_extents(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, object]:
        """None of a source that cannot be reached: what was copied is known without it."""
        try:
            return self._source_logs.extents(by_topic(keys))
        except ClusterUnavailable:
            return {}

    def close(self) -> None:
        self._positions.close()
        self._logs.close()
        self._source_logs.close()
        self._maps.close()

    def _copied(
        self,
        partition: Partition,
        topic: RouteTopic,
        found: PositionOrError | None,
        extent: Extent | PartitionUnavailable | None,
        source_extent: object,
    ) -> CopiedPartition:
        position = found if isinstance(found, Position) else None
        reason, known, end = _position(topic, found)
        translate: Translate = _no_map
        translate_back: Translate = _no_map
        source_log = source_extent if isinstance(source_extent, Extent) else None
        constant_from: int | None = None
        if position is not None and known is not None:
            view = self._maps.view(partition, position)
            translate, translate_back = view.forward, view.backward
            constant_from = _constant_from(view, known, end, source_log)
        log = extent if isinstance(extent, Extent) else None
        if not reason and log is None:
            reason = str(extent or "the target's log is not known")
        return CopiedPartition(
            target=(topic.target, partition.number),
            position=known,
            translate=translate,
            translate_back=translate_back,
            end=end,
            log=log,
            source_log=source_log,
            constant_from=constant_from,
            reason=reason,
        )


def _constant_from(
    view: MapView, position: int, end: int | None, source_log: Extent | None
) -> int | None:
    """See `CopiedPartition`. The newest segment counts if the last copied record lies in it, and if no record
    of the source, also in open transactions, is still to be copied."""
    if source_log is None or end is None or source_log.end + source_log.held > position:
        return None
    newest = view.newest
    return position if newest is None or newest.target_end != end else newest.first


def _position(
    topic: RouteTopic, position: PositionOrError | None
) -> tuple[str, int | None, int | None]:
    """Reason why there is none, the position, and the end of the copy at the target. Handlers put records of
    several partitions into one: then the end says nothing about a single one."""
    if topic.stopped:
        return f"the topic is stopped: {topic.stopped}", None, None
    if isinstance(position, PartitionUnavailable):
        return str(position), None, None
    if position is None or position.offset < 0:
        return NOT_COPIED, None, None
    written = Provenance.decode(position.metadata)
    if written is None:
        return "", position.offset, None
    if not _is_of(written, topic):
        return OTHER_TOPIC, None, None
    is_end = topic.is_raw and written.target_end >= 0
    return "", position.offset, written.target_end if is_end else None


def _is_of(written: Provenance, topic: RouteTopic) -> bool:
    """False for a topic that was recreated. Positions have ids as UUIDs, intents in Kafka's notation."""
    if not topic.target_id or not written.target_topic:
        return True
    return topic_id_text(UUID(written.target_topic)) == topic.target_id


def _no_map(_: int) -> int | None:
    return None
