"""Safeguards that are removed, by name, with the invariant that each violates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.model import Partition
from ureplicator_common.offset_map import adoption
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_controller.core.groups import decisions
from ureplicator_controller.core.groups.decisions import Members, SyncState
from ureplicator_controller.engines.groups import survey, sync
from ureplicator_testkit.group_sync.history import History

Mutant = Callable[[pytest.MonkeyPatch, History], None]


def offset_off_by_one(patch: pytest.MonkeyPatch, history: History) -> None:
    exact = history.state.view

    def one_more(partition: Partition, stored: Position | None = None) -> MapView:
        view = exact(partition, stored)
        forward = view.forward
        more = lambda offset: None if (at := forward(offset)) is None else at + 1  # noqa: E731
        patch.setattr(view, "forward", more)
        return view

    patch.setattr(history.state, "view", one_more)


def lower_offset_written(patch: pytest.MonkeyPatch, history: History) -> None:
    def compared(group: decisions.GroupView, *_: object, **__: object) -> tuple[SyncState, str]:
        known = group.members is Members.NONE and group.target is not None
        return (SyncState.PENDING if known else SyncState.UNKNOWN), ""

    patch.setattr(decisions, "_compared", compared)


def active_group_written(patch: pytest.MonkeyPatch, history: History) -> None:
    patch.setattr(survey, "members", lambda *_: (Members.NONE, ""))
    patch.setattr(sync, "EMPTY_STATES", {"Empty", "Dead", "Stable"})


def map_after_data(patch: pytest.MonkeyPatch, history: History) -> None:
    history.world.map_late = True


def not_clamped_to_the_copy(patch: pytest.MonkeyPatch, history: History) -> None:
    """A group that has read more than was copied goes to the end of the log."""

    def translated(copied: decisions.CopiedPartition, source_offset: int) -> int | None:
        if copied.log is not None and source_offset >= (copied.position or 0):
            return copied.log.end
        return copied.translate(source_offset)

    patch.setattr(decisions, "translated_offset", translated)


def hidden_copies_not_waited_for(patch: pytest.MonkeyPatch, history: History) -> None:
    """A group is before what consumers cannot read yet, and counts as synced."""
    waits = decisions._waits
    patch.setattr(decisions, "_waits", lambda copied, offset, exact: waits(copied, offset, None))


def adopted_without_their_ends(patch: pytest.MonkeyPatch, history: History) -> None:
    """Open chunks of former owners end where they were written."""
    patch.setattr(adoption, "extended", lambda known, *_: known)


MUTANTS: dict[str, tuple[str, Mutant]] = {
    "offset-off-by-one": ("P", offset_off_by_one),
    "lower-offset-written": ("L", lower_offset_written),
    "active-group-written": ("A", active_group_written),
    "map-after-data": ("M", map_after_data),
    "not-clamped-to-the-copy": ("P", not_clamped_to_the_copy),
    "hidden-copies-not-waited-for": ("S", hidden_copies_not_waited_for),
    "adopted-without-their-ends": ("M", adopted_without_their_ends),
}
