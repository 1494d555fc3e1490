"""Event log: the latest two thousand events, in a ring of nodes under `history`.

    event number n  ->  block n // 64  ->  node (n // 64) % 32

A new block replaces the one that is 32 blocks older. So 1,985 to 2,048 events are stored once the ring is
full, and an event costs one write of one small node however long the fleet lives. One cycle writes half of
the ring at most, so that a rebalance of a big fleet leaves what was before it: its latest moves are kept,
and all events of other kinds, which show the cause.

Numbers, not places, say what is newer. So a tree whose ring was smaller goes on: its blocks are replaced when
the ring comes to them.

The log is written after the steps that it describes, in a fenced transaction of its own. A leader that
dies in between leaves its last plan unlogged; the reverse order could log moves that never happened.

The duration of a move is added later, when its owner reports ONLINE under the move's owner epoch: at
most one write of each block per snapshot, and none for moves that have left the ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.model import PartitionState
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.external_view import reported_state
from ureplicator_controller.core.state.snapshot import Snapshot

BLOCK_EVENTS = 64
"""Events of a full block: about 14 KiB as JSON, 2 KiB compressed."""
BLOCKS = 32
"""All of them fit into one transaction: their durations may be known at the same time."""
MAX_EVENTS = BLOCK_EVENTS * BLOCKS
MAX_EVENTS_PER_WRITE = MAX_EVENTS // 2
"""Some twelve rebalances of 50 workers are kept; one of a thousand partitions does not drop them all."""

Block = tuple[int, tuple[PastEvent, ...], int | None]
"""Node, content, version to write it at (None: it does not exist)."""


def blocks_to_write(snapshot: Snapshot, events: Sequence[PastEvent]) -> Iterator[Block]:
    """Blocks to write: with durations that are known now, then with the new events, numbered."""
    before = {node: stored.value for node, stored in snapshot.history.items()}
    after = {
        node: tuple(_timed(past, snapshot) for past in block) for node, block in before.items()
    }
    first = 1 + max((past.number for past in past_events(snapshot.history)), default=-1)
    for number, event in enumerate(select_events(events), first):
        block = number // BLOCK_EVENTS
        node = block % BLOCKS
        kept = [past for past in after.get(node, ()) if past.number // BLOCK_EVENTS == block]
        after[node] = (*kept, replace(event, number=number))
    for node, content in sorted(after.items()):
        stored = snapshot.history.get(node)
        if content != before.get(node):
            yield node, content, stored.version if stored else None


def select_events(events: Sequence[PastEvent]) -> Sequence[PastEvent]:
    """Select no more events than fit, in order; those of single partitions are dropped first."""
    others = sum(event.partition is None for event in events)
    surplus = len(events) - MAX_EVENTS_PER_WRITE
    kept = []
    for event in events:
        if surplus > 0 and (event.partition is not None or others > MAX_EVENTS_PER_WRITE):
            surplus -= 1
        else:
            kept.append(event)
    return kept


def _timed(past: PastEvent, snapshot: Snapshot) -> PastEvent:
    """Add a move's duration once its owner reports ONLINE under the move's owner epoch."""
    if past.took_ms is not None or past.target is None or past.partition is None:
        return past
    current = reported_state(snapshot, past.target)
    entry = current.entries.get(past.partition) if current else None
    if entry is None or entry.owner_epoch != past.owner_epoch:
        return past
    if entry.state is not PartitionState.ONLINE:
        return past
    return replace(past, took_ms=max(0, snapshot.wall_ms - past.wall_ms))


def past_events(history: Mapping[int, Stored[tuple[PastEvent, ...]]]) -> Iterator[PastEvent]:
    """All stored events, unordered."""
    for stored in history.values():
        yield from stored.value
