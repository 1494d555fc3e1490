"""One partition: its logs, the committed position, the topic of the map, and the copier that owns it.

Rows of the map count when the transaction of their position is committed. An owner that dies leaves what it
has sent and not committed at the target, and the next one sends it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ureplicator_common.kafka import Extent, PartitionUnavailable, Position
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_common.offset_map.codec import Row
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_testkit.kafka.clients import MemoryLogReader
from ureplicator_testkit.kafka.ledger import Ledger, MemoryPositions
from ureplicator_testkit.kafka.map_log import MemoryMapLog
from ureplicator_worker.copier.ownership.map_commits import MapCommits
from ureplicator_worker.copier.position_values import Commitment, StartPosition
from ureplicator_worker.copier.raw.target_offsets import TargetOffsets
from ureplicator_worker.lifeline.messages import Grant

ROUTE = Route("a", "b")
KEY: TopicPartition = ("t", 0)
PARTITION = Partition(ROUTE, *KEY)
SOURCE_ID, TARGET_ID = "source-id", "target-id"
GRANT = Grant(OwnerEpoch(1), KEY[0], settings=RouteSettings(offset_map=True))
STORE: PositionStore = MemoryPositions(Ledger(), "own")


@dataclass
class Source:
    """`live`: offsets of records, which have holes between them."""

    live: list[int] = field(default_factory=list)
    end: int = 0

    def produce(self, count: int, *, hole: int) -> None:
        self.live += range(self.end + hole, self.end + hole + count)
        self.end += hole + count

    def first_from(self, offset: int) -> int | None:
        return next((live for live in self.live if live >= offset), None)


@dataclass
class Target:
    """`copies`: of each source offset the places, in their order."""

    copies: dict[int, list[int]] = field(default_factory=dict)
    end: int = 0

    def last(self, source: int) -> int | None:
        places = self.copies.get(source)
        return places[-1] if places else None


class World:
    """`rows`: committed ones of the map. `position`: the stored one. `map_late`: rows are not in the
    transaction of their position, but written behind it."""

    def __init__(self) -> None:
        self.source, self.target = Source(), Target()
        self.rows: list[Row] = []
        self.position = Position(-1)
        self.map_late = False
        self.owner = Owner(self)

    def change_owner(self) -> None:
        """The former one has died, or was fenced: it writes no more."""
        self.owner = Owner(self)

    def written(self) -> tuple[Position, int, int]:
        """Something else after each write of an owner."""
        return self.position, len(self.rows), self.target.end

    def maps(self) -> RouteMaps:
        found = RouteMaps()
        found.add(self.rows)
        return found


class Owner:
    """Copies from the stored position, and commits with the real `MapCommits`.

    `next`: source offset. `end`: of the target's log, behind the last record that it sent.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._log = MemoryMapLog()
        self._log.rows = list(world.rows)
        self._maps = MapCommits(self._log)
        stored = world.position
        written = Provenance.decode(stored.metadata) if stored.offset >= 0 else None
        self._beginning = StartPosition(
            max(0, stored.offset),
            0,
            max(0, stored.offset),
            "cluster",
            SOURCE_ID,
            TARGET_ID,
            target_end=written.target_end if written else -1,
            mapped=written.mapped if written else -1,
            map_chunks=written.map_chunks if written else 0,
        )
        self._maps.begin(PARTITION, self._beginning)
        self.next, self.end = self._beginning.position, self._beginning.target_end
        self._offsets = TargetOffsets(
            position=self.next, target_end=self._beginning.target_end, mapped=True
        )
        self._since = 0
        self._unwritten: Sequence[Row] = ()

    def copy(self, count: int) -> None:
        """Copy some records, as one run of the target's log."""
        source, target = self._world.source, self._world.target
        for _ in range(count):
            offset = source.first_from(self.next)
            if offset is None:
                return
            target.copies.setdefault(offset, []).append(target.end)
            self._offsets.acknowledged(
                offset, None, target=target.end, records=1, transactional=False
            )
            target.end += 1
            self.next, self.end = offset + 1, target.end

    def commit(self, *, dies: str = "") -> None:
        """`dies`: `before` the transaction is committed, or `after` it, without having heard of it."""
        world = self._world
        if self.next == self._beginning.position:
            return
        segments = self._offsets.segments_from(self._since)
        item = Commitment(self.next, 0, GRANT, self._beginning, self.end, segments)
        known = len(self._log.rows)
        marks = self._maps.write({PARTITION: item}, STORE)
        rows = self._log.rows[known:]
        if dies == "before":
            world.change_owner()
            return
        world.position = item.record(worker="w", slot=0, mark=marks[PARTITION])
        late = self._unwritten
        if world.map_late:
            rows, self._unwritten = list(late), rows
        world.rows += rows
        if dies == "after":
            world.change_owner()
            return
        (done,) = self._maps.committed({PARTITION: item}).values()
        self._maps.read_former()
        if done.segments:
            self._since = done.segments[-1].target


class WorldLogs(MemoryLogReader):
    """The target's log, without the `hidden` offsets at its end: their marker is under way."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.hidden = 0

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TopicPartition, Extent | PartitionUnavailable]:
        return {KEY: Extent(0, max(0, self._world.target.end - self.hidden))}


class CopiedState:
    """State of the copy that the sync reads: `PositionReader` and `OffsetMaps` in one.

    `between`: called after the position was read, before the logs and the map are.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._maps = RouteMaps()
        self.between: Callable[[], None] = lambda: None

    def read(self, group: str, topics: object) -> Mapping[TopicPartition, Position]:
        found = {KEY: self._world.position}
        self.between()
        return found

    def update(self, positions: object = None) -> None:
        self._maps = self._world.maps()

    def view(self, partition: Partition, stored: Position | None = None) -> MapView:
        return self._maps.view(partition, stored)

    def close(self) -> None: ...
