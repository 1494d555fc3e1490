"""Slots: fixed shares of a worker, each with one copier at a time.

Each start of a copier is a *run* with its own number, so that a message of a former run is never taken
for one of the present run:

    IDLE --started--> STARTING --Hello--> RUNNING --stop, silence, lifeline closed--> CLOSING
      ^                   |                  |                                            |
      +-------------------+------------------+------------------ process gone ------------+

Copiers run whether they have partitions or not: a partition that arrives starts within a round trip
instead of after the start of a Python process.

A copier that ends is restarted at once: a single death (out of memory, an operator's `kill`) must cost
no more than the start of a process. If it ends again soon, the delay grows, so that a copier that
cannot start does not keep the machine busy. After `STEADY_S` of running, the next end counts as a
first one again. Copiers that end before they connect are a crash loop: the delay grows further, and from the
`CRASH_LOOP`th on their slot counts as one without a copier, since the last one that had connected ended
(`capacity`).

A partition goes to the slot with the fewest partitions, and back to the one it had last if that keeps
the slots balanced. It must go back there if that slot's copier died while it still touched the
partition: bytes of its last commit may be under way yet, and only the initialisation of the same
transactional id by the next run of the same slot, or by a fence (`fencing`), puts an end to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum

from ureplicator_common.backoff import Backoff
from ureplicator_worker.lifeline.messages import CopierId

STEADY_S = 10.0
"""Running this long makes the next end a first one: several times the start of a copier (1-2 s)."""
RESTART_DELAYS_S = (0.0, 0.5, 1.0, 2.0)
"""Delay before the first, second, ... restart; the last one repeats."""
CRASH_DELAYS_S = (*RESTART_DELAYS_S, 4.0, 8.0, 15.0)
"""Delays for a copier that ended before it connected: each start costs seconds of a core."""
CRASH_LOOP = 3
"""Crashes in a row that are no accident."""
NO_RESTARTS = Backoff(RESTART_DELAYS_S)


class SlotPhase(Enum):
    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Slot:
    """`since_s`: start of the phase; `last_message_s`: the copier's last message; `executor`: that of Spark
    which the copier was given, "" while none is known. `vacant_since_s`: end of the last copier that had
    connected. `crashes`: copiers since then that ended by themselves; `last_end`: why the last one did.
    """

    number: int
    phase: SlotPhase = SlotPhase.IDLE
    run: int = 0
    since_s: float = 0.0
    last_message_s: float = 0.0
    connected_s: float | None = None
    restarts: Backoff = NO_RESTARTS
    start_at_s: float = 0.0
    executor: str = ""
    vacant_since_s: float = 0.0
    crashes: int = 0
    last_end: str = ""

    @property
    def copier(self) -> CopierId:
        return CopierId(self.number, self.run)

    def ran_s(self, now_s: float) -> float:
        """Time that its copier has run; 0 if it does not."""
        if self.phase is not SlotPhase.RUNNING or self.connected_s is None:
            return 0.0
        return now_s - self.connected_s

    def enter(self, phase: SlotPhase, now_s: float) -> Slot:
        return replace(self, phase=phase, since_s=now_s)

    def started(self, now_s: float) -> Slot:
        next_run = replace(self, run=self.run + 1, connected_s=None, executor="")
        return next_run.enter(SlotPhase.STARTING, now_s)

    def connected(self, now_s: float) -> Slot:
        running = replace(self, connected_s=now_s, last_message_s=now_s, crashes=0, last_end="")
        return running.enter(SlotPhase.RUNNING, now_s)

    def ended(self, now_s: float, reason: str) -> Slot:
        """The process is gone. The delay before the next start grows with quick ends."""
        ended = self._crashed(reason) if self.connected_s is None else self._vacated(now_s)
        start_at_s = now_s + ended.restarts.delay_s
        idle = replace(ended, start_at_s=start_at_s, connected_s=None, executor="")
        return idle.enter(SlotPhase.IDLE, now_s)

    def _vacated(self, now_s: float) -> Slot:
        assert self.connected_s is not None
        ran_s = now_s - self.connected_s
        restarts = self.restarts.recovered(ran_s=ran_s, steady_s=STEADY_S)
        restarts = restarts.with_delays(RESTART_DELAYS_S).failed()
        return replace(self, restarts=restarts, vacant_since_s=now_s)

    def _crashed(self, reason: str) -> Slot:
        """The slot after its copier ended and never connected; the end of one that was to end (CLOSING)
        is no crash."""
        restarts = self.restarts.with_delays(CRASH_DELAYS_S).failed()
        if self.phase is not SlotPhase.STARTING:
            return replace(self, restarts=restarts)
        return replace(self, restarts=restarts, crashes=self.crashes + 1, last_end=reason)


@dataclass(frozen=True, slots=True)
class LastSlot:
    """The slot that a partition had last; `required`: it must go back there."""

    slot: int
    required: bool


def choose_slot(
    counts: Mapping[int, int], last: LastSlot | None, without_copier: Set[int] = frozenset()
) -> int:
    """Slot for a partition; `counts` are partitions per slot, for all slots.

    Slots `without_copier` get none while there are others.

    >>> choose_slot({0: 2, 1: 1}, None)
    1
    >>> choose_slot({0: 1, 1: 1}, LastSlot(slot=1, required=False))
    1
    """
    if last is not None and last.required and last.slot in counts:
        return last.slot
    usable = counts.keys() - without_copier or counts.keys()
    smallest = min(usable, key=lambda slot: (counts[slot], slot))
    if last is not None and last.slot in usable and counts[last.slot] == counts[smallest]:
        return last.slot
    return smallest


def surplus(counts: Mapping[int, int], limit: int) -> Mapping[int, int]:
    """Numbers of partitions that leave slots, so that no two differ by more than one; `limit` in all.

    >>> surplus({0: 5, 1: 1}, limit=9)
    {0: 2}
    >>> surplus({0: 2, 1: 1}, limit=9)
    {}
    """
    after, leaving = dict(counts), dict.fromkeys(counts, 0)
    for _ in range(limit if after else 0):
        fullest = max(after, key=lambda slot: (after[slot], -slot))
        emptiest = min(after, key=lambda slot: (after[slot], slot))
        if after[fullest] - after[emptiest] < 2:
            break
        after[fullest] -= 1
        after[emptiest] += 1
        leaving[fullest] += 1
    return {slot: many for slot, many in leaving.items() if many}
