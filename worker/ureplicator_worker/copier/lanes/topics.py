"""Topics of a lane: which ones the metadata cover, and whether they are still the proven ones.

A recreated topic is another topic, and the two are never mixed. Batches that were fetched by the former
topic's id are of the former and may still be sent; batches that were fetched by name may be of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ureplicator_common.model import Partition
from ureplicator_worker.copier.net.connections import Connections, topic_change
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.record.partition import LanePartition


class Topics:
    """`stop(partition, reason, temporary, discard)`. `changed`: other topics are in use since `cover`."""

    def __init__(
        self,
        partitions: Mapping[Partition, LanePartition],
        *,
        source: Source,
        target: Target,
        stop: Callable[[LanePartition, str, bool, bool], None],
    ) -> None:
        self._partitions = partitions
        self._source = source
        self._target = target
        self._stop = stop
        self.changed = False

    def change(self) -> None:
        self.changed = True

    def cover(self, more_targets: Iterable[str]) -> None:
        """Name the topics that are in use, once a turn: a thousand partitions may begin in one.
        `more_targets`: topics of the target that handlers name."""
        self.changed = False
        partitions = self._partitions.values()
        self._source.connections.cover(frozenset(raw.partition.topic for raw in partitions))
        targets = frozenset(topic for raw in partitions for topic in raw.topic_ids)
        self._target.connections.cover(targets | frozenset(more_targets))

    def check(self) -> None:
        """Stop what belongs to a topic that was deleted or recreated."""
        source = self._source.connections.view
        for raw in self._partitions.values():
            gone = topic_change(source, raw.partition.topic, raw.beginning.source_topic_id)
            other = target_change(raw, self._target.connections)
            if gone:
                rest_is_former = not raw.fetch.read_by_name and not other
                self._stop(raw, f"source {gone[0]}", gone[1], not rest_is_former)
            elif other:
                self._stop(raw, f"target {other[0]}", other[1], True)


def target_change(raw: LanePartition, target: Connections) -> tuple[str, bool] | None:
    """The change as of `topic_change`, for each target topic in use; only the partition's own is worth
    an operator."""
    for topic, proven_id in raw.topic_ids.items():
        change = topic_change(target.view, topic, proven_id)
        if change is not None:
            reason, temporary = change
            return reason, temporary or topic != raw.send.topic_partition[0]
    return None
