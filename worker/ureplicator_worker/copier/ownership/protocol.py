"""Commands to the ownership thread of a route, and the events that it posts.

`number` of a commit: the delivery's. Number 0 is none of the delivery's: the thread commits the first
position of a partition itself, before it posts Begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_worker.copier.position_values import AcknowledgedEnd, Commitment, StartPosition
from ureplicator_worker.copier.start_position import CannotStart, TargetState
from ureplicator_worker.lifeline.messages import Grant, ProofResponse

SOURCE, TARGET = "source", "target"


@dataclass(frozen=True, slots=True)
class Start:
    """Prove that these are ours, and find where copying begins. Begun, StartFailed or
    OwnershipRefused is posted for each."""

    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Forget:
    """No more of this partition; Forgotten is posted, after which no event names it."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class Commit:
    """Committed, CommitFailed or FencedOut with the same number is posted."""

    positions: Mapping[Partition, Commitment]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """Order that these target partitions take part in the lane's transaction. Joined is posted, or the
    transaction has failed (CommitFailed or FencedOut, number 0). `ends`: ends that logs must have."""

    transaction: int
    targets: frozenset[TargetPartition]
    ends: Mapping[TargetPartition, AcknowledgedEnd]


@dataclass(frozen=True, slots=True)
class Abort:
    """The open transaction of `producer` must not be committed: go through the order again, which ends it.

    Without effect once there is another producer: what it had sent is aborted then.
    """

    producer: Producer


@dataclass(frozen=True, slots=True)
class NewProducer:
    """A fresh producer id for the data. ProducerReady is posted."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Request for the offset at which the policy continues after a gap. Located or StartFailed is posted."""

    partition: Partition
    grant: Grant


@dataclass(frozen=True, slots=True)
class FindStarts:
    """Order to the source's side: these are proven. `number`: of the proof."""

    number: int
    grants: Mapping[Partition, Grant]
    stored: Mapping[TargetPartition, Position]
    target: TargetState


@dataclass(frozen=True, slots=True)
class StartsFound:
    """Event from the source's side: a portion of the results."""

    job: FindStarts
    found: Mapping[Partition, StartPosition | CannotStart]


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """Event from the source's side: no result for the rest."""

    job: FindStarts
    error: ClusterUnavailable


@dataclass(frozen=True, slots=True)
class GapLocated:
    """Event from the source's side: the offset at which the policy continues."""

    job: Locate
    offset: int | ClusterUnavailable


Command = (
    Start
    | Forget
    | Commit
    | Join
    | Abort
    | NewProducer
    | Locate
    | ProofResponse
    | StartsFound
    | SourceFailed
    | GapLocated
    | None
)


@dataclass(frozen=True, slots=True)
class ProofRequested:
    """The driver must prove in ZooKeeper that these are still ours; ProofResponse is the response."""

    request: int
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Begun:
    """Proven, and its position is known: copying may begin. `trial`: reason for which the target refused the
    position; then nothing may be sent before it is committed."""

    partition: Partition
    grant: Grant
    beginning: StartPosition
    trial: str = ""


@dataclass(frozen=True, slots=True)
class OwnershipConfirmed:
    """Proven again, and its position is where we committed it last: `stored`."""

    partition: Partition
    stored: Position


@dataclass(frozen=True, slots=True)
class OwnershipRefused:
    """The driver's proof failed: release at once."""

    partition: Partition
    reason: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A partition that the thread has forgotten: it cannot start, or cannot go on."""

    partition: Partition
    reason: str
    temporary: bool


@dataclass(frozen=True, slots=True)
class Forgotten:
    partition: Partition


@dataclass(frozen=True, slots=True)
class Committed:
    """`producer`: of the next transaction, where the data are in it, too."""

    positions: Mapping[Partition, Commitment]
    number: int = 0
    producer: Producer | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Target partitions that take part in the lane's transaction of this number. `refused`: these
    cannot, with the reasons. `gone`: these must not, since their logs end before the offsets."""

    transaction: int
    targets: frozenset[TargetPartition]
    refused: Mapping[TargetPartition, str]
    gone: Mapping[TargetPartition, range]


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """The id was initialised and everything is proven: a transaction of data and positions may begin."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A commit that was refused, or of unknown outcome. `waited_s`: for so long the request had been
    under way."""

    reason: str
    number: int = 0
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FencedOut:
    """Our transactional id was initialised elsewhere, or its coordinator ended a transaction that was open
    for too long, which it tells alike: all of the route waits for a new proof. `reason`: its words."""

    number: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterError:
    """A cluster (`end`: source or target) does not let us go through the order; it is retried."""

    reason: str
    end: str = TARGET


@dataclass(frozen=True, slots=True)
class OwnershipCrashed:
    """An unexpected error has ended the thread: the copier must end, too."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ProducerReady:
    producer: Producer


@dataclass(frozen=True, slots=True)
class Located:
    partition: Partition
    offset: int


OwnershipEvent = (
    ProofRequested
    | Begun
    | OwnershipConfirmed
    | OwnershipRefused
    | StartFailed
    | Forgotten
    | Committed
    | Joined
    | TransactionBegun
    | CommitFailed
    | FencedOut
    | ClusterError
    | OwnershipCrashed
    | ProducerReady
    | Located
)
