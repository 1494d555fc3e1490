"""Contents of the nodes in ZooKeeper: frozen dataclasses that pydantic encodes and validates (`znodes`).

They are apart from `model`, which imports no pydantic: copiers use partitions and routes, but neither read
nor write nodes. `RouteSettings`, the content of `routes/<route>`, `Gap` and `OffsetShift` are in `model`:
copiers use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, Strict

from ureplicator_common.kafka.acls import TopicAcl
from ureplicator_common.model import (
    MAX_SLOTS,
    Content,
    EventKind,
    Gap,
    Limited,
    OffsetShift,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    TopicState,
    WorkerId,
    owned,
)


def _ordered(mapping: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(mapping.items()))


def _ordered_holders(holders: Mapping[WorkerId, SessionId]) -> dict[str, str]:
    return {worker: str(session) for worker, session in sorted(holders.items())}


def _one_decimal(value: float) -> float:
    return round(value, 1)


def _known_tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _ordered_routes(routes: frozenset[Route]) -> list[str]:
    return sorted(map(str, routes))


def _ordered_rates(rates: Mapping[Limited, int]) -> dict[str, int]:
    return {str(limited): rate for limited, rate in sorted(rates.items())}


def _ordered_texts(texts: Mapping[Route, str]) -> dict[str, str]:
    return {str(route): text for route, text in sorted(texts.items())}


def _ordered_changes(changes: Mapping[int, PositionChange]) -> dict[int, PositionChange]:
    return dict(sorted(changes.items()))


def _ordered_groups(groups: Mapping[str, GoneGroup]) -> dict[str, GoneGroup]:
    return dict(sorted(groups.items()))


PartitionText = Annotated[
    Partition, PlainValidator(Partition.parse), PlainSerializer(str, return_type=str)
]
RouteText = Annotated[Route, PlainValidator(Route.parse), PlainSerializer(str, return_type=str)]
SessionText = Annotated[SessionId, Strict(False), PlainSerializer(str, return_type=str)]
"""Text: a session id needs all 64 bits, and many JSON readers keep 53."""
_Acls = Annotated[frozenset[TopicAcl], PlainSerializer(sorted, return_type=list[TopicAcl])]
_Numbers = Annotated[frozenset[int], PlainSerializer(sorted, return_type=list[int])]
_Workers = Annotated[frozenset[WorkerId], PlainSerializer(sorted, return_type=list[str])]
_Routes = Annotated[frozenset[RouteText], PlainSerializer(_ordered_routes, return_type=list[str])]
_RouteTexts = Annotated[
    Mapping[RouteText, str], PlainSerializer(_ordered_texts, return_type=dict[str, str])
]
LimitedText = Annotated[
    Limited, PlainValidator(Limited.parse), PlainSerializer(str, return_type=str)
]
_Rates = Annotated[
    Mapping[LimitedText, int], PlainSerializer(_ordered_rates, return_type=dict[str, int])
]
SlotShares = Mapping[int, _Rates]
"""`shares/<worker>`: slot -> what is limited -> bytes per second that the slot may fetch of it."""
_Names = Annotated[Mapping[str, str], PlainSerializer(_ordered)]
_Holders = Annotated[Mapping[WorkerId, SessionText], PlainSerializer(_ordered_holders)]
_Rounded = Annotated[float, PlainSerializer(round, return_type=int)]
_Slots = Annotated[int, Field(ge=0, le=MAX_SLOTS)]
"""Number of slots, bounded: for each slot a fencing process makes a request."""
_WholeSeconds = Annotated[float, PlainSerializer(int, return_type=int)]
_Tenths = Annotated[float, PlainSerializer(_one_decimal, return_type=float)]


NO_OFFSET = -1
"""Every reader takes it for "never committed"."""
CHANGED = "done"


@dataclass(frozen=True, slots=True)
class PositionChange(Content):
    """Position that an operator requested for one partition, and the outcome.

    `offset`: -1 to forget it. `outcome`: "" while it is pending; then `CHANGED`, or why the target
    refused it. `replaced`: the position that was stored until then (-1: none).
    """

    offset: int
    request: str = ""
    outcome: str = ""
    replaced: int = NO_OFFSET

    @property
    def is_pending(self) -> bool:
        return not self.outcome


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
    partitions are released. `source_cluster_id`: the source's own id, noted on routes that delete target
    topics ("": not known). `restarted`: operators accepted the topics as they are now, so a position
    that was stored for others is ignored.
    """

    partitions: int
    initial_partitions: int
    state: TopicState = TopicState.ACTIVE
    blacklisted: _Numbers = frozenset()
    had_position: _Numbers = frozenset()
    target_topic: Annotated[str, Field(min_length=1)] = field(kw_only=True)
    forget_positions: bool = False
    source_topic_id: str = ""
    target_topic_id: str = ""
    source_cluster_id: str = ""
    whole: bool = False
    """All partitions of the source are replicated, also those added later (`auto_expand`)."""
    restarted: bool = False
    stopped: str = ""
    target_created: bool = False
    """The target topic with `target_topic_id` was created for this topic, not found."""
    source_gone_ms: int = 0
    """Time since which the source topic is deleted; 0: it is not. While it is, the topic is stopped."""
    positions: Annotated[
        Mapping[int, PositionChange],
        PlainSerializer(_ordered_changes, return_type=dict[int, PositionChange]),
    ] = field(default_factory=dict)
    """The last change of each partition's position. While it is pending, no worker may hold the partition;
    the leader carries it out (`ureplicator_controller.core.positions.changes`)."""
    request_id: str = ""
    """Id of the request that wrote this last: a writer that lost its response reads it back."""

    def awaits_position(self, number: int) -> bool:
        """True while a change of this partition's position is pending."""
        change = self.positions.get(number)
        return change is not None and change.is_pending


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
class RouteAcls(Content):
    """`acls/<route>`: access rights that the route added to its target cluster, or was about to add."""

    added: _Acls = frozenset()


@dataclass(frozen=True, slots=True)
class GoneGroup(Content):
    """A consumer group that the source has no more. `offsets`: digest of those that the sync gave it."""

    since_ms: int
    offsets: str


@dataclass(frozen=True, slots=True)
class GoneGroups(Content):
    """`groups/<route>`: consumer groups that are gone at the source, until their offsets at the target are
    deleted. `cluster_id`: the source's own id, "" in notes of former versions."""

    groups: Annotated[Mapping[str, GoneGroup], PlainSerializer(_ordered_groups)] = field(
        default_factory=dict
    )
    cluster_id: str = ""


class SyncKind(StrEnum):
    """Kinds of things that the leader keeps at the target beside the records."""

    GROUPS = "groups"
    CONFIGS = "configs"
    ACLS = "acls"
    HEARTBEATS = "heartbeats"
    CLAIMS = "claims"


@dataclass(frozen=True, slots=True)
class SyncReport(Content):
    """`syncs/<kind>/<route>`: the last passes of a sync.

    `passed_at_ms`: end of the last pass that did not fail (0: none), which found `states`: state ->
    number of groups or topics. `failed_at_ms`: the last pass, if it failed. `error`: why it failed; else why
    the first of its groups or topics is not as it should be, "" if all are. `age_s`: of the newest heartbeat
    at the target, None unknown. `harm`: source topic -> how its target topic's settings refuse, change or
    delete records; bounded.
    """

    passed_at_ms: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    failed_at_ms: int = 0
    error: str = ""
    age_s: Annotated[float | None, PlainSerializer(_known_tenths, return_type=float | None)] = None
    harm: _Names = field(default_factory=dict)


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
    failing_since_ms: int = 0
    """Time since which each try fails, on whichever workers (wall clock, for display only); 0: none
    does."""


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


class Failing(StrEnum):
    """Failure of a partition that retries alone do not end, by where the cause is."""

    NO = ""
    HERE = "here"
    """A fault at the worker, such as a handler that is not installed there: another one may be able to
    copy it."""
    ANYWHERE = "anywhere"
    """A record, a right or a limit: the partition fails on every worker."""


@dataclass(frozen=True, slots=True)
class CurrentEntry(Content):
    """One partition that a worker holds. `committed`: its position was committed at least once. `gap`: the
    last one that was passed since then. `failing` until copying has passed what failed."""

    state: PartitionState
    owner_epoch: OwnerEpoch
    reason: str = ""
    committed: bool = False
    gap: Gap | None = None
    failing: Failing = Failing.NO


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
    so it is below `held_s` once there was progress here. `slot` copies it. -1: not known. `offsets`: of a
    topic whose offsets are to be the same, else None.
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
    slot: int = 0
    offsets: OffsetShift | None = None


@dataclass(frozen=True, slots=True)
class RouteUsage(Content):
    """Copy of a route by one worker: records, and bytes as they travel."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerUsage(Content):
    """`usage/<worker>` (ephemeral): what a worker has copied since its start, and its processor time.

    `cpu_ms` is that of the driver, its JVM and the copiers with all that they started. `routes` has all that
    the worker has copied, also partitions that it gave away.
    """

    started_ms: int
    cpu_ms: int = 0
    routes: Mapping[RouteText, RouteUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveWorker(Content):
    """`workers/live/<id>` (ephemeral): address and capacity of a worker.

    `no_capacity`: no copier of it runs, since when and why ("": at least one runs, or may run soon). Such a
    worker gets no partitions while others have capacity. `leaving`: it ends as soon as others have taken its
    partitions. `tags`: routes may ask for them. `zone`: partitions of a topic are spread over zones.
    """

    slots: _Slots
    host: str = ""
    port: int = 0
    pid: int = 0
    version: str = ""
    no_capacity: str = ""
    leaving: bool = False
    tags: tuple[str, ...] = ()
    zone: str = ""


@dataclass(frozen=True, slots=True)
class KnownWorker(Content):
    """`workers/known/<id>`: state that outlives a session. `max_slots` is the maximum it ever had; `slots`
    (0: unknown) and `tags` are what it offered last.

    Operators set `blacklisted` and `draining`. `evicted_session` counts as dead, though it may live,
    until it has reported on its assignment (0: none): see `ureplicator_controller.core.planning.eviction`.
    """

    max_slots: _Slots
    blacklisted: bool = False
    draining: bool = False
    last_seen_ms: int = 0
    evicted_session: SessionText = SessionId(0)
    forgotten: bool = False
    """Operators gave the worker up: the leader removes its nodes as soon as nothing rests on them."""
    request_id: str = ""
    """Id of the request that wrote this last, as in `TopicIntent`."""
    slots: int = 0
    tags: tuple[str, ...] = ()

    @property
    def is_drained(self) -> bool:
        """True if operators want the worker without partitions."""
        return self.blacklisted or self.draining


@dataclass(frozen=True, slots=True)
class Switches(Content):
    """`settings`: switches of the operators for the running fleet.

    `auto_balancing` off: a partition stays with its owner, whichever workers join or are lost. `frozen`:
    beyond that, no owner changes except by a request for exactly that. `paused_routes`: no topic of them is
    copied, also none that is added later. `limits`: bytes per second that may be fetched. A rebalance is due
    while `rebalance_requested` (the request's id) is not `rebalance_done`, which the leader writes.
    `rebalance_plan`: id of the only plan that the request wants, "" for any; `rebalance_outcome`: why the one
    that is done moved nothing, "" if it was carried out.
    `confirmed_lost`: workers whose loss operators confirmed, so that no brake keeps their partitions; the
    leader takes out those that are back. `route_settings`: by route, as JSON, what counts in place of the
    settings of the file (`config.live_changes`).
    """

    auto_balancing: bool = True
    frozen: bool = False
    paused_routes: _Routes = frozenset()
    limits: _Rates = field(default_factory=dict)
    rebalance_requested: str = ""
    rebalance_done: str = ""
    confirmed_lost: _Workers = frozenset()
    request_id: str = ""
    """Id of the request that wrote this last, as in `TopicIntent`."""
    rebalance_plan: str = ""
    rebalance_outcome: str = ""
    route_settings: _RouteTexts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IsolatedSubject(Content):
    """Entry of `isolated`: a subject that the leader's plan leaves alone, since a step for it cannot be
    written, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class PastEvent(Content):
    """Event of the fleet, in `history`; `number` grows by one with each.

    `request` is the id of the request that caused it, "" without one. The fields from `source` on are
    those of a move, but for the owner epoch and the last two, which are a gap's. `took_ms`: from the
    decision until the new owner was ONLINE; None until it is.
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
    first_offset: int | None = None
    next_offset: int | None = None

    @property
    def id(self) -> str:
        """Name in logs; that of a move is the same in the worker's log."""
        if self.partition is None or self.kind is not EventKind.MOVE:
            return f"{self.kind}-{self.number}"
        return owned(self.partition, self.owner_epoch)


@dataclass(frozen=True, slots=True)
class LiveController(Content):
    """`controllers/<id>` (ephemeral) and, for the leader, `leader`."""

    id: str
    host: str = ""
    port: int = 0
    metrics_port: int = 0
    pid: int = 0
    version: str = ""
    routes_digest: str = ""
    """Digest of the routes in its file, to see that all controllers have the same."""
