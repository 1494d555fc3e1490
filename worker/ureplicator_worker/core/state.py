"""State of a worker between two events, and the values it is made of.

`state_machine.step` works on a copy. Each field has one module of `core` that writes it:

    slots           copiers             held, entries, last_slots   held_partitions
    session         session             to_visit                    held_partitions
    assignment      session             fences                      fencing
    publication     publishing          leave, drain, exited        draining
    capacity        capacity            now_s                       state_machine
    balance         copiers

A worker may hold 10,000 partitions, and has dozens of events a second. So a step costs as much as it
changes: the mappings of all partitions are shared with the former state until the first write, and
`to_visit` names the partitions of the step. All others are as the former step left them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ureplicator_common.coordination import SessionState
from ureplicator_common.model import Partition, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry, CurrentEntry, CurrentState
from ureplicator_worker.core.partition_phases import HeldPartition
from ureplicator_worker.core.slots import LastSlot, Slot


@dataclass(frozen=True, slots=True)
class Session:
    """ZooKeeper session; `id` is that of the last connected one, None before the first."""

    id: SessionId | None = None
    state: SessionState = SessionState.LOST

    @property
    def connected(self) -> bool:
        return self.state is SessionState.CONNECTED


@dataclass(frozen=True, slots=True)
class StoredAssignment:
    """`assignments/<worker>` as last read; `zxid`: the highest mzxid seen, -1 before the first."""

    entries: Mapping[Partition, AssignmentEntry] = field(default_factory=dict)
    zxid: int = -1
    read_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FenceProgress:
    """Progress of a `Fence`, requested again from `retry_at_s` on if it failed."""

    done: bool = False
    requested: bool = False
    retry_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drain:
    """The worker releases everything until `until_s`; `killed`: later copiers were killed.

    `late`: it held partitions then.
    """

    until_s: float
    killed: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """The leader moves the partitions elsewhere until `until_s`; then the worker drains within `drain_s`."""

    since_s: float
    until_s: float
    drain_s: float


class Pending(Enum):
    """Urgency of the changes that are not published yet."""

    NOTHING = "nothing"
    SOON = "soon"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Publication:
    """The current state that was published last under this session, and what is pending."""

    last: CurrentState | None = None
    at_s: float = 0.0
    pending: Pending = Pending.SOON


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room that Spark has for this worker's copiers.

    `missing`: what Spark lacks and since when, "" if it lacks nothing. `without_copier_since_s`: since then
    no slot has a copier. `announced`: what the live node has about it.
    """

    timeout_s: float
    missing: str = ""
    without_copier_since_s: float | None = None
    announced: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """Partitions over the slots, as last compared; `uneven`: some were to move to another slot."""

    checked_s: float = 0.0
    uneven: bool = False


@dataclass(slots=True)
class WorkerState:
    """State between two events. Read-only outside of `core`."""

    silence_s: float
    """A copier that has partitions and sends no message for this long is killed."""
    routes: tuple[Route, ...]
    """Configured routes. They are fenced at the first session, before anything is assigned: on a
    cluster that never saw a transaction this takes seconds."""
    slots: list[Slot]
    """Slots by number, each with the state of its copier."""
    now_s: float
    """Time of the last tick, monotonic."""
    assignment: StoredAssignment
    """The leader's assignment to this worker."""
    capacity: Capacity
    """Room for copiers, as Spark and their starts show it."""
    balance: Balance = Balance()
    """Partitions over the slots, as last compared."""
    session: Session = Session()
    """The ZooKeeper session and its state."""
    held: dict[Partition, HeldPartition] = field(default_factory=dict)
    """Partitions that are in the published current state, that is not OFFLINE here."""
    entries: dict[Partition, CurrentEntry] = field(default_factory=dict)
    """Entry of each held partition in the current state."""
    last_slots: dict[Partition, LastSlot] = field(default_factory=dict)
    """The slot that each released partition had last."""
    shared: bool = False
    """`held`, `entries` and `last_slots` are also those of the former state: copied before a write."""
    to_visit: dict[Partition, None] = field(default_factory=dict)
    """Partitions that this step writes, that are assigned otherwise since the last one, or that may
    be sent now."""
    fences: dict[tuple[Route, int | None], FenceProgress] = field(default_factory=dict)
    """Fences of routes, and of slots whose last copier may still commit on a route, until that is done."""
    leave: Leave | None = None
    """Set from the request to leave on."""
    drain: Drain | None = None
    """Set from the first request to stop on."""
    publication: Publication = Publication()
    """The current state in ZooKeeper, and what is pending."""
    exited: bool = False
    """Exit was instructed: no further event has an effect."""

    @property
    def assigned(self) -> Mapping[Partition, AssignmentEntry]:
        """Partitions that should be held: the assignment, or nothing during a drain."""
        return {} if self.drain else self.assignment.entries

    def copy(self) -> WorkerState:
        """A copy for the next step, which has no effect on this one."""
        return replace(
            self,
            slots=list(self.slots),
            fences=dict(self.fences),
            shared=True,
            to_visit={},
        )


def initial(
    *,
    slots: int,
    silence_s: float,
    now_s: float,
    capacity_timeout_s: float = 30.0,
    routes: tuple[Route, ...] = (),
) -> WorkerState:
    """State before the first event."""
    return WorkerState(
        silence_s=silence_s,
        routes=routes,
        slots=[Slot(number, vacant_since_s=now_s) for number in range(slots)],
        now_s=now_s,
        assignment=StoredAssignment(read_at_s=now_s),
        capacity=Capacity(capacity_timeout_s),
    )
