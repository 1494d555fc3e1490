"""Messages between a worker and its copiers, one JSON object a line, field names in camelCase.

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

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ureplicator_common.model import (
    Delivery,
    Gap,
    GapPolicy,
    HandlerSettings,
    Limited,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    SqlSettings,
    WorkerSelection,
    camel,
)
from ureplicator_worker.lifeline.measures import Measures, Segment, measures_of

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
    """Copy these partitions; owner epochs as in the assignment."""

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
    """The copier's process is to end. It waits for Stop, since a Released is a response."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """Request for a proof that these partitions are still assigned here. Requests may overlap."""

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
    """Response to a ProofRequest. The copier releases `refused` (with reasons) at once, with Failed."""

    request_id: int
    granted: Mapping[Partition, Grant]
    refused: Mapping[Partition, str]


class PartitionReport(NamedTuple):
    """State and counters of one partition since this copier started it; -1: not known yet."""

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
    """A partition released without a Remove, no longer touched; `temporary`: worth a retry; `local`: by
    this worker."""

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


Message = (
    Hello
    | Challenge
    | ChallengeResponse
    | Add
    | Remove
    | Stop
    | StopRequest
    | PublishedSettings
    | PublishedShares
    | ProofRequest
    | ProofResponse
    | CopierReport
    | Released
    | Failed
    | GapPassed
)


def encode(message: Message) -> bytes:
    """Message -> one line, newline included."""
    fields = _proof(message) if isinstance(message, ProofResponse) else _plain(message)
    body = {"type": type(message).__name__, **fields}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """One line -> message. Raises ValueError for anything else."""
    try:
        raw = json.loads(line)
        message: Message = _DECODERS[raw["type"]](raw)
        return message
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a lifeline message: {line[:200]!r}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (Partition, Route)):
        return str(value)
    kind: Any = type(value)
    fields = _fields(kind)
    if fields is not None:
        return {name: _plain(getattr(value, field)) for field, name in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, str], ...] | None:
    """Fields of a class with their names in camelCase; None for a plain tuple or a mapping."""
    for attribute in ("__dataclass_fields__", "_fields"):
        if hasattr(kind, attribute):
            return tuple((field, camel(field)) for field in getattr(kind, attribute))
    return None


def _proof(response: ProofResponse) -> dict[str, Any]:
    """The settings of a route once, and their place in each grant: they may name a thousand topics."""
    distinct = {id(grant.settings): grant.settings for grant in response.granted.values()}
    places = {identity: place for place, identity in enumerate(distinct)}
    granted: dict[str, Any] = {}
    for partition, grant in response.granted.items():
        granted[str(partition)] = {
            name: _plain(getattr(grant, field))
            for field, name in _fields(Grant) or ()
            if field != "settings"
        } | {"settings": places[id(grant.settings)]}
    return {
        "requestId": response.request_id,
        "settings": [_plain(settings) for settings in distinct.values()],
        "granted": granted,
        "refused": _plain(response.refused),
    }


def _snake(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Field names back from camelCase; the values stay as they are."""
    return {re.sub("[A-Z]", lambda c: f"_{c[0].lower()}", name): raw[name] for name in raw}


def _epochs(raw: Mapping[str, int]) -> dict[Partition, OwnerEpoch]:
    return {Partition.parse(text): OwnerEpoch(epoch) for text, epoch in raw.items()}


def _partitions(raw: list[str]) -> tuple[Partition, ...]:
    return tuple(Partition.parse(text) for text in raw)


def _hello(raw: Mapping[str, Any]) -> Hello:
    copier = CopierId(_int(raw["copier"]["slot"]), _int(raw["copier"]["run"]))
    host, space, nonce = (_text(raw[name]) for name in ("host", "pidSpace", "nonce"))
    return Hello(copier, host, _int(raw["pid"]), space, nonce)


def _text(value: Any) -> str:
    """Types are checked in the messages of the handshake: any process may send them."""
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("expected an integer")
    return value


def _route_settings(raw: dict[str, Any]) -> RouteSettings:
    settings = _snake(raw)
    settings["delivery"] = Delivery(settings["delivery"])
    settings["on_gap"] = GapPolicy(settings["on_gap"])
    settings["handlers"] = tuple(HandlerSettings(**_snake(item)) for item in settings["handlers"])
    settings["sql"] = tuple(
        SqlSettings(**{**_snake(item), "udfs": tuple(item["udfs"])}) for item in settings["sql"]
    )
    workers = settings["workers"]
    settings["workers"] = WorkerSelection(tuple(workers["tags"]), workers["min"], workers["max"])
    return RouteSettings(**settings)


def _grant(item: dict[str, Any], settings: Sequence[RouteSettings]) -> Grant:
    raw = _snake(item)
    return Grant(
        owner_epoch=OwnerEpoch(raw["owner_epoch"]),
        target_topic=raw["target_topic"],
        fence=tuple(raw["fence"]),
        initial=raw["initial"],
        had_position=raw["had_position"],
        source_topic_id=raw["source_topic_id"],
        restarted=raw["restarted"],
        settings=settings[raw["settings"]],
        settings_version=raw["settings_version"],
    )


def _proof_response(raw: dict[str, Any]) -> ProofResponse:
    settings = [_route_settings(item) for item in raw["settings"]]
    granted = raw["granted"].items()
    return ProofResponse(
        request_id=raw["requestId"],
        granted={Partition.parse(text): _grant(item, settings) for text, item in granted},
        refused={Partition.parse(text): why for text, why in raw["refused"].items()},
    )


def _copier_report(raw: dict[str, Any]) -> CopierReport:
    partitions = {}
    for text, item in raw["partitions"].items():
        item["state"] = PartitionState(item["state"])
        item["gap_offsets"] = item.pop("gapOffsets")
        partitions[Partition.parse(text)] = PartitionReport(**item)
    return CopierReport(
        partitions=partitions,
        latency_ms=tuple(raw["latencyMs"]),
        latency_sum_ms=raw["latencySumMs"],
        segments={
            Partition.parse(text): tuple(Segment(**row) for row in rows)
            for text, rows in raw["segments"].items()
        },
        limits={
            Limited.parse(text): LimitUse(**_snake(use)) for text, use in raw["limits"].items()
        },
        handlers={topic: HandlerReport(**_snake(item)) for topic, item in raw["handlers"].items()},
        measures=measures_of(raw["measures"]),
    )


def _shares(raw: Mapping[str, int]) -> dict[Limited, int]:
    return {Limited.parse(text): rate for text, rate in raw.items()}


_DECODERS: Mapping[str, Any] = {
    "Hello": _hello,
    "Challenge": lambda raw: Challenge(_text(raw["nonce"]), _text(raw["proof"])),
    "ChallengeResponse": lambda raw: ChallengeResponse(_text(raw["proof"])),
    "Add": lambda raw: Add(partitions=_epochs(raw["partitions"])),
    "Remove": lambda raw: Remove(partitions=_partitions(raw["partitions"])),
    "Stop": lambda raw: Stop(),
    "StopRequest": lambda raw: StopRequest(raw["reason"]),
    "PublishedSettings": lambda raw: PublishedSettings(
        Route.parse(raw["route"]), raw["version"], _route_settings(raw["settings"])
    ),
    "PublishedShares": lambda raw: PublishedShares(
        raw["version"], {int(slot): _shares(shares) for slot, shares in raw["slots"].items()}
    ),
    "ProofRequest": lambda raw: ProofRequest(
        request_id=raw["requestId"], partitions=_epochs(raw["partitions"])
    ),
    "ProofResponse": _proof_response,
    "CopierReport": _copier_report,
    "Released": lambda raw: Released(partitions=_partitions(raw["partitions"])),
    "Failed": lambda raw: Failed(
        Partition.parse(raw["partition"]), raw["reason"], raw["temporary"], raw["local"]
    ),
    "GapPassed": lambda raw: GapPassed(
        Partition.parse(raw["partition"]), Gap(**_snake(raw["gap"]))
    ),
}
