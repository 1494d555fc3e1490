"""Positions: where they are kept, and why only the owner of a partition can move them.

**The store.** The position of a source partition is the offset of a consumer group on the *target*
(KIP-656's "fake group", which nobody ever joins), kept under the target topic's name and the same
partition number. It is the *next* source offset to copy. Beside it lie the source's leader epoch of the
last copied batch, and a line that tells which cluster and topic it belongs to and who wrote it.
Data and position are on the same cluster, so a position cannot outlive the data it speaks of.

**The rule: who can commit, owns.** A plain OffsetCommit to a group without members takes anything from
anyone, a frozen worker that thaws included. So positions are committed in transactions, even where the
data is not: each slot of a worker has a transactional id, and InitProducerId on an id makes every older
holder of it unable to commit, for ever (its producer epoch is refused). Taking a partition over means
initialising ("fencing") every id under which a former owner may still commit it.

**The order.** A copier, when it starts and whenever it has to begin anew, does, in this order:

    (1) InitProducerId on its own id             (`PositionStore.initialise`)
    (2) ask its driver for a proof in ZooKeeper that it still is the owner, read *after* (1)
    (3) InitProducerId on each id to be fenced   (`PositionStore.fence`)
    (4) read the positions, stable ones only     (`PositionStore.read`)
    (5) copy

Let O be the older owner and N the newer one, and let N's right be written in ZooKeeper (W) before N
begins. If O's proof (2) is read after W, O sees that it lost the partition and lets go. If it is read
before W, then O's own initialisation (1) came before its (2), hence before W, hence before N's (3),
which therefore fences it. There is no third case: O cannot commit after N's (4), so the position that
N read stays true. Without (2), a thawed O whose commit was refused would initialise its id again and
be an owner again; with (1) after (2) it could do so between N's (3) and its own first commit.

**After a doubt, begin anew.** If a commit was not answered, or aborted, its requests may still be on
their way. With EndTxn up to version 4 a late request of an aborted transaction is taken into the next
one (KIP-890). So the connections are closed and the order above is gone through again.

Transactions are short and hold offsets only: AddOffsetsToTxn, TxnOffsetCommit, EndTxn. Reading is our
own OffsetFetch: the client library in use returns garbage for the metadata.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Broker,
    ClusterClient,
)
from ureplicator_common.kafka.errors import COORDINATOR_MOVED, FENCED, ErrorCode, error_name

TRANSACTION_TIMEOUT_MS = 60_000
"""Longer than any commit of ours lasts; a transaction left open blocks stable reads for so long, unless
somebody fences its id, as every new owner does."""

PATIENCE_S = 15.0
"""How long one operation asks again while a coordinator moves or finishes a former transaction."""

COMMAND_S = 5.0
"""How long a commit takes at most, with all its steps, or an initialisation: a partition that is let go
waits for what its copier has begun. With the drain before it that must stay below the time after which a
worker counts as one that does not let go (`controller.handover_timeout_s`)."""

PAUSE_S = 0.02

POSITIONS_PER_REQUEST = 500
"""A coordinator writes what one request brings as one batch, which may have 1 MiB by default: with the
longest names a position takes about 1 KiB. What is above is refused as a whole, for ever."""

TargetPartition = tuple[str, int]


class Fenced(OperatingError):
    """Somebody initialised our transactional id after us: we no longer own what we thought."""


class CommitRefused(OperatingError):
    """The coordinator refused some partitions (target topic gone, not allowed); nothing was committed."""

    def __init__(self, refused: Mapping[TargetPartition, str]) -> None:
        super().__init__(f"commit refused: {dict(refused)}")
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Producer:
    """What a broker gave us for an id, or for none."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Metadata of a position: what it belongs to and who wrote it."""

    source_cluster: str
    source_topic: str
    target_topic: str
    worker: str
    slot: int
    owner_epoch: int

    def encode(self) -> str:
        """Some 250 bytes: a coordinator takes 4 KiB of metadata for each partition."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Provenance | None:
        """None for metadata that is not ours."""
        try:
            raw = json.loads(text)
            return cls(**{name: raw[name] for name in cls.__dataclass_fields__})
        except (ValueError, KeyError, TypeError):
            return None


class PositionStore:
    """One slot's access to the positions of one route. Belongs to one thread."""

    def __init__(self, client: ClusterClient, *, group: str, transactional_id: str) -> None:
        self._client = client
        self._group = group
        self._transactional_id = transactional_id
        self._producer: Producer | None = None

    def initialise(self) -> None:
        """Step (1), on fresh connections. Raises ClusterUnavailable."""
        self._producer = None
        self._client.reset()
        with self._client.within(COMMAND_S):
            self._producer = init_producer(self._client, self._transactional_id)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Step (3): after this nobody else commits under these ids. Raises ClusterUnavailable."""
        for transactional_id in transactional_ids:
            with self._client.within(COMMAND_S):
                init_producer(self._client, transactional_id)

    def read(self, wanted: Mapping[str, Sequence[int]]) -> dict[TargetPartition, Position]:
        """Step (4): target topic -> partitions in; offset -1 where none is stored.

        Raises ClusterUnavailable, also while a transaction on one of them is open.
        """
        with self._client.within(COMMAND_S):
            return read_positions(self._client, self._group, wanted)

    def commit(self, positions: Mapping[TargetPartition, Position]) -> None:
        """All of them, or none. Raises Fenced, CommitRefused, ClusterUnavailable.

        After any of these the outcome may be unknown: the order of the module's text must be gone
        through again, and until then this store refuses to work.
        """
        assert self._producer is not None, "commit before the order was gone through"
        producer, self._producer = self._producer, None
        with self._client.within(COMMAND_S):
            self._add_group(producer)
            refused = self._add_positions(producer, positions)
            self._end(producer, commit=not refused)
        if refused:
            raise CommitRefused(refused)
        self._producer = producer

    def _add_group(self, producer: Producer) -> None:
        def attempt(coordinator: Broker) -> set[int]:
            answer = self._client.call(
                coordinator,
                AddOffsetsToTxnRequest(
                    version=3,
                    transactional_id=self._transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    group_id=self._group,
                ),
                AddOffsetsToTxnResponse,
            )
            return {answer.error_code}

        self._until_answered(self._transactional_id, TRANSACTION_COORDINATOR, attempt)

    def _add_positions(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> dict[TargetPartition, str]:
        """Partitions that the coordinator refused, with its reason."""
        refused: dict[TargetPartition, str] = {}
        for some in _portions(positions):
            refused |= self._add_some(producer, some)
        return refused

    def _add_some(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> dict[TargetPartition, str]:
        refused: dict[TargetPartition, str] = {}

        def attempt(coordinator: Broker) -> set[int]:
            answer = self._client.call(
                coordinator, self._commit_request(producer, positions), TxnOffsetCommitResponse
            )
            codes = {
                (topic.name, row.partition_index): row.error_code
                for topic in answer.topics
                for row in topic.partitions
            }
            temporary = {code for code in codes.values() if code in COORDINATOR_MOVED | FENCED}
            if not temporary:
                refused.update({key: error_name(code) for key, code in codes.items() if code})
            return temporary

        self._until_answered(self._group, GROUP_COORDINATOR, attempt)
        return refused

    def _commit_request(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> TxnOffsetCommitRequest:
        rows = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        return TxnOffsetCommitRequest(
            version=3,
            transactional_id=self._transactional_id,
            group_id=self._group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                rows(
                    name=topic,
                    partitions=[
                        rows.TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=position.offset,
                            committed_leader_epoch=position.leader_epoch,
                            committed_metadata=position.metadata,
                        )
                        for number, position in by_number.items()
                    ],
                )
                for topic, by_number in _by_topic(positions).items()
            ],
        )

    def _end(self, producer: Producer, *, commit: bool) -> None:
        def attempt(coordinator: Broker) -> set[int]:
            answer = self._client.call(
                coordinator,
                EndTxnRequest(
                    version=3,
                    transactional_id=self._transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    committed=commit,
                ),
                EndTxnResponse,
            )
            return {answer.error_code}

        self._until_answered(self._transactional_id, TRANSACTION_COORDINATOR, attempt)

    def _until_answered(self, key: str, kind: int, attempt: Callable[[Broker], set[int]]) -> None:
        _until_answered(self._client, key=key, kind=kind, attempt=attempt)


def init_producer(client: ClusterClient, transactional_id: str | None) -> Producer:
    """InitProducerId: a new epoch of a transactional id, or a new id of a plain idempotent producer.

    Waits out a former transaction that is being ended. Raises ClusterUnavailable.
    """
    found: list[Producer] = []

    def request() -> InitProducerIdRequest:
        return InitProducerIdRequest(
            version=4,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )

    def attempt(coordinator: Broker) -> set[int]:
        answer = client.call(coordinator, request(), InitProducerIdResponse)
        found.append(Producer(answer.producer_id, answer.producer_epoch))
        return {answer.error_code}

    if transactional_id is None:
        return _init_plain(client, request)
    try:
        _until_answered(client, key=transactional_id, kind=TRANSACTION_COORDINATOR, attempt=attempt)
    except Fenced as error:  # two at once: one of them ended a transaction under the other
        raise ClusterUnavailable(f"not initialised: {error}", delay_s=PAUSE_S) from error
    return found[-1]


def _init_plain(client: ClusterClient, request: Callable[[], Any]) -> Producer:
    """Any broker hands out ids of plain producers."""
    answer = client.call_any(request, InitProducerIdResponse)
    if answer.error_code:
        raise ClusterUnavailable(f"no producer id: {error_name(answer.error_code)}", delay_s=0.2)
    return Producer(answer.producer_id, answer.producer_epoch)


def read_positions(
    client: ClusterClient, group: str, wanted: Mapping[str, Sequence[int]], *, stable: bool = True
) -> dict[TargetPartition, Position]:
    """See `PositionStore.read`. Not `stable`: what was committed last, whatever is being committed."""
    found: dict[TargetPartition, Position] = {}

    def attempt(coordinator: Broker) -> set[int]:
        answer = client.call(
            coordinator, _fetch_request(group, wanted, stable=stable), OffsetFetchResponse
        )
        codes = {answer.error_code}
        for topic in answer.topics:
            for row in topic.partitions:
                codes.add(row.error_code)
                found[(topic.name, row.partition_index)] = Position(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
        return codes

    _until_answered(client, key=group, kind=GROUP_COORDINATOR, attempt=attempt)
    return found


def publish_positions(
    client: ClusterClient, group: str, positions: Mapping[tuple[str, int], Position]
) -> set[str]:
    """Plain commit to an ordinary group (at the source, for lag tools). Returns names of refusals.

    Nothing ever reads these back by itself. Raises ClusterUnavailable.
    """
    refused: set[str] = set()
    for some in _portions(positions):
        refused |= _publish_some(client, group, some)
    return refused


def _publish_some(
    client: ClusterClient, group: str, positions: Mapping[TargetPartition, Position]
) -> set[str]:
    rows = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        version=7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            rows(
                name=topic,
                partitions=[
                    rows.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=position.offset,
                        committed_leader_epoch=position.leader_epoch,
                        committed_metadata="",
                    )
                    for number, position in by_number.items()
                ],
            )
            for topic, by_number in _by_topic(positions).items()
        ],
    )
    answer = client.call(
        client.coordinator(group, GROUP_COORDINATOR), request, OffsetCommitResponse
    )
    codes = {row.error_code for topic in answer.topics for row in topic.partitions}
    if codes & COORDINATOR_MOVED:
        client.forget_coordinator(group, GROUP_COORDINATOR)
    return {error_name(code) for code in codes if code}


def fence_ids(client: ClusterClient, transactional_ids: Sequence[str]) -> None:
    """InitProducerId on each: a driver's way to end the copiers of its own former life.

    Raises ClusterUnavailable.
    """
    for transactional_id in transactional_ids:
        init_producer(client, transactional_id)


class KafkaPositionReader:
    """Reads positions for people (REST); never writes. Belongs to one thread at a time.

    It waits for no transaction: in a large fleet one is open at any moment, and each would hold up all.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, Position]:
        return read_positions(self._client, group, wanted, stable=False)

    def close(self) -> None:
        self._client.close()


def _until_answered(
    client: ClusterClient,
    *,
    key: str,
    kind: int,
    attempt: Callable[[Broker], set[int]],
) -> None:
    """Ask the coordinator until no error is temporary. Raises Fenced, ClusterUnavailable.

    Codes that an attempt returns: those it does not handle itself.
    """
    deadline_s = client.deadline_s(PATIENCE_S)
    while True:
        codes = attempt(client.coordinator(key, kind)) - {int(ErrorCode.NONE)}
        if not codes:
            return
        if codes & FENCED:
            raise Fenced(f"{key}: {', '.join(sorted(map(error_name, codes)))}")
        if codes & COORDINATOR_MOVED:
            client.forget_coordinator(key, kind)
        elif not codes <= _WAIT:
            raise ClusterUnavailable(f"{key}: {', '.join(sorted(map(error_name, codes)))}")
        if time.monotonic() > deadline_s:
            raise ClusterUnavailable(f"{key}: still {', '.join(sorted(map(error_name, codes)))}")
        time.sleep(PAUSE_S)


_WAIT = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT})


def _fetch_request(
    group: str, wanted: Mapping[str, Sequence[int]], *, stable: bool
) -> OffsetFetchRequest:
    rows = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        version=7,
        group_id=group,
        topics=[
            rows(name=topic, partition_indexes=list(numbers)) for topic, numbers in wanted.items()
        ],
        require_stable=stable,
    )


def _portions(
    positions: Mapping[TargetPartition, Position],
) -> Iterator[dict[TargetPartition, Position]]:
    keys = list(positions)
    for start in range(0, len(keys), POSITIONS_PER_REQUEST):
        yield {key: positions[key] for key in keys[start : start + POSITIONS_PER_REQUEST]}


def _by_topic(positions: Mapping[TargetPartition, Position]) -> dict[str, dict[int, Position]]:
    by_topic: dict[str, dict[int, Position]] = {}
    for (topic, number), position in positions.items():
        by_topic.setdefault(topic, {})[number] = position
    return by_topic
