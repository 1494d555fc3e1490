"""Instructions of `state_machine.step` to the engines; their results come back as `events`."""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, SessionId
from ureplicator_common.znode_contents import CurrentState
from ureplicator_worker.lifeline.messages import CopierId, Order


@dataclass(frozen=True, slots=True)
class StartCopier:
    """Start a run of a slot; `partitions` are those that wait for it, for display."""

    copier: CopierId
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class ToCopier:
    """Send an order to a copier."""

    copier: CopierId
    order: Order


@dataclass(frozen=True, slots=True)
class KillCopier:
    """End its process; the result is CopierEnded."""

    copier: CopierId
    reason: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Initialise transactional ids of this worker on a route: of one slot, or of all (see `fencing`)."""

    route: Route
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the current state to ZooKeeper."""

    current: CurrentState


@dataclass(frozen=True, slots=True)
class Register:
    """Write the live node under a new session."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class AnnounceCapacity:
    """Write the live node again, with this as `no_capacity`."""

    no_capacity: str


@dataclass(frozen=True, slots=True)
class AnnounceLeaving:
    """Write the live node again: the worker leaves."""


@dataclass(frozen=True, slots=True)
class ReadAssignment:
    """Read the assignment again: a watch may have been lost."""


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    reason: str


EngineInstruction = (
    StartCopier
    | ToCopier
    | KillCopier
    | Fence
    | Publish
    | Register
    | AnnounceCapacity
    | AnnounceLeaving
    | ReadAssignment
)
Instruction = EngineInstruction | Exit
