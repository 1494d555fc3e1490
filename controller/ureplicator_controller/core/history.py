"""The last few hundred moves, kept for people in a ring of nodes under `history`.

    move number n  ->  block n // 64  ->  node (n // 64) % 8

A new block replaces what is eight blocks older, so 449 to 512 moves are there once the ring is full,
and a move costs one write of one small node however long the fleet lives. A rebalance of a big fleet
moves more than the ring holds: the last ones stay.

It is written after the steps it tells of, in a fenced transaction of its own: a leader that dies in
between leaves its last plan untold, which costs a line of history, where the reverse order would
tell of what never happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ureplicator_common.model import PastMove
from ureplicator_controller.core.moves import Moved
from ureplicator_controller.core.snapshot import Snapshot, Stored

BLOCK_MOVES = 64
"""About 10 KiB as JSON, 2 KiB compressed."""
BLOCKS = 8
KEPT = BLOCK_MOVES * BLOCKS
AT_ONCE = KEPT - BLOCK_MOVES
"""So many never touch more blocks than there are, wherever in a block they begin."""

Block = tuple[int, tuple[PastMove, ...], int | None]
"""Node, content, version to write it at (None: it is not there)."""


def append(snapshot: Snapshot, moved: Sequence[Moved]) -> Iterator[Block]:
    """The blocks to write, oldest first."""
    begin = 1 + max((past.number for past in past_moves(snapshot.history)), default=-1)
    begin += max(0, len(moved) - AT_ONCE)
    blocks: dict[int, list[PastMove]] = {}
    for number, each in enumerate(moved[-AT_ONCE:], begin):
        past = PastMove(
            number, each.partition, each.source, each.target, each.reason, snapshot.wall_ms
        )
        blocks.setdefault(number // BLOCK_MOVES, []).append(past)
    for block, added in blocks.items():
        node = block % BLOCKS
        stored = snapshot.history.get(node)
        before = stored.value if stored else ()
        same = tuple(past for past in before if past.number // BLOCK_MOVES == block)
        yield node, (*same, *added), stored.version if stored else None


def past_moves(history: Mapping[int, Stored[tuple[PastMove, ...]]]) -> Iterator[PastMove]:
    """All of them, in no order."""
    for stored in history.values():
        yield from stored.value
