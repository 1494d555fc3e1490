"""A lane without records, for tests of the holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, PartitionState, RouteSettings
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.copier.handler_counters import HandlerCounters
from ureplicator_worker.copier.lane import Progress
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.messages import ControlRecordsWritten, Joined, LaneEvent
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import Grant, PartitionReport


class StubLane:
    """Counts offsets in place of records. `position` is acknowledged, `end` is fetched."""

    def __init__(self) -> None:
        self.latency = Latencies()
        self.handled = HandlerCounters()
        self.position: dict[Partition, int] = {}
        self.end: dict[Partition, int] = {}
        self.suspended: set[Partition] = set()
        self.finished: set[Partition] = set()
        self.rewound: set[Partition] = set()
        """Taken back before a gap that they had found."""
        self.producers: list[tuple[int, int]] = []
        self.transactions = StubTransactions(self)
        self.error = ""
        self.target_end = -1

    def begin(self, partition: Partition, grant: Grant, beginning: StartPosition) -> None:
        assert partition not in self.position
        self.position[partition] = self.end[partition] = beginning.position

    def suspend(self, partition: Partition) -> None:
        assert partition in self.position
        self.suspended.add(partition)

    def resume(self, partition: Partition) -> None:
        self.suspended.remove(partition)

    def change_settings(self, partition: Partition, settings: RouteSettings) -> None:
        """Nothing here depends on them."""

    def confirmed(self, partition: Partition) -> None:
        """Nothing waits for it."""

    def seek(self, partition: Partition, offset: int) -> bool:
        assert partition not in self.finished
        if partition in self.rewound:
            return False
        self.position[partition] = self.end[partition] = offset
        return True

    def finish(self, partition: Partition) -> None:
        assert partition in self.position
        self.finished.add(partition)

    def drop(self, partition: Partition) -> None:
        del self.position[partition], self.end[partition]
        self.suspended.discard(partition)
        self.finished.discard(partition)

    def progress(self, partitions: Iterable[Partition]) -> dict[Partition, Progress]:
        return {
            part: Progress(
                self.position[part], 0, self.position[part] == self.end[part], self.target_end
            )
            for part in partitions
        }

    def producer(self, id: int, epoch: int) -> None:
        self.producers.append((id, epoch))

    def take_events(self) -> Iterator[LaneEvent]:
        return iter(())

    def status(self, partition: Partition) -> PartitionReport:
        state = PartitionState.ERROR if self.error else PartitionState.ONLINE
        return PartitionReport(state, self.error, self.position[partition])

    def segments(self, partition: Partition) -> tuple[Segment, ...]:
        return ()

    def map_segments(self, partition: Partition, *, since: int) -> tuple[MapSegment, ...]:
        return ()

    def sockets(self) -> tuple[()]:
        return ()

    def work(self, now_s: float) -> None:
        """Nothing moves by itself."""

    def close(self) -> None:
        """Nothing is open."""


class StubTransactions:
    """Calls that the lane got; everything sent is settled at once unless `settled` is False."""

    def __init__(self, lane: StubLane) -> None:
        self._lane = lane
        self.open = self.sealed = False
        self.settled = True
        self.rewound: list[tuple[Partition, int, bool]] = []
        """Partition, offset, and whether what was sent before it is committed."""

    def begin(self, producer: Producer) -> None:
        self._lane.producers.append((producer.id, producer.epoch))
        self.open, self.sealed = True, False

    def joined(self, joined: Joined, now_s: float) -> None:
        """Do nothing: the lane sends to no partition."""

    def wrote_control_records(self, written: ControlRecordsWritten, now_s: float) -> None:
        """Do nothing: the lane fills no gap."""

    def seal(self) -> None:
        self.sealed = True

    def unseal(self) -> None:
        self.sealed = False

    def has_backlog(self, now_s: float) -> bool:
        """Nothing waits in it."""
        return False

    def set_aside(self, now_s: float) -> str:
        """None of its partitions is at fault."""
        return ""

    def committed(self) -> None:
        """Do nothing: the lane counts nothing."""

    def end(self) -> None:
        self.open = False

    def rewind(
        self, partition: Partition, offset: int, leader_epoch: int, *, committed: bool
    ) -> None:
        self.rewound.append((partition, offset, committed))
        self._lane.position[partition] = self._lane.end[partition] = offset
