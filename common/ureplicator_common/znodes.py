"""Paths and contents of the nodes under `/ureplicator/<fleet>`. Pure: no connection here.

| node                            | kind       | content                 | written by        |
|---------------------------------|------------|-------------------------|-------------------|
| epoch                           | persistent | empty; version = epoch  | who becomes leader|
| leader                          | ephemeral  | LiveController          | the leader        |
| controllers/<id>                | ephemeral  | LiveController          | each controller   |
| workers/live/<id>               | ephemeral  | LiveWorker              | each worker       |
| workers/known/<id>              | persistent | KnownWorker             | the leader, REST  |
| workers/registered/<id>         | persistent | a session of a process  | each worker       |
| routes/<route>                  | persistent | RouteSettings           | the leader        |
| topics/<route>/<topic>          | persistent | TopicIntent             | REST, the leader  |
| targets/<cluster>/<topic>       | persistent | who claims that target  | REST, the leader  |
| blacklist/<route>/<topic>       | persistent | topic not to be copied  | REST              |
| memory/<route>                  | persistent | RouteMemory             | the leader        |
| ideal/<route>/<topic>           | persistent | IdealTopic              | the leader        |
| assignments/<worker>            | persistent | Assignment              | the leader        |
| current/<worker>                | ephemeral  | CurrentState            | the worker        |
| loads/<worker>                  | ephemeral  | PartitionLoad           | the worker        |
| settings                        | persistent | Switches                | REST, the leader  |
| history/<n>                     | persistent | a block of PastEvent    | the leader        |

Contents are JSON with sorted keys (the same value is the same bytes: a write that changes nothing is
seen as such), compressed above 8 KiB; a node must stay under 640 KiB of ZooKeeper's 1 MiB. Unknown
fields are ignored when read, so that two versions can share a tree during a rolling upgrade.

The nodes that grow are bounded before they are written, since a plan whose node is refused would be
made again for ever: a topic has at most `MOST_PARTITIONS`, a worker is told of at most `MOST_TOLD`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ureplicator_common.model import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    Delivery,
    EventKind,
    GapPolicy,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveController,
    LiveWorker,
    OwnerEpoch,
    Partition,
    PartitionLoad,
    PartitionState,
    PastEvent,
    Route,
    RouteMemory,
    RouteSettings,
    SessionId,
    Switches,
    TopicIntent,
    TopicKey,
    TopicState,
    WorkerId,
)

COMPRESS_ABOVE_BYTES = 8 * 1024
LIMIT_BYTES = 640 * 1024
"""With room for the rest of a transaction below `coordination.TRANSACTION_LIMIT_BYTES`."""
MOST_PARTITIONS = 10_000
"""Of a topic. Its ideal state takes 30 bytes for a partition with one holder, some 5 more for each
other: 64 are there."""
MOST_TOLD = 10_000
"""Partitions of one worker. An assignment takes 10 bytes for one, 16 with four ids to fence, a current
state 12 with errors that differ."""

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
"""What the decoders raise for a node that somebody else wrote: garbage, or a newer version's words."""


class Paths:
    """Where things lie for one fleet."""

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self.root = f"/ureplicator/{fleet}"
        self.epoch = f"{self.root}/epoch"
        self.leader = f"{self.root}/leader"
        self.controllers = f"{self.root}/controllers"
        self.workers_live = f"{self.root}/workers/live"
        self.workers_known = f"{self.root}/workers/known"
        self.workers_registered = f"{self.root}/workers/registered"
        self.routes = f"{self.root}/routes"
        self.topics = f"{self.root}/topics"
        self.targets = f"{self.root}/targets"
        self.blacklist = f"{self.root}/blacklist"
        self.memory = f"{self.root}/memory"
        self.ideal = f"{self.root}/ideal"
        self.assignments = f"{self.root}/assignments"
        self.current = f"{self.root}/current"
        self.loads = f"{self.root}/loads"
        self.settings = f"{self.root}/settings"
        self.history = f"{self.root}/history"

    @property
    def skeleton(self) -> tuple[str, ...]:
        """Persistent parents that every process ensures at start."""
        return (
            self.epoch,
            self.controllers,
            self.workers_live,
            self.workers_known,
            self.workers_registered,
            self.routes,
            self.topics,
            self.targets,
            self.blacklist,
            self.memory,
            self.ideal,
            self.assignments,
            self.current,
            self.loads,
        )

    def controller(self, id: str) -> str:
        return f"{self.controllers}/{id}"

    def worker_live(self, worker: WorkerId) -> str:
        return f"{self.workers_live}/{worker}"

    def worker_known(self, worker: WorkerId) -> str:
        return f"{self.workers_known}/{worker}"

    def worker_registration(self, worker: WorkerId) -> str:
        return f"{self.workers_registered}/{worker}"

    def route(self, route: Route) -> str:
        return f"{self.routes}/{route}"

    def topic(self, key: TopicKey) -> str:
        return f"{self.topics}/{key}"

    def target(self, cluster: str, topic: str) -> str:
        return f"{self.targets}/{cluster}/{topic}"

    def blacklisted(self, key: TopicKey) -> str:
        return f"{self.blacklist}/{key}"

    def route_memory(self, route: Route) -> str:
        return f"{self.memory}/{route}"

    def ideal_topic(self, key: TopicKey) -> str:
        return f"{self.ideal}/{key}"

    def assignment(self, worker: WorkerId) -> str:
        return f"{self.assignments}/{worker}"

    def current_state(self, worker: WorkerId) -> str:
        return f"{self.current}/{worker}"

    def history_block(self, number: int) -> str:
        return f"{self.history}/{number}"

    def load(self, worker: WorkerId) -> str:
        return f"{self.loads}/{worker}"


def encode(value: Any) -> bytes:
    """JSON-able value -> node content. Raises ValueError above the limit of a node."""
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    if len(data) > COMPRESS_ABOVE_BYTES:
        data = zlib.compress(data, 6)
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"node content of {len(data)} bytes is above {LIMIT_BYTES}")
    return data


def decode(data: bytes) -> Any:
    """Node content -> JSON-able value; an empty node is {}. Raises ValueError for garbage.

    JSON text never begins with zlib's first byte (0x78), so no marker is needed.
    """
    if not data:
        return {}
    if data[:1] == b"\x78":
        try:
            data = zlib.decompress(data)
        except zlib.error as error:
            raise ValueError(f"garbled node content: {error}") from error
    return json.loads(data)


def encode_intent(intent: TopicIntent) -> bytes:
    return encode(
        {
            "partitions": intent.partitions,
            "initialPartitions": intent.initial_partitions,
            "state": intent.state.value,
            "blacklisted": sorted(intent.blacklisted),
            "hadPosition": sorted(intent.had_position),
            "targetTopic": intent.target_topic,
            "lane": intent.lane,
            "forgetPositions": intent.forget_positions,
            "sourceTopicId": intent.source_topic_id,
            "targetTopicId": intent.target_topic_id,
            "whole": intent.whole,
            "restarted": intent.restarted,
            "stopped": intent.stopped,
            "requestId": intent.request_id,
        }
    )


def decode_intent(data: bytes) -> TopicIntent:
    raw = decode(data)
    return TopicIntent(
        partitions=int(raw["partitions"]),
        initial_partitions=int(raw["initialPartitions"]),
        state=TopicState(raw.get("state", "active")),
        blacklisted=frozenset(raw.get("blacklisted", ())),
        had_position=frozenset(raw.get("hadPosition", ())),
        target_topic=raw.get("targetTopic", ""),
        lane=raw.get("lane", "raw"),
        forget_positions=bool(raw.get("forgetPositions", False)),
        source_topic_id=raw.get("sourceTopicId", ""),
        target_topic_id=raw.get("targetTopicId", ""),
        whole=bool(raw.get("whole", False)),
        restarted=bool(raw.get("restarted", False)),
        stopped=raw.get("stopped", ""),
        request_id=raw.get("requestId", ""),
    )


def encode_claim(key: TopicKey) -> bytes:
    return encode({"topic": str(key)})


def decode_claim(data: bytes) -> TopicKey:
    route, _, topic = str(decode(data)["topic"]).partition("/")
    return TopicKey(Route.parse(route), topic)


def encode_blacklisted(request_id: str) -> bytes:
    """That the node is there is all it says; who wrote it is for whoever lost the answer."""
    return encode({"requestId": request_id})


def decode_blacklisted(data: bytes) -> str:
    return str(decode(data).get("requestId", ""))


def encode_memory(memory: RouteMemory) -> bytes:
    return encode(asdict(memory))


def decode_memory(data: bytes) -> RouteMemory:
    raw = decode(data)
    baseline = raw.get("baseline")
    return RouteMemory(
        baseline=None if baseline is None else dict(baseline), refused=dict(raw.get("refused", {}))
    )


def encode_ideal(ideal: IdealTopic) -> bytes:
    return encode(
        {
            str(number): {
                "worker": entry.worker,
                "ownerEpoch": entry.owner_epoch,
                "since": entry.since_ms,
                "reason": entry.reason,
                "holders": {worker: str(session) for worker, session in entry.holders.items()},
                **_stuck(entry),
            }
            for number, entry in ideal.entries.items()
        }
    )


def _stuck(entry: IdealEntry) -> dict[str, object]:
    """Hardly ever anything, and then written for as long as it means something."""
    moves = {"stuckMoves": entry.stuck_moves} if entry.stuck_moves else {}
    return moves | ({"stuckOn": str(entry.stuck_on)} if entry.stuck_on else {})


def decode_ideal(data: bytes) -> IdealTopic:
    return IdealTopic(
        entries={
            int(number): IdealEntry(
                worker=None if raw["worker"] is None else WorkerId(raw["worker"]),
                owner_epoch=OwnerEpoch(raw["ownerEpoch"]),
                since_ms=int(raw["since"]),
                reason=raw["reason"],
                holders={
                    WorkerId(worker): SessionId(int(session))
                    for worker, session in raw.get("holders", {}).items()
                },
                stuck_moves=int(raw.get("stuckMoves", 0)),
                stuck_on=SessionId(int(raw.get("stuckOn", 0))),
            )
            for number, raw in decode(data).items()
        }
    )


def encode_assignment(assignment: Assignment) -> bytes:
    return encode(
        {
            str(partition): {"ownerEpoch": entry.owner_epoch, "fence": list(entry.fence)}
            for partition, entry in assignment.entries.items()
        }
    )


def decode_assignment(data: bytes) -> Assignment:
    return Assignment(
        entries={
            Partition.parse(text): AssignmentEntry(
                owner_epoch=OwnerEpoch(raw["ownerEpoch"]), fence=tuple(raw.get("fence", ()))
            )
            for text, raw in decode(data).items()
        }
    )


def encode_current(current: CurrentState) -> bytes:
    return encode(
        {
            "seenZxid": current.seen_zxid,
            "partitions": {
                str(partition): {
                    "state": entry.state.value,
                    "ownerEpoch": entry.owner_epoch,
                    "reason": entry.reason,
                    "committed": entry.committed,
                }
                for partition, entry in current.entries.items()
            },
        }
    )


def decode_current(data: bytes) -> CurrentState:
    raw = decode(data)
    return CurrentState(
        seen_zxid=int(raw["seenZxid"]),
        entries={
            Partition.parse(text): CurrentEntry(
                state=PartitionState(entry["state"]),
                owner_epoch=OwnerEpoch(entry["ownerEpoch"]),
                reason=entry.get("reason", ""),
                committed=bool(entry.get("committed", False)),
            )
            for text, entry in raw.get("partitions", {}).items()
        },
    )


def encode_loads(loads: Mapping[Partition, PartitionLoad]) -> bytes:
    """Whole numbers: a worker of many partitions writes this every few seconds."""
    return encode(
        {
            str(partition): {
                "bytesPerS": round(load.bytes_per_s),
                "recordsPerS": round(load.records_per_s, 1),
                "steadyBytesPerS": round(load.steady_bytes_per_s),
                "measuredS": int(load.measured_s),
                "heldS": int(load.held_s),
                "noProgressS": int(load.no_progress_s),
                "position": load.position,
                "committed": load.committed,
                "lag": load.lag,
            }
            for partition, load in loads.items()
        }
    )


def decode_loads(data: bytes) -> dict[Partition, PartitionLoad]:
    """What an older worker did not measure is not known, and none of it is taken for zero."""
    return {
        Partition.parse(text): PartitionLoad(
            bytes_per_s=float(raw["bytesPerS"]),
            records_per_s=float(raw["recordsPerS"]),
            steady_bytes_per_s=float(raw.get("steadyBytesPerS", 0.0)),
            measured_s=float(raw.get("measuredS", 0.0)),
            held_s=float(raw.get("heldS", 0.0)),
            no_progress_s=float(raw.get("noProgressS", 0.0)),
            position=int(raw.get("position", -1)),
            committed=int(raw.get("committed", -1)),
            lag=int(raw.get("lag", -1)),
        )
        for text, raw in decode(data).items()
    }


def encode_live_worker(worker: LiveWorker) -> bytes:
    return encode(asdict(worker))


def decode_live_worker(data: bytes) -> LiveWorker:
    raw = decode(data)
    return LiveWorker(**_known(raw, LiveWorker))


def encode_registration(session: SessionId) -> bytes:
    return encode({"session": str(session)})


def decode_registration(data: bytes) -> SessionId:
    return SessionId(int(decode(data)["session"]))


def encode_known_worker(worker: KnownWorker) -> bytes:
    return encode(asdict(worker))


def decode_known_worker(data: bytes) -> KnownWorker:
    raw = decode(data)
    return KnownWorker(**_known(raw, KnownWorker))


def encode_switches(switches: Switches) -> bytes:
    return encode(asdict(switches))


def decode_switches(data: bytes) -> Switches:
    return Switches(**_known(decode(data), Switches))


def encode_history(events: Sequence[PastEvent]) -> bytes:
    """What a field usually is, is left out: a block is full of such fields."""
    return encode([_without_defaults(event) for event in events])


def _without_defaults(event: PastEvent) -> dict[str, Any]:
    """`partition` as text."""
    fields = PastEvent.__dataclass_fields__
    raw = {name: getattr(event, name) for name in fields}
    said = {name: value for name, value in raw.items() if value != fields[name].default}
    return said | ({"partition": str(event.partition)} if event.partition else {})


def decode_history(data: bytes) -> tuple[PastEvent, ...]:
    return tuple(_event(raw) for raw in decode(data) or ())


def _event(raw: Mapping[str, Any]) -> PastEvent:
    known = _known(raw, PastEvent)
    known["kind"] = EventKind(known["kind"])
    if "partition" in known:
        known["partition"] = Partition.parse(known["partition"])
    return PastEvent(**known)


def encode_controller(controller: LiveController) -> bytes:
    return encode(asdict(controller))


def decode_controller(data: bytes) -> LiveController:
    return LiveController(**_known(decode(data), LiveController))


def encode_route(settings: RouteSettings) -> bytes:
    return encode(asdict(settings))


def decode_route(data: bytes) -> RouteSettings:
    raw = _known(decode(data), RouteSettings)
    raw["delivery"] = Delivery(raw["delivery"])
    raw["on_gap"] = GapPolicy(raw["on_gap"])
    return RouteSettings(**raw)


def _known(raw: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Only the fields this version knows: a newer process may have written more."""
    names = kind.__dataclass_fields__
    return {name: value for name, value in raw.items() if name in names}
