"""Events of gaps: one for each gap that workers have passed and no leader has logged.

A copier that dies right after it passed a gap has committed nothing behind it, so the next one passes the
same gap again. A gap with the same offsets and the same reason is therefore the same event, however many
owners report it. One that is passed after the partition's position was set by a request is another event:
that request made copying pass there again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ureplicator_common.model import EventKind, Partition, WorkerId
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.reporting.event_history import past_events
from ureplicator_controller.core.state.snapshot import Snapshot

Passed = tuple[Partition | None, int | None, int | None, str]
"""A gap without the report of it: partition, both offsets, reason."""


def gap_events(
    before: Snapshot | None, now: Snapshot, changes: Iterable[PastEvent]
) -> Iterator[PastEvent]:
    """`changes` are the other events since `before`: they are not in the history yet."""
    found = list(_published_gaps(before, now))
    if not found:
        return
    past = sorted(past_events(now.history), key=lambda event: event.number)
    logged = [event for event in past if event.kind is EventKind.GAP]
    reports = {(event.partition, event.wall_ms) for event in logged}
    passed = _passed([*past, *changes])
    for event in found:
        report, gap = (event.partition, event.wall_ms), _content(event)
        if report not in reports and gap not in passed:
            passed.add(gap)
            yield event


def _published_gaps(before: Snapshot | None, now: Snapshot) -> Iterator[PastEvent]:
    """Gaps in the current states that workers have written since."""
    for worker, stored in sorted(now.current.items()):
        if before is not None and stored.mzxid == _published(before, worker):
            continue
        for partition, entry in stored.value.entries.items():
            if entry.gap is not None:
                yield PastEvent(
                    0,
                    EventKind.GAP,
                    entry.gap.reason,
                    entry.gap.wall_ms,
                    worker=worker,
                    partition=partition,
                    owner_epoch=entry.owner_epoch,
                    first_offset=entry.gap.first_offset,
                    next_offset=entry.gap.next_offset,
                )


def _passed(events: Sequence[PastEvent]) -> set[Passed]:
    """Gaps that were logged since the last time that their partition's position was set; by number."""
    passed: set[Passed] = set()
    for event in events:
        if event.kind is EventKind.GAP:
            passed.add(_content(event))
        elif event.kind is EventKind.POSITION:
            passed = {gap for gap in passed if gap[0] != event.partition}
    return passed


def _content(event: PastEvent) -> Passed:
    return event.partition, event.first_offset, event.next_offset, event.reason


def _published(before: Snapshot, worker: WorkerId) -> int:
    """The write that brought a worker's current state; -1: there was none."""
    stored = before.current.get(worker)
    return stored.mzxid if stored else -1
