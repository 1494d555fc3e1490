"""Messages between a worker and its copiers; `codec` has their form on the wire.

    driver (worker process)                           copier (Spark task, Python)
        | <------------- Hello(copier, host, pid, nonce) ---- |   see `handshake`: neither end sends the token
        | -- Challenge(nonce, proof) --------------------->   |   the driver has the token of this run
        | <------------- ChallengeResponse(proof) ----------- |   the copier has it: admitted, once per token
        | -- Add(partition: owner epoch) ------------------>  |
        | <------------- ProofRequest(id, partitions) ------- |   after it initialised its transactional id
        | -- ProofResponse(id, granted, refused) ---------->  |   after the proof in ZooKeeper
        | <------------- CopierReport(...) ------------------ |   a few times a second
        | <------------- Failed(partition, reason) ---------- |   refused or given up, no longer touched
        | <------------- GapPassed(partition, gap) ---------- |   copying went on behind a gap
        | -- Remove(partitions) --------------------------->  |
        | <------------- Released(partitions) --------------- |   drained, committed, no longer touched
        | -- PublishedSettings(route, version, ...) ------->  |   when the leader has published others
        | -- PublishedShares(version, slots) ------------->  |   likewise, and before a ProofResponse
        | <------------- StopRequest(reason) ---------------- |   its process is to end; the response is Stop
        | -- Stop() --------------------------------------->  |
        | <------------- Released(all), then close ---------- |

A line that is no message is one of a stack dump: `copier.loop.process_end`.

Both ends treat a closed connection as the end of the other: the copier drains, commits and ends; the
driver waits until the process is gone. Before its first `ProofResponse` a copier sends nothing to Kafka
but the initialisation of its own transactional id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ureplicator_common.model import (
    Gap,
    Limited,
    OffsetShift,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
)
from ureplicator_worker.lifeline.measures import Measures, Segment

LATENCY_BOUNDS_MS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)
"""Upper bounds of the histogram's buckets; one more bucket takes the rest."""


@dataclass(frozen=True, slots=True, order=True)
class CopierId:
    """One run of one slot's copier. Written `0#3`."""

    slot: int
    run: int

    def __str__(self) -> str:
        return f"{self.slot}#{self.run}"


@dataclass(frozen=True, slots=True)
class CopierConfig:
    """Configuration of one copier run, pickled into the closure of its Spark task.

    Spark keeps that closure in memory and shows it nowhere, other than Spark properties, local
    properties of a job, and descriptions. So the token and the properties of clusters go here and nowhere
    else. `clusters` are librdkafka properties by cluster name.
    """

    fleet: str
    worker: str
    slot: int
    run: int
    host: str
    port: int
    token: str = field(repr=False)
    clusters: Mapping[str, Mapping[str, str]] = field(repr=False)
    commit_interval_s: float
    transaction_interval_s: float
    buffer_bytes: int
    silence_s: float
    log_json: bool = False

    @property
    def copier(self) -> CopierId:
        return CopierId(self.slot, self.run)


@dataclass(frozen=True, slots=True)
class Hello:
    """Begin of the handshake. `pid` means a process only within `pid_space` (see `place`)."""

    copier: CopierId
    host: str
    pid: int
    pid_space: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Response to a Hello; `proof` is over it and this `nonce`."""

    nonce: str
    proof: str


@dataclass(frozen=True, slots=True)
class ChallengeResponse:
    """The copier's proof, over its Hello and the driver's nonce."""

    proof: str


@dataclass(frozen=True, slots=True)
class Add:
    """Copy these partitions; owner epochs as in the assignment. Within the copier: prove that they are
    ours, and find where copying begins; Begun or Failed is posted for each."""

    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Remove:
    """Drain, commit and release these partitions.

    The response is one Released, also for partitions that failed before or were never added. Remove is
    not repeated before that response.
    """

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Drain, commit, release all partitions, end."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The copier's process, or its executor, is to end. It waits for Stop, since a Released is a response."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """Request for a proof that these partitions, all of one route, are still assigned here. Requests may
    overlap; each route numbers its own."""

    request_id: int
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Grant:
    """Proof of ownership of one partition, with what the copier needs to start it.

    `initial`: existed when the topic was whitelisted, so the route's `start` counts; else it begins at 0.
    `had_position`: a position was committed once; a store without one has lost it.
    `source_topic_id`: the expected topic id, whichever topic has the name now ("": not known yet).
    `restarted`: a position stored for another source or target topic counts as none.
    `settings` are those of the route; `settings_version` orders them and `PublishedSettings`.
    """

    owner_epoch: OwnerEpoch
    target_topic: str
    fence: tuple[str, ...] = ()
    initial: bool = True
    had_position: bool = False
    source_topic_id: str = ""
    restarted: bool = False
    settings: RouteSettings = field(default_factory=RouteSettings)
    settings_version: int = 0


@dataclass(frozen=True, slots=True)
class PublishedSettings:
    """Settings of a route, for its partitions that run. An older `version` has no effect."""

    route: Route
    version: int
    settings: RouteSettings


@dataclass(frozen=True, slots=True)
class PublishedShares:
    """Shares of byte limits for all slots of the worker. An older `version` has no effect."""

    version: int
    slots: Mapping[int, Mapping[Limited, int]]


class LimitUse(NamedTuple):
    """A limit in one slot: its share, and for how long fetches have waited for it since the start."""

    bytes_per_s: int
    throttled_ms: int


@dataclass(frozen=True, slots=True)
class ProofResponse:
    """Response to a ProofRequest, with its id. The copier releases `refused` (with reasons) at once, with
    Failed."""

    request_id: int
    granted: Mapping[Partition, Grant]
    refused: Mapping[Partition, str]

    @property
    def route(self) -> Route:
        """Route of its partitions: a request names those of one, and one at least."""
        return next(iter(self.granted or self.refused)).route


class PartitionReport(NamedTuple):
    """State and counters of one partition since this copier started it; -1: not known yet.

    `shift`: offsets of the target less those of the source, from the source offset `shift_since` on, for this
    reason; -1: the topic's offsets need not be the same.
    """

    state: PartitionState
    reason: str = ""
    position: int = -1
    committed: int = -1
    records: int = 0
    bytes: int = 0
    lag: int = -1
    skipped: int = 0
    gaps: int = 0
    gap_offsets: int = 0
    shift: int = 0
    shift_since: int = -1
    shift_reason: str = ""

    @property
    def offsets(self) -> OffsetShift | None:
        """None: the topic's offsets need not be the same, or nothing is known of them yet."""
        if self.shift_since < 0:
            return None
        return OffsetShift(self.shift, self.shift_since, self.shift_reason)


class HandlerReport(NamedTuple):
    """Counters of the handler of one source topic, since the copier began.

    `records` that were given to it, those `dropped` without an output, and `outputs` of all others, with
    `dead_letters` among them. `errors`: dead letters, and stops of a partition. `chunks` of some batches,
    which took `busy_ms` in its process. `starts` of processes.
    """

    records: int = 0
    outputs: int = 0
    dropped: int = 0
    dead_letters: int = 0
    errors: int = 0
    chunks: int = 0
    busy_ms: int = 0
    starts: int = 0


@dataclass(frozen=True, slots=True)
class CopierReport:
    """State of the partitions whose state has changed since the last report.

    `latency_ms` are counts per bucket of LATENCY_BOUNDS_MS. `segments`: of some partitions in turn.
    `limits`: those of the slot.
    `handlers` by source topic, as `a.b/topic`.
    """

    partitions: Mapping[Partition, PartitionReport]
    latency_ms: tuple[int, ...] = ()
    latency_sum_ms: int = 0
    segments: Mapping[Partition, tuple[Segment, ...]] = field(default_factory=dict)
    limits: Mapping[Limited, LimitUse] = field(default_factory=dict)
    handlers: Mapping[str, HandlerReport] = field(default_factory=dict)
    measures: Measures = field(default_factory=Measures)


@dataclass(frozen=True, slots=True)
class Released:
    """Response to Remove or Stop: drained and committed, or never started; no longer touched."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A partition given up without a Remove; `temporary`: a later try may succeed, `local`: another worker
    may not have the cause.

    To the driver: the copier no longer touches it. Within the copier: the lane fetches no more of it, and
    sends the rest if it can; or the ownership thread has forgotten it.
    """

    partition: Partition
    reason: str
    temporary: bool
    local: bool = False


@dataclass(frozen=True, slots=True)
class GapPassed:
    """Copying of the partition went on behind a gap, or without records that the target refuses, as the
    route's policy allows."""

    partition: Partition
    gap: Gap


Order = Add | Remove | Stop
"""Messages to a copier that the core of its worker decides on."""

Notice = CopierReport | Released | Failed | GapPassed | StopRequest
"""Messages of a copier that the core of its worker takes."""

Message = (
    Hello
    | Challenge
    | ChallengeResponse
    | Order
    | Notice
    | PublishedSettings
    | PublishedShares
    | ProofRequest
    | ProofResponse
)
