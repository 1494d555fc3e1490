"""Phases of one partition on a worker, and the table of allowed transitions.

                assigned              fetch response            removed
       OFFLINE ---------> STARTING ------------------> ONLINE ------------> STOPPING
          ^                 |  ^                        |  ^                   |
          |   never sent    |  +------- restarted ------+  |                   | released, or
          +-----------------+                           |  |                   | process gone
          |                 v                           v  |                   v
          +------------- ERROR(reason, retry_at) <------+--+                OFFLINE
           not touched        retried by itself

A failure that is not temporary stays ERROR through its retries, until copying has passed it (`retried`).

ERROR may also go to STOPPING (the copier still touches the partition and retries by itself) and to
ERROR (for another reason), STOPPING to ERROR (released, but still assigned). Any other pair is a
programming error: InvalidTransition carries the partition's story.

Safety rests on `sent`: the copier was sent the partition and has not released it since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ureplicator_common.backoff import Backoff
from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import Gap, OwnerEpoch, Partition, PartitionState
from ureplicator_common.znode_contents import CurrentEntry, Failing
from ureplicator_worker.lifeline.messages import Failed

TEMPORARY_DELAYS_S = (0.5, 1.0, 2.0)
"""The last one repeats: a cluster that is back is noticed within 2 s, well within the promised 5."""
PERMANENT_DELAYS_S = (5.0, 10.0, 20.0, 40.0, 60.0)
STEADY_S = 30.0
"""ONLINE this long clears the count of failures; above most delays, so that flapping backs off."""
STORY_LENGTH = 16
NO_RETRIES = Backoff(TEMPORARY_DELAYS_S)


class PartitionPhase(StrEnum):
    OFFLINE = "OFFLINE"
    STARTING = "STARTING"
    ONLINE = "ONLINE"
    STOPPING = "STOPPING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """One partition that this worker holds.

    `sent`: its copier was sent it and has not released it since. `unclean`: a copier died while it
    touched the partition, and none has released it since. `committed`: a position was committed. `gap`: the
    last one that was passed. `failure`: the last one that is not temporary, until copying has passed it: each
    retry stays ERROR as long. `failing`: where its cause is. `failed_at`: committed position that the last
    retry began with, -1 unknown.
    """

    slot: int
    owner_epoch: OwnerEpoch
    phase: PartitionPhase = PartitionPhase.OFFLINE
    reason: str = ""
    sent: bool = False
    unclean: bool = False
    retry_at_s: float = 0.0
    retries: Backoff = NO_RETRIES
    online_since_s: float = 0.0
    committed: bool = False
    gap: Gap | None = None
    failure: str = ""
    failing: Failing = Failing.NO
    failed_at: int = -1
    story: tuple[str, ...] = ()

    @property
    def state(self) -> PartitionState:
        """State in ZooKeeper: STARTING and STOPPING are OFFLINE there, and the reason tells which."""
        if self.phase is PartitionPhase.ONLINE:
            return PartitionState.ONLINE
        if self.phase is PartitionPhase.ERROR:
            return PartitionState.ERROR
        return PartitionState.OFFLINE

    @property
    def entry(self) -> CurrentEntry:
        """Entry of the published current state."""
        return CurrentEntry(
            self.state, self.owner_epoch, self.reason, self.committed, self.gap, self.failing
        )


Effect = Callable[[HeldPartition, float], HeldPartition]
"""Change that a transition makes besides the phase; given the time."""


def _none(held: HeldPartition, now_s: float) -> HeldPartition:
    return held


def _came_online(held: HeldPartition, now_s: float) -> HeldPartition:
    return replace(held, online_since_s=now_s)


def _left_online(held: HeldPartition, now_s: float) -> HeldPartition:
    online_s = now_s - held.online_since_s
    return replace(held, retries=held.retries.recovered(ran_s=online_s, steady_s=STEADY_S))


TRANSITIONS: Mapping[tuple[PartitionPhase, PartitionPhase], Effect] = {
    (PartitionPhase.OFFLINE, PartitionPhase.STARTING): _none,
    (PartitionPhase.STARTING, PartitionPhase.ONLINE): _came_online,
    (PartitionPhase.STARTING, PartitionPhase.STOPPING): _none,
    (PartitionPhase.STARTING, PartitionPhase.ERROR): _none,
    (PartitionPhase.STARTING, PartitionPhase.OFFLINE): _none,
    (PartitionPhase.ONLINE, PartitionPhase.STARTING): _left_online,
    (PartitionPhase.ONLINE, PartitionPhase.STOPPING): _none,
    (PartitionPhase.ONLINE, PartitionPhase.ERROR): _left_online,
    (PartitionPhase.STOPPING, PartitionPhase.OFFLINE): _none,
    (PartitionPhase.STOPPING, PartitionPhase.ERROR): _none,
    (PartitionPhase.ERROR, PartitionPhase.STARTING): _none,
    (PartitionPhase.ERROR, PartitionPhase.ONLINE): _came_online,
    (PartitionPhase.ERROR, PartitionPhase.STOPPING): _none,
    (PartitionPhase.ERROR, PartitionPhase.ERROR): _none,
    (PartitionPhase.ERROR, PartitionPhase.OFFLINE): _none,
}


def move(
    partition: Partition, held: HeldPartition, to: PartitionPhase, reason: str, *, now_s: float
) -> HeldPartition:
    """The only writer of a phase. Raises InvalidTransition."""
    pair = (held.phase, to)
    if pair not in TRANSITIONS:
        raise invalid(partition, held, f"{held.phase} -> {to} ({reason}) is not a transition")
    line = f"{now_s:.1f} {held.phase} -> {to}: {reason}"
    story = (*held.story, line)[-STORY_LENGTH:]
    return replace(TRANSITIONS[pair](held, now_s), phase=to, reason=reason, story=story)


def failed(held: HeldPartition, failure: Failed, *, now_s: float) -> HeldPartition:
    """The copier no longer touches it; retried after a growing delay."""
    moved = move(failure.partition, held, PartitionPhase.ERROR, failure.reason, now_s=now_s)
    delays = TEMPORARY_DELAYS_S if failure.temporary else PERMANENT_DELAYS_S
    retries = moved.retries.with_delays(delays).failed()
    retry_at_s = now_s + retries.delay_s
    lasting = (failure.reason, Failing.HERE if failure.local else Failing.ANYWHERE)
    reason, failing = (held.failure, held.failing) if failure.temporary else lasting
    return replace(
        moved,
        sent=False,
        unclean=False,
        retries=retries,
        retry_at_s=retry_at_s,
        failure=reason,
        failing=failing,
        failed_at=-1,
    )


def retried(held: HeldPartition, *, committed: int, lag: int, online: bool) -> HeldPartition:
    """The copier's report of a retry: the failure ends when copying has passed it, or has all there is.

    A record that fails again and again is ONLINE to its copier between two tries.
    """
    passed = lag == 0 or 0 <= held.failed_at < committed
    if online and passed:
        return replace(held, failure="", failing=Failing.NO, failed_at=-1)
    return replace(held, failed_at=committed) if held.failed_at < 0 else held


def interrupted(
    partition: Partition, held: HeldPartition, reason: str, *, now_s: float
) -> HeldPartition:
    """The partition as one that cannot be copied for a cause that is not its own; retried as soon as
    that is over."""
    moved = move(partition, held, PartitionPhase.ERROR, reason, now_s=now_s)
    return replace(moved, sent=False, retry_at_s=now_s)


def invalid(partition: Partition, held: HeldPartition, what: str) -> InvalidTransition:
    """The error to raise, with the partition's story."""
    story = "\n  ".join(held.story)
    return InvalidTransition(f"{partition}: {what}\n  {story}")
