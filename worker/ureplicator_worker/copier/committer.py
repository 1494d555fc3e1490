"""Commits of positions whose data is in no transaction: delivery decides when and which, the ownership thread
commits them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.kafka.provenance import DataProducer
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.copier.at_least_once import AtLeastOnce
from ureplicator_worker.copier.lane import Lane, Progress
from ureplicator_worker.copier.lifecycle import CopyState, OwnedPartition
from ureplicator_worker.copier.messages import Begun, Commit
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment, StartPosition

COMMITTABLE = (CopyState.COPYING, CopyState.DRAINING)
"""Suspended partitions wait for the proof."""


class Committer:
    """`under_way`: a commit of its own, which `work` requested.

    A commit of these positions alone would end a transaction that holds the data of others. While there may
    be one, they are committed with that: `take`.
    """

    def __init__(self, *, delivery: AtLeastOnce, lane: Lane, ownership: Ownership) -> None:
        self.under_way = False
        self._delivery = delivery
        self._lane = lane
        self._ownership = ownership
        self._begun: dict[Partition, Begun] = {}
        self._maps = MappedSegments(lane)
        self._confirming: set[Partition] = set()
        self._confirmed_next: set[Partition] = set()
        """Partitions that the commit under way confirms."""

    @property
    def pressing(self) -> bool:
        """A partition waits for a commit."""
        return bool(self._confirming)

    def join(self, begun: Begun, now_s: float) -> None:
        """One on trial sends nothing before its position is committed."""
        beginning = begun.beginning
        self._begun[begun.partition] = begun
        self._delivery.join(
            begun.partition,
            position=beginning.position,
            found=beginning.committed == beginning.position and beginning.appends is None,
            open=beginning.appends is not None,
            now_s=now_s,
        )
        if begun.trial:
            self.confirm(begun.partition)

    def leave(self, partition: Partition, now_s: float) -> None:
        del self._begun[partition]
        self._maps.leave(partition)
        self._delivery.leave(partition)
        self._confirming.discard(partition)
        self._confirmed_next.discard(partition)

    def confirm(self, partition: Partition) -> None:
        """Commit the position once more, and tell the lane (`ConfirmationNeeded`), unless it has left."""
        if partition in self._begun:
            self._confirming.add(partition)

    def work(self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float) -> None:
        """Commit what is due, if no commit of its own is under way."""
        positions = self.take(owned, drained=drained, now_s=now_s)
        if positions:
            self.under_way = True
            self._ownership.put(Commit(positions, self._delivery.number))

    def take(
        self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float
    ) -> dict[Partition, Commitment]:
        """Positions that are due. If there are some, `on_committed` or `aborted` follows."""
        if not self._delivery.is_due(now_s, drained=drained or self.pressing):
            return {}
        for partition in self._confirming:
            self._delivery.renew(partition)
        progress = self._lane.progress(
            held.partition
            for held in owned
            if held.partition in self._begun and (held.state in COMMITTABLE or held.trial)
        )
        due = self._delivery.seal(progress, now_s)
        if due:
            self._confirmed_next = self._confirming & due.keys()
            self._confirming -= self._confirmed_next
        return {
            partition: commitment(self._begun[partition], progress, self._maps)
            for partition, progress in due.items()
        }

    def on_committed(self, positions: Mapping[Partition, Commitment], now_s: float) -> None:
        """Take the positions that were taken and not refused for the store's. What left meanwhile is none of
        ours."""
        self.under_way = False
        positions = {part: item for part, item in positions.items() if part in self._begun}
        self._maps.committed(positions)
        offsets = ((part, item.position) for part, item in positions.items())
        open = {part for part, item in positions.items() if item.appends is not None}
        self._delivery.committed(self._delivery.number, offsets, now_s, open=open)
        for partition in self._confirmed_next & positions.keys():
            self._lane.confirmed(partition)
        self._confirm_again(self._confirmed_next - positions.keys())
        self._delivery.complete_map(unmapped(positions), now_s)

    def aborted(self, now_s: float) -> None:
        """Nothing that was taken is stored, as far as is known. It is due again soon."""
        self.under_way = False
        self._delivery.aborted(self._delivery.number, now_s)
        self._confirm_again(self._confirmed_next)

    def _confirm_again(self, partitions: set[Partition]) -> None:
        self._confirming |= partitions
        self._confirmed_next = set()


class Riders:
    """Positions of a committer in the commits of transactions. `taken`: for the one that is being
    prepared."""

    def __init__(self, committer: Committer) -> None:
        self.taken: Mapping[Partition, Commitment] = {}
        self._committer = committer
        self._under_way = False
        """Some are in the commit that is under way."""

    @property
    def pressing(self) -> bool:
        return self._committer.pressing

    def take(self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float) -> None:
        self.taken = self._committer.take(owned, drained=drained, now_s=now_s)

    def put(self) -> Mapping[Partition, Commitment]:
        """The positions that were taken, for a commit that is requested now."""
        taken, self.taken = self.taken, {}
        self._under_way = bool(taken)
        return taken

    def left(self, now_s: float) -> None:
        """No commit is requested for those taken."""
        if self.taken:
            self.taken = {}
            self._committer.aborted(now_s)

    def on_committed(self, positions: Mapping[Partition, Commitment], now_s: float) -> None:
        if self._under_way:
            self._under_way = False
            self._committer.on_committed(positions, now_s)

    def on_failed(self, number: int, now_s: float) -> None:
        """`number`: of the commit that failed; 0 for what is none of them."""
        if number and self._under_way:
            self._under_way = False
            self._committer.aborted(now_s)


class MappedSegments:
    """Segments for the offset map, from the last one of each partition that was committed."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._from: dict[Partition, int] = {}

    def leave(self, partition: Partition) -> None:
        self._from.pop(partition, None)

    def committed(self, positions: Mapping[Partition, Commitment]) -> None:
        for partition, item in positions.items():
            if item.segments:
                self._from[partition] = item.segments[-1].target

    def newest(self, begun: Begun) -> tuple[MapSegment, ...]:
        """None for a route without a map."""
        if not begun.grant.settings.offset_map:
            return ()
        return self._lane.map_segments(begun.partition, since=self._from.get(begun.partition, 0))


def unmapped(positions: Mapping[Partition, Commitment]) -> list[Partition]:
    """Partitions of whose positions the offset map lacks a part."""
    return [partition for partition, item in positions.items() if item.unmapped]


def commitment(begun: Begun, progress: Progress, maps: MappedSegments) -> Commitment:
    end, markers = progress.target_end, progress.markers
    if end < 0:
        end, markers = begun.beginning.target_end, begun.beginning.markers
    return Commitment(
        progress.next_offset,
        progress.leader_epoch,
        begun.grant,
        begun.beginning,
        end,
        maps.newest(begun),
        markers,
        appends=appends_after(begun.beginning, progress),
        same=progress.same,
    )


def appends_after(beginning: StartPosition, progress: Progress) -> DataProducer | None:
    """Producer of what follows the progress; None if nothing does."""
    if beginning.appends is None or progress.closed:
        return None
    return beginning.appends._replace(sequence=progress.sequence)
