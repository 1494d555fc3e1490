"""Lane: what carries the records of a route's partitions from the source to the target.

The holder (`copier.holder`) decides which partitions are copied, from where, and when copying ends; it
knows no batch and no socket. A lane carries records and reports how far it came; it knows no owner, no
proof and no position store. They meet in this Protocol. Calls go from the holder to the lane; what the
lane has to report are events that the holder takes once a turn, so neither calls back into the other.

    begin ----> copying <--- suspend, resume ---> suspended
                   | finish: fetch no more, send the rest
                   v
               finishing ----> `exact` ----> drop

Where data and positions are committed together (`copier.exactly_once`), what the lane sends belongs to a
transaction:

    begin --> open --seal--> sealed, then `settled` --> begin (committed)
      ^         |  end         |
      +- rewind +--------------+
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ureplicator_common.kafka.provenance import SameOffsets
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, RouteSettings
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.copier.handler_counters import HandlerCounters
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.messages import ControlRecordsWritten, Joined, LaneEvent
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import Grant, PartitionReport


class Progress(NamedTuple):
    """Progress of a partition: everything before `next_offset` is acknowledged by the target.

    `exact`: nothing beyond it was fetched that still has to be sent. `target_end`: next offset of the
    target's log after the last batch that it acknowledged, had it lost none; -1 if unknown. `markers`: see
    `Provenance`, with the open transaction committed. `sequence`: of the next record after `next_offset`,
    exactly once without transactions; `closed`: nothing follows it under this producer. `same`: see
    `Provenance`.
    """

    next_offset: int
    leader_epoch: int
    exact: bool
    target_end: int = -1
    markers: int = 0
    sequence: int = 0
    closed: bool = False
    same: SameOffsets | None = None


class Socket(Protocol):
    """`urgent`: served before those that are not."""

    @property
    def wants_write(self) -> bool: ...

    @property
    def urgent(self) -> bool: ...

    def fileno(self) -> int: ...


class SocketGroup(Protocol):
    """Sockets for the selector of the copier's loop, and who handles them."""

    @property
    def open(self) -> Iterable[Socket]: ...

    def on_readable(self, socket: Any, now_s: float) -> None: ...

    def on_writable(self, socket: Any, now_s: float) -> None: ...


class Transactions(Protocol):
    """Transactions of a lane: everything that it sends of partitions with a handler or a query, exactly once,
    belongs to the open one."""

    def begin(self, producer: Producer) -> None:
        """Open the next transaction: everything of them that is sent from now on belongs to it."""

    def joined(self, joined: Joined, now_s: float) -> None:
        """The coordinator knows which take part; the refused try again later."""

    def wrote_control_records(self, written: ControlRecordsWritten, now_s: float) -> None:
        """A transaction without data is over, which `WriteControlRecords` requested."""

    def seal(self) -> None:
        """Send nothing new in the open transaction."""

    def unseal(self) -> None:
        """Go on in the same transaction."""

    @property
    def settled(self) -> bool:
        """The outcome of everything that was sent is known."""

    def has_backlog(self, now_s: float) -> bool:
        """Some partition has much that waits to be sent, or had a moment ago."""

    def set_aside(self, now_s: float) -> str:
        """Leave what keeps the transaction from being settled out of the next ones, for a while.

        Partitions and reasons; "" if none is at fault, so that only waiting helps.
        """

    def committed(self) -> None:
        """Close the transaction, which is committed: everything that was sent in it is visible."""

    def end(self) -> None:
        """Close the transaction, which is aborted: send nothing until `rewind` and `begin`."""

    def rewind(
        self, partition: Partition, offset: int, leader_epoch: int, *, committed: bool
    ) -> None:
        """Go on at the position that the store has: what was sent behind it is void. `committed`: what was
        sent before it counts, since the transaction was committed, though its outcome was not known."""


class Lane(Protocol):
    """Everything runs in the copier's loop; nothing blocks. A partition is known from begin to drop."""

    @property
    def latency(self) -> Latencies: ...

    @property
    def handled(self) -> HandlerCounters: ...

    @property
    def transactions(self) -> Transactions: ...

    def begin(self, partition: Partition, grant: Grant, beginning: StartPosition) -> None: ...

    def suspend(self, partition: Partition) -> None:
        """Neither fetch nor send; keep what is there."""

    def resume(self, partition: Partition) -> None: ...

    def change_settings(self, partition: Partition, settings: RouteSettings) -> None:
        """The settings of the route have changed: those that count while copying count from now on."""

    def confirmed(self, partition: Partition) -> None:
        """The position was committed once more since ConfirmationNeeded was posted."""

    def seek(self, partition: Partition, offset: int) -> bool:
        """Go on at another offset, over a gap that the operator's policy allows. False: it was taken back
        before the gap since, and will find it again."""

    def finish(self, partition: Partition) -> None:
        """Fetch no more; send the rest."""

    def drop(self, partition: Partition) -> None:
        """Forget the partition. What is on its way to the target is taken back as far as possible."""

    def progress(self, partitions: Iterable[Partition]) -> dict[Partition, Progress]: ...

    def producer(self, id: int, epoch: int) -> None:
        """The producer id that `NewProducer` requested."""

    def take_events(self) -> Iterator[LaneEvent]:
        """Events since the last call."""

    def status(self, partition: Partition) -> PartitionReport:
        """State and counters of one partition, as far as the lane knows them: ERROR by what fails now, and at
        which end; ONLINE once the source responds."""

    def segments(self, partition: Partition) -> tuple[Segment, ...]:
        """Offsets of the records in the partition's own target partition, as far as known, in order.

        In transactions: what is committed. The number is bounded.
        """

    def map_segments(self, partition: Partition, *, since: int) -> tuple[MapSegment, ...]:
        """All segments from this target offset on, the newest in any case; in transactions also what is not
        committed. Those before it are in the offset map."""

    def sockets(self) -> Sequence[SocketGroup]: ...

    def work(self, now_s: float) -> None:
        """One turn: send whatever can be sent now."""

    def close(self) -> None: ...
