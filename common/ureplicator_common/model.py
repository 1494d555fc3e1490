"""Values of the domain: partitions, routes, states, settings. All are frozen.

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

Each copier process imports this module, so it imports no library. The contents of nodes are in `contents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from typing import ClassVar, NamedTuple, NewType

WorkerId = NewType("WorkerId", str)
SessionId = NewType("SessionId", int)
"""ZooKeeper session (the ephemeralOwner of a node); identity is a worker id *and* its session."""
OwnerEpoch = NewType("OwnerEpoch", int)
"""Grows with every change of a partition's owner; see `ureplicator_controller.core.planning.plan`."""

MAX_SLOTS = 256
"""Most slots of a worker. The next owner of a partition fences one id of each slot."""

ID_RULE = "1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
_ID = re.compile(r"[a-zA-Z0-9._-]{1,100}")


def is_legal_id(id: str) -> bool:
    """True if a process may have this id: it names a node in ZooKeeper and is part of transactional ids."""
    return _ID.fullmatch(id) is not None and id not in (".", "..")


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


REMEMBERED_PARTITIONS = 1 << 18
"""Partitions that are remembered by their text."""


class TopicKey(NamedTuple):
    """A source topic on a route. Written `source.target/topic`."""

    route: Route
    topic: str

    def __str__(self) -> str:
        return f"{self.route}/{self.topic}"

    @classmethod
    def parse(cls, text: str) -> TopicKey:
        """`source.target/topic` -> TopicKey. Raises ValueError for anything else."""
        route, topic = text.split("/")
        return cls(Route.parse(route), topic)


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

    @staticmethod
    @lru_cache(maxsize=REMEMBERED_PARTITIONS)
    def parse(text: str) -> Partition:
        """`source.target/topic/7` -> Partition. Raises ValueError for anything else.

        One object for each: nodes name a partition again and again, and equal objects are slower to compare.
        """
        route, topic, number = text.split("/")
        return Partition(Route.parse(route), topic, int(number))


class LimitKind(StrEnum):
    """Kind of the subject of a byte limit."""

    ROUTE = "route"
    TOPIC = "topic"
    WORKER = "worker"


class Limited(NamedTuple):
    """Subject of a byte limit. Written `route:source.target`, `topic:source.target/topic`, `worker:w1`."""

    kind: LimitKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Limited:
        """Raises ValueError for anything else."""
        kind, _, name = text.partition(":")
        if not name:
            raise ValueError(f"not a limit: {text!r}")
        if kind == LimitKind.ROUTE:
            Route.parse(name)
        elif kind == LimitKind.TOPIC:
            TopicKey.parse(name)
        return cls(LimitKind(kind), name)

    @classmethod
    def route(cls, route: Route) -> Limited:
        return cls(LimitKind.ROUTE, str(route))

    @classmethod
    def topic(cls, key: TopicKey) -> Limited:
        return cls(LimitKind.TOPIC, str(key))

    @classmethod
    def worker(cls, worker: WorkerId) -> Limited:
        return cls(LimitKind.WORKER, worker)


@cache
def camel(name: str) -> str:
    """`owner_epoch` -> `ownerEpoch`: name of a field in JSON."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Content:
    """Base of the contents of ZooKeeper nodes and their parts: see `znode_contents` and `znodes`.

    Field names are camelCase on the wire. Types are checked strictly, unknown fields ignored.

    The configuration of pydantic is a plain mapping, so that copiers, which encode and decode no content,
    need not import pydantic.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[Mapping[str, object]] = {"alias_generator": camel, "strict": True}


@dataclass(frozen=True, slots=True)
class Gap(Content):
    """Records that the policy `on_gap` passed over, or that are on one side only, or that the target refuses
    and `abort_on_send_failure: false` leaves out.

    Copying went on at `next_offset` where `first_offset` was to come next (both of the source; -1: there was
    no position). The same offset twice: the target lost records. A smaller `next_offset`: the source was
    truncated, and the target has what was there.
    """

    reason: str
    first_offset: int
    next_offset: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class OffsetShift(Content):
    """Offsets of a partition at the target less those at the source, from the source offset `since` on, with
    the reason; `shift` 0: they are the same."""

    shift: int
    since: int
    reason: str = ""


class TopicState(StrEnum):
    """State of a topic as operators requested it. `REVERSED`: a cutover has made its target the place that
    clients write to, so it is not copied on this route, but may be on the one in the other direction."""

    ACTIVE = "active"
    PAUSED = "paused"
    REVERSED = "reversed"
    DELETING = "deleting"

    @property
    def has_copies(self) -> bool:
        """True if the topic's records go to the target, now or when it is resumed."""
        return self in (TopicState.ACTIVE, TopicState.PAUSED)


class PartitionState(StrEnum):
    """State of a partition on the worker that holds it.

    ONLINE only after a fetch had a response; OFFLINE while it starts or stops (see the reason); ERROR
    with the reason, while the worker retries.
    """

    OFFLINE = "OFFLINE"
    ONLINE = "ONLINE"
    ERROR = "ERROR"


class EventKind(StrEnum):
    """Kind of an event in the history; see `ureplicator_controller.core.reporting.events`."""

    MOVE = "move"
    WORKER = "worker"
    LEADER = "leader"
    SWITCH = "switch"
    POSITION = "position"
    GAP = "gap"
    AUDIT = "audit"
    CUTOVER = "cutover"


def owned(partition: Partition, owner_epoch: OwnerEpoch) -> str:
    """`source.target/topic/7@1048576`: one ownership of a partition, in the same form in every log."""
    return f"{partition}@{owner_epoch}"


class Delivery(StrEnum):
    """Delivery guarantee of a route (KIP-3)."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class LaneKind(StrEnum):
    """Way of a topic's records: as whole batches, through a handler, or through a query."""

    RAW = "raw"
    HANDLER = "handler"
    SQL = "sql"


class GapPolicy(StrEnum):
    """Reaction when the source no longer has the position, or never had it."""

    STOP = "stop"
    EARLIEST = "earliest"
    LATEST = "latest"


class DefaultsFrom(StrEnum):
    """Cluster whose defaults target topics have, as `use.defaults.from` of MirrorMaker 2."""

    TARGET = "target"
    SOURCE = "source"


class DeletionPolicy(StrEnum):
    """Fate of a target topic when its source topic is deleted."""

    KEEP = "keep"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class HandlerSettings(Content):
    """User code that the records of some topics of a route go through.

    `topics`: regular expression for whole topic names. `handler`: `package.module:factory`; `args`: its
    arguments as JSON text. `dead_letter_topic`: where a record goes that the handler raises for; empty:
    its partition stops. `timeout_s`: time for one record. Equal settings share a process in a slot.
    """

    topics: str
    handler: str
    args: str = "{}"
    dead_letter_topic: str = ""
    timeout_s: float = 10.0
    memory_bytes: int = 256 << 20

    @property
    def lane(self) -> LaneKind:
        return LaneKind.HANDLER

    @property
    def name(self) -> str:
        """The name for logs."""
        return self.handler

    @property
    def description(self) -> str:
        return f"the handler {self.handler}"

    @property
    def process(self) -> HandlerSettings:
        """Settings that its process runs with: equal ones share it."""
        return self


@dataclass(frozen=True, slots=True)
class SqlSettings(Content):
    """A query of Spark SQL that the records of some topics of a route go through.

    `topics`: regular expression for whole topic names. `query`: over the view `records`. `udfs`:
    `package.module:register`, each called with the SparkSession. A round has at most `max_rows` records and
    `max_bytes` of decoded records, unless one record alone has more; `timeout_s`: time for it.
    `memory_bytes`: heap of the JVM. Settings that differ in topics and limits of rounds only share a process
    in a slot.
    """

    topics: str
    query: str
    udfs: tuple[str, ...] = ()
    max_rows: int = 50_000
    max_bytes: int = 16 << 20
    timeout_s: float = 120.0
    memory_bytes: int = 512 << 20

    @property
    def lane(self) -> LaneKind:
        return LaneKind.SQL

    @property
    def name(self) -> str:
        """The name for logs."""
        return "sql"

    @property
    def description(self) -> str:
        return "a query of SQL"

    @property
    def process(self) -> SqlSettings:
        """Settings that its process runs with: equal ones share it."""
        return SqlSettings(
            "", "", udfs=self.udfs, timeout_s=self.timeout_s, memory_bytes=self.memory_bytes
        )


Transform = HandlerSettings | SqlSettings
"""Handler or query that the records of a topic go through between the source and the target."""


@dataclass(frozen=True, slots=True)
class WorkerSelection(Content):
    """Workers that may copy a route: those with all `tags`, `max` of them at most (0: no limit).

    Fewer than `min` are reported.
    """

    tags: tuple[str, ...] = ()
    min: int = 0
    max: int = 0

    @property
    def is_alone(self) -> bool:
        """True if the route's partitions are divided evenly by themselves."""
        return bool(self.min or self.max)


BROKER_DEFAULT_REPLICATION = -1
"""Replication factor for as many replicas as the brokers' `default.replication.factor` (KIP-464)."""


@dataclass(frozen=True, slots=True)
class RouteSettings(Content):
    """`routes/<route>`: published by the leader, so that all workers run on the same settings.

    `start` is `earliest`, `latest` or a timestamp in milliseconds, as text. `replication_factor`: of the
    topic of the offset map, which a copier creates. `same_offsets`: regular expression for whole names of
    source topics whose records have the same offsets at the target.
    """

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    start: str = "earliest"
    on_gap: GapPolicy = GapPolicy.STOP
    abort_on_send_failure: bool = True
    publish_to_source: bool = True
    verify_crc: bool = True
    offset_map: bool = False
    replication_factor: int = BROKER_DEFAULT_REPLICATION
    prefix: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    handlers: tuple[HandlerSettings, ...] = ()
    sql: tuple[SqlSettings, ...] = ()
    same_offsets: str = ""
    workers: WorkerSelection = WorkerSelection()
    configured: bool = True
    """False: the leader's configuration does not have the route, and nothing of it is copied."""

    def transform(self, topic: str) -> Transform | None:
        """The first whose pattern matches, handlers first; None: records are copied as they are."""
        every: tuple[Transform, ...] = (*self.handlers, *self.sql)
        return next(
            (transform for transform in every if re.fullmatch(transform.topics, topic)), None
        )

    def is_transactional(self, topic: str) -> bool:
        """Data and positions are in one transaction: exactly once, where records can have several targets."""
        return self.delivery is Delivery.EXACTLY_ONCE and self.transform(topic) is not None

    def is_fenced(self, topic: str) -> bool:
        """Exactly once without transactions: the producers of former owners are fenced."""
        return self.delivery is Delivery.EXACTLY_ONCE and self.transform(topic) is None

    def has_same_offsets(self, topic: str) -> bool:
        """Records of the topic keep their offsets, which needs exactly once without transactions."""
        return self.is_fenced(topic) and re.fullmatch(self.same_offsets, topic) is not None

    def lane(self, topic: str) -> LaneKind:
        transform = self.transform(topic)
        return LaneKind.RAW if transform is None else transform.lane

    def target_topic(self, topic: str) -> str:
        """Name of a source topic on the target; the identity unless renamed or prefixed."""
        return self.rename.get(topic, self.prefix + topic)


TRANSACTION_TIMEOUT_MS = 60_000
"""Time after which a coordinator aborts an open transaction, which blocks stable reads until then
unless its id is fenced, as every new owner does. Far below what brokers allow
(`transaction.max.timeout.ms`, 15 minutes)."""
MAX_TRANSACTION_INTERVAL_MS = TRANSACTION_TIMEOUT_MS // 2
"""A transaction is open for no longer before it is sealed. The rest of its time is for what is in flight, the
commit, and a copier that gets no processor."""

RENEWER = WorkerId("@leader")
"""The leader as the writer that renews positions without an owner; not allowed as a worker id."""


def transactional_id(*, fleet: str, route: Route, worker: WorkerId, slot: int) -> str:
    """The transactional id of a slot, whose holder alone can commit its positions: see
    `ureplicator_common.kafka.positions`."""
    return f"{fleet}.{route}.{worker}.{slot}"


def transactional_ids(*, fleet: str, route: Route, worker: WorkerId, slots: int) -> tuple[str, ...]:
    """All ids that a worker may hold on a route: to fence it is to fence every one of them."""
    return tuple(
        transactional_id(fleet=fleet, route=route, worker=worker, slot=slot)
        for slot in range(slots)
    )


POSITION_GROUP_PREFIX = "ureplicator."
"""Begin of the names of groups with positions, of every fleet."""


def position_group(*, fleet: str, route: Route) -> str:
    """The group on the target whose offsets are the positions of a route (KIP-656's "fake group")."""
    return f"{POSITION_GROUP_PREFIX}{fleet}.{route}"


def data_transactional_id(group: str, name: str) -> str:
    """Transactional id that only names a producer of data without transactions, so that a successor can fence
    it. `group`: of the route's positions; `name`: worker, slot and a random part, never used again."""
    return f"{group.removeprefix(POSITION_GROUP_PREFIX)}.{name}"
