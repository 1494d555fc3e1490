"""Events that `state_machine.step` handles; its results are `instructions`.

Engines put events into one queue. An event about a copier names the run (`CopierId`), so that a late
message of a former run changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.model import Gap, Partition, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.lifeline.messages import CopierId, CopierReport


@dataclass(frozen=True, slots=True)
class Tick:
    """The only source of time: an event between two ticks has the time of the earlier one."""

    now_s: float


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """`assignments/<worker>` as read; `zxid` is its mzxid, -1 if the node does not exist."""

    entries: Mapping[Partition, AssignmentEntry]
    zxid: int


@dataclass(frozen=True, slots=True)
class CopierConnected:
    copier: CopierId


@dataclass(frozen=True, slots=True)
class CopierPlaced:
    """Spark has given it a core of this executor; it may not have connected yet."""

    copier: CopierId
    executor: str


@dataclass(frozen=True, slots=True)
class CopierReported:
    copier: CopierId
    report: CopierReport


@dataclass(frozen=True, slots=True)
class CopierReleased:
    copier: CopierId
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class CopierFailed:
    """The copier gave one partition up and no longer touches it."""

    copier: CopierId
    partition: Partition
    reason: str
    temporary: bool
    local: bool = False


@dataclass(frozen=True, slots=True)
class CopierPassedGap:
    copier: CopierId
    partition: Partition
    gap: Gap


@dataclass(frozen=True, slots=True)
class CopierClosed:
    """The lifeline is closed: the process will end, and may still drain and commit until then."""

    copier: CopierId


@dataclass(frozen=True, slots=True)
class CopierStopRequested:
    """The copier's process, or the executor that it runs on, is to end: it is stopped, and its slot
    starts again."""

    copier: CopierId
    reason: str


@dataclass(frozen=True, slots=True)
class CopierEnded:
    """The process is gone and touches nothing any more."""

    copier: CopierId
    reason: str


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """Lack of Spark capacity for a copier in every slot, and since when; "" if it lacks nothing."""

    missing: str


@dataclass(frozen=True, slots=True)
class CopierLost:
    """The copier's job has ended, and its process cannot be seen from here: it may still commit what it
    was sent, until the slot's transactional ids are fenced."""

    copier: CopierId
    reason: str


@dataclass(frozen=True, slots=True)
class SlotFenced:
    """No former copier of the slot can commit on the route any more."""

    slot: int
    route: Route


@dataclass(frozen=True, slots=True)
class SlotFenceFailed:
    slot: int
    route: Route
    reason: str


@dataclass(frozen=True, slots=True)
class RouteFenced:
    """No former process of this worker can commit on the route any more."""

    route: Route


@dataclass(frozen=True, slots=True)
class FenceFailed:
    route: Route
    reason: str


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    pass


@dataclass(frozen=True, slots=True)
class SessionLost:
    pass


@dataclass(frozen=True, slots=True)
class SessionRestored:
    session: SessionId


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Release all partitions and exit, within `timeout_s`."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """Have the leader move the partitions elsewhere, within `timeout_s`; then drain within `drain_s`."""

    timeout_s: float
    drain_s: float


Event = (
    Tick
    | AssignmentChanged
    | CopierConnected
    | CopierPlaced
    | CopierReported
    | CopierReleased
    | CopierFailed
    | CopierPassedGap
    | CopierClosed
    | CopierStopRequested
    | CopierEnded
    | CapacityChanged
    | CopierLost
    | SlotFenced
    | SlotFenceFailed
    | RouteFenced
    | FenceFailed
    | SessionSuspended
    | SessionLost
    | SessionRestored
    | DrainRequested
    | LeaveRequested
)
