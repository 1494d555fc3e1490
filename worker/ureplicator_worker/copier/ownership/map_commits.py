"""The offset map in the commits of an ownership thread: what is written before each, and what then counts.

A target that refuses the map, or where its leader is away, gets the positions without it: `mapped` is not set
then, so that no reader takes an older row for one that holds up to the position. The lane keeps the segments
meanwhile, as many as it has room for, and the first commit that has the map again writes them. What the lane
has left out by then is rounded down.

A partition whose former owners left many chunks has them adopted: between commits the topic is read from its
beginning, a response at a time, and the rows that take the chunks' place are written with a later commit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.map_log import MapLog, MapReading, MapRefused
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import NOT_MAPPED
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.adoption import MAX_FORMER, adopted
from ureplicator_common.offset_map.chunks import NO_PLACE
from ureplicator_common.offset_map.codec import Row, UnknownMapFormat
from ureplicator_common.offset_map.partition_map import PartitionMap
from ureplicator_common.offset_map.writing import Written, advance
from ureplicator_worker.copier.position_values import Commitment, MapMark, StartPosition

FAILED_STEPS = 30
"""Commits after a failed reading, before the next one."""

logger = logging.getLogger(__name__)


class MapCommits:
    """`log` None: nothing is written."""

    def __init__(self, log: MapLog | None) -> None:
        self._log = log
        self._written: dict[Partition, Written] = {}
        self._pending: dict[Partition, Written] = {}
        self._former = FormerChunks(log)

    def begin(self, partition: Partition, beginning: StartPosition) -> None:
        self.forget(partition)
        self._written[partition] = begun(partition, beginning)
        if beginning.map_chunks > MAX_FORMER:
            self._former.want(partition)

    def forget(self, partition: Partition) -> None:
        self._written.pop(partition, None)
        self._pending.pop(partition, None)
        self._former.forget(partition)

    def write(
        self, positions: Mapping[Partition, Commitment], store: PositionStore
    ) -> dict[Partition, MapMark]:
        """Write the rows of the map, and return what each position says of it; those that are committed
        without it name no segment.

        Raises Fenced, ClusterUnavailable.
        """
        self._pending = {}
        mapped = {part: positions[part] for part in positions if self._is_mapped(positions[part])}
        if self._log is not None and mapped:
            try:
                self._write(mapped, self._log, store)
            except MapRefused:
                self._pending = {}
                for partition in mapped:
                    self._written[partition] = self._written[partition].interrupted()
        return {partition: self._mark(partition) for partition in positions}

    def _is_mapped(self, commitment: Commitment) -> bool:
        return self._log is not None and commitment.grant.settings.offset_map

    def _write(
        self, mapped: Mapping[Partition, Commitment], log: MapLog, store: PositionStore
    ) -> None:
        """Raises as `MapLog.write`; no row is encoded for a log that would refuse it."""
        if log.is_refused():
            raise MapRefused("not yet")
        rows = list[Row]()
        for partition, commitment in mapped.items():
            self._pending[partition], more = self._advance(partition, commitment)
            rows += more
        if rows:
            replicas = next(iter(mapped.values())).grant.settings.replication_factor
            log.write(rows, store, replication_factor=replicas)

    def _advance(self, partition: Partition, commitment: Commitment) -> tuple[Written, list[Row]]:
        written, rows = advance(self._written[partition], commitment.segments)
        known = self._former.found.get(partition)
        if known is None:
            return written, rows
        written, more = adopted(written, known)
        return written, rows + more

    def _mark(self, partition: Partition) -> MapMark:
        pending = self._pending.get(partition)
        if pending is None:
            return MapMark(NOT_MAPPED, self._written[partition].chunks)
        return MapMark(pending.mapped, pending.chunks)

    def committed(self, positions: Mapping[Partition, Commitment]) -> dict[Partition, Commitment]:
        """Commitments as they were committed: without segments where the map does not have them."""
        done = {
            partition: commitment
            if partition in self._pending
            else replace(commitment, segments=(), unmapped=bool(commitment.segments))
            for partition, commitment in positions.items()
        }
        for partition, written in self._pending.items():
            if not written.former:
                self._former.forget(partition)
        self._written |= self._pending
        self._pending = {}
        return done

    def read_former(self) -> None:
        """A part of what former owners left, where it is wanted."""
        self._former.step()


class FormerChunks:
    """Reads the chunks of partitions that are wanted: one reading at a time, for all that wait then.

    `found`: what the topic holds of a partition, all that was written before it was wanted.
    """

    def __init__(self, log: MapLog | None) -> None:
        self.found: dict[Partition, PartitionMap] = {}
        self._log = log
        self._wanted: set[Partition] = set()
        self._reading: MapReading | None = None
        self._read: frozenset[Partition] = frozenset()
        self._pauses = 0

    def want(self, partition: Partition) -> None:
        self._wanted.add(partition)

    def forget(self, partition: Partition) -> None:
        self.found.pop(partition, None)
        self._wanted.discard(partition)
        self._read -= {partition}

    def step(self) -> None:
        """One response. A failed reading begins again; of a format that is not known nothing is adopted."""
        if self._log is None or not (self._read or self._wanted):
            return
        if self._pauses:
            self._pauses -= 1
            return
        if not self._read or self._reading is None:
            self._read, self._wanted = frozenset(self._read | self._wanted), set()
            self._reading = self._log.reading(self._read)
        try:
            done = self._reading.step()
        except ClusterUnavailable:
            self._reading, self._pauses = None, FAILED_STEPS
            return
        except UnknownMapFormat as error:
            logger.warning("chunks of former owners stay in the offset map: %s", error)
            self._reading, self._read = None, frozenset()
            return
        if done:
            known = self._reading.partitions
            self.found |= {part: known.get(part, PartitionMap()) for part in self._read}
            self._reading, self._read = None, frozenset()


def begun(partition: Partition, beginning: StartPosition) -> Written:
    """The map goes on if the position where copying begins was committed with it, or the one behind which
    records were counted."""
    place = (beginning.position, beginning.target_end)
    if beginning.counted is not None:
        place = beginning.counted[:2]
    goes_on = beginning.mapped != NOT_MAPPED and place[0] == beginning.committed
    return Written(
        partition,
        beginning.source_topic_id,
        beginning.target_topic_id,
        begin=place if goes_on else NO_PLACE,
        mapped=beginning.mapped if goes_on else NOT_MAPPED,
        former=beginning.map_chunks,
    )
