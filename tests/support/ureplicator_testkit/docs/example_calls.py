"""One example for each call of REST, made by calling REST over the in-memory twins.

The fleet: `orders` is copied by two workers, one partition in ERROR; `clicks` is paused. Nothing in
an example depends on the time or on a random id, so that the generated page is the same each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ureplicator_common.audits import (
    AuditRun,
    Differences,
    Finding,
    LiveAuditor,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.kafka import BatchTime, Lifetime
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_common.model import (
    EventKind,
    OwnerEpoch,
    Partition,
    PartitionState,
    RouteSettings,
    TopicKey,
    TopicState,
    WorkerId,
    position_group,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveWorker,
    PartitionLoad,
    PastEvent,
    TopicIntent,
)
from ureplicator_common.znodes.audits import encode_audit_state, encode_auditor
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_common.znodes.topics import encode_ideal
from ureplicator_common.znodes.workers import (
    encode_assignment,
    encode_known_worker,
    encode_live_worker,
)
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

NOW_S = 1_769_860_800
"""2026-01-31T12:00:00Z."""
SHOWN_ID = "5f0c2a81"


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """A call as it is sent; `rule` is its path with parameters, as in the schema."""

    method: str
    rule: str
    path: str = ""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def sent_to(self) -> str:
        return self.path or self.rule


CALLS = (
    ExampleCall("GET", "/topics"),
    ExampleCall("GET", "/topics/{topic}", "/topics/orders"),
    ExampleCall("GET", "/offset"),
    ExampleCall("GET", "/offset/{topic}/{partition}", "/offset/orders/0"),
    ExampleCall("GET", "/positions/{topic}", "/positions/orders?partition=0"),
    ExampleCall("GET", "/groups"),
    ExampleCall("GET", "/groups/{group}", "/groups/billing"),
    ExampleCall("GET", "/group", "/group?name=billing"),
    ExampleCall(
        "GET", "/offsets/translate", "/offsets/translate?topic=orders&partition=0&offset=62000"
    ),
    ExampleCall("POST", "/failover", body={"groups": ["billing"]}),
    ExampleCall("GET", "/claims"),
    ExampleCall("DELETE", "/claims/{topic}", "/claims/invoices?fleet=old"),
    ExampleCall("GET", "/audits"),
    ExampleCall("GET", "/audits/{topic}", "/audits/orders"),
    ExampleCall("POST", "/audits/{topic}", "/audits/orders", {"partitions": [2], "from": 60_000}),
    ExampleCall("DELETE", "/audits/{topic}", "/audits/orders"),
    ExampleCall("GET", "/instances"),
    ExampleCall("GET", "/instances/{worker}", "/instances/w2"),
    ExampleCall("GET", "/validation"),
    ExampleCall("GET", "/validation/srcKafka"),
    ExampleCall("GET", "/validation/topics"),
    ExampleCall("GET", "/validation/principals"),
    ExampleCall("GET", "/overview"),
    ExampleCall("GET", "/events"),
    ExampleCall("GET", "/noprogress"),
    ExampleCall("GET", "/admin/workloadinfo"),
    ExampleCall("GET", "/history", "/history?limit=2"),
    ExampleCall("GET", "/timeline", "/timeline?minutes=60&steps=60"),
    ExampleCall(
        "GET",
        "/timeline/topics/{topic}",
        "/timeline/topics/orders?minutes=60&steps=60",
    ),
    ExampleCall("GET", "/usage"),
    ExampleCall("GET", "/tasks"),
    ExampleCall("GET", "/tasks/{task}", "/tasks/rack-7"),
    ExampleCall("GET", "/export"),
    ExampleCall("GET", "/health"),
    ExampleCall("GET", "/ready"),
    ExampleCall("GET", "/controllers"),
    ExampleCall("GET", "/metrics"),
    ExampleCall("GET", "/admin/autobalancing_status"),
    ExampleCall("GET", "/admin/freeze"),
    ExampleCall("GET", "/routes"),
    ExampleCall("POST", "/rebalance", "/rebalance?dry_run=true"),
    ExampleCall("POST", "/topics", body={"topic": "payments"}),
    ExampleCall("POST", "/topics/{topic}", "/topics/returns", {"numPartitions": 1}),
    ExampleCall(
        "PUT",
        "/topics",
        body={"topic": "orders", "numPartitions": 5, "raisePartitions": True},
    ),
    ExampleCall(
        "PUT",
        "/topics/{topic}",
        "/topics/orders",
        {"numPartitions": 6, "raisePartitions": True},
    ),
    ExampleCall("POST", "/topics/{topic}/pause", "/topics/orders/pause"),
    ExampleCall("POST", "/topics/{topic}/resume", "/topics/orders/resume"),
    ExampleCall("POST", "/blacklist", body={"topic": "orders", "partition": 3, "opt": "blacklist"}),
    ExampleCall("GET", "/blacklist"),
    ExampleCall(
        "POST",
        "/positions/{topic}",
        "/positions/orders?dry_run=true",
        {"time": "2026-01-31T11:00:00Z", "partition": 2},
    ),
    ExampleCall("DELETE", "/positions/{topic}", "/positions/orders?partition=2"),
    ExampleCall("DELETE", "/topics/{topic}", "/topics/payments?positions=forget"),
    ExampleCall("DELETE", "/instances/{worker}", "/instances/w1"),
    ExampleCall("POST", "/instances/{worker}", "/instances/w1"),
    ExampleCall("POST", "/instances/{worker}/forget", "/instances/w0/forget"),
    ExampleCall("POST", "/instances", headers={"X-Request-Id": "rack-7"}),
    ExampleCall("DELETE", "/tasks/{task}", "/tasks/rack-7"),
    ExampleCall("POST", "/admin/disable_autobalancing"),
    ExampleCall("POST", "/admin/enable_autobalancing"),
    ExampleCall("POST", "/admin/freeze"),
    ExampleCall("POST", "/admin/unfreeze"),
    ExampleCall(
        "PUT",
        "/limits/routes/{route}",
        "/limits/routes/source.target",
        {"bytesPerSecond": 50_000_000},
    ),
    ExampleCall(
        "PUT", "/limits/topics/{topic}", "/limits/topics/orders", {"bytesPerSecond": 2_000_000}
    ),
    ExampleCall(
        "PUT", "/limits/workers/{worker}", "/limits/workers/w1", {"bytesPerSecond": 30_000_000}
    ),
    ExampleCall("GET", "/limits"),
    ExampleCall("DELETE", "/limits/routes/{route}", "/limits/routes/source.target"),
    ExampleCall("DELETE", "/limits/topics/{topic}", "/limits/topics/orders"),
    ExampleCall("DELETE", "/limits/workers/{worker}", "/limits/workers/w1"),
    ExampleCall(
        "PUT",
        "/routes/{route}/settings",
        "/routes/source.target/settings?dry_run=true",
        {"settings": {"delivery": "exactly_once", "auto_whitelist": {"include": ["orders-.*"]}}},
    ),
    ExampleCall("POST", "/routes/{route}/pause", "/routes/source.target/pause"),
    ExampleCall("POST", "/routes/{route}/resume", "/routes/source.target/resume"),
    ExampleCall(
        "PUT",
        "/import/topics/{topic}",
        "/import/topics/refunds?dry_run=true",
        {"partitions": 2, "initialPartitions": 2, "state": "active", "hadPosition": "0-1"},
    ),
    ExampleCall(
        "PUT",
        "/import/topics",
        "/import/topics?dry_run=true",
        {"topics": {"orders": {"state": "paused"}, "refnds": {}}, "remove": ["returns"]},
    ),
    ExampleCall("PUT", "/import/blacklist/{topic}", "/import/blacklist/scratch"),
    ExampleCall(
        "PUT",
        "/import/workers/{worker}",
        "/import/workers/w4",
        {"slots": 2, "blacklisted": True, "draining": True},
    ),
    ExampleCall("PUT", "/import/switches", body={"autoBalancing": True, "frozen": False}),
)

REFUSED_CALL = ExampleCall("POST", "/topics", body={"topic": "ordres"})


def example_world() -> RestFixture:
    """The fleet that the examples are about, to be closed; REST described, so that the schema is there."""
    world = RestFixture(described=True)
    world.clock.advance(NOW_S - world.clock.monotonic_s())
    for topic, partitions in {"orders": 6, "clicks": 1, "payments": 8, "returns": 2}.items():
        world.source.put(topic, partitions)
    world.source.put("refunds", 2)
    world.target.put("orders", 4)
    world.target.put("clicks", 1)
    world.put_leader("c1")
    world.publish(RouteSettings())
    world.put_intent(
        "orders", TopicIntent(4, 4, had_position=frozenset(range(4)), target_topic="orders")
    )
    world.put_intent("clicks", TopicIntent(1, 1, state=TopicState.PAUSED, target_topic="clicks"))
    _workers(world)
    _progress(world)
    _history(world)
    _audits(world)
    world.claims["target"].log().write(_CLAIM)
    world.copied.position = 62_500
    world.groups.add("billing", {("orders", 0): 62_000, ("orders", 1): 62_505})
    return world


_CLAIM = Claim(
    fleet="old",
    target_topic="invoices",
    route="west.central",
    source_cluster="kx7dPQmTQ0mYt3rJfWcZ2g",
    source_topic="invoices",
    since_ms=(NOW_S - 86_400) * 1_000,
)


def _workers(world: RestFixture) -> None:
    known = KnownWorker(max_slots=2, last_seen_ms=(NOW_S - 60) * 1_000)
    for number, id in enumerate(map(WorkerId, ("w1", "w2", "w3")), start=1):
        live = LiveWorker(slots=2, host=f"10.0.0.2{number}", port=40_100 + number, version="0.1.0")
        world.put(world.paths.worker_live(id), encode_live_worker(live), ephemeral=True)
        world.put(world.paths.worker_known(id), encode_known_worker(known))
    world.put(world.paths.assignment(WorkerId("w0")), encode_assignment(Assignment()))
    _assign(world, {"w1": (0, 1), "w2": (2, 3)}, since_ms=(NOW_S - 3_600) * 1_000)
    world.put_states("w1", "orders", dict.fromkeys((0, 1), PartitionState.ONLINE))
    world.put_states("w2", "orders", dict.fromkeys((2, 3), PartitionState.ERROR), reason=_REASON)
    for worker, numbers in (("w1", (0, 1)), ("w2", (2, 3))):
        lost = worker == "w2"
        loads = {
            Partition(ROUTE, "orders", number): PartitionLoad(
                bytes_per_s=0 if lost else 2_000_000,
                records_per_s=0 if lost else 2_000,
                steady_bytes_per_s=2_000_000,
                measured_s=300,
                held_s=3_600,
                no_progress_s=900 if lost else 0,
                position=62_500,
                committed=62_500,
                lag=37_500 if lost else 0,
            )
            for number in numbers
        }
        world.put_loads(worker, loads)


_REASON = "source: 10.0.0.7:9092 unreachable: Connection refused"


def _assign(world: RestFixture, given: Mapping[str, Sequence[int]], *, since_ms: int) -> None:
    """Ideal state and assignments, as the leader leaves them when it has nothing more to do."""
    session = world.other_client.session()
    assert session is not None
    owners = {number: WorkerId(worker) for worker, numbers in given.items() for number in numbers}
    entries = {
        number: IdealEntry(worker, OwnerEpoch(1), since_ms, "new topic", {worker: session})
        for number, worker in owners.items()
    }
    key = TopicKey(ROUTE, "orders")
    world.put(world.paths.ideal_topic(key), encode_ideal(IdealTopic(entries)))
    for worker, numbers in given.items():
        assignment = Assignment(
            {
                Partition(ROUTE, "orders", number): AssignmentEntry(OwnerEpoch(1))
                for number in numbers
            }
        )
        world.put(world.paths.assignment(WorkerId(worker)), encode_assignment(assignment))


def _progress(world: RestFixture) -> None:
    group = position_group(fleet="test", route=ROUTE)
    logs = world.logs["source"]
    for number in range(6):
        logs.hold("orders", number, 0, 100_000 if number in (2, 3) else 62_500)
        logs.logs["orders", number].times = [BatchTime(62_500, 99_999, (NOW_S - 900) * 1_000)]
        if number < 4:
            world.positions.put(group, "orders", number, 62_500)
    logs.hold("clicks", 0, 0, 10)
    logs.lives["orders"] = Lifetime(retention_ms=86_400_000)


def _history(world: RestFixture) -> None:
    now_ms = NOW_S * 1_000
    events = [
        PastEvent(
            16,
            EventKind.WORKER,
            "drained: gets no partitions",
            now_ms - 500,
            request=f"rack-7-{SHOWN_ID}",
            worker=WorkerId("w1"),
        ),
        PastEvent(
            17,
            EventKind.MOVE,
            "worker w1 drained",
            now_ms - 400,
            request=f"rack-7-{SHOWN_ID}",
            partition=Partition(ROUTE, "orders", 3),
            source=WorkerId("w1"),
            target=WorkerId("w2"),
            owner_epoch=OwnerEpoch(1_048_577),
            took_ms=112,
        ),
    ]
    world.put(world.paths.history_block(0), encode_history(events))


def _audits(world: RestFixture) -> None:
    now_ms = NOW_S * 1_000
    found = Differences(1_200, 1_201, {"missing": 2})
    verified = {
        number: VerifiedRange(
            0, 62_000, now_ms - 60_000, differences=found if number == 3 else None
        )
        for number in range(4)
    }
    run = AuditRun(
        f"rack-7-{SHOWN_ID}",
        "a1",
        now_ms - 100_000,
        now_ms - 60_000,
        "done",
        247_998,
        0,
        {"missing": 2},
        "/var/lib/ureplicator/audits/orders",
    )
    findings = (Finding(3, "missing", 1_200), Finding(3, "missing", 1_201))
    audit = TopicAudit(partitions=verified, findings=findings, last=run)
    world.put(world.paths.audits.state(TopicKey(ROUTE, "orders")), encode_audit_state(audit))
    auditor = encode_auditor(LiveAuditor("10.0.0.31", 40_200))
    world.put(world.paths.audits.auditor("a1"), auditor, ephemeral=True)


def response_text(world: RestFixture, call: ExampleCall) -> tuple[int, str]:
    """Status and body; generated ids are replaced by a fixed one."""
    given = {} if call.body is None else {"json": dict(call.body)}
    response = world.call(call.method, call.sent_to, headers=dict(call.headers), **given)
    text = re.sub(r"\b[0-9a-f]{32}\b", SHOWN_ID, response.get_data(as_text=True))
    return response.status_code, re.sub(r"(rack-7-)[0-9a-f]+", rf"\g<1>{SHOWN_ID}", text)
