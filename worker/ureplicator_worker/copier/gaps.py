"""Gaps of a route's partitions: where copying goes on, and a report of each one that was passed over.

A gap is never silent: it is in the log, counted, and in the fleet's history with its offsets
(`GapPassed`). The lane finds it (`GapFound`), or the search for the start does. Whether copying goes on is
the policy's decision (`on_gap`), and the holder's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ureplicator_common.clock import SystemClock
from ureplicator_common.model import Gap, Partition
from ureplicator_worker.copier.lane import GapFound, Lane
from ureplicator_worker.copier.ownership.protocol import Locate
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline.messages import GapPassed, Grant, Message

CLOCK = SystemClock()

logger = logging.getLogger(__name__)


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
        """Those for which the policy's offset is being read."""

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
            self._seek(gap, offset)

    def _seek(self, gap: GapFound, next_offset: int) -> None:
        self._lane.seek(gap.partition, next_offset)
        self._report(gap, next_offset)

    def _report(self, found: GapFound, next_offset: int) -> None:
        partition, reason = found.partition, found.reason
        logger.error("%s: %s; going on at offset %d", partition, reason, next_offset)
        gap = Gap(reason, found.offset, next_offset, self._wall_ms())
        self._send(GapPassed(partition, gap))
