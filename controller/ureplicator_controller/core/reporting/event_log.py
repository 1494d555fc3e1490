"""The last few hundred events, kept for people in a ring of nodes under `history`.

    event number n  ->  block n // 64  ->  node (n // 64) % 8

A new block replaces what is eight blocks older, so 449 to 512 events are there once the ring is
full, and an event costs one write of one small node however long the fleet lives. A rebalance of a
big fleet moves more than the ring holds: the last moves stay, and whatever is no move, which tells
why they were made.

It is written after the steps it tells of, in a fenced transaction of its own: a leader that dies in
between leaves its last plan untold, which costs a line of history, where the reverse order would
tell of what never happened.

How long a move took is not known when it is told. It is filled in when its owner says that it is
ONLINE under that very owner epoch: at most one write of each block for one look at the fleet, and
none for moves that left the ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.model import EventKind, PartitionState, PastEvent
from ureplicator_controller.core.state.snapshot import Snapshot, Stored

BLOCK_EVENTS = 64
"""About 14 KiB as JSON, 2 KiB compressed."""
BLOCKS = 8
KEPT = BLOCK_EVENTS * BLOCKS
AT_ONCE = KEPT - BLOCK_EVENTS
"""So many never touch more blocks than there are, wherever in a block they begin."""

Block = tuple[int, tuple[PastEvent, ...], int | None]
"""Node, content, version to write it at (None: it is not there)."""


def blocks_to_write(snapshot: Snapshot, told: Sequence[PastEvent]) -> Iterator[Block]:
    """The blocks to write: durations that are known now, and after them what is told, numbered."""
    before = {node: stored.value for node, stored in snapshot.history.items()}
    after = {
        node: tuple(_timed(past, snapshot) for past in block) for node, block in before.items()
    }
    begin = 1 + max((past.number for past in past_events(snapshot.history)), default=-1)
    for number, event in enumerate(select_events(told), begin):
        block = number // BLOCK_EVENTS
        node = block % BLOCKS
        same = [past for past in after.get(node, ()) if past.number // BLOCK_EVENTS == block]
        after[node] = (*same, replace(event, number=number))
    for node, events in sorted(after.items()):
        stored = snapshot.history.get(node)
        if events != before.get(node):
            yield node, events, stored.version if stored else None


def select_events(told: Sequence[PastEvent]) -> Sequence[PastEvent]:
    """In their order, no more than fit; moves give way to what is none."""
    others = sum(event.kind is not EventKind.MOVE for event in told)
    spare = len(told) - AT_ONCE
    kept = []
    for event in told:
        if spare > 0 and (event.kind is EventKind.MOVE or others > AT_ONCE):
            spare -= 1
        else:
            kept.append(event)
    return kept


def _timed(past: PastEvent, snapshot: Snapshot) -> PastEvent:
    """With its duration, if its owner is ONLINE by it."""
    if past.took_ms is not None or past.target is None or past.partition is None:
        return past
    said = snapshot.current.get(past.target)
    if said is None or said.owner != snapshot.sessions.get(past.target):
        return past
    entry = said.value.entries.get(past.partition)
    if entry is None or entry.owner_epoch != past.owner_epoch:
        return past
    if entry.state is not PartitionState.ONLINE:
        return past
    return replace(past, took_ms=max(0, snapshot.wall_ms - past.wall_ms))


def past_events(history: Mapping[int, Stored[tuple[PastEvent, ...]]]) -> Iterator[PastEvent]:
    """All of them, in no order."""
    for stored in history.values():
        yield from stored.value
