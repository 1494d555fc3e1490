"""Who writes to topics of one cluster: open transactions, and producers that have written lately.

`writer_requests` implements the interface. What brokers tell, and what they do not:

| question                                  | answer                                                        |
|-------------------------------------------|---------------------------------------------------------------|
| Which transactions are open on a topic?   | all that we may describe (`OPEN`, `ENDING`), with all topics  |
|                                           | in them that we may describe; others by their producer ids    |
| Which topics shared a transaction before? | not known: the coordinator forgets the partitions when a      |
|                                           | transaction has ended. A producer id that was seen in         |
|                                           | partitions of both within `producer.id.expiration.ms` (a day) |
|                                           | says that they share a producer                               |
| Who wrote to a partition since then?      | producer ids with the times of their last records             |
| Who wrote without idempotence?            | not known: such batches have no producer id. The end of the   |
|                                           | log shows that somebody wrote                                 |

**Aborting.** Which request is right depends on what coordinators know of the transaction:

| kind    | what it is                                        | aborted by                                   |
|---------|---------------------------------------------------|----------------------------------------------|
| OPEN    | a coordinator has it open; its producer works, is | InitProducerId of its id: all its partitions |
|         | slow, frozen or dead                              | end together, a live producer is fenced      |
| ENDING  | its outcome is decided, markers are being written | nobody: it may be a commit; it ends alone    |
| HANGING | a leader holds it open, no coordinator has it     | WriteTxnMarkers at the leaders               |
| HIDDEN  | a leader holds it open; a coordinator may have it | nobody: markers in some of its partitions    |
|         | that does not respond, or may not show it to us   | would tear it, if it commits in others       |

A hanging one whose id no coordinator knows is taken for such only if its last record is older than any
transaction may get (`transaction.max.timeout.ms`), as by Kafka's own tool: a live coordinator would have
aborted it. That time is the producer's, unless the topic has the broker's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ureplicator_common.errors import OperatingError, PermanentError
from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.list_offsets import TopicPartition

DEFAULT_LONGEST_MS = 900_000
"""Kafka's default of `transaction.max.timeout.ms`."""


class TransactionKind(StrEnum):
    """What coordinators know of a transaction; see the table above."""

    OPEN = "open"
    ENDING = "ending"
    HANGING = "hanging"
    HIDDEN = "hidden"


class AbortRefused(PermanentError):
    """A transaction is not aborted by us. `right`: the one that would be needed, "" if none would help."""

    def __init__(self, reason: str, *, right: str = "") -> None:
        super().__init__(reason)
        self.right = right


@dataclass(frozen=True, slots=True, order=True)
class HeldPartition:
    """A partition whose leader holds a transaction open from `first_offset` on. `coordinator_epoch`: of the
    last control record of the producer there, -1 without one; `last_ms`: time of its last record."""

    topic: str
    partition: int
    first_offset: int
    producer_epoch: int
    coordinator_epoch: int = -1
    last_ms: int = -1


@dataclass(frozen=True, slots=True)
class TopicTransaction:
    """A transaction that is open on topics. `partitions`: all that take part and that its coordinator shows,
    of other topics too; when its outcome is decided, those that have no control record yet. `held`: those of
    the topics in which it has records. Its id and its state at the coordinator are "" where no coordinator
    shows it, `began_ms` (the coordinator's clock) and `timeout_ms` are -1."""

    kind: TransactionKind
    producer_id: int
    transactional_id: str = ""
    producer_epoch: int = -1
    state: str = ""
    began_ms: int = -1
    timeout_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    held: tuple[HeldPartition, ...] = ()

    @property
    def topics(self) -> frozenset[str]:
        """Topics that take part, as far as they are known."""
        return frozenset(topic for topic, _ in self.partitions) | {row.topic for row in self.held}

    def __str__(self) -> str:
        id = f" of {self.transactional_id}" if self.transactional_id else ""
        return f"transaction{id} with producer id {self.producer_id}"


@dataclass(frozen=True, slots=True)
class TopicTransactions:
    """Transactions that are open on topics. `unknown`: reasons why there may be others."""

    found: tuple[TopicTransaction, ...] = ()
    unknown: tuple[str, ...] = ()


Producers = Mapping[int, int]
"""Producer ids, with the times of their last records in milliseconds. It is the producer's time, or the
broker's, as `message.timestamp.type` of the topic says, and the broker's for a control record."""


class Writers(Protocol):
    """Writers of one cluster. Belongs to one thread. Every call may raise ClusterUnavailable."""

    def transactions_on(self, topics: Collection[str]) -> TopicTransactions:
        """Transactions that are open on these topics now. One that has ended in the meantime may be among
        them, and one that begins is not."""
        ...

    def recent_producers(
        self,
        partitions: Collection[TopicPartition],
        *,
        since_ms: int,
        without: Collection[int] = (),
    ) -> Mapping[TopicPartition, Producers | PartitionUnavailable]:
        """Producers of each partition whose last record there is not older than `since_ms`, but for the ids
        `without`; or the reason why they are not known."""
        ...

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Transactional ids of these producers, as far as the coordinators show them. Others have none, or
        one that we may not describe."""
        ...

    def abort(
        self, transactions: Iterable[TopicTransaction], *, now_ms: int
    ) -> Mapping[TopicTransaction, OperatingError]:
        """Abort each transaction, if it is still the one that was found. The result has those that are not,
        with AbortRefused or another reason; one that has ended by itself is not in it."""
        ...

    def close(self) -> None: ...


def objection(
    transaction: TopicTransaction, *, now_ms: int, longest_ms: int
) -> AbortRefused | None:
    """Reason why a transaction is not to be aborted. `longest_ms`: that any transaction may take."""
    match transaction.kind:
        case TransactionKind.ENDING:
            return AbortRefused(f"{transaction}: its outcome is decided ({transaction.state})")
        case TransactionKind.HIDDEN:
            right = "DESCRIBE on all transactional ids, and on the topic __transaction_state"
            text = f"{transaction}: a coordinator may have it, and does not show it to us"
            return AbortRefused(text, right=right)
        case TransactionKind.HANGING if not transaction.transactional_id:
            last_ms = max(row.last_ms for row in transaction.held)
            if now_ms - last_ms <= longest_ms:
                age_s, longest_s = max(0, now_ms - last_ms) // 1_000, longest_ms // 1_000
                text = f"its last record is {age_s} s old, and a transaction may take {longest_s} s"
                return AbortRefused(f"{transaction}: {text}")
    return None
