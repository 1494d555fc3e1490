"""One partition in the raw lane, as two halves with one writer each.

    source brokers --> FetchSide --(push)--> SendWindow --(next)--> SendSide --> target brokers
                       written by            the queue between      written by
                       source, ingest                               target

`FetchSide.offset` runs ahead of `window.position`. What was committed is not the lane's concern
(`copier.at_least_once` keeps it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ureplicator_common.kafka.provenance import SameOffsets
from ureplicator_common.model import Partition
from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.copier.net.connections import (
    BACKLOG_BYTES,
    BACKLOG_KEPT_S,
    NO_VIA,
    Traffic,
    Via,
)
from ureplicator_worker.copier.position_values import Counted, StartPosition
from ureplicator_worker.copier.raw.log_start import LogStart
from ureplicator_worker.copier.raw.send_window import SendWindow
from ureplicator_worker.copier.raw.target_offsets import TargetOffsets
from ureplicator_worker.copier.raw.window_queue import MARKERS_AT_MOST
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.wire.topic_keys import TopicKeys

TopicPartition = tuple[str, int]

NEVER_S = float("inf")


class StoredWindow(Protocol):
    """A window for stored batches that a handler takes apart (`copier.record.window`)."""

    position: int

    @property
    def empty(self) -> bool: ...

    @property
    def queued_bytes(self) -> int: ...

    def keep(self, lease: Lease, *, position: int, next_offset: int, leader_epoch: int) -> None: ...

    def pass_over(self, next_offset: int, leader_epoch: int) -> None: ...


FetchWindow = SendWindow | StoredWindow
"""The window that a source fills."""


@dataclass(slots=True, eq=False)
class FetchSide:
    """Fetch position of a partition, and errors of its source. Written by `Source` and `ingest`; settings
    by `record.partition`.

    `keys`: the source topic as the versions of Fetch name it. The id is the one that the position was
    proven against, so a recreated topic is never read under it. `read_by_name`: something was fetched
    without that guard.
    `fetching`: the last response of the source was no error. `finished`: fetch no more, and discard
    what a response still brings. `via`: connection whose session fetches it; NO_VIA if none does.
    `backlog_until_s`: it is fetched beside others with a backlog until then.
    """

    partition: Partition
    topic_partition: TopicPartition
    keys: TopicKeys
    verify_crc: bool
    window: FetchWindow
    offset: int
    leader_epoch: int
    suspended: bool = False
    finished: bool = False
    via: Via = NO_VIA
    backlog_until_s: float = 0.0
    fetching: bool = False
    error: str = ""
    last_stable: int = -1
    retry_at_s: float = 0.0
    corrupt_tries: int = 0
    read_by_name: bool = False
    gaps: int = 0
    gap_offsets: int = 0

    @classmethod
    def begin(
        cls, partition: Partition, grant: Grant, beginning: StartPosition, window: FetchWindow
    ) -> FetchSide:
        return cls(
            partition=partition,
            topic_partition=(partition.topic, partition.number),
            keys=TopicKeys.of(partition.topic, beginning.source_topic_id, partition.number),
            verify_crc=grant.settings.verify_crc,
            window=window,
            offset=beginning.position,
            leader_epoch=beginning.leader_epoch,
            gaps=1 if beginning.gap else 0,
        )

    @property
    def may_rewind(self) -> bool:
        """False at a gap, where the holder decides what follows, and once fetching has ended."""
        return not self.finished and self.retry_at_s < NEVER_S

    @property
    def lag(self) -> int:
        """Offsets up to the stable end of the source; -1 while it is not known. What lies behind it waits for
        the end of a transaction there, not for us."""
        if self.last_stable < 0:
            return -1
        return max(0, self.last_stable - self.window.position)


@dataclass(slots=True)
class Copied:
    """Records that readers see at the target, their bytes, and records that were skipped."""

    records: int = 0
    bytes: int = 0
    skipped: int = 0

    def add(self, other: Copied) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.skipped += other.skipped


FOREIGN = "others have written to the target's partition, or the end of a request was not known"


@dataclass(slots=True, eq=False)
class SendSide:
    """State of a partition's batches at the target. Written by `Target`; settings by `record.partition`,
    `suspended` by the lane.

    `keys`: the target topic as the versions of Produce name it. The id is the one that the position was
    proven against, so no batch reaches a recreated topic under it.
    `sent_via`: connection that the batches in flight were sent on. `aside`: its followers are slow.
    `backlog_until_s`: it is sent beside others with a backlog until then. `sent_at_s`: time of the last
    batch that was sent while none was in flight. `moved_at_s`: when the target last took something of
    it, or it began to wait. `waits_for_markers`: the coordinator still ends the transaction before.
    `outputs`: all sides of a partition with a handler. `transactional`: it sends in the lane's transaction.
    `fenced`: exactly once without transactions. Then it sends only over a connection, and to a leader (its
    epoch), for which the partition was `confirmed`; `confirming`: it waits for that. `confirms_again`: the
    position has moved over a hole since. `stored_sequence`: of a position that is stored by then.
    `same`: how far offsets are those of the source; None where they need not be. `begins`: nothing is copied,
    and the target's log is to begin where the source's does; `filling`: fillers are missing before that;
    `log_start`: the target's log holds nothing before it; `deleting`: it is moving. `shared`: the producer
    may still be another owner's, too; `old`: what is sent may be so old that brokers forget it.
    """

    partition: Partition
    topic_partition: TopicPartition
    keys: TopicKeys
    abort_on_send_failure: bool
    window: SendWindow
    suspended: bool = False
    needs_producer: bool = True
    error: str = ""
    retry_at_s: float = 0.0
    moved_at_s: float = 0.0
    sent_via: Via = NO_VIA
    backlog_until_s: float = 0.0
    sent_at_s: float = 0.0
    aside: bool = False
    waits_for_markers: bool = False
    outputs: dict[TopicPartition, SendSide] = field(default_factory=dict)
    transactional: bool = False
    fenced: bool = False
    confirming: bool = False
    confirms_again: bool = False
    stored_sequence: int = 0
    confirmed: tuple[int, int] = (-1, -1)
    same: SameOffsets | None = None
    begins: bool = False
    filling: bool = False
    deleting: bool = False
    log_start: LogStart = field(default_factory=LogStart)
    shared: bool = False
    old: bool = False
    shift_reason: str = ""
    copied: Copied = field(default_factory=Copied)

    @classmethod
    def begin(
        cls, partition: Partition, grant: Grant, beginning: StartPosition, window: SendWindow
    ) -> SendSide:
        """A side that sends to the partition's own target partition."""
        return cls(
            partition=partition,
            topic_partition=(grant.target_topic, partition.number),
            keys=TopicKeys.of(grant.target_topic, beginning.target_topic_id, partition.number),
            abort_on_send_failure=grant.settings.abort_on_send_failure,
            window=window,
            needs_producer=beginning.appends is None,
            transactional=grant.settings.is_transactional(partition.topic),
            fenced=beginning.appends is not None,
            same=beginning.same,
            begins=beginning.same is not None and beginning.same.filling >= 0,
            filling=beginning.same is not None and beginning.same.filling >= 0,
            shared=beginning.shared,
            shift_reason=beginning.shift_reason or FOREIGN,
        )

    def traffic(self, now_s: float) -> Traffic:
        """Kind of connection for what waits now; a backlog is noted."""
        backlog = self.has_backlog(now_s)
        if self.aside:
            return Traffic.ASIDE
        return Traffic.BACKLOG if backlog else Traffic.LIVE

    def has_backlog(self, now_s: float) -> bool:
        """Much waits, or waited a moment ago; it is noted."""
        if self.window.queued_bytes >= BACKLOG_BYTES:
            self.backlog_until_s = now_s + BACKLOG_KEPT_S
        return now_s < self.backlog_until_s

    def via(self, leader: int, now_s: float) -> Via:
        """Connection of what is in flight, or of what waits."""
        return self.sent_via if self.window.in_flight else Via(leader, self.traffic(now_s))


def same_offsets(send: SendSide) -> SameOffsets | None:
    """State of equal offsets for a position. While nothing is copied it moves with that."""
    if send.same is None:
        return None
    if send.begins:
        return SameOffsets(send.window.position, filling=send.window.position)
    return send.same._replace(filling=-1, old=send.old)


def offsets_behind(counted: Counted, *, end: int) -> TargetOffsets:
    """Offsets of what a former owner copied, as if this one had. `end`: behind the control record."""
    offsets = TargetOffsets(position=counted.source, target_end=counted.target)
    target = counted.target
    for first, records in counted.spans:
        offsets.acknowledged(first, None, target=target, records=records, transactional=False)
        target += records
    offsets.pass_over(end)
    return offsets


@dataclass(frozen=True, slots=True)
class RawPartition:
    """Both halves, and what the partition was proven against."""

    partition: Partition
    beginning: StartPosition
    fetch: FetchSide
    send: SendSide
    window: SendWindow

    @classmethod
    def begin(cls, partition: Partition, grant: Grant, beginning: StartPosition) -> RawPartition:
        window = SendWindow(
            position=beginning.position,
            leader_epoch=beginning.leader_epoch,
            target_end=beginning.target_end,
            fills=beginning.same is not None,
        )
        window.markers = beginning.markers
        if beginning.same is not None and beginning.same.shift < -MARKERS_AT_MOST:
            window.short = -beginning.same.shift
        if beginning.counted is not None:
            window.offsets = offsets_behind(beginning.counted, end=beginning.target_end)
        if beginning.appends is not None:
            id, epoch, sequence = beginning.appends[1:]
            window.restart(id, epoch, sequence=max(0, sequence))
            window.acknowledged_sequence = window.next_sequence
        fetch = FetchSide.begin(partition, grant, beginning, window)
        send = SendSide.begin(partition, grant, beginning, window)
        window.leave_initial_gap(begins=send.begins)
        return cls(partition, beginning, fetch, send, window)

    @property
    def sends(self) -> tuple[SendSide, ...]:
        return (self.send,)

    @property
    def topic_ids(self) -> dict[str, str]:
        """Id of the target topic."""
        return {self.send.topic_partition[0]: self.beginning.target_topic_id}

    def finish(self) -> None:
        """Do nothing: everything that was fetched is sent."""
