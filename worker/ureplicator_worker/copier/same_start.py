"""Equal offsets of a partition at its start. Pure.

| the position          | the target's log                 | offsets                                        |
|-----------------------|----------------------------------|------------------------------------------------|
| a first one           | is empty, and ends before it     | the same, once the log begins there (`filling`)|
| a first one           | holds records, or ends behind it | refused                                        |
| stored, of this kind  |                                  | as stored; since the start, if more was copied |
|                       |                                  | behind it, and not surely shifted alike        |
| stored, mapped so far |                                  | by the present ends of both logs               |
| behind a gap          |                                  | by the present ends of both logs               |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_common.model import Partition
from ureplicator_worker.copier.messages import FindStarts
from ureplicator_worker.copier.position_values import Counted, StartPosition
from ureplicator_worker.copier.start_position import CannotStart

MAPPED = "copied with mapped offsets before"

Start = StartPosition | CannotStart


def with_same_offsets(job: FindStarts, found: Mapping[Partition, Start]) -> dict[Partition, Start]:
    """The starts that were found, with the state of equal offsets where the topic shall have them."""
    return {
        part: _with_same(part, job, start)
        if isinstance(start, StartPosition)
        and job.grants[part].settings.has_same_offsets(part.topic)
        else start
        for part, start in found.items()
    }


def _with_same(partition: Partition, job: FindStarts, start: StartPosition) -> Start:
    key = (job.grants[partition].target_topic, partition.number)
    end = job.target.ends.get(key)
    if (
        isinstance(end, int) and end > start.target_end
    ):  # control records may follow what was copied
        start = replace(start, target_end=end)
    former = Provenance.decode(job.stored[key].metadata) if job.stored[key].offset >= 0 else None
    if start.gap or (former is not None and former.same is None):
        return replace(start, same=_by_ends(start, start.gap or MAPPED))
    if former is None or former.same is None:
        return _first(start, job.target.starts.get(key), name=f"{key[0]}/{key[1]}")
    same = former.same._replace(old=False)
    if same.filling != start.position:
        same = same._replace(filling=-1)
    if start.position != job.stored[key].offset and not _has_shift(start.counted, same.shift):
        same = same._replace(since=start.position)
    return replace(start, same=same)


def _has_shift(counted: Counted | None, shift: int) -> bool:
    """True if the records that the former owner copied behind the position are surely shifted alike."""
    if counted is None or len(counted.spans) != 1:
        return False
    return counted.target - counted.spans[0].first == shift


def _by_ends(start: StartPosition, reason: str) -> SameOffsets:
    shift = start.target_end - start.position
    return SameOffsets(start.position, shift, reason if shift else "")


def _first(
    start: StartPosition, log_start: int | PartitionUnavailable | None, *, name: str
) -> Start:
    """A log that is empty, and begins where the source's does."""
    if not isinstance(log_start, int):
        return CannotStart(f"target: where {name} begins is not known: {log_start}", temporary=True)
    if log_start < start.target_end:
        held = f"holds offsets {log_start:,} to {start.target_end - 1:,}"
        return CannotStart(f"{_needs_empty(name)}: it {held}", temporary=False)
    if start.target_end > start.position:
        ends = f"ends at {start.target_end:,}, behind the source's {start.position:,}"
        return CannotStart(f"{_needs_empty(name)}: its log {ends}", temporary=False)
    filling = start.position if start.position > 0 else -1
    return replace(start, same=SameOffsets(start.position, filling=filling))


def _needs_empty(name: str) -> str:
    return (
        f"the same offsets need a new target partition, which {name} is not"
        " (delete the target topic, or copy with mapped offsets)"
    )
