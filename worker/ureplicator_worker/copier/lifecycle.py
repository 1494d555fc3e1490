"""States of a partition in the copier, and the table of transitions between them. Pure.

                    granted, position read              fenced
    Add --> STARTING --------------------> COPYING <-------------> SUSPENDED
                |                             | proof granted, taken   |
                |                             | removed, or failed     | removed, or failed
                |                             v         fenced         v
                |                         DRAINING <-----------> DRAINING_SUSPENDED
                | removed, refused,           |     proof granted      |
                | or cannot start             | drained and committed, | timeout
                v                             v       timeout          |
            RELEASING <------------------ (released) <-----------------+
                | forgotten by the ownership thread
                v
            Released or Failed is sent, and the partition is no longer held

A proof that is refused releases from every state at once: nothing of the partition may be committed any
more. Remove of a partition that is not held (it failed, or was never added) begins with RELEASING. The
driver sends no Add before it has received Released or Failed, so nothing leads from RELEASING back.

COPYING     the lane fetches and sends
SUSPENDED   the transactional id was fenced: the lane keeps what it has, and neither fetches nor sends; or
            the target has refused the position before: nothing is sent until a commit has taken it
DRAINING    the lane fetches no more; what it has is sent and committed

Any other pair is a programmer's error, raised with the partition's story.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import Partition
from ureplicator_worker.lifeline.messages import Failed, Grant

STORY_LENGTH = 16


class CopyState(StrEnum):
    STARTING = "STARTING"
    COPYING = "COPYING"
    SUSPENDED = "SUSPENDED"
    DRAINING = "DRAINING"
    DRAINING_SUSPENDED = "DRAINING_SUSPENDED"
    RELEASING = "RELEASING"


TRANSITIONS = frozenset(
    {
        (CopyState.STARTING, CopyState.COPYING),
        (CopyState.STARTING, CopyState.RELEASING),
        (CopyState.COPYING, CopyState.SUSPENDED),
        (CopyState.COPYING, CopyState.DRAINING),
        (CopyState.COPYING, CopyState.RELEASING),
        (CopyState.SUSPENDED, CopyState.COPYING),
        (CopyState.SUSPENDED, CopyState.DRAINING_SUSPENDED),
        (CopyState.SUSPENDED, CopyState.RELEASING),
        (CopyState.DRAINING, CopyState.DRAINING_SUSPENDED),
        (CopyState.DRAINING, CopyState.RELEASING),
        (CopyState.DRAINING_SUSPENDED, CopyState.DRAINING),
        (CopyState.DRAINING_SUSPENDED, CopyState.RELEASING),
    }
)

FENCED: Mapping[CopyState, CopyState] = {
    CopyState.COPYING: CopyState.SUSPENDED,
    CopyState.DRAINING: CopyState.DRAINING_SUSPENDED,
}
CONFIRMED: Mapping[CopyState, CopyState] = {after: before for before, after in FENCED.items()}
DRAINED: Mapping[CopyState, CopyState] = {
    CopyState.COPYING: CopyState.DRAINING,
    CopyState.SUSPENDED: CopyState.DRAINING_SUSPENDED,
}
"""Effect of a fence, of a proof, and of the end of fetching on a state; the others do not change."""

IN_LANE = frozenset(FENCED) | frozenset(CONFIRMED)
"""States in which the lane knows the partition."""


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """One partition of the holder.

    `grant` is None until the proof. `failure`: sent at the end, in place of Released. `trial`: why the
    position must be committed before anything is sent, until it is.
    """

    partition: Partition
    state: CopyState = CopyState.STARTING
    grant: Grant | None = None
    failure: Failed | None = None
    trial: str = ""
    drain_until_s: float = 0.0
    story: tuple[str, ...] = ()


def move(
    owned: OwnedPartition, to: CopyState, reason: str, *, now_s: float, **change: Any
) -> OwnedPartition:
    """The only writer of a state. Raises InvalidTransition."""
    step = f"{owned.state} -> {to}"
    if (owned.state, to) not in TRANSITIONS:
        raise invalid(owned, f"{step} ({reason}) is not a transition")
    story = (*owned.story, f"{now_s:.1f} {step}: {reason}")[-STORY_LENGTH:]
    return replace(owned, state=to, story=story, **change)


def invalid(owned: OwnedPartition, why: str) -> InvalidTransition:
    """The error to raise, with all that is remembered of the partition."""
    story = "\n  ".join(owned.story)
    return InvalidTransition(f"{owned.partition}: {why}\n  {story}")
