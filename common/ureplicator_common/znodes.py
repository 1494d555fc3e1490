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
| acls/<route>                    | persistent | RouteAcls               | the leader        |
| groups/<route>                  | persistent | GoneGroups              | the leader        |
| syncs/<kind>/<route>            | persistent | SyncReport              | the leader        |
| ideal/<route>/<topic>           | persistent | IdealTopic              | the leader        |
| assignments/<worker>            | persistent | Assignment              | the leader        |
| shares/<worker>                 | persistent | SlotShares              | the leader        |
| current/<worker>                | ephemeral  | CurrentState            | the worker        |
| loads/<worker>                  | ephemeral  | PartitionLoad           | the worker        |
| settings                        | persistent | Switches                | REST, the leader  |
| history/<n>                     | persistent | a block of PastEvent    | the leader        |
| isolated                        | persistent | IsolatedSubject         | the leader        |
| audits/states/<route>/<topic>   | persistent | TopicAudit              | who compared      |
| audits/requests/<route>/<topic> | persistent | RequestedAudit          | REST, the auditor |
| audits/claims/<route>/<topic>   | ephemeral  | RunningAudit            | the auditor       |
| audits/followers/<route>        | ephemeral  | Follower                | the auditor       |
| audits/auditors/<id>            | ephemeral  | LiveAuditor             | each auditor      |

Contents are JSON with camelCase names, compressed above 8 KiB. Equal values are equal bytes (sets and
mappings are written in order), so a write that changes nothing is recognised as such. A node must stay
under 640 KiB of ZooKeeper's 1 MiB. Fields and their types are those of the dataclasses in `contents`
and `audits` (`RouteSettings`: in `model`); pydantic encodes and validates them (docs/adr/0015). Unknown
fields are ignored when read, so that two versions can share a tree during a rolling upgrade. A content
that is not of its type is refused: every decoder raises `UnreadableContent` for it and nothing else.

The nodes that grow are bounded before they are written, since a plan whose node is refused would be
made again endlessly: a topic has at most `MAX_TOPIC_PARTITIONS`, a worker is assigned at most `MAX_ASSIGNED`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from ureplicator_common.audits import (
    Follower,
    LiveAuditor,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
)
from ureplicator_common.model import (
    Content,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    WorkerId,
    camel,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentState,
    GoneGroups,
    IdealEntry,
    IdealTopic,
    IsolatedSubject,
    KnownWorker,
    LiveController,
    LiveWorker,
    PartitionLoad,
    PartitionText,
    PastEvent,
    RouteAcls,
    RouteMemory,
    SessionText,
    SlotShares,
    Switches,
    SyncKind,
    SyncReport,
    TopicIntent,
    WorkerUsage,
)

COMPRESS_ABOVE_BYTES = 8 * 1024
LIMIT_BYTES = 640 * 1024
"""Bytes of a node: room for the rest of a transaction, see `coordination.TRANSACTION_LIMIT_BYTES`."""
MAX_TOPIC_PARTITIONS = 10_000
"""Partitions of a topic at most. Its ideal state takes 30 bytes per partition with one holder, about 5
more for each further holder: 64 are available."""
MAX_ASSIGNED = 10_000
"""Partitions of one worker. An assignment takes 10 bytes per partition, 16 with four ids to fence, a
current state 12 with errors that differ."""

T = TypeVar("T")


class AuditPaths:
    """Node paths of audits."""

    def __init__(self, root: str) -> None:
        self.states = f"{root}/states"
        self.requests = f"{root}/requests"
        self.claims = f"{root}/claims"
        self.followers = f"{root}/followers"
        self.auditors = f"{root}/auditors"

    @property
    def skeleton(self) -> tuple[str, ...]:
        return (self.states, self.requests, self.claims, self.followers, self.auditors)

    def state(self, key: TopicKey) -> str:
        return f"{self.states}/{key}"

    def request(self, key: TopicKey) -> str:
        return f"{self.requests}/{key}"

    def claim(self, key: TopicKey) -> str:
        return f"{self.claims}/{key}"

    def follower(self, route: Route) -> str:
        return f"{self.followers}/{route}"

    def auditor(self, id: str) -> str:
        return f"{self.auditors}/{id}"


class MeasurePaths:
    """Node paths of what workers measure, which change all the time."""

    def __init__(self, root: str) -> None:
        self.loads = f"{root}/loads"
        self.usages = f"{root}/usage"

    def load(self, worker: WorkerId) -> str:
        return f"{self.loads}/{worker}"

    def usage(self, worker: WorkerId) -> str:
        return f"{self.usages}/{worker}"


class Paths:
    """Node paths of one fleet."""

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
        self.acls = f"{self.root}/acls"
        self.groups = f"{self.root}/groups"
        self.syncs = f"{self.root}/syncs"
        self.ideal = f"{self.root}/ideal"
        self.assignments = f"{self.root}/assignments"
        self.shares = f"{self.root}/shares"
        self.current = f"{self.root}/current"
        self.measures = MeasurePaths(self.root)
        self.settings = f"{self.root}/settings"
        self.history = f"{self.root}/history"
        self.isolated = f"{self.root}/isolated"
        self.audits = AuditPaths(f"{self.root}/audits")

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
            self.acls,
            self.groups,
            *(f"{self.syncs}/{kind}" for kind in SyncKind),
            self.ideal,
            self.assignments,
            self.shares,
            self.current,
            self.measures.loads,
            self.measures.usages,
            *self.audits.skeleton,
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

    def route_acls(self, route: Route) -> str:
        return f"{self.acls}/{route}"

    def gone_groups(self, route: Route) -> str:
        return f"{self.groups}/{route}"

    def sync(self, kind: SyncKind, route: Route) -> str:
        return f"{self.syncs}/{kind}/{route}"

    def ideal_topic(self, key: TopicKey) -> str:
        return f"{self.ideal}/{key}"

    def assignment(self, worker: WorkerId) -> str:
        return f"{self.assignments}/{worker}"

    def slot_shares(self, worker: WorkerId) -> str:
        return f"{self.shares}/{worker}"

    def current_state(self, worker: WorkerId) -> str:
        return f"{self.current}/{worker}"

    def history_block(self, number: int) -> str:
        return f"{self.history}/{number}"


class UnreadableContent(ValueError):
    """The content of a node is garbage, incomplete, or in the names of another version."""


def pack(text: bytes) -> bytes:
    """JSON text -> node content, compressed if it is large.

    Raises ValueError above the limit of a node.
    """
    data = zlib.compress(text, 6) if len(text) > COMPRESS_ABOVE_BYTES else text
    if len(data) > LIMIT_BYTES:
        raise ValueError(f"node content of {len(data)} bytes is above {LIMIT_BYTES}")
    return data


def unpack(data: bytes) -> bytes:
    """Node content -> JSON text. Raises UnreadableContent.

    JSON text never begins with zlib's first byte (0x78), so no marker is needed.
    """
    if data[:1] != b"\x78":
        return data
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise UnreadableContent(f"cannot be decompressed: {error}") from error


def encode(value: object) -> bytes:
    """JSON-able value -> node content. Raises ValueError above the limit of a node."""
    return pack(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def decode(data: bytes) -> Any:
    """Node content -> JSON-able value; an empty node is {}. Raises UnreadableContent."""
    try:
        return json.loads(unpack(data) or b"{}")
    except ValueError as error:
        raise UnreadableContent(str(error)) from error


class _Codec(Generic[T]):
    """Node contents of one type.

    `omit_defaults`: fields that have their default value are not written. `empty`: the JSON text that
    an empty node stands for. `checked`: raises UnreadableContent for what the type alone would accept.
    """

    def __init__(
        self,
        content: TypeAdapter[T],
        *,
        omit_defaults: bool = False,
        empty: bytes = b"{}",
        checked: Callable[[bytes], None] | None = None,
    ) -> None:
        self._content = content
        self._omit_defaults = omit_defaults
        self._empty = empty
        self._checked = checked

    def encode(self, value: T) -> bytes:
        """Raises ValueError above the limit of a node."""
        text = self._content.dump_json(value, by_alias=True, exclude_defaults=self._omit_defaults)
        return pack(text)

    def decode(self, data: bytes) -> T:
        """Raises UnreadableContent."""
        if self._checked is not None:
            self._checked(data)
        try:
            return self._content.validate_json(unpack(data) or self._empty)
        except ValidationError as error:
            raise UnreadableContent(_first_of(error)) from error


def _first_of(error: ValidationError) -> str:
    """`3.ownerEpoch: Field required`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _field_names(kind: type[Content], *, required: Sequence[str] = ()) -> Callable[[bytes], None]:
    """A check of contents whose fields nearly all have defaults: that no name is in snake_case. Such
    fields would be ignored, and defaults read instead."""
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    snake_case = frozenset(name for name in fields if camel(name) != name)

    def check(data: bytes) -> None:
        raw = decode(data)
        names = raw.keys() if isinstance(raw, dict) else frozenset()
        if found := snake_case & names:
            raise UnreadableContent(f"{min(found)} is not a name in camelCase")
        if missing := [name for name in required if name not in names]:
            raise UnreadableContent(f"{missing[0]}: Field required")

    return check


@dataclass(frozen=True, slots=True)
class _Claim(Content):
    topic: str


@dataclass(frozen=True, slots=True)
class _Registration(Content):
    session: SessionText


@dataclass(frozen=True, slots=True)
class _Blacklisted(Content):
    request_id: str = ""


_intent = _Codec(TypeAdapter(TopicIntent))
_claim = _Codec(TypeAdapter(_Claim))
_blacklisted = _Codec(TypeAdapter(_Blacklisted))
_memory = _Codec(TypeAdapter(RouteMemory))
_acls = _Codec(TypeAdapter(RouteAcls))
_gone = _Codec(TypeAdapter(GoneGroups))
_sync = _Codec(TypeAdapter(SyncReport))
_ideal = _Codec(TypeAdapter(dict[int, IdealEntry]), omit_defaults=True)
_assignment = _Codec(TypeAdapter(dict[PartitionText, AssignmentEntry]))
_shares = _Codec(TypeAdapter(SlotShares))
_current = _Codec(TypeAdapter(CurrentState))
_loads = _Codec(TypeAdapter(dict[PartitionText, PartitionLoad]))
_usage = _Codec(TypeAdapter(WorkerUsage))
_live_worker = _Codec(TypeAdapter(LiveWorker))
_known_worker = _Codec(TypeAdapter(KnownWorker))
_registration = _Codec(TypeAdapter(_Registration))
_switches = _Codec(TypeAdapter(Switches), checked=_field_names(Switches))
_history = _Codec(TypeAdapter(tuple[PastEvent, ...]), omit_defaults=True, empty=b"[]")
_isolated = _Codec(TypeAdapter(tuple[IsolatedSubject, ...]), empty=b"[]")
_audit_state = _Codec(TypeAdapter(TopicAudit), omit_defaults=True)
_audit_request = _Codec(TypeAdapter(RequestedAudit))
_audit_claim = _Codec(TypeAdapter(RunningAudit))
_follower = _Codec(TypeAdapter(Follower))
_auditor = _Codec(TypeAdapter(LiveAuditor))
_controller = _Codec(TypeAdapter(LiveController), checked=_field_names(LiveController))
_route = _Codec(
    TypeAdapter(RouteSettings),
    checked=_field_names(RouteSettings, required=("delivery", "onGap")),
)

encode_intent, decode_intent = _intent.encode, _intent.decode
encode_memory, decode_memory = _memory.encode, _memory.decode
encode_acls, decode_acls = _acls.encode, _acls.decode
encode_gone, decode_gone = _gone.encode, _gone.decode
encode_sync, decode_sync = _sync.encode, _sync.decode
encode_usage, decode_usage = _usage.encode, _usage.decode
encode_live_worker, decode_live_worker = _live_worker.encode, _live_worker.decode
encode_known_worker, decode_known_worker = _known_worker.encode, _known_worker.decode
encode_switches, decode_switches = _switches.encode, _switches.decode
encode_controller, decode_controller = _controller.encode, _controller.decode
encode_audit_state, decode_audit_state = _audit_state.encode, _audit_state.decode
encode_audit_request, decode_audit_request = _audit_request.encode, _audit_request.decode
encode_audit_claim, decode_audit_claim = _audit_claim.encode, _audit_claim.decode
encode_follower, decode_follower = _follower.encode, _follower.decode
encode_auditor, decode_auditor = _auditor.encode, _auditor.decode
decode_route = _route.decode
decode_isolated = _isolated.decode
decode_history = _history.decode
decode_loads = _loads.decode
decode_current = _current.decode


def encode_route(settings: RouteSettings) -> bytes:
    return _route.encode(replace(settings, rename=dict(sorted(settings.rename.items()))))


def encode_claim(key: TopicKey) -> bytes:
    return _claim.encode(_Claim(str(key)))


def decode_claim(data: bytes) -> TopicKey:
    route, _, topic = _claim.decode(data).topic.partition("/")
    try:
        return TopicKey(Route.parse(route), topic)
    except ValueError as error:
        raise UnreadableContent(str(error)) from error


def encode_blacklisted(request_id: str) -> bytes:
    """The request id is for a writer that lost its response; readers only need the node."""
    return _blacklisted.encode(_Blacklisted(request_id))


def decode_blacklisted(data: bytes) -> str:
    return _blacklisted.decode(data).request_id


def encode_ideal(ideal: IdealTopic) -> bytes:
    return _ideal.encode(dict(sorted(ideal.entries.items())))


def decode_ideal(data: bytes) -> IdealTopic:
    return IdealTopic(_ideal.decode(data))


def encode_assignment(assignment: Assignment) -> bytes:
    return _assignment.encode(dict(sorted(assignment.entries.items())))


def decode_assignment(data: bytes) -> Assignment:
    return Assignment(_assignment.decode(data))


def encode_shares(shares: SlotShares) -> bytes:
    return _shares.encode(dict(sorted(shares.items())))


def decode_shares(data: bytes) -> SlotShares:
    return _shares.decode(data)


def encode_current(current: CurrentState) -> bytes:
    entries = dict(sorted(current.entries.items()))
    return _current.encode(CurrentState(current.seen_zxid, entries))


def encode_loads(loads: Mapping[Partition, PartitionLoad]) -> bytes:
    """Encode loads, rounded: a worker of many partitions writes this every few seconds."""
    return _loads.encode(dict(sorted(loads.items())))


def encode_registration(session: SessionId) -> bytes:
    return _registration.encode(_Registration(session))


def decode_registration(data: bytes) -> SessionId:
    return _registration.decode(data).session


def encode_history(events: Sequence[PastEvent]) -> bytes:
    return _history.encode(tuple(events))


def encode_isolated(subjects: Sequence[IsolatedSubject]) -> bytes:
    return _isolated.encode(tuple(subjects))
