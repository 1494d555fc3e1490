"""Messages within a copier, between the lane of a route, its holder, its ownership thread and the source's
side of that.

    lane -- LaneEvent --> holder <-- OwnershipEvent --- ownership thread -- FindStarts, Locate -----> source's
                                 --- Command --------->                  <- StartsFound, Located ...-   side

What is the same fact for the driver is the same message: see `lifeline.messages`.

`number` of a commit: the delivery's. Number 0 is none of the delivery's: the thread commits the first
position of a partition itself, before it posts Begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition
from ureplicator_worker.copier.position_values import AcknowledgedEnd, Commitment, StartPosition
from ureplicator_worker.copier.start_position import CannotStart, TargetState
from ureplicator_worker.lifeline.messages import Add, Failed, Grant, ProofRequest, ProofResponse

SOURCE, TARGET = "source", "target"


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
    """Target partitions that are to take part in the lane's transaction of this number. Joined is posted, or
    the transaction has failed (CommitFailed or FencedOut, number 0).

    `ends`: for those at a leader that has not shown it yet, the end that its log must have.
    """

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
    """The lane needs a fresh producer id for the data. ProducerReady is posted."""


@dataclass(frozen=True, slots=True)
class WriteControlRecords:
    """A control record for each of these target partitions, by a transaction without data.
    ControlRecordsWritten is posted."""

    targets: tuple[TargetPartition, ...]


@dataclass(frozen=True, slots=True)
class Locate:
    """Request for the offset at which the policy continues after a gap. Located or Failed is posted."""

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
    """Event from the source's side: no result, or none for the rest."""

    job: FindStarts | Locate
    error: ClusterUnavailable


@dataclass(frozen=True, slots=True)
class Located:
    """Event from the source's side, passed on to the holder: the offset at which the policy continues."""

    job: Locate
    offset: int


Command = (
    Add
    | Forget
    | Commit
    | Join
    | Abort
    | NewProducer
    | WriteControlRecords
    | Locate
    | ProofResponse
    | StartsFound
    | SourceFailed
    | Located
    | None
)


@dataclass(frozen=True, slots=True)
class Begun:
    """Proven, and its position is known: copying may begin. `trial`: reason for which the
    position must be committed before anything is sent: it was refused, or is a first one."""

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
class ControlRecordsWritten:
    """`written`: these have one control record more. `refused`: with the reasons, these have none. `doubt`:
    reason for which it is not known of these. Of all others none was requested."""

    written: frozenset[TargetPartition] = frozenset()
    refused: Mapping[TargetPartition, str] = field(default_factory=dict)
    doubt: Mapping[TargetPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerForgotten:
    """The partition needs another producer (`DataProducers.renew`): it ends, and begins again."""

    partition: Partition


OwnershipEvent = (
    ProofRequest
    | Begun
    | OwnershipConfirmed
    | Failed
    | Forgotten
    | Committed
    | Joined
    | TransactionBegun
    | CommitFailed
    | FencedOut
    | ClusterError
    | OwnershipCrashed
    | ProducerReady
    | ControlRecordsWritten
    | ProducerForgotten
    | Located
)


@dataclass(frozen=True, slots=True)
class GapFound:
    """The source has no longer what comes next, or the target what it acknowledged.

    The partition waits for `seek` or `finish`. `offset`: the next one that was to be copied. `next_offset`:
    where copying goes on if the policy allows it; -1: the policy names the place.
    """

    partition: Partition
    reason: str
    offset: int
    next_offset: int = -1


@dataclass(frozen=True, slots=True)
class RecordSkipped:
    """The target refuses the record at this source offset for good, and the policy leaves it out."""

    partition: Partition
    reason: str
    offset: int


@dataclass(frozen=True, slots=True)
class ConfirmationNeeded:
    """The partition sends nothing before its position is committed once more (`Lane.confirmed`): that proves
    that no other owner has fenced this one since, or stores what must not be counted wrongly."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class TransactionFailed:
    """The open transaction can only be aborted (`Transactions.end`)."""

    reason: str


LaneEvent = (
    Failed
    | GapFound
    | RecordSkipped
    | NewProducer
    | WriteControlRecords
    | Join
    | ConfirmationNeeded
    | TransactionFailed
)
