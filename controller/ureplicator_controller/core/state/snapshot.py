"""Immutable snapshot of the fleet: the only input of a decision.

`parse` turns the nodes of a tree cache into a `Snapshot`. Each part keeps the version it was read at
(named by a write), its mzxid (compared with a worker's `seen_zxid`) and its owner (the session of an
ephemeral node).

The parts are not all of the same moment, and need not be:

* What only the leader writes (ideal states, assignments) is exact: the observer passes no snapshot
  to the plan before the tree cache has caught up with the leader's own writes, and a new leader begins
  with a refresh made after its election.
* What workers write may be stale, and then errs on the safe side. A stale current state has an old
  `seen_zxid`, so it confirms nothing about a newer assignment. A worker that has reconnected but is
  not in the cache yet counts as dead; the fencing lists cover that case.
* What operators write is guarded by the version wherever the leader writes to it too.

An unreadable node affects only its own topic or worker. It is reported as an `UnreadableNode`; its
topic (`unreadable_topics`) or worker (`unreadable_workers`) is left unchanged until an operator
repairs the node. Nothing is guessed, nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from ureplicator_common.audits import (
    Follower,
    LiveAuditor,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
)
from ureplicator_common.config.roles import ControllerSettings
from ureplicator_common.coordination import Node
from ureplicator_common.cutovers import Cutover, CutoverRequest
from ureplicator_common.model import Partition, Route, RouteSettings, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    CurrentState,
    IdealTopic,
    IsolatedSubject,
    KnownWorker,
    LiveWorker,
    PastEvent,
    RouteMemory,
    SlotShares,
    Switches,
    SyncKind,
    TopicIntent,
)
from ureplicator_common.znodes.audits import (
    decode_audit_claim,
    decode_audit_request,
    decode_audit_state,
    decode_auditor,
    decode_follower,
)
from ureplicator_common.znodes.cutovers import decode_cutover, decode_cutover_request
from ureplicator_common.znodes.fleet import decode_history, decode_isolated, decode_switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_memory, decode_route, decode_sync
from ureplicator_common.znodes.topics import decode_blacklisted, decode_ideal, decode_intent
from ureplicator_common.znodes.workers import (
    decode_assignment,
    decode_current,
    decode_known_worker,
    decode_live_worker,
    decode_registration,
    decode_shares,
)
from ureplicator_controller.core.state.decoding import (
    DecodeCache,
    NodeDecoder,
    Stored,
    UnreadableNode,
)
from ureplicator_controller.core.state.loads import DecodedLoads, WorkerLoads, readable_loads

T = TypeVar("T")
K = TypeVar("K")

MAX_KEYS = 1 << 17
"""Topics whose keys are remembered."""

ReleaseRequest = tuple[Partition, WorkerId, SessionId]
"""A partition that a worker, in that session, was requested to release."""


@dataclass(frozen=True, slots=True)
class PendingRelease:
    """Times since which a release is requested, and since which the worker has released nothing
    (monotonic)."""

    requested_s: float
    idle_since_s: float


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays of the leader in seconds.

    `rebalance_s`: before a lost worker's partitions move. `join_s`: after the last join, before
    counts are evened out. `handover_s`: for a worker to release a partition before it is evicted.
    """

    rebalance_s: float = 120.0
    join_s: float = 10.0
    handover_s: float = 30.0


@dataclass(frozen=True, slots=True)
class BalanceLimits:
    """Limits of moves: load balancing starts above `ratio` times the average load, `moves` moves at a time;
    nothing moves while more than `max_lost_share` of the workers are lost (`state.mass_loss`); at most
    `concurrent_moves` partitions of a route are being released at a time (`planning.handover`)."""

    ratio: float = 1.2
    moves: int = 10
    max_lost_share: float = 0.5
    concurrent_moves: int = 100

    @classmethod
    def of(cls, settings: ControllerSettings) -> BalanceLimits:
        return cls(
            ratio=settings.balance_ratio,
            moves=settings.balance_moves,
            max_lost_share=settings.max_lost_share,
            concurrent_moves=settings.max_concurrent_moves,
        )


@dataclass(frozen=True, slots=True)
class Audits:
    """Audits of the fleet's topics: decisions of the leader never depend on them."""

    states: Mapping[TopicKey, Stored[TopicAudit]] = field(default_factory=dict)
    requests: Mapping[TopicKey, Stored[RequestedAudit]] = field(default_factory=dict)
    running: Mapping[TopicKey, Stored[RunningAudit]] = field(default_factory=dict)
    followers: Mapping[Route, Stored[Follower]] = field(default_factory=dict)
    auditors: Mapping[str, Stored[LiveAuditor]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fleet at the start of a cycle. `wall_ms` is for display: it only ends up in `since_ms`.

    `sessions`: live workers, including those with an unreadable node, without those that were
    evicted and have not confirmed their assignment since (`planning.eviction`).

    `harm`: how settings of target topics refuse, change or delete records of their source topics, by a
    leader's last look. Decisions of the leader never depend on it. `cutovers` and their requests are by name:
    the plan does not depend on them either.

    `absent_since`, `present_since`, `pending_releases` and `load_review_at_s` (time of the
    next load review) are in the observer's monotonic seconds. `without_capacity`: workers that lack
    capacity, or did when they left. `is_braked`, `brake_held_at_s`: whether the brake on mass loss is
    held, and when it was last. Only the leader has them.
    """

    fleet: str
    epoch: int
    wall_ms: int = 0
    topics: Mapping[TopicKey, Stored[TopicIntent]] = field(default_factory=dict)
    ideal: Mapping[TopicKey, Stored[IdealTopic]] = field(default_factory=dict)
    assignments: Mapping[WorkerId, Stored[Assignment]] = field(default_factory=dict)
    shares: Mapping[WorkerId, Stored[SlotShares]] = field(default_factory=dict)
    current: Mapping[WorkerId, Stored[CurrentState]] = field(default_factory=dict)
    live: Mapping[WorkerId, Stored[LiveWorker]] = field(default_factory=dict)
    known: Mapping[WorkerId, Stored[KnownWorker]] = field(default_factory=dict)
    registered: Mapping[WorkerId, Stored[SessionId]] = field(default_factory=dict)
    routes: Mapping[Route, Stored[RouteSettings]] = field(default_factory=dict)
    blacklist: frozenset[TopicKey] = frozenset()
    memory: Mapping[Route, Stored[RouteMemory]] = field(default_factory=dict)
    sessions: Mapping[WorkerId, SessionId] = field(default_factory=dict)
    unreadable_topics: frozenset[TopicKey] = frozenset()
    unreadable_workers: frozenset[WorkerId] = frozenset()
    unreadable_nodes: tuple[UnreadableNode, ...] = ()
    absent_since: Mapping[WorkerId, float] = field(default_factory=dict)
    present_since: Mapping[WorkerId, float] = field(default_factory=dict)
    without_capacity: frozenset[WorkerId] = frozenset()
    pending_releases: Mapping[ReleaseRequest, PendingRelease] = field(default_factory=dict)
    load_review_at_s: float | None = None
    is_braked: bool = False
    brake_held_at_s: float | None = None
    loads: Mapping[WorkerId, WorkerLoads] = field(default_factory=dict)
    switches: Switches = field(default_factory=Switches)
    switches_version: int | None = None
    are_switches_readable: bool = True
    history: Mapping[int, Stored[tuple[PastEvent, ...]]] = field(default_factory=dict)
    isolated: tuple[IsolatedSubject, ...] = ()
    audits: Audits = field(default_factory=Audits)
    harm: Mapping[TopicKey, str] = field(default_factory=dict)
    cutovers: Mapping[str, Stored[Cutover]] = field(default_factory=dict)
    cutover_requests: Mapping[str, Stored[CutoverRequest]] = field(default_factory=dict)
    delays: Delays = Delays()
    limits: BalanceLimits = BalanceLimits()


def parse(
    nodes: Mapping[str, Node],
    paths: Paths,
    *,
    fleet: str,
    wall_ms: int = 0,
    delays: Delays | None = None,
    limits: BalanceLimits | None = None,
    cache: DecodeCache | None = None,
) -> Snapshot:
    """Decode the nodes of a tree cache, without the times that only an observer knows."""
    decoder = NodeDecoder(nodes, cache or DecodeCache())
    topics, bad_topics = decoder.read(paths.topics, 2, _topic_key, decode_intent)
    ideal, bad_ideal = decoder.read(paths.ideal, 2, _topic_key, decode_ideal)
    assignments, bad_assignments = decoder.read(paths.assignments, 1, WorkerId, decode_assignment)
    shares, bad_shares = decoder.read(paths.shares, 1, WorkerId, decode_shares)
    current, bad_current = decoder.read(paths.current, 1, WorkerId, decode_current)
    live, bad_live = decoder.read(paths.workers_live, 1, WorkerId, decode_live_worker)
    known, bad_known = decoder.read(paths.workers_known, 1, WorkerId, decode_known_worker)
    registered, _ = decoder.read(paths.workers_registered, 1, WorkerId, decode_registration)
    routes, _ = decoder.read(paths.routes, 1, Route.parse, decode_route)
    blacklist, bad_blacklist = decoder.read(paths.blacklist, 2, _topic_key, decode_blacklisted)
    memory, _ = decoder.read(paths.memory, 1, Route.parse, decode_memory)
    history, bad_history = decoder.read(paths.history, 1, int, decode_history)
    switches = decoder.read_one(paths.settings, decode_switches)
    isolated = decoder.read_one(paths.isolated, decode_isolated)
    audits = _audits(decoder, paths)
    cutovers, _ = decoder.read(paths.cutovers.states, 1, str, decode_cutover)
    cutover_requests, _ = decoder.read(paths.cutovers.requests, 1, str, decode_cutover_request)
    for worker in live:
        decoder.cache.keep(paths.measures.load(worker))
    decoder.cache.end_cycle()
    history = _completed(history, bad_history, lambda n: nodes[paths.history_block(n)], ())
    shares = _completed(shares, bad_shares, lambda worker: nodes[paths.slot_shares(worker)], {})
    sessions = {worker: stored.owner for worker, stored in live.items()}
    sessions |= {worker: nodes[paths.worker_live(worker)].stat.owner for worker in bad_live}
    sessions = _without_evicted(sessions, known)
    epoch = nodes.get(paths.epoch)
    return Snapshot(
        fleet=fleet,
        epoch=epoch.stat.version if epoch else 0,
        wall_ms=wall_ms,
        topics=topics,
        ideal=ideal,
        assignments=assignments,
        shares=shares,
        current=current,
        live=live,
        known=known,
        registered=registered,
        routes=routes,
        blacklist=frozenset(blacklist) | frozenset(bad_blacklist),
        memory=memory,
        sessions=sessions,
        unreadable_topics=frozenset(bad_topics) | frozenset(bad_ideal),
        unreadable_workers=frozenset((*bad_assignments, *bad_current, *bad_live, *bad_known)),
        unreadable_nodes=tuple(decoder.unreadable_nodes),
        delays=delays or Delays(),
        limits=limits or BalanceLimits(),
        loads=_loads(nodes, paths, sessions, decoder.cache),
        switches=switches.value if switches else _default_switches(nodes.get(paths.settings)),
        switches_version=switches.version if switches else None,
        are_switches_readable=switches is not None or paths.settings not in nodes,
        history=history,
        isolated=isolated.value if isolated else (),
        audits=audits,
        harm=_harm(decoder, paths),
        cutovers=cutovers,
        cutover_requests=cutover_requests,
    )


def _without_evicted(
    sessions: Mapping[WorkerId, SessionId], known: Mapping[WorkerId, Stored[KnownWorker]]
) -> dict[WorkerId, SessionId]:
    return {
        worker: session
        for worker, session in sessions.items()
        if worker not in known or known[worker].value.evicted_session != session
    }


def _completed(
    good: Mapping[K, Stored[T]], bad: Sequence[K], node_of: Callable[[K], Node], value: T
) -> Mapping[K, Stored[T]]:
    """Nodes, with a value for the unreadable nodes that the leader overwrites: nothing is lost with
    them."""
    if not bad:
        return good
    stats = {key: node_of(key).stat for key in bad}
    return {
        **good,
        **{key: Stored(value, stat.version, stat.mzxid, stat.owner) for key, stat in stats.items()},
    }


def _loads(
    nodes: Mapping[str, Node],
    paths: Paths,
    sessions: Mapping[WorkerId, SessionId],
    cache: DecodeCache,
) -> DecodedLoads:
    """Loads written by the live sessions; those of an ended session are stale."""

    def read(worker: WorkerId, node: Node) -> WorkerLoads:
        """Read a load after the end of its cycle: the cache keeps it for the next one."""
        return cache.read(paths.measures.load(worker), node, readable_loads).value

    found = ((worker, nodes.get(paths.measures.load(worker))) for worker in sessions)
    return DecodedLoads(
        {
            worker: node
            for worker, node in found
            if node is not None and node.stat.owner == sessions[worker]
        },
        read,
        lambda worker: cache.last(paths.measures.load(worker)),
    )


def _default_switches(node: Node | None) -> Switches:
    """Switches without a readable node: the defaults; if the node is unreadable, no automatic moves."""
    return Switches() if node is None else Switches(auto_balancing=False, frozen=True)


def _audits(decoder: NodeDecoder, paths: Paths) -> Audits:
    return Audits(
        states=decoder.read(paths.audits.states, 2, _topic_key, decode_audit_state)[0],
        requests=decoder.read(paths.audits.requests, 2, _topic_key, decode_audit_request)[0],
        running=decoder.read(paths.audits.claims, 2, _topic_key, decode_audit_claim)[0],
        followers=decoder.read(paths.audits.followers, 1, Route.parse, decode_follower)[0],
        auditors=decoder.read(paths.audits.auditors, 1, str, decode_auditor)[0],
    )


def _harm(decoder: NodeDecoder, paths: Paths) -> Mapping[TopicKey, str]:
    root = f"{paths.syncs}/{SyncKind.CONFIGS}"
    reports, _ = decoder.read(root, 1, Route.parse, decode_sync)
    return {
        TopicKey(route, topic): text
        for route, report in reports.items()
        for topic, text in report.value.harm.items()
    }


@lru_cache(maxsize=MAX_KEYS)
def _topic_key(name: str) -> TopicKey:
    """One key for all nodes of a topic: parsed once, and equal to itself at once."""
    route, _, topic = name.partition("/")
    return TopicKey(Route.parse(route), topic)
