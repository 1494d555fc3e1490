"""One batch of a partition on its way to the target, or a gap, which has none. Pure."""

from __future__ import annotations

from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.wire.produce_api import Produced

UNKNOWN_OFFSET = -1
ALWAYS_MS = 1 << 62
"""Time of what brokers stamp themselves: they keep a producer from then on."""


class Batch:
    """One batch to be produced. Offsets are the source's; `next_offset` is where copying goes on.

    `offsets`: of its records, for a batch that was built; None: they follow `first_offset`. `may_be_there`:
    the outcome of a try under its sequence is unknown, or it was taken before one in front. `oldest_ms`:
    time of the oldest of it and those that were sent behind it. `checked`: see `header.stamp`. `lossy`: a gap
    with records that are not copied. `hollow`: a gap where the source may have held records before.
    """

    __slots__ = (
        "acknowledged",
        "checked",
        "first_offset",
        "hollow",
        "leader_epoch",
        "lease",
        "lossy",
        "max_timestamp_ms",
        "may_be_there",
        "next_offset",
        "offsets",
        "oldest_ms",
        "records",
        "refusal",
        "sequence",
        "settled",
        "target_base",
        "view",
    )

    def __init__(
        self,
        view: memoryview,
        *,
        lease: Lease | None,
        first_offset: int,
        next_offset: int,
        leader_epoch: int,
        records: int,
        max_timestamp_ms: int,
        offsets: SourceOffsets | None = None,
        checked: bool = False,
    ) -> None:
        self.view = view
        self.lease = lease
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.records = records
        self.max_timestamp_ms = max_timestamp_ms
        self.oldest_ms = max_timestamp_ms
        self.offsets = offsets
        self.checked = checked
        self.lossy = self.hollow = False
        self.sequence = -1
        self.may_be_there = False
        self.settled = False
        self.acknowledged = False
        self.target_base = UNKNOWN_OFFSET
        self.refusal: Produced | None = None

    @classmethod
    def gap(cls, first_offset: int, next_offset: int, leader_epoch: int) -> Batch:
        """Source offsets without a record."""
        return cls(
            memoryview(b""),
            lease=None,
            first_offset=first_offset,
            next_offset=next_offset,
            leader_epoch=leader_epoch,
            records=0,
            max_timestamp_ms=ALWAYS_MS,
        )

    @property
    def is_gap(self) -> bool:
        return not self.records

    @property
    def is_filler(self) -> bool:
        """Records before the first that is copied: the position does not move over them."""
        return self.next_offset == self.first_offset

    @property
    def is_initial(self) -> bool:
        """The gap before the first record."""
        return self.is_gap and self.is_filler

    def source_offsets(self) -> SourceOffsets:
        return self.offsets or SourceOffsets.from_(self.first_offset)

    def goes_on(self, *, begin: bool) -> bool:
        """A transaction may send it: it was sent before, belongs to what was sent, or may `begin`."""
        return begin or self.sequence >= 0

    def release(self) -> None:
        """The batch is no longer needed."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None

    def detach(self) -> None:
        """Copy the bytes, once, and give their buffer back: other partitions may need it."""
        if self.lease is not None and not self.lease.adopted:
            buffer, self.lease = self.lease, self.lease.adopt(bytearray(self.view))
            self.view = self.lease.view
            buffer.abandon()
