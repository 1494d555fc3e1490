"""What the two ends of the lifeline say to each other, one JSON object a line.

    driver (worker process)                      copier (Spark task, Python)
        | <------------- Hello(token, pid) ------------- |   admitted once per token
        | -- Add(partition: owner epoch) ------------->  |
        | <------------- Ask(request, partitions) ------ |   after it initialised its transactional id
        | -- Go(request, grants, refused) ------------>  |   after the proof in ZooKeeper
        | <------------- Report(...) ------------------- |   a few times a second
        | <------------- Failed(partition, reason) ----- |   refused or given up, no longer touched
        | -- Remove(partitions) ---------------------->  |
        | <------------- Released(partitions) ---------- |   drained, committed, no longer touched
        | -- Stop() ---------------------------------->  |
        | <------------- Released(all), then close ----- |

Either end takes the closed connection for the end of the other: the copier drains, commits and ends;
the driver waits until the process is gone. Before its first `Go` a copier sends nothing to Kafka but
the initialisation of its own transactional id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ureplicator_common.model import (
    Delivery,
    GapPolicy,
    OwnerEpoch,
    Partition,
    PartitionState,
    RouteSettings,
)

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
class CopierOrder:
    """All that a copier is born with; travels by pickle inside the Spark task, so no secrets in it.

    `clusters` are librdkafka properties by cluster name; secrets are file references there.
    """

    fleet: str
    worker: str
    slot: int
    host: str
    port: int
    token: str = field(repr=False)
    clusters: Mapping[str, Mapping[str, str]] = field(repr=False)
    commit_interval_s: float
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Hello:
    token: str
    pid: int


@dataclass(frozen=True, slots=True)
class Add:
    """Copy these; owner epochs as in the assignment."""

    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Remove:
    """Drain, commit, let go of these, and say Released, once, also for those given up or never heard of.

    It is not said again before that answer."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Drain, commit, let go of everything, end."""


@dataclass(frozen=True, slots=True)
class Ask:
    """May I still copy these? Numbered, since asks may overlap."""

    request: int
    partitions: Mapping[Partition, OwnerEpoch]


@dataclass(frozen=True, slots=True)
class Grant:
    """Proven at this moment: the partition is ours. With all that starting it needs.

    `initial`: existed when the topic was whitelisted, so the route's `start` counts; else it begins at 0.
    `had_position`: a position was committed once; a store without one has lost it.
    `source_topic_id`: the topic that is meant, whatever has its name now ("": not known yet).
    `restarted`: a position stored for another source or target topic counts as none.
    """

    owner_epoch: OwnerEpoch
    target_topic: str
    fence: tuple[str, ...] = ()
    initial: bool = True
    had_position: bool = False
    source_topic_id: str = ""
    restarted: bool = False
    settings: RouteSettings = field(default_factory=RouteSettings)


@dataclass(frozen=True, slots=True)
class Go:
    """Answer to an Ask. `refused` are let go at once by the copier, with Failed (reason per partition)."""

    request: int
    granted: Mapping[Partition, Grant]
    refused: Mapping[Partition, str]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What one partition does. Counters since the copier began with it; -1: not known yet."""

    state: PartitionState
    reason: str = ""
    position: int = -1
    committed: int = -1
    records: int = 0
    bytes: int = 0
    lag: int = -1
    skipped: int = 0
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """All partitions of the copier; `latency_ms` are counts per bucket of LATENCY_BOUNDS_MS."""

    partitions: Mapping[Partition, PartitionReport]
    latency_ms: tuple[int, ...] = ()
    latency_sum_ms: int = 0


@dataclass(frozen=True, slots=True)
class Released:
    """Answer to Remove or Stop: drained and committed, or never begun; not touched any more."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Let go unasked and not touched any more; `temporary` says how soon to try again, if still ours."""

    partition: Partition
    reason: str
    temporary: bool


Message = Hello | Add | Remove | Stop | Ask | Go | Report | Released | Failed


def encode(message: Message) -> bytes:
    """Message -> one line, newline included."""
    body = {"type": type(message).__name__, **_plain(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """One line -> message. Raises ValueError for anything else."""
    try:
        raw = json.loads(line)
        message: Message = _DECODERS[raw["type"]](raw)
        return message
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a lifeline message: {line[:200]!r}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Partition):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def _epochs(raw: Mapping[str, int]) -> dict[Partition, OwnerEpoch]:
    return {Partition.parse(text): OwnerEpoch(epoch) for text, epoch in raw.items()}


def _partitions(raw: list[str]) -> tuple[Partition, ...]:
    return tuple(Partition.parse(text) for text in raw)


def _hello(token: Any, pid: Any) -> Hello:
    """The only message that anybody may send: a wrong type must not reach who reads it."""
    if not isinstance(token, str) or not isinstance(pid, int):
        raise TypeError("a text and a number are expected")
    return Hello(token, pid)


def _grant(raw: dict[str, Any]) -> Grant:
    settings = dict(raw["settings"])
    settings["delivery"] = Delivery(settings["delivery"])
    settings["on_gap"] = GapPolicy(settings["on_gap"])
    return Grant(
        owner_epoch=OwnerEpoch(raw["owner_epoch"]),
        target_topic=raw["target_topic"],
        fence=tuple(raw["fence"]),
        initial=raw["initial"],
        had_position=raw["had_position"],
        source_topic_id=raw["source_topic_id"],
        restarted=raw["restarted"],
        settings=RouteSettings(**settings),
    )


def _go(raw: dict[str, Any]) -> Go:
    return Go(
        request=raw["request"],
        granted={Partition.parse(text): _grant(item) for text, item in raw["granted"].items()},
        refused={Partition.parse(text): why for text, why in raw["refused"].items()},
    )


def _report(raw: dict[str, Any]) -> Report:
    partitions = {}
    for text, item in raw["partitions"].items():
        item["state"] = PartitionState(item["state"])
        partitions[Partition.parse(text)] = PartitionReport(**item)
    return Report(
        partitions=partitions,
        latency_ms=tuple(raw["latency_ms"]),
        latency_sum_ms=raw["latency_sum_ms"],
    )


_DECODERS: Mapping[str, Any] = {
    "Hello": lambda raw: _hello(raw["token"], raw["pid"]),
    "Add": lambda raw: Add(partitions=_epochs(raw["partitions"])),
    "Remove": lambda raw: Remove(partitions=_partitions(raw["partitions"])),
    "Stop": lambda raw: Stop(),
    "Ask": lambda raw: Ask(request=raw["request"], partitions=_epochs(raw["partitions"])),
    "Go": _go,
    "Report": _report,
    "Released": lambda raw: Released(partitions=_partitions(raw["partitions"])),
    "Failed": lambda raw: Failed(
        partition=Partition.parse(raw["partition"]),
        reason=raw["reason"],
        temporary=raw["temporary"],
    ),
}
