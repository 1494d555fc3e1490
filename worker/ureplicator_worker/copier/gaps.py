"""Gaps of a route's partitions: where copying goes on, and a report of each one that was passed over.

A gap is never silent: it is in the log, counted, and in the fleet's history with its offsets
(`GapPassed`). The lane finds it (`GapFound`), or the search for the start does. Whether copying goes on is
the policy's decision (`on_gap`), and the holder's.

Records that the target refuses, and that `abort_on_send_failure: false` leaves out, are holes too
(`RecordSkipped`). They may be many: those of a second are reported together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from ureplicator_common.clock import SystemClock
from ureplicator_common.model import Gap, Partition
from ureplicator_worker.copier.lane import Lane
from ureplicator_worker.copier.messages import GapFound, Locate, RecordSkipped
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import GapPassed, Grant, Message

CLOCK = SystemClock()
SKIPPED_TOGETHER_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Skipped:
    """Records that were left out since the last report, between two offsets."""

    first_offset: int
    since_s: float
    next_offset: int = -1
    count: int = 0
    reason: str = ""

    def add(self, skipped: RecordSkipped) -> None:
        self.first_offset = min(self.first_offset, skipped.offset)
        self.next_offset = max(self.next_offset, skipped.offset + 1)
        self.count += 1
        self.reason = skipped.reason

    @property
    def summary(self) -> str:
        records = "1 record" if self.count == 1 else f"{self.count:,} records"
        return f"{records} skipped (abort_on_send_failure: false): {self.reason}"


class Gaps:
    """`send` delivers a message to the driver; `wall_ms` is the time of day, shown to operators."""

    def __init__(
        self,
        *,
        lane: Lane,
        ownership: Ownership,
        send: Callable[[Message], None],
        wall_ms: Callable[[], int] = CLOCK.wall_ms,
    ) -> None:
        self._lane = lane
        self._ownership = ownership
        self._send = send
        self._wall_ms = wall_ms
        self._located: dict[Partition, GapFound] = {}
        """Gaps for which the policy's offset is being read."""
        self._skipped: dict[Partition, Skipped] = {}

    def begin(self, partition: Partition, beginning: StartPosition) -> None:
        """The partition begins, perhaps behind a gap."""
        self._located.pop(partition, None)
        if beginning.gap:
            found = GapFound(partition, beginning.gap, beginning.gap_offset)
            self._report(found, beginning.position)

    def pass_over(self, gap: GapFound, grant: Grant) -> None:
        """Go on behind the gap, at once or where the policy says."""
        if gap.next_offset >= 0:
            self._seek(gap, gap.next_offset)
            return
        self._located[gap.partition] = gap
        self._ownership.put(Locate(gap.partition, grant))

    def located(self, partition: Partition, offset: int) -> None:
        """The policy's offset was read."""
        gap = self._located.pop(partition, None)
        if gap is not None:
            self._seek(replace(gap, reason=f"{gap.reason}: {cause(gap.offset, offset)}"), offset)

    def skipped(self, skipped: RecordSkipped, now_s: float) -> None:
        """Go on without a record."""
        logger.error("%s: record skipped: %s", skipped.partition, skipped.reason)
        known = self._skipped.setdefault(skipped.partition, Skipped(skipped.offset, now_s))
        known.add(skipped)

    def work(self, now_s: float) -> None:
        """Report the records that were skipped a while ago, and those since."""
        for partition, skipped in list(self._skipped.items()):
            if now_s - skipped.since_s >= SKIPPED_TOGETHER_S:
                self.leave(partition)

    def leave(self, partition: Partition) -> None:
        """Report what is left of the partition: the driver takes nothing of it after its release."""
        skipped = self._skipped.pop(partition, None)
        if skipped is not None:
            self._pass(
                partition, skipped.summary, skipped.first_offset, next_offset=skipped.next_offset
            )

    def _seek(self, gap: GapFound, next_offset: int) -> None:
        """Report a gap only where it is passed over: one that will be found again is reported then."""
        if self._lane.seek(gap.partition, next_offset):
            self._report(gap, next_offset)

    def _report(self, found: GapFound, next_offset: int) -> None:
        partition, reason = found.partition, found.reason
        logger.error("%s: %s; going on at offset %d", partition, reason, next_offset)
        self._pass(partition, reason, found.offset, next_offset=next_offset)

    def _pass(self, partition: Partition, reason: str, offset: int, *, next_offset: int) -> None:
        gap = Gap(reason, offset, next_offset, self._wall_ms())
        self._send(GapPassed(partition, gap))


def cause(offset: int, located: int) -> str:
    """Cause for which an offset is out of range, by the beginning or the end of the log."""
    if located < offset:
        return "its log ends before that"
    return "deleted there, by retention or DeleteRecords"
