"""Start of a target's log that its leader was asked to move (DeleteRecords), until it is on disk. Pure.

A broker has it in its memory at once, and writes it in due time (`findings/deleted_records_after_a_kill.sh`).
"""

from __future__ import annotations

from dataclasses import dataclass

BrokerRun = tuple[int, int]
"""Node, and how many connections to it were lost before: behind a loss, the broker may have restarted."""
NO_RUN = (-1, 0)


@dataclass(slots=True)
class LogStart:
    """`offset`: -1 before the first move. `is_stored`: the broker has surely written it."""

    offset: int = -1
    is_stored: bool = False
    _run: BrokerRun = NO_RUN
    _stored_at_s: float = 0.0

    def moved(self, offset: int, run: BrokerRun, now_s: float, *, stored_s: float) -> None:
        """Note an answer of this run of a broker, which takes so long to write it."""
        if (offset, run) != (self.offset, self._run):
            self.offset, self._run = offset, run
            self._stored_at_s = now_s + stored_s
        self.is_stored = now_s >= self._stored_at_s
