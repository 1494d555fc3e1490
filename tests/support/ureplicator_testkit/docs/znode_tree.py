"""The table of ZooKeeper nodes in `docs/architecture.md`: each with an example of its content.

Examples are encoded by the codecs of the product, so that the page shows what is in the tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ureplicator_common.audits import (
    AuditRun,
    Differences,
    Finding,
    Follower,
    LiveAuditor,
    OffsetRange,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.cutovers import (
    Cutover,
    CutoverPlan,
    CutoverRequest,
    CutoverState,
    Step,
    Wanted,
)
from ureplicator_common.kafka.acls import ALLOW, LITERAL, READ, TopicAcl
from ureplicator_common.model import (
    Delivery,
    EventKind,
    Limited,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    GoneGroup,
    GoneGroups,
    IdealEntry,
    IdealTopic,
    IsolatedSubject,
    KnownWorker,
    LiveController,
    LiveWorker,
    PartitionLoad,
    PastEvent,
    RouteAcls,
    RouteMemory,
    RouteUsage,
    Switches,
    SyncReport,
    TopicIntent,
    WorkerUsage,
)
from ureplicator_common.znodes.audits import (
    encode_audit_claim,
    encode_audit_request,
    encode_audit_state,
    encode_auditor,
    encode_follower,
)
from ureplicator_common.znodes.cutovers import encode_cutover, encode_cutover_request
from ureplicator_common.znodes.fleet import (
    encode_controller,
    encode_history,
    encode_isolated,
    encode_switches,
)
from ureplicator_common.znodes.routes import (
    encode_acls,
    encode_gone,
    encode_memory,
    encode_route,
    encode_sync,
)
from ureplicator_common.znodes.topics import encode_claim, encode_ideal, encode_intent
from ureplicator_common.znodes.workers import (
    encode_assignment,
    encode_current,
    encode_known_worker,
    encode_live_worker,
    encode_loads,
    encode_registration,
    encode_shares,
    encode_usage,
)

_KEY = TopicKey(Route("west", "east"), "orders")
_PARTITION = Partition(*_KEY, 0)
_EPOCH = OwnerEpoch(1_048_577)
_SESSION = SessionId(72_057_594_037_927_936)
_W1, _W2 = WorkerId("w1"), WorkerId("w2")
_NOW_MS = 1_769_860_800_000
_CONTROLLER = LiveController("c1", "10.0.0.5", 9000, 9001, 4711, "0.1.0")


@dataclass(frozen=True, slots=True)
class ZnodeRow:
    """One kind of node; `path` as in `znodes.paths`, with placeholders."""

    path: str
    ephemeral: bool
    written_by: str
    meaning: str
    content: bytes = b""


def table() -> str:
    rows = ["| node | kind | written by | meaning |", "|---|---|---|---|"]
    found = list(znode_rows())
    for row in found:
        kind = "ephemeral" if row.ephemeral else "persistent"
        rows.append(f"| `{row.path}` | {kind} | {row.written_by} | {row.meaning} |")
    samples = [
        f"`{row.path}`\n```json\n{row.content.decode()}\n```" for row in found if row.content
    ]
    return "\n".join(rows) + "\n\nExamples:\n\n" + "\n\n".join(samples)


def znode_rows() -> Iterator[ZnodeRow]:
    yield from _processes()
    yield from _intents()
    yield from _decisions()
    yield from _reports()
    yield from _audits()
    yield from _cutovers()


def _processes() -> Iterator[ZnodeRow]:
    controller = encode_controller(_CONTROLLER)
    yield ZnodeRow("epoch", False, "the leader, when elected", "its version is the leader epoch")
    yield ZnodeRow("leader", True, "the leader", "which controller leads", controller)
    yield ZnodeRow("controllers/<id>", True, "each controller", "its addresses; as `leader`")
    yield ZnodeRow(
        "workers/live/<worker>",
        True,
        "the worker",
        "a live worker: address of its pages, slots",
        encode_live_worker(LiveWorker(2, "10.0.0.6", 40123, 815, "0.1.0")),
    )
    yield ZnodeRow(
        "workers/known/<worker>",
        False,
        "the leader; REST",
        "what outlives a session: most slots ever, drained or not, evicted session",
        encode_known_worker(KnownWorker(2, last_seen_ms=_NOW_MS)),
    )
    yield ZnodeRow(
        "workers/registered/<worker>",
        False,
        "the worker",
        "process that registered last, by its first session",
        encode_registration(_SESSION),
    )


def _intents() -> Iterator[ZnodeRow]:
    intent = TopicIntent(
        8,
        8,
        had_position=frozenset(range(8)),
        target_topic="orders",
        source_topic_id="4TfjGyTUQoCXPcEUYmZAUA",
        target_topic_id="x9KQ0gXLQBCZkvuVpW5y3g",
        whole=True,
    )
    yield ZnodeRow(
        "topics/<route>/<topic>",
        False,
        "REST; the leader its marks",
        "intent: what should be copied",
        encode_intent(intent),
    )
    yield ZnodeRow(
        "targets/<cluster>/<topic>",
        False,
        "REST; the leader",
        "claim: the one source topic of a target topic",
        encode_claim(_KEY),
    )
    yield ZnodeRow("blacklist/<route>/<topic>", False, "REST", "a topic that is not to be copied")
    yield ZnodeRow(
        "settings",
        False,
        "REST; the leader `rebalanceDone`",
        "live switches, requested rebalance",
        encode_switches(Switches()),
    )


def _decisions() -> Iterator[ZnodeRow]:
    ideal = IdealEntry(_W1, _EPOCH, _NOW_MS, "new topic", {_W1: _SESSION})
    fence = ("production.west.east.w2.0", "production.west.east.w2.1")
    yield ZnodeRow(
        "routes/<route>",
        False,
        "the leader",
        "settings of the route, for the workers",
        encode_route(RouteSettings(delivery=Delivery.EXACTLY_ONCE)),
    )
    yield ZnodeRow(
        "ideal/<route>/<topic>",
        False,
        "the leader",
        "partition -> owner, and the holders that may still commit",
        encode_ideal(IdealTopic({0: ideal})),
    )
    yield ZnodeRow(
        "assignments/<worker>",
        False,
        "the leader",
        "what the worker may hold, and which transactional ids to fence first",
        encode_assignment(Assignment({_PARTITION: AssignmentEntry(_EPOCH, fence)})),
    )
    shares = {0: {Limited.route(_KEY.route): 12_500_000, Limited.worker(_W1): 5_000_000}}
    yield ZnodeRow(
        "shares/<worker>",
        False,
        "the leader",
        "byte limits: what each slot may fetch per second",
        encode_shares(shares),
    )
    yield ZnodeRow(
        "memory/<route>",
        False,
        "the leader",
        "topics that existed when auto-whitelisting began; topics refused, and why",
        encode_memory(RouteMemory({"clicks": "x9KQ0gXL"}, {"scratch": "target refuses it"})),
    )
    acl = TopicAcl("orders", LITERAL, "User:billing", "*", READ, ALLOW)
    yield ZnodeRow(
        "acls/<route>",
        False,
        "the leader",
        "access rights that the route added at the target: only they are removed again",
        encode_acls(RouteAcls(frozenset({acl}))),
    )
    yield ZnodeRow(
        "groups/<route>",
        False,
        "the leader",
        "consumer groups that are gone at the source, since when, and a digest of the offsets at the target",
        encode_gone(
            GoneGroups(
                {"billing": GoneGroup(_NOW_MS, "5b1f0c2a81e64d07a9d3c2f1")},
                "MkU3OEVBNTcwNTJENDM2Qg",
            ),
        ),
    )
    yield from _history()


def _history() -> Iterator[ZnodeRow]:
    event = PastEvent(
        17,
        EventKind.MOVE,
        "worker w1 drained",
        _NOW_MS,
        "rack-7-5f0c2a81",
        partition=_PARTITION,
        source=_W1,
        target=_W2,
        owner_epoch=_EPOCH,
        took_ms=112,
    )
    yield ZnodeRow(
        "history/<n>",
        False,
        "the leader",
        "a block of 64 events; 32 blocks in a ring",
        encode_history([event]),
    )
    yield from _isolated()


def _isolated() -> Iterator[ZnodeRow]:
    too_big = IsolatedSubject(f"topic {_KEY}", "node content of 700000 bytes is above 655360")
    yield ZnodeRow(
        "isolated",
        False,
        "the leader",
        "topics and workers that the plan leaves alone, since a step for them cannot be written",
        encode_isolated([too_big]),
    )


def _reports() -> Iterator[ZnodeRow]:
    yield from _syncs()
    current = CurrentEntry(PartitionState.ONLINE, _EPOCH, "", True)
    load = PartitionLoad(2e6, 2e3, 2e6, 300, 3600, 0, 62_500, 62_500, 0)
    yield ZnodeRow(
        "current/<worker>",
        True,
        "the worker",
        "current states; `seenZxid` is the assignment that they confirm",
        encode_current(CurrentState(4_294_967_338, {_PARTITION: current})),
    )
    yield ZnodeRow(
        "loads/<worker>",
        True,
        "the worker, every 10 s",
        "measured rates, positions and progress",
        encode_loads({_PARTITION: load}),
    )
    yield ZnodeRow(
        "usage/<worker>",
        True,
        "the worker, every 60 s",
        "what it has copied since its start, and its processor time; REST sums it up by route and day",
        encode_usage(
            WorkerUsage(_NOW_MS, 95_000, {_PARTITION.route: RouteUsage(7_200_000, 7_200_000_000)})
        ),
    )


def _syncs() -> Iterator[ZnodeRow]:
    report = encode_sync(SyncReport(_NOW_MS, {"synced": 12}))
    writer, meaning = "the leader", "last passes of the sync of"
    yield ZnodeRow("syncs/groups/<route>", False, writer, f"{meaning} consumer groups", report)
    yield ZnodeRow("syncs/configs/<route>", False, writer, f"{meaning} settings of topics")
    yield ZnodeRow("syncs/acls/<route>", False, writer, f"{meaning} access rights")
    beats = "age of the newest heartbeat at the target"
    yield ZnodeRow("syncs/heartbeats/<route>", False, writer, beats)
    claims = "last passes over the claims on target topics of"
    yield ZnodeRow("syncs/claims/<route>", False, writer, claims)


def _cutovers() -> Iterator[ZnodeRow]:
    plan = CutoverPlan("0d5c1b7f3a9e2468", _KEY.route, ("orders",), topics={"orders": 4})
    run = "rack-7-5f0c2a81"
    yield ZnodeRow(
        "cutover-requests/<name>",
        False,
        "REST",
        "the plan of a cutover, and what operators want of it",
        encode_cutover_request(
            CutoverRequest(plan, Wanted.START, run, f"{run}/olga", _NOW_MS - 2_000)
        ),
    )
    yield ZnodeRow(
        "cutovers/<name>",
        False,
        "leader",
        "the run of a cutover that is under way, or the last one: all that a successor needs",
        encode_cutover(
            Cutover(
                run=run,
                plan=plan,
                state=CutoverState.FENCED,
                wanted=Wanted.START,
                fenced_ms=_NOW_MS - 1_400,
                fencing=True,
                steps=(Step(CutoverState.FENCED, _NOW_MS - 1_100, 300),),
                ends={"orders": (62_500, 62_500, 62_480, 62_500)},
            )
        ),
    )


def _audits() -> Iterator[ZnodeRow]:
    differences = Differences(1_200, 1_201, {"missing": 2})
    state = TopicAudit(
        "4TfjGyTUQoCXPcEUYmZAUA",
        "x9KQ0gXLQBCZkvuVpW5y3g",
        {0: VerifiedRange(0, 62_500, _NOW_MS, 62_498, differences)},
        (Finding(0, "missing", 1_200), Finding(0, "missing", 1_201)),
        AuditRun(
            "rack-7-5f0c2a81", "a1", _NOW_MS - 9_000, _NOW_MS, "done", 62_498, 0, {"missing": 2}
        ),
    )
    yield ZnodeRow(
        "audits/states/<route>/<topic>",
        False,
        "an auditor, the audit command; the leader deletes it with its topic",
        "what was compared: a range, differences and the first findings of each partition",
        encode_audit_state(state),
    )
    yield ZnodeRow(
        "audits/requests/<route>/<topic>",
        False,
        "REST; an auditor counts its attempts, and deletes it when done",
        "an audit that is requested: ranges of source offsets",
        encode_audit_request(
            RequestedAudit("rack-7-5f0c2a81", _NOW_MS, {0: OffsetRange(0, 62_500)})
        ),
    )
    yield ZnodeRow(
        "audits/claims/<route>/<topic>",
        True,
        "the auditor that carries it out",
        "an audit under way, and how far it is",
        encode_audit_claim(RunningAudit("a1", "rack-7-5f0c2a81", _NOW_MS, 62_500, 30_000)),
    )
    yield ZnodeRow(
        "audits/followers/<route>",
        True,
        "an auditor",
        "which auditor follows behind the copy of the route",
        encode_follower(Follower("a1", _NOW_MS)),
    )
    yield ZnodeRow(
        "audits/auditors/<id>",
        True,
        "each auditor",
        "a live auditor: address of its pages",
        encode_auditor(LiveAuditor("10.0.0.8", 40_200, 4_712, "0.1.0")),
    )
