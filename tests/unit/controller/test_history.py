"""The ring of past moves: what it keeps, and that the leader writes it."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.model import SessionId, WorkerId
from ureplicator_controller.core.history import (
    AT_ONCE,
    BLOCK_MOVES,
    BLOCKS,
    KEPT,
    append,
    past_moves,
)
from ureplicator_controller.core.moves import Moved, moves
from ureplicator_controller.core.snapshot import Snapshot, Stored
from ureplicator_testkit.control_fleet import partition, two_workers

A, B = WorkerId("a"), WorkerId("b")


def told(count: int, reason: str = "balance") -> list[Moved]:
    return [Moved(partition("t", number), A, B, reason) for number in range(count)]


def after(seen: Snapshot, moved: list[Moved]) -> Snapshot:
    """What is stored once those were written."""
    history = dict(seen.history)
    for node, block, version in append(seen, moved):
        stored = history.get(node)
        assert version == (stored.version if stored else None)
        history[node] = Stored(block, (version or 0) + 1, 0, SessionId(0))
    return replace(seen, history=history)


def numbers(seen: Snapshot) -> list[int]:
    return sorted(past.number for past in past_moves(seen.history))


def test_a_move_is_one_small_write() -> None:
    seen = Snapshot(fleet="test", epoch=1, wall_ms=7)
    for _ in range(3):
        assert len(list(append(seen, told(1)))) == 1
        seen = after(seen, told(1))
    assert numbers(seen) == [0, 1, 2]
    assert {past.wall_ms for past in past_moves(seen.history)} == {7}
    assert list(append(seen, [])) == []


def test_the_oldest_go() -> None:
    seen = Snapshot(fleet="test", epoch=1)
    for _ in range(100):
        seen = after(seen, told(13))
        assert len(seen.history) <= BLOCKS
    last = numbers(seen)[-1]
    assert last == 1299
    assert numbers(seen) == list(range(last - len(numbers(seen)) + 1, last + 1))
    assert KEPT - BLOCK_MOVES < len(numbers(seen)) <= KEPT


def test_more_at_once_than_are_kept() -> None:
    for there in (3, 60, 64, 65):
        seen = after(Snapshot(fleet="test", epoch=1), told(there))
        seen = after(seen, told(2_000))
        last = there + 1_999
        assert numbers(seen)[-AT_ONCE:] == list(range(last - AT_ONCE + 1, last + 1))
        assert max(past_moves(seen.history), key=lambda past: past.number).partition.number == 1_999


def test_moves_are_changes_of_owner() -> None:
    fleet = two_workers(2)
    fleet.topic("u", 1)
    fleet.tag("a", draining=True)
    seen = fleet.look()
    found = list(moves(seen, fleet.planner(seen, fleet.now_s).steps))
    assert found == [
        Moved(partition("t", 0), A, B, "worker a drained"),
        Moved(partition("u", 0), None, B, "new topic"),
    ]
    fleet.settle()
    seen = fleet.look()
    assert list(moves(seen, fleet.planner(seen, fleet.now_s).steps)) == []
