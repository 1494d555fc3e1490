"""Events that `state_machine.step` handles; its results are `instructions`.

Engines put events into one queue. An event about a copier names the run (`CopierId`), so that a late
message of a former run changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.lifeline.messages import CopierId, Notice


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
class FromCopier:
    """Notice of a copier, or of an engine in its place (`StopRequest`)."""

    copier: CopierId
    notice: Notice


@dataclass(frozen=True, slots=True)
class CopierClosed:
    """The lifeline is closed: the process will end, and may still drain and commit until then."""

    copier: CopierId


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
class Fenced:
    """No former copier of the slot, or no former process of this worker, can commit on the route any more."""

    route: Route
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class FenceFailed:
    route: Route
    reason: str
    slot: int | None = None


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
    | FromCopier
    | CopierClosed
    | CopierEnded
    | CapacityChanged
    | CopierLost
    | Fenced
    | FenceFailed
    | SessionSuspended
    | SessionLost
    | SessionRestored
    | DrainRequested
    | LeaveRequested
)
