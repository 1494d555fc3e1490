"""Start position of a partition, and the positions committed for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import NOT_MAPPED, DataProducer, Provenance, SameOffsets
from ureplicator_common.kafka.transactions.producer_memory import PRODUCER_KEPT_S
from ureplicator_common.offset_map.segments import MapSegment, joined
from ureplicator_worker.copier.behind import Span
from ureplicator_worker.lifeline.messages import Grant


class AcknowledgedEnd(NamedTuple):
    """End that a target's log has at least: `markers` follow at `offset` (see `Provenance`)."""

    offset: int
    markers: int = 0


class Counted(NamedTuple):
    """Records that a former owner copied behind the stored position `source`: those of the spans, which lie
    at the target from `target` on without a hole."""

    source: int
    target: int
    spans: tuple[Span, ...]

    def segments(self) -> tuple[MapSegment, ...]:
        """The same for the offset map."""
        found = [MapSegment(self.source, self.source, self.target)]
        for first, records in self.spans:
            target = found[-1].target_end
            found.append(MapSegment(first, first + records, target, follows=True))
        return joined(found)


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Start position, and the cluster and topics that it belongs to.

    `committed`: what the store has; -1 if nothing that counts, or what must be committed at once. `gap`:
    what is lost, where the operator's policy goes on; `gap_offset`: the stored position then.
    `target_end`: the target's log held everything before this offset; -1 unknown. `mapped`: see
    `Provenance`, of the position where copying begins; `map_chunks`, `markers`: of the stored one.
    `appends`: producer of exactly once without transactions, given `at_s` of the monotonic clock;
    `producer_kept_s`: time for which brokers surely know it; `counted`: what its predecessor copied behind
    the stored position. `same`: see `Provenance`; `shared`: `appends` may still be the predecessor's, too.
    `shift_reason`: why the next offset of the target may be another one than that of the source.
    """

    position: int
    leader_epoch: int
    committed: int
    source_cluster: str
    source_topic_id: str
    target_topic_id: str
    gap: str = ""
    gap_offset: int = -1
    target_end: int = -1
    mapped: int = NOT_MAPPED
    map_chunks: int = 0
    markers: int = 0
    appends: DataProducer | None = None
    at_s: float = -math.inf
    producer_kept_s: float = PRODUCER_KEPT_S
    counted: Counted | None = None
    same: SameOffsets | None = None
    shared: bool = False
    shift_reason: str = ""


class MapMark(NamedTuple):
    """Part of a position about of the offset map; see `Provenance`."""

    mapped: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Commitment:
    """Position to commit for one partition, with the grant and beginning for its metadata.

    `target_end`: next offset of the target's log after the last batch that it acknowledged; -1 unknown.
    `segments`: the newest ones, from the last that was committed; none without an offset map. `unmapped`:
    they were left out of the map, so the position is to be committed again with them. `markers`, `appends`,
    `same`: see `Provenance`.
    """

    position: int
    leader_epoch: int
    grant: Grant
    beginning: StartPosition
    target_end: int = -1
    segments: tuple[MapSegment, ...] = ()
    markers: int = 0
    unmapped: bool = False
    appends: DataProducer | None = None
    same: SameOffsets | None = None

    def record(self, *, worker: str, slot: int, mark: MapMark | None = None) -> Position:
        """The record as the position store keeps it. `mark` None: the map stays as it was found."""
        mapped, chunks = mark or (NOT_MAPPED, self.beginning.map_chunks)
        provenance = Provenance(
            source_cluster=self.beginning.source_cluster,
            source_topic=self.beginning.source_topic_id,
            target_topic=self.beginning.target_topic_id,
            worker=worker,
            slot=slot,
            owner_epoch=self.grant.owner_epoch,
            target_end=self.target_end,
            mapped=mapped,
            map_chunks=chunks,
            markers=self.markers,
            appends=self.appends,
            same=self.same,
        )
        return Position(self.position, self.leader_epoch, provenance.encode())
