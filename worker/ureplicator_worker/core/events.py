"""What happens to a worker, and what it is to do about it: the two vocabularies of `state.step`.

Events come from engines, one at a time through one queue; instructions go back to them. Each says
one thing about one copier run (`CopierId`), so that a late word of a former run changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.model import (
    AssignmentEntry,
    CurrentState,
    OwnerEpoch,
    Partition,
    Route,
    SessionId,
)
from ureplicator_worker.lifeline.messages import CopierId, CopierReport


@dataclass(frozen=True, slots=True)
class Tick:
    """The only source of time: what happens between two ticks happens at the earlier one."""

    now_s: float


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """`assignments/<worker>` as read; `zxid` is its mzxid, -1 while there is no such node."""

    entries: Mapping[Partition, AssignmentEntry]
    zxid: int


@dataclass(frozen=True, slots=True)
class CopierConnected:
    copier: CopierId


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
    """It gave one partition up and no longer touches it."""

    copier: CopierId
    partition: Partition
    reason: str
    temporary: bool


@dataclass(frozen=True, slots=True)
class CopierClosed:
    """Its lifeline closed: it will end, but until then it may still drain and commit."""

    copier: CopierId


@dataclass(frozen=True, slots=True)
class CopierEnded:
    """Its process is gone: whatever it touched, it touches no more."""

    copier: CopierId
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
class Drain:
    """Let go of everything and exit, within `timeout_s`."""

    timeout_s: float


Event = (
    Tick
    | AssignmentChanged
    | CopierConnected
    | CopierReported
    | CopierReleased
    | CopierFailed
    | CopierClosed
    | CopierEnded
    | RouteFenced
    | FenceFailed
    | SessionSuspended
    | SessionLost
    | SessionRestored
    | Drain
)


@dataclass(frozen=True, slots=True)
class StartCopier:
    """Start a run of a slot; `partitions` are those that wait for it, for display."""

    copier: CopierId
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class AddPartitions:
    copier: CopierId
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class RemovePartitions:
    copier: CopierId
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class StopCopier:
    """Ask it to drain, commit, let go of everything and end."""

    copier: CopierId


@dataclass(frozen=True, slots=True)
class KillCopier:
    """End its process; the answer is CopierEnded."""

    copier: CopierId
    reason: str


@dataclass(frozen=True, slots=True)
class FenceRoute:
    """Initialise all transactional ids of this worker on a route (see `state`)."""

    route: Route


@dataclass(frozen=True, slots=True)
class Publish:
    current: CurrentState


@dataclass(frozen=True, slots=True)
class Register:
    """The session is new: publish the live node under it."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class ReadAssignment:
    """Watches may have been lost: read the assignment again."""


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    reason: str


Instruction = (
    StartCopier
    | AddPartitions
    | RemovePartitions
    | StopCopier
    | KillCopier
    | FenceRoute
    | Publish
    | Register
    | ReadAssignment
    | Exit
)
