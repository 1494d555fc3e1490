"""Gaps in the window of a partition that keeps the offsets of the source."""

from __future__ import annotations

import pytest

from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.send_window import SendWindow, at_beginning


def window_at(position: int, *, target_end: int | None = None) -> SendWindow:
    end = position if target_end is None else target_end
    window = SendWindow(position=position, leader_epoch=0, target_end=end, fills=True)
    window.restart(7, 0)
    return window


def push(window: SendWindow, first: int, *, next_offset: int | None = None) -> Batch:
    """A batch of one record."""
    batch = Batch(
        memoryview(bytearray(batches.batch([(0, None, b"%d" % first, ())]))),
        lease=None,
        first_offset=first,
        next_offset=first + 1 if next_offset is None else next_offset,
        leader_epoch=0,
        records=1,
        max_timestamp_ms=0,
    )
    window.push(batch)
    return batch


def acknowledge(window: SendWindow, at: int) -> None:
    batch = window.next()
    assert batch is not None
    assert window.acknowledged(batch, at) is None


def test_a_gap_is_due_once_what_is_before_it_is_acknowledged() -> None:
    window = window_at(0)
    push(window, 0, next_offset=3)
    push(window, 3)
    batch = window.next()
    assert batch is not None
    assert (window.due_gap, window.next()) == (None, None)
    window.acknowledged(batch, 0)
    gap = window.due_gap
    assert gap is not None
    assert (gap.first_offset, gap.next_offset, window.missing_before(gap)) == (1, 3, 2)


def test_beside_a_gap_that_is_being_filled_nothing_is_sent() -> None:
    window = window_at(0)
    push(window, 2)
    gap = window.begin_gap()
    assert not window.can_send()
    window.filled(gap, 1)
    assert window.due_gap is gap
    window.filled(window.begin_gap(), 1)
    assert window.position == 2
    acknowledge(window, 2)


@pytest.mark.parametrize(("seen_from", "is_hollow"), [(1, False), (2, True), (None, True)])
def test_a_gap_is_hollow_unless_the_source_still_shows_what_is_there(
    seen_from: int | None, *, is_hollow: bool
) -> None:
    window = window_at(0)
    push(window, 0)
    window.pass_over(3, 0, seen_from=seen_from)
    gap = window.last_gap
    assert gap is not None
    assert gap.hollow is is_hollow


def test_one_hollow_offset_makes_a_gap_hollow() -> None:
    window = window_at(0)
    window.pass_over(3, 0, seen_from=0)
    push(window, 4)
    window.pass_over(6, 0, seen_from=5)
    gap = window.head
    assert gap is not None
    assert (gap.next_offset, gap.hollow) == (4, True)
    assert window.last_gap is not None
    assert not window.last_gap.hollow


def test_the_position_moves_with_the_initial_gap_until_something_waits_behind_it() -> None:
    window = window_at(10, target_end=4)
    window.leave_initial_gap(begins=True)
    window.pass_over(15, 0)
    assert (window.position, at_beginning(window)) == (15, True)
    push(window, 15)
    window.pass_over(20, 0)
    assert (window.position, at_beginning(window)) == (15, False)


def test_fillers_do_not_move_the_position() -> None:
    window = window_at(10, target_end=0)
    window.leave_initial_gap(begins=True)
    filler = push(window_at(10), 10)
    filler.next_offset = filler.first_offset
    window.put_first(filler)
    assert window.next() is filler
    window.pass_over(15, 0)
    window.acknowledged(filler, 0)
    assert (window.position, window.target_end) == (15, 1)
