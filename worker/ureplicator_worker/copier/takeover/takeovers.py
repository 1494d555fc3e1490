"""Takeovers of many partitions: former producers are fenced, what they appended behind a position is counted,
and found at the source.

stored positions that name a producer --> fence each (`fence_data`), all its partitions at once
                                      --> read to its control record (`TargetTail`) --> Behind
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.client import READ_COMMITTED, ClusterClient, ClusterView
from ureplicator_common.kafka.list_offsets import OffsetOrError
from ureplicator_common.kafka.positions import COMMAND_S, PositionStore
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_worker.copier.behind import Behind, BehindOrError, PlaceOrError
from ureplicator_worker.copier.takeover.reading import Unreadable, read_logs
from ureplicator_worker.copier.takeover.source_place import SourcePlace
from ureplicator_worker.copier.takeover.target_tail import TargetTail


class Takeovers:
    """See `CountBehind`. The clients and the store are those of its threads."""

    def __init__(
        self, store: PositionStore, *, source: ClusterClient, target: ClusterClient
    ) -> None:
        self._store = store
        self._source, self._target = source, target
        self._collected: set[TargetPartition] = set()

    def collect(self, partition: TargetPartition) -> None:
        self._collected.add(partition)

    def at_target(
        self,
        stored: Mapping[TargetPartition, Position],
        view: ClusterView,
        ends: Mapping[TargetPartition, OffsetOrError],
    ) -> dict[TargetPartition, BehindOrError]:
        found: dict[TargetPartition, BehindOrError] = {}
        tails: dict[TargetPartition, TargetTail] = {}
        named = _by_producer(stored, view)
        for name, positions in named.items():
            try:
                with self._target.within(COMMAND_S / (len(named) + 1)):
                    fence, refused = self._store.fence_data(name, positions)
            except ClusterUnavailable as error:
                found |= dict.fromkeys(positions, error)
                if found.keys() == stored.keys():
                    raise
                continue
            for key, provenance in positions.items():
                if key in refused:
                    found[key] = Unreadable(f"{key[0]}/{key[1]}: {refused[key]}", temporary=True)
                elif isinstance(end := ends[key], PartitionUnavailable):
                    found[key] = end
                else:
                    tails[key] = self._tail(key, provenance, fence, end)
        errors = read_logs(self._target, view, tails)
        return {
            **found,
            **errors,
            **{key: tail.behind for key, tail in tails.items() if tail.behind is not None},
        }

    def at_source(
        self, wanted: Mapping[TargetPartition, tuple[int, Behind]], view: ClusterView
    ) -> dict[TargetPartition, PlaceOrError]:
        places = {
            key: SourcePlace(position=position, behind=behind)
            for key, (position, behind) in wanted.items()
        }
        errors = read_logs(self._source, view, places, isolation=READ_COMMITTED)
        return {key: item.place or errors[key] for key, item in places.items()}

    def _tail(
        self, key: TargetPartition, provenance: Provenance, fence: Producer, end: int
    ) -> TargetTail:
        assert provenance.appends is not None
        return TargetTail(
            sent=provenance.appends,
            target_end=provenance.target_end,
            fence=fence,
            end=end,
            collects=self._collects(key),
        )

    def _collects(self, key: TargetPartition) -> bool:
        collects = key in self._collected
        self._collected.discard(key)
        return collects


def _by_producer(
    stored: Mapping[TargetPartition, Position], view: ClusterView
) -> dict[str, dict[TargetPartition, Provenance]]:
    """Positions by the name of their producer; none of a former topic of the name, nor without a leader."""
    named: dict[str, dict[TargetPartition, Provenance]] = {}
    for key, position in stored.items():
        provenance = Provenance.decode(position.metadata)
        if provenance is None or provenance.appends is None or position.offset < 0:
            continue
        if key in view.leaders and provenance.target_topic == view.topic_ids.get(key[0]):
            named.setdefault(provenance.appends.name, {})[key] = provenance
    return named
