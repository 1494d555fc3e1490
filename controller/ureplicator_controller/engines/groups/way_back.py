"""Reader of what a route has copied, for groups that go back to its source."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ureplicator_common.kafka import Extent, LogReader
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.kafka.list_offsets import by_topic
from ureplicator_controller.core.groups.decisions import CopiedPartition
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.core.groups.way_back import reversed_partition, reversed_topics
from ureplicator_controller.engines.groups.copied import CopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters


def reversed_clusters(
    clusters: RouteClusters, *, source_logs: LogReader, exactly_once: bool
) -> RouteClusters:
    """Both ends of the route changed over: a survey of them decides about the way back. `exactly_once`: its
    delivery."""
    return RouteClusters(
        source=clusters.target,
        target=clusters.source,
        copied=WayBackReader(clusters.copied, source_logs=source_logs, exactly_once=exactly_once),
    )


class WayBackReader:
    """`CopiedReader` by partitions of the target; topics are the reversed ones. Belongs to one thread."""

    def __init__(self, copied: CopiedReader, *, source_logs: LogReader, exactly_once: bool) -> None:
        self._copied = copied
        self._source_logs = source_logs
        self._exactly_once = exactly_once

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        """Read what was copied first: the source's log, read later, reaches at least as far."""
        at = {key: (topics[key[0]].target, key[1]) for key in sorted(wanted)}
        if not at:
            return {}
        found = self._copied.read(reversed_topics(topics), [*at.values()])
        extents = self._source_logs.extents(by_topic(at.values()))
        return {
            key: self._reversed(found[partition], partition, extents.get(partition))
            for key, partition in at.items()
        }

    def close(self) -> None:
        self._copied.close()
        self._source_logs.close()

    def _reversed(
        self, copied: CopiedPartition, partition: TopicPartition, extent: object
    ) -> CopiedPartition:
        log = extent if isinstance(extent, Extent) else None
        reason = "" if log else str(extent or "the source's log is not known")
        return reversed_partition(
            copied, partition, log, exactly_once=self._exactly_once, reason=reason
        )
