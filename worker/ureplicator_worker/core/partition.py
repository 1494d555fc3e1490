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

Safety rests on `sent`: the copier was sent the partition and has not released it since.
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


class PartitionPhase(StrEnum):
    OFFLINE = "OFFLINE"
    STARTING = "STARTING"
    ONLINE = "ONLINE"
    STOPPING = "STOPPING"
    ERROR = "ERROR"


class InvalidTransition(AssertionError):
    """A programmer's error: the partition's story tells how it came there."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """One partition of ours. `sent`: its copier was sent it and has not released it since.

    `unclean`: a copier died while it touched the partition, and none has let go properly since.
    """

    slot: int
    owner_epoch: OwnerEpoch
    phase: PartitionPhase = PartitionPhase.OFFLINE
    reason: str = ""
    sent: bool = False
    unclean: bool = False
    retry_at_s: float = 0.0
    failures: int = 0
    online_since_s: float = 0.0
    committed: bool = False
    story: tuple[str, ...] = ()

    @property
    def shown(self) -> PartitionState:
        """What the fleet sees: starting and stopping read OFFLINE, and the reason says which."""
        if self.phase is PartitionPhase.ONLINE:
            return PartitionState.ONLINE
        return (
            PartitionState.ERROR if self.phase is PartitionPhase.ERROR else PartitionState.OFFLINE
        )

    @property
    def entry(self) -> CurrentEntry:
        return CurrentEntry(self.shown, self.owner_epoch, self.reason, self.committed)


Effect = Callable[[HeldPartition, float], HeldPartition]


def _same(held: HeldPartition, now_s: float) -> HeldPartition:
    return held


def _came_online(held: HeldPartition, now_s: float) -> HeldPartition:
    return replace(held, online_since_s=now_s)


def _left_online(held: HeldPartition, now_s: float) -> HeldPartition:
    steady = now_s - held.online_since_s >= STEADY_S
    return replace(held, failures=0) if steady else held


TRANSITIONS: Mapping[
    tuple[PartitionPhase, PartitionPhase], Callable[[HeldPartition, float], HeldPartition]
] = {
    (PartitionPhase.OFFLINE, PartitionPhase.STARTING): _same,
    (PartitionPhase.STARTING, PartitionPhase.ONLINE): _came_online,
    (PartitionPhase.STARTING, PartitionPhase.STOPPING): _same,
    (PartitionPhase.STARTING, PartitionPhase.ERROR): _same,
    (PartitionPhase.STARTING, PartitionPhase.OFFLINE): _same,
    (PartitionPhase.ONLINE, PartitionPhase.STARTING): _left_online,
    (PartitionPhase.ONLINE, PartitionPhase.STOPPING): _same,
    (PartitionPhase.ONLINE, PartitionPhase.ERROR): _left_online,
    (PartitionPhase.STOPPING, PartitionPhase.OFFLINE): _same,
    (PartitionPhase.STOPPING, PartitionPhase.ERROR): _same,
    (PartitionPhase.ERROR, PartitionPhase.STARTING): _same,
    (PartitionPhase.ERROR, PartitionPhase.ONLINE): _came_online,
    (PartitionPhase.ERROR, PartitionPhase.STOPPING): _same,
    (PartitionPhase.ERROR, PartitionPhase.ERROR): _same,
    (PartitionPhase.ERROR, PartitionPhase.OFFLINE): _same,
}


def move(
    partition: Partition,
    held: HeldPartition,
    to: PartitionPhase,
    reason: str,
    *,
    now_s: float,
    **change: Any,
) -> HeldPartition:
    """The only writer of a phase. Raises InvalidTransition."""
    pair = (held.phase, to)
    if pair not in TRANSITIONS:
        raise broken(partition, held, f"{held.phase} -> {to} ({reason}) is not a transition")
    line = f"{now_s:.1f} {held.phase} -> {to}: {reason}"
    story = (*held.story, line)[-STORY_LENGTH:]
    moved = TRANSITIONS[pair](held, now_s)
    return replace(moved, phase=to, reason=reason, story=story, **change)


def failed(
    partition: Partition, held: HeldPartition, reason: str, *, temporary: bool, now_s: float
) -> HeldPartition:
    """The copier gave it up: not touched any more, to be tried again after a growing delay."""
    clean: dict[str, Any] = {"sent": False, "unclean": False}
    moved = move(partition, held, PartitionPhase.ERROR, reason, now_s=now_s, **clean)
    delays = TEMPORARY_DELAYS_S if temporary else PERMANENT_DELAYS_S
    delay_s = delays[min(moved.failures, len(delays) - 1)]
    return replace(moved, failures=moved.failures + 1, retry_at_s=now_s + delay_s)


def broken(partition: Partition, held: HeldPartition, why: str) -> InvalidTransition:
    """The error to raise, with all that is remembered of the partition."""
    story = "\n  ".join(held.story)
    return InvalidTransition(f"{partition}: {why}\n  {story}")
