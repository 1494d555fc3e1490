"""Fence of the former copy: workers that were lost with partitions may be frozen, and thaw.

Nobody takes such a partition over once a cutover is OPEN, so nobody fences its producer as the next owner
would. One that thaws could copy on what the reverse copy has written, to where it came from. So its producer
is fenced at the target, before the reverse copy begins. It is the one that the stored position names. A
worker that has not named its producer yet does so by a commit before its first record: that is refused once
the ids are fenced by which it commits positions. They come first, so no other producer is named afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ureplicator_common.kafka import ClusterUnavailable, Position, PositionReader
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.list_offsets import TopicPartition, by_topic
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.data_fences import fence_data
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.model import data_transactional_id


class KafkaCopyFence:
    """`CopyFence` at the target of a route. `group`: of its positions."""

    def __init__(self, client: ClusterClient, positions: PositionReader, *, group: str) -> None:
        self._client = client
        self._positions = positions
        self._group = group

    def fence(
        self, partitions: Collection[TopicPartition], ids: Collection[str]
    ) -> tuple[str, ...]:
        fence_ids(self._client, list(ids))
        named: dict[str, list[TopicPartition]] = {}
        left: list[str] = []
        for key, found in self._positions.read(self._group, by_topic(partitions)).items():
            if not isinstance(found, Position):
                left.append(f"{key[0]}/{key[1]}: {found}")
                continue
            provenance = Provenance.decode(found.metadata)
            if provenance is not None and provenance.appends is not None:
                named.setdefault(provenance.appends.name, []).append(key)
        return (*left, *self._fenced(named))

    def _fenced(self, named: Mapping[str, Collection[TopicPartition]]) -> tuple[str, ...]:
        left: list[str] = []
        for name, keys in named.items():
            try:
                id = data_transactional_id(self._group, name)
                _, refused = fence_data(self._client, id, keys)
            except ClusterUnavailable as error:
                left.append(f"producer {name} is not fenced yet: {error}")
            else:
                left += [f"{topic}/{number}: {why}" for (topic, number), why in refused.items()]
        return tuple(left)
