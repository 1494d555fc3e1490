"""Records that a former owner has copied behind a stored position, and their end at the source.

Exactly once without transactions they are counted at the target and found at the source
(`copier.takeover`), so that none is copied again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import ClusterView
from ureplicator_common.kafka.list_offsets import OffsetOrError, TopicPartition
from ureplicator_common.kafka.provenance import DataProducer


class TargetLost(OperatingError):
    """The target has lost records that it acknowledged."""


class Uncountable(OperatingError):
    """Nothing tells how many records were appended."""


class Disagreement(OperatingError):
    """Count and bytes name different records."""


@dataclass(frozen=True, slots=True)
class Behind:
    """`count` records were appended behind the position, under a producer that is fenced now.

    They lie from `first` on without a hole; -1: there are some. `end`: next offset of the log, behind the
    control record. `last`: the last of them, if it is still there. `copies`: all that are still there, where
    they were collected. `shared`: the producer is not fenced but shared, and has this next sequence.
    """

    count: int
    end: int
    first: int = -1
    last: Any = None
    copies: tuple[Any, ...] | None = None
    shared: DataProducer | None = None


class Span(NamedTuple):
    """Records of the source, of which each has the offset behind the one before."""

    first: int
    records: int


@dataclass(frozen=True, slots=True)
class Place:
    """Next source offset, and the leader epoch of the batch before it. `spans`: the records before it that
    were copied; none where they are not known."""

    offset: int
    leader_epoch: int
    spans: tuple[Span, ...] = ()


BehindOrError = Behind | OperatingError
PlaceOrError = Place | OperatingError


class CountBehind(Protocol):
    """Counts what lies behind positions. Each method belongs to one thread."""

    def at_target(
        self,
        stored: Mapping[TopicPartition, Position],
        view: ClusterView,
        ends: Mapping[TopicPartition, OffsetOrError],
        *,
        shareable: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, BehindOrError]:
        """Records behind each position that names a producer, which is fenced first. Raises
        ClusterUnavailable.

        `shareable`: partitions where no offset is to be spent on a fence, with the time in ms from which on
        brokers surely know a producer by its last batch.
        """

    def collect(self, partition: TopicPartition) -> None:
        """Read all copies of this partition the next time: count and bytes disagree."""

    def began(self, partition: TopicPartition) -> None:
        """It is copied, from where it was found to go on."""

    def at_source(
        self, wanted: Mapping[TopicPartition, tuple[int, Behind]], view: ClusterView
    ) -> dict[TopicPartition, PlaceOrError]:
        """The source's offsets behind so many records after each position."""
