"""Commands to the ownership thread of a route, and the events that it posts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.kafka.positions import Producer
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_worker.copier.beginning import Beginning, Commitment
from ureplicator_worker.lifeline.messages import Grant, ProofResponse


@dataclass(frozen=True, slots=True)
class Start:
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Forget:
    """No more of this partition; answered by Forgotten, after which no event names it."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class Commit:
    positions: Mapping[Partition, Commitment]


@dataclass(frozen=True, slots=True)
class NewProducer:
    """A fresh producer id for the data."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Where the policy goes on after a hole."""

    partition: Partition
    grant: Grant


Command = Start | Forget | Commit | NewProducer | Locate | ProofResponse | None


@dataclass(frozen=True, slots=True)
class ProofRequested:
    request: int
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Begun:
    partition: Partition
    grant: Grant
    beginning: Beginning


@dataclass(frozen=True, slots=True)
class OwnershipConfirmed:
    """Proven again: a suspended partition goes on from memory."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class OwnershipRefused:
    """The driver refused it: let go at once."""

    partition: Partition
    reason: str


@dataclass(frozen=True, slots=True)
class StartFailed:
    partition: Partition
    reason: str
    temporary: bool


@dataclass(frozen=True, slots=True)
class Forgotten:
    partition: Partition


@dataclass(frozen=True, slots=True)
class Committed:
    positions: Mapping[Partition, Commitment]


@dataclass(frozen=True, slots=True)
class CommitFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class FencedOut:
    """Everything of the route waits for a new proof."""


@dataclass(frozen=True, slots=True)
class ClusterError:
    """The clusters do not let us go through the order; it is tried again."""

    reason: str


@dataclass(frozen=True, slots=True)
class OwnershipCrashed:
    """The thread has met what it was not made for, and ended: so must the copier."""

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
    | CommitFailed
    | FencedOut
    | ClusterError
    | OwnershipCrashed
    | ProducerReady
    | Located
)
