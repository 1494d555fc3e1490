"""The life of one partition on a worker: its phases, and the table of what may follow what.

                 wanted              fetch answered            taken away
       OFFLINE ---------> STARTING ------------------> ONLINE ------------> STOPPING
          ^                 |  ^                        |  ^                   |
          |  never told     |  +----- begins anew ------+  |                   | released, or
          +-----------------+                           |  |                   | process gone
          |                 v                           v  |                   v
          +------------- ERROR(reason, retry_at) <------+--+                OFFLINE
             not touched        back by itself

ERROR may also go to STOPPING (the copier still touches it and tries by itself) and to ERROR (for
another reason), STOPPING to ERROR (it was let go, but is still ours). Any other pair is a
programmer's error, told with the partition's story.

`told` is what safety rests on: the copier was sent the partition and has not let go of it since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ureplicator_common.model import CurrentEntry, OwnerEpoch, Partition, PartitionState

TEMPORARY_DELAYS_S = (0.5, 1.0, 2.0)
"""The last repeats: a cluster that is back is noticed within 2 s, well within the promised 5."""
PERMANENT_DELAYS_S = (5.0, 10.0, 20.0, 40.0, 60.0)
STEADY_S = 30.0
"""ONLINE for so long forgets earlier failures; above most delays, so that flapping backs off."""
STORY_LENGTH = 16


class Phase(StrEnum):
    OFFLINE = "OFFLINE"
    STARTING = "STARTING"
    ONLINE = "ONLINE"
    STOPPING = "STOPPING"
    ERROR = "ERROR"


class InvalidTransition(AssertionError):
    """A programmer's error: the partition's story tells how it came there."""


@dataclass(frozen=True, slots=True)
class Held:
    """One partition of ours. `told`: the copier heard of it and has not let go since.

    `unclean`: a copier died while it touched the partition, and none has let go properly since.
    """

    slot: int
    owner_epoch: OwnerEpoch
    phase: Phase = Phase.OFFLINE
    reason: str = ""
    told: bool = False
    unclean: bool = False
    retry_at_s: float = 0.0
    failures: int = 0
    online_since_s: float = 0.0
    committed: bool = False
    story: tuple[str, ...] = ()

    @property
    def shown(self) -> PartitionState:
        """What the fleet sees: starting and stopping read OFFLINE, and the reason says which."""
        if self.phase is Phase.ONLINE:
            return PartitionState.ONLINE
        return PartitionState.ERROR if self.phase is Phase.ERROR else PartitionState.OFFLINE

    @property
    def entry(self) -> CurrentEntry:
        return CurrentEntry(self.shown, self.owner_epoch, self.reason, self.committed)


def _same(held: Held, now_s: float) -> Held:
    return held


def _came_online(held: Held, now_s: float) -> Held:
    return replace(held, online_since_s=now_s)


def _left_online(held: Held, now_s: float) -> Held:
    steady = now_s - held.online_since_s >= STEADY_S
    return replace(held, failures=0) if steady else held


TRANSITIONS: Mapping[tuple[Phase, Phase], Callable[[Held, float], Held]] = {
    (Phase.OFFLINE, Phase.STARTING): _same,
    (Phase.STARTING, Phase.ONLINE): _came_online,
    (Phase.STARTING, Phase.STOPPING): _same,
    (Phase.STARTING, Phase.ERROR): _same,
    (Phase.STARTING, Phase.OFFLINE): _same,
    (Phase.ONLINE, Phase.STARTING): _left_online,
    (Phase.ONLINE, Phase.STOPPING): _same,
    (Phase.ONLINE, Phase.ERROR): _left_online,
    (Phase.STOPPING, Phase.OFFLINE): _same,
    (Phase.STOPPING, Phase.ERROR): _same,
    (Phase.ERROR, Phase.STARTING): _same,
    (Phase.ERROR, Phase.ONLINE): _came_online,
    (Phase.ERROR, Phase.STOPPING): _same,
    (Phase.ERROR, Phase.ERROR): _same,
    (Phase.ERROR, Phase.OFFLINE): _same,
}


def move(
    partition: Partition, held: Held, to: Phase, reason: str, *, now_s: float, **change: Any
) -> Held:
    """The only writer of a phase. Raises InvalidTransition."""
    pair = (held.phase, to)
    if pair not in TRANSITIONS:
        raise broken(partition, held, f"{held.phase} -> {to} ({reason}) is not a transition")
    line = f"{now_s:.1f} {held.phase} -> {to}: {reason}"
    story = (*held.story, line)[-STORY_LENGTH:]
    moved = TRANSITIONS[pair](held, now_s)
    return replace(moved, phase=to, reason=reason, story=story, **change)


def failed(partition: Partition, held: Held, reason: str, *, temporary: bool, now_s: float) -> Held:
    """The copier gave it up: not touched any more, to be tried again after a growing delay."""
    clean: dict[str, Any] = {"told": False, "unclean": False}
    moved = move(partition, held, Phase.ERROR, reason, now_s=now_s, **clean)
    delays = TEMPORARY_DELAYS_S if temporary else PERMANENT_DELAYS_S
    delay_s = delays[min(moved.failures, len(delays) - 1)]
    return replace(moved, failures=moved.failures + 1, retry_at_s=now_s + delay_s)


def broken(partition: Partition, held: Held, why: str) -> InvalidTransition:
    """The error to raise, with all that is remembered of the partition."""
    story = "\n  ".join(held.story)
    return InvalidTransition(f"{partition}: {why}\n  {story}")
