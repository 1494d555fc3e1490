"""The offset map over a takeover: what a former owner copied behind the position is in it, if it is known."""

from __future__ import annotations

import pytest

from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import NO_PLACE
from ureplicator_worker.copier.behind import Behind
from ureplicator_worker.copier.ownership.map_commits import begun
from ureplicator_worker.copier.position_values import Counted, StartPosition
from ureplicator_worker.copier.raw.partition import offsets_behind
from ureplicator_worker.copier.raw.target_offsets import target_offset
from ureplicator_worker.copier.start_position import StartDecision, counted_between

PARTITION = Partition(Route("a", "b"), "t", 0)
COUNTED = Counted(source=100, target=40, records=7)


def beginning(position: int = 100, **more: object) -> StartPosition:
    return StartPosition(position, 0, 100, "A", "source-id", "target-id", **more)  # type: ignore[arg-type]


def between(behind: Behind, offset: int) -> Counted | None:
    return counted_between(StartDecision(beginning(), behind=behind), offset)


def test_records_without_a_hole_at_either_end_are_mapped() -> None:
    assert between(Behind(7, 48, first=40), 107) == COUNTED


@pytest.mark.parametrize(("first", "offset"), [(-1, 107), (40, 108)])
def test_records_with_holes_are_not(first: int, offset: int) -> None:
    """Nobody knows where they lie: consumers there are sent back to the position."""
    assert between(Behind(7, 48, first=first), offset) is None


def test_counted_records_and_what_follows_are_found_at_the_target() -> None:
    """The control record lies between them."""
    offsets = offsets_behind(COUNTED, end=48)
    offsets.acknowledged(107, None, target=48, records=3, transactional=False)
    found = [target_offset(offsets.segments(), source) for source in (99, 100, 106, 107, 109, 110)]
    assert found == [None, 40, 46, 48, 50, 51]


def test_nothing_of_what_was_counted_counts_as_repeated() -> None:
    offsets = offsets_behind(COUNTED, end=48)
    offsets.acknowledged(107, None, target=48, records=3, transactional=False)
    assert [segment.repeated for segment in offsets.segments()] == [False, False]


def test_the_map_goes_on_behind_the_stored_position() -> None:
    """Not where copying begins: the rows of what was counted are written with the next commit."""
    written = begun(PARTITION, beginning(107, counted=COUNTED, mapped=33, map_chunks=2))
    assert (written.begin, written.mapped, written.former) == ((100, 40), 33, 2)


def test_the_map_is_interrupted_where_nobody_knows_what_lies_behind() -> None:
    written = begun(PARTITION, beginning(107, mapped=33, map_chunks=2))
    assert (written.begin, written.former) == (NO_PLACE, 2)
