"""Values of the domain: partitions, workers, intents, states. All are frozen.

The terms are the same in code, REST, logs, metrics and pages:

ideal state     partition -> worker that *should* own it, decided by the leader
assignment      partitions that one worker is to hold *now*; it lags the ideal state while an old owner
                releases
current state   partitions of one worker as it reports them; one that is listed is *held*, one that is
                not is released
external view   the current states of all live workers, merged
holder          a worker that was given a partition and has not confirmed its release since;
                its transactional ids are fenced before another worker copies the partition
position        the next source offset to copy

A cycle of the leader or of a worker decides on one snapshot of them. Routes, topic keys and partitions
are named tuples, since they are keys of most mappings: a plan for a big fleet hashes and compares them a
million times, and tuples do that ten times faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple, NewType

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, Strict
from pydantic.alias_generators import to_camel

WorkerId = NewType("WorkerId", str)
SessionId = NewType("SessionId", int)
"""ZooKeeper session (the ephemeralOwner of a node); identity is a worker id *and* its session."""
OwnerEpoch = NewType("OwnerEpoch", int)
"""Grows with every change of a partition's owner; see `ureplicator_controller.core.planning.plan`."""


class Route(NamedTuple):
    """Direction of replication: source cluster to target cluster. Written `source.target`."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}.{self.target}"

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> Route:
        """`source.target` -> Route. Raises ValueError for anything else."""
        source, dot, target = text.partition(".")
        if not (source and dot and target) or "." in target:
            raise ValueError(f"not a route: {text!r}")
        return Route(source, target)


class TopicKey(NamedTuple):
    """A source topic on a route. Written `source.target/topic`."""

    route: Route
    topic: str

    def __str__(self) -> str:
        return f"{self.route}/{self.topic}"


class Partition(NamedTuple):
    """A partition of a source topic on a route. Written `source.target/topic/7`."""

    route: Route
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.route}/{self.topic}/{self.number}"

    @property
    def key(self) -> TopicKey:
        return TopicKey(self.route, self.topic)

    @classmethod
    def parse(cls, text: str) -> Partition:
        """`source.target/topic/7` -> Partition. Raises ValueError for anything else."""
        route, topic, number = text.split("/")
        return cls(Route.parse(route), topic, int(number))


class Content:
    """Base of the contents of ZooKeeper nodes and their parts: see `znodes`.

    Field names are camelCase on the wire. Types are checked strictly, unknown fields ignored.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, strict=True)


def _ordered(mapping: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(mapping.items()))


def _ordered_holders(holders: Mapping[WorkerId, SessionId]) -> dict[str, str]:
    return {worker: str(session) for worker, session in sorted(holders.items())}


def _one_decimal(value: float) -> float:
    return round(value, 1)


PartitionText = Annotated[
    Partition, PlainValidator(Partition.parse), PlainSerializer(str, return_type=str)
]
SessionText = Annotated[SessionId, Strict(False), PlainSerializer(str, return_type=str)]
"""Text: a session id needs all 64 bits, and many JSON readers keep 53."""
_Numbers = Annotated[frozenset[int], PlainSerializer(sorted, return_type=list[int])]
_Names = Annotated[Mapping[str, str], PlainSerializer(_ordered)]
_Holders = Annotated[Mapping[WorkerId, SessionText], PlainSerializer(_ordered_holders)]
_Rounded = Annotated[float, PlainSerializer(round, return_type=int)]
_WholeSeconds = Annotated[float, PlainSerializer(int, return_type=int)]
_Tenths = Annotated[float, PlainSerializer(_one_decimal, return_type=float)]


class TopicState(StrEnum):
    """State of a topic as operators requested it."""

    ACTIVE = "active"
    PAUSED = "paused"
    DELETING = "deleting"


class PartitionState(StrEnum):
    """State of a partition on the worker that holds it.

    ONLINE only after a fetch had a response; OFFLINE while it starts or stops (see the reason); ERROR
    with the reason, while the worker retries.
    """

    OFFLINE = "OFFLINE"
    ONLINE = "ONLINE"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class TopicIntent(Content):
    """`topics/<route>/<topic>`: replication of a topic as operators requested it. Written by REST; the
    leader adds its marks.

    `initial_partitions` partitions existed when the topic was whitelisted by hand: only they begin at
    the route's `start`; later ones begin at 0. `had_position`: partitions whose position was committed
    once. If the store has none for one of them, it is lost, and the partition never restarts on its own.

    A name is not a topic: `source_topic_id` and `target_topic_id` are the clusters' own ids of the two
    topics ("": not known yet; the leader adds them). A recreated topic under the same name has another
    id and is never copied under this intent: the leader writes the reason to `stopped`, and all
    partitions are released. `restarted`: operators accepted the topics as they are now, so a position
    that was stored for others is ignored.
    """

    partitions: int
    initial_partitions: int
    state: TopicState = TopicState.ACTIVE
    blacklisted: _Numbers = frozenset()
    had_position: _Numbers = frozenset()
    target_topic: str = ""
    lane: str = "raw"
    forget_positions: bool = False
    source_topic_id: str = ""
    target_topic_id: str = ""
    whole: bool = False
    """All partitions of the source are replicated, also those added later (`auto_expand`)."""
    restarted: bool = False
    stopped: str = ""
    request_id: str = ""
    """Id of the request that wrote this last: a writer that lost its response reads it back."""


@dataclass(frozen=True, slots=True)
class RouteMemory(Content):
    """`memory/<route>`: findings of a leader that its successors need.

    `baseline`: topics (name -> beginning of their id) that existed when auto-whitelisting began on the
    route and were not whitelisted since; None: it never began. Only they start at the route's `start`;
    any other topic is younger and begins at its first record. `refused`: topics whose last change
    failed, and the reason.
    """

    baseline: _Names | None = None
    refused: _Names = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IdealEntry(Content):
    """Ideal owner of one partition, with the time (wall clock, for display only) and the reason."""

    worker: WorkerId | None
    owner_epoch: OwnerEpoch
    since_ms: int
    reason: str
    holders: _Holders = field(default_factory=dict)
    """Workers given the partition since their last confirmed OFFLINE -> session that was given it."""
    no_progress_moves: int = 0
    """Moves because it made no progress, since it last made progress."""
    suspect_session: SessionText = SessionId(0)
    """Session of the worker that the last such move took it from: see `core.planning.no_progress` of the
    controller."""


@dataclass(frozen=True, slots=True)
class IdealTopic:
    """`ideal/<route>/<topic>`: one entry per partition."""

    entries: Mapping[int, IdealEntry]


@dataclass(frozen=True, slots=True)
class AssignmentEntry(Content):
    """One partition assigned to a worker, and the ids that it must fence before it copies."""

    owner_epoch: OwnerEpoch
    fence: tuple[str, ...] = ()
    """Transactional ids of every other worker that may still be able to commit this partition."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`assignments/<worker>`: all partitions that one worker is to hold."""

    entries: Mapping[Partition, AssignmentEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CurrentEntry(Content):
    """One partition that a worker holds. `committed`: its position was committed at least once."""

    state: PartitionState
    owner_epoch: OwnerEpoch
    reason: str = ""
    committed: bool = False


@dataclass(frozen=True, slots=True)
class CurrentState(Content):
    """`current/<worker>` (ephemeral).

    `seen_zxid` is the mzxid of the assignment that this state reflects (-1: none read yet): the release
    of a partition that is not listed is *confirmed* only if the assignment that took it away was seen.
    """

    seen_zxid: int
    entries: Annotated[Mapping[PartitionText, CurrentEntry], Field(alias="partitions")] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class PartitionLoad(Content):
    """Measurements of one partition on its worker, in `loads/<worker>`.

    `bytes_per_s` and `records_per_s` are of the last interval, `steady_bytes_per_s` the mean over the
    last minutes of copying, `measured_s` of them at most. No progress means: not all is copied, and the
    committed position does not move. It is counted by the worker's own clock, since `held_s` at most;
    so it is below `held_s` once there was progress here. -1: not known.
    """

    bytes_per_s: _Rounded = 0.0
    records_per_s: _Tenths = 0.0
    steady_bytes_per_s: _Rounded = 0.0
    measured_s: _WholeSeconds = 0.0
    held_s: _WholeSeconds = 0.0
    no_progress_s: _WholeSeconds = 0.0
    position: int = -1
    committed: int = -1
    lag: int = -1


@dataclass(frozen=True, slots=True)
class LiveWorker(Content):
    """`workers/live/<id>` (ephemeral): address and capacity of a worker."""

    slots: int
    host: str = ""
    port: int = 0
    pid: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class KnownWorker(Content):
    """`workers/known/<id>`: state that outlives a session. `max_slots` is the maximum it ever had.

    Operators set `blacklisted` and `draining`. `evicted_session` counts as dead, though it may live,
    until it has reported on its assignment (0: none): see `ureplicator_controller.core.planning.eviction`.
    """

    max_slots: int
    blacklisted: bool = False
    draining: bool = False
    last_seen_ms: int = 0
    evicted_session: SessionText = SessionId(0)
    request_id: str = ""
    """Id of the request that wrote this last, as in `TopicIntent`."""


@dataclass(frozen=True, slots=True)
class Switches(Content):
    """`settings`: switches of the operators for the running fleet.

    `auto_balancing` off: a partition stays with its owner, whichever workers join or are lost. `frozen`:
    beyond that, no owner changes except by a request for exactly that. A rebalance is due
    while `rebalance_requested` (the request's id) is not `rebalance_done`, which the leader writes.
    """

    auto_balancing: bool = True
    frozen: bool = False
    rebalance_requested: str = ""
    rebalance_done: str = ""
    request_id: str = ""
    """Id of the request that wrote this last, as in `TopicIntent`."""


class EventKind(StrEnum):
    """Kind of an event in the history; see `ureplicator_controller.core.reporting.events`."""

    MOVE = "move"
    WORKER = "worker"
    LEADER = "leader"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class PastEvent(Content):
    """Event of the fleet, in `history`; `number` grows by one with each.

    `request` is the id of the request that caused it, "" without one. The fields from `partition` on are
    those of a move. `took_ms`: from the decision until the new owner was ONLINE; None until it is.
    """

    number: int
    kind: EventKind
    reason: str
    wall_ms: int
    request: str = ""
    worker: WorkerId | None = None
    partition: PartitionText | None = None
    source: WorkerId | None = None
    target: WorkerId | None = None
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    took_ms: int | None = None

    @property
    def id(self) -> str:
        """Name in logs; that of a move is the same in the worker's log."""
        if self.partition is None:
            return f"{self.kind}-{self.number}"
        return owned(self.partition, self.owner_epoch)


def owned(partition: Partition, owner_epoch: OwnerEpoch) -> str:
    """`source.target/topic/7@1048576`: one ownership of a partition, in the same form in every log."""
    return f"{partition}@{owner_epoch}"


@dataclass(frozen=True, slots=True)
class LiveController(Content):
    """`controllers/<id>` (ephemeral) and, for the leader, `leader`."""

    id: str
    host: str = ""
    port: int = 0
    metrics_port: int = 0
    pid: int = 0
    version: str = ""


class Delivery(StrEnum):
    """Delivery guarantee of a route (KIP-3)."""

    AT_LEAST_ONCE = "at_least_once"


class GapPolicy(StrEnum):
    """Reaction when the source no longer has the position, or never had it."""

    STOP = "stop"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class RouteSettings(Content):
    """`routes/<route>`: published by the leader, so that all workers run on the same settings.

    `start` is `earliest`, `latest` or a timestamp in milliseconds, as text.
    """

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    start: str = "earliest"
    on_gap: GapPolicy = GapPolicy.STOP
    abort_on_send_failure: bool = True
    publish_to_source: bool = True
    verify_crc: bool = True
    prefix: str = ""
    rename: _Names = field(default_factory=dict)

    def target_topic(self, topic: str) -> str:
        """Name of a source topic on the target; the identity unless renamed or prefixed."""
        return self.rename.get(topic, self.prefix + topic)


RENEWER = WorkerId("@leader")
"""The leader as the writer that renews positions without an owner; not allowed as a worker id."""


def transactional_id(*, fleet: str, route: Route, worker: WorkerId, slot: int) -> str:
    """Only its holder can commit positions for a slot: see `ureplicator_common.kafka.positions`."""
    return f"{fleet}.{route}.{worker}.{slot}"


def transactional_ids(*, fleet: str, route: Route, worker: WorkerId, slots: int) -> tuple[str, ...]:
    """All ids that a worker may hold on a route: to fence it is to fence every one of them."""
    return tuple(
        transactional_id(fleet=fleet, route=route, worker=worker, slot=slot)
        for slot in range(slots)
    )


def position_group(*, fleet: str, route: Route) -> str:
    """The group on the target whose offsets are the positions of a route (KIP-656's "fake group")."""
    return f"ureplicator.{fleet}.{route}"
