"""Event log: the events that the ring keeps, and the durations of moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.coordination import Set, check_size
from ureplicator_common.model import EventKind, OwnerEpoch, PartitionState, SessionId, WorkerId
from ureplicator_common.znode_contents import CurrentEntry, CurrentState, PastEvent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.reporting.event_history import (
    BLOCK_EVENTS,
    BLOCKS,
    MAX_EVENTS,
    MAX_EVENTS_PER_WRITE,
    blocks_to_write,
    past_events,
    select_events,
)
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_testkit.control.fleet import partition

A, B = WorkerId("a"), WorkerId("b")
EMPTY = Snapshot(fleet="test", epoch=1, wall_ms=7)


def moves(count: int) -> list[PastEvent]:
    return [
        PastEvent(
            0,
            EventKind.MOVE,
            "balance",
            7,
            partition=partition("t", number),
            source=A,
            target=B,
            owner_epoch=OwnerEpoch(5),
        )
        for number in range(count)
    ]


def lost(worker: str) -> PastEvent:
    return PastEvent(0, EventKind.WORKER, "gone", 7, worker=WorkerId(worker))


def after(seen: Snapshot, events: list[PastEvent]) -> Snapshot:
    """Snapshot after these events were written."""
    history = dict(seen.history)
    for node, block, version in blocks_to_write(seen, events):
        stored = history.get(node)
        assert version == (stored.version if stored else None)
        history[node] = Stored(block, (version or 0) + 1, 0, SessionId(0))
    return replace(seen, history=history)


def numbers(seen: Snapshot) -> list[int]:
    return sorted(past.number for past in past_events(seen.history))


def test_event_is_one_small_write() -> None:
    seen = EMPTY
    for _ in range(3):
        assert len(list(blocks_to_write(seen, moves(1)))) == 1
        seen = after(seen, moves(1))
    assert numbers(seen) == [0, 1, 2]
    assert list(blocks_to_write(seen, [])) == []


def test_oldest_events_are_dropped() -> None:
    seen = EMPTY
    for _ in range(300):
        seen = after(seen, moves(13))
        assert len(seen.history) <= BLOCKS
    last = numbers(seen)[-1]
    assert last == 3_899
    assert numbers(seen) == list(range(last - len(numbers(seen)) + 1, last + 1))
    assert MAX_EVENTS - BLOCK_EVENTS < len(numbers(seen)) <= MAX_EVENTS


@pytest.mark.parametrize("there", [0, 3, 60, 64, 65])
def test_big_rebalance_keeps_its_cause_and_latest_moves(there: int) -> None:
    seen = after(EMPTY, moves(there))
    seen = after(seen, [lost("a"), *moves(2_000)])
    found = sorted(past_events(seen.history), key=lambda past: past.number)[-MAX_EVENTS_PER_WRITE:]
    assert [past.number for past in found] == list(range(there, there + MAX_EVENTS_PER_WRITE))
    assert found[0].kind is EventKind.WORKER
    assert found[-1].partition == partition("t", 1_999)


def test_two_thousand_lost_workers_fit_into_the_ring() -> None:
    workers = [lost(f"w{number}") for number in range(2_000)]
    assert len(select_events([*workers, *moves(3)])) == MAX_EVENTS_PER_WRITE
    assert len(list(blocks_to_write(EMPTY, workers))) <= BLOCKS


# --- How long a move took


def online(seen: Snapshot, *counts: int, state: PartitionState = PartitionState.ONLINE) -> Snapshot:
    """B reports these partitions, half a second later."""
    entries = {partition("t", number): CurrentEntry(state, OwnerEpoch(5)) for number in counts}
    reported = Stored(CurrentState(1, entries), 0, 0, SessionId(9))
    return replace(
        seen, wall_ms=507, current={**seen.current, B: reported}, sessions={B: SessionId(9)}
    )


def durations(seen: Snapshot) -> list[int | None]:
    found = sorted(past_events(seen.history), key=lambda past: past.number)
    return [past.took_ms for past in found]


def test_move_gets_its_duration_when_its_owner_is_online() -> None:
    seen = online(after(EMPTY, moves(3)), 1)
    assert durations(after(seen, [])) == [None, 500, None]
    assert list(blocks_to_write(after(seen, []), [])) == [], "once"


def test_new_event_and_completed_move_are_one_write() -> None:
    seen = online(after(EMPTY, moves(3)), 0, 1, 2)
    assert len(list(blocks_to_write(seen, [lost("a")]))) == 1
    assert durations(after(seen, [lost("a")])) == [500, 500, 500, None]


def test_report_of_an_older_epoch_or_session_completes_no_move() -> None:
    seen = after(EMPTY, moves(1))
    starting = online(seen, 0, state=PartitionState.OFFLINE)
    gone = replace(online(seen, 0), sessions={B: SessionId(10)})
    older = [replace(past, owner_epoch=OwnerEpoch(6)) for past in moves(1)]
    for other in (starting, gone, online(after(EMPTY, older), 0)):
        assert list(blocks_to_write(other, [])) == []


def test_what_was_before_a_rebalance_is_kept() -> None:
    """Twelve joins of a fleet of 50 workers, of a hundred moves each."""
    seen = EMPTY
    for _ in range(12):
        seen = after(seen, [lost("a"), *moves(100)])
    assert len(numbers(seen)) == 12 * 101
    assert len(numbers(after(seen, moves(5_000)))) >= MAX_EVENTS - BLOCK_EVENTS


def test_a_tree_with_a_smaller_ring_goes_on() -> None:
    """The ring has eight blocks, by a leader of an earlier version."""
    seen = after(EMPTY, moves(1_000))
    small = {node % 8: block for node, block in sorted(seen.history.items())}
    upgraded = replace(seen, history=small)
    there = numbers(upgraded)
    later = after(upgraded, moves(70))
    assert numbers(later)[-70:] == list(range(1_000, 1_070))
    assert set(numbers(later)) - set(range(1_000, 1_070)) <= set(there)
    for _ in range(40):
        later = after(later, moves(64))
    assert numbers(later) == list(range(numbers(later)[0], 1_070 + 40 * 64))


def test_all_blocks_fit_into_one_transaction() -> None:
    names = [lost(f"{number}-{'worker' * 8}") for number in range(MAX_EVENTS_PER_WRITE)]
    seen = after(after(EMPTY, names), names)
    paths = Paths("fleet")
    check_size(
        [
            Set(paths.history_block(node), encode_history(stored.value), 0)
            for node, stored in seen.history.items()
        ]
    )
    assert len(seen.history) == BLOCKS


def test_writes_are_bounded_however_many_moves_end_at_once() -> None:
    seen = after(EMPTY, moves(MAX_EVENTS))
    assert len(list(blocks_to_write(online(seen, *range(MAX_EVENTS)), []))) <= BLOCKS
