"""Committed positions whose data cannot be read as committed yet.

Exactly once, one transaction holds data and positions. Its markers are written to each partition by itself: a
position may be visible while the marker of its data waits for the election of a leader. Until then the last
stable offset of that log stands before the data. The position names the end of the data (`provenance`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ureplicator_common.kafka import ClusterUnavailable, LogReader, PartitionUnavailable, Position
from ureplicator_common.kafka.client import LATEST
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.position_rows import TargetPartition

PAUSE_S = 1.0
ATTEMPTS = 30


def hidden(
    stored: Mapping[TargetPartition, Position], logs: LogReader
) -> dict[TargetPartition, str]:
    """Target partitions whose data up to the position cannot be read yet, each with the reason.

    `logs`: of the target. A log that ends before the data has lost them, so it is not among these. Raises
    ClusterUnavailable.
    """
    ends = {key: end for key, position in stored.items() if (end := _end(position)) >= 0}
    if not ends:
        return {}
    stable = logs.offsets_at(dict.fromkeys(ends, LATEST))
    late = {key: end for key, end in ends.items() if not _reaches(stable[key], end)}
    if not late:
        return {}
    last = logs.offsets_at(dict.fromkeys(late, LATEST), committed=False)
    return {
        key: _reason(last[key], end)
        for key, end in late.items()
        if isinstance(last[key], PartitionUnavailable) or _reaches(last[key], end)
    }


def wait_until_visible(
    stored: Mapping[TargetPartition, Position],
    logs: LogReader,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the data of all positions can be read. Raises ClusterUnavailable, also if that takes too
    long."""
    late = hidden(stored, logs)
    for _ in range(ATTEMPTS):
        if not late:
            return
        pause(PAUSE_S)
        late = hidden(stored, logs)
    if late:
        (topic, number), why = min(late.items())
        raise ClusterUnavailable(f"{topic}/{number} cannot be read up to the position: {why}")


def _end(position: Position) -> int:
    """End of the data before a position; -1 unknown."""
    written = Provenance.decode(position.metadata) if position.offset >= 0 else None
    return written.target_end if written else -1


def _reaches(found: int | PartitionUnavailable, end: int) -> bool:
    return not isinstance(found, PartitionUnavailable) and found >= end


def _reason(last: int | PartitionUnavailable, end: int) -> str:
    if isinstance(last, PartitionUnavailable):
        return str(last)
    return f"a transaction before offset {end:,} has not ended"
