"""Slots: fixed shares of a worker. Which one a partition goes to, and when its copier runs again.

A slot has one copier at a time; each start of one is a *run* with its own number, so that nothing a
former run left behind is taken for the word of the present one:

    IDLE --started--> STARTING --hello--> RUNNING --stop, silence, lifeline closed--> CLOSING
      ^                   |                  |                                            |
      +-------------------+------------------+------------------ process gone ------------+

Copiers run whether they have partitions or not: a partition that arrives starts within a round trip
instead of after the start of a Python process.

A copier that ends is started again at once: one death (out of memory, a person with `kill`) must
cost no more than the start of a process. If it ends again soon, the waits grow, since a machine
that starts processes in a circle does nothing else. `STEADY_S` of running make a death a first one
again.

A partition goes to the slot with the fewest, and comes back to the one it had (its *home*) if that
costs no balance. It must come back there if that copier's process died while it still touched the
partition: bytes of its last commit may be under way yet, and only the initialisation of the same
transactional id by the next run of the same slot puts an end to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ureplicator_worker.lifeline.messages import CopierId

STEADY_S = 10.0
"""Running this long makes the next end a first one: several times the start of a copier (1-2 s)."""
RESTART_DELAYS_S = (0.0, 0.5, 1.0, 2.0)
"""Wait before the first, second, ... start after an end; the last one repeats."""


class SlotPhase(Enum):
    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class Slot:
    """`since_s`: when the phase began; `heard_s`: the copier's last word; `ends`: in quick
    succession."""

    number: int
    phase: SlotPhase = SlotPhase.IDLE
    run: int = 0
    since_s: float = 0.0
    heard_s: float = 0.0
    connected_s: float | None = None
    ends: int = 0
    start_at_s: float = 0.0

    @property
    def copier(self) -> CopierId:
        return CopierId(self.number, self.run)

    def enter(self, phase: SlotPhase, now_s: float) -> Slot:
        return replace(self, phase=phase, since_s=now_s)

    def started(self, now_s: float) -> Slot:
        begun = replace(self, run=self.run + 1, connected_s=None)
        return begun.enter(SlotPhase.STARTING, now_s)

    def connected(self, now_s: float) -> Slot:
        return replace(self, connected_s=now_s, heard_s=now_s).enter(SlotPhase.RUNNING, now_s)

    def ended(self, now_s: float) -> Slot:
        """Its process is gone. The wait before the next start grows if ends come fast."""
        steady = self.connected_s is not None and now_s - self.connected_s >= STEADY_S
        ends = 0 if steady else self.ends
        delay_s = RESTART_DELAYS_S[min(ends, len(RESTART_DELAYS_S) - 1)]
        counted = replace(self, ends=ends + 1, start_at_s=now_s + delay_s, connected_s=None)
        return counted.enter(SlotPhase.IDLE, now_s)


@dataclass(frozen=True, slots=True)
class Home:
    """The slot a partition had last; `bound`: it must come back there (see the module's text)."""

    slot: int
    bound: bool


def choose(counts: Mapping[int, int], home: Home | None) -> int:
    """Slot for a partition; `counts` are partitions per slot, every slot named.

    >>> choose({0: 2, 1: 1}, None)
    1
    >>> choose({0: 1, 1: 1}, Home(slot=1, bound=False))
    1
    """
    least = min(counts, key=lambda slot: (counts[slot], slot))
    if home is None or home.slot not in counts:
        return least
    if home.bound or counts[home.slot] == counts[least]:
        return home.slot
    return least
