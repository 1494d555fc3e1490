"""What a plan finds, before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ureplicator_common.audits import Differences, TopicAudit, VerifiedRange
from ureplicator_common.cutovers import Cutover as Run
from ureplicator_common.cutovers import CutoverPlan, CutoverRequest, Turn, Wanted
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.acls import (
    ALLOW,
    LITERAL,
    READ,
    WRITE,
    AclRefused,
    NoAuthorizer,
    TopicAcl,
)
from ureplicator_common.kafka.transactions.writers import TopicTransaction, TransactionKind
from ureplicator_common.model import (
    Gap,
    OffsetShift,
    OwnerEpoch,
    PartitionState,
    TopicKey,
    TopicState,
)
from ureplicator_common.znode_contents import (
    CurrentEntry,
    PartitionLoad,
    Switches,
    TopicIntent,
)
from ureplicator_common.znodes.audits import encode_audit_state
from ureplicator_common.znodes.fleet import encode_switches
from ureplicator_controller.api.services.fleet_cache import LOADS_MAX_AGE_S
from ureplicator_controller.core.cutover.facts import Level, PlanFinding
from ureplicator_controller.core.cutover.findings import merged
from ureplicator_testkit.control.cutover_fixture import BACK, CutoverRest
from ureplicator_testkit.control.rest_fixture import ROUTE

ORDERS = TopicIntent(4, 4, target_topic="orders")
Found = list[tuple[str, str, str]]
"""Check, level and text of each finding that is not ok."""


def found(rest: CutoverRest, **wish: Any) -> Found:
    """Findings of a plan of `orders` and `billing` that are not ok; there is one for each check."""
    return [
        (each["check"], each["level"], f"{each['subject']}: {each['text']}")
        for each in findings(rest, **wish)
        if each["level"] != "ok" and each["check"] != "fence"
    ]


def findings(rest: CutoverRest, **wish: Any) -> list[dict[str, Any]]:
    body = {"topics": ["orders"], "groups": ["billing"], **wish}
    response = rest.call("POST", "/cutovers/move?src=source&dry_run=true", json=body)
    assert response.status_code == 200, response.text
    return list(response.get_json()["findings"])


def test_nothing_is_the_matter_and_each_check_says_so(rest: CutoverRest) -> None:
    assert found(rest) == []
    assert {each["check"] for each in findings(rest)} >= {"lag", "audit", "groups", "way back"}


Change = Callable[[CutoverRest], object]


def paused(rest: CutoverRest) -> None:
    rest.put_intent("orders", replace(ORDERS, state=TopicState.PAUSED))


def stopped(rest: CutoverRest) -> None:
    rest.put_intent("orders", replace(ORDERS, stopped="source topic was deleted"))


def deleting(rest: CutoverRest) -> None:
    rest.put_intent("orders", replace(ORDERS, state=TopicState.DELETING))


def reversed_(rest: CutoverRest) -> None:
    rest.put_intent("orders", replace(ORDERS, state=TopicState.REVERSED))


def failing(rest: CutoverRest) -> None:
    entry = CurrentEntry(PartitionState.ERROR, OwnerEpoch(1), reason="no right to write")
    rest.copy("orders", ROUTE, [2], entry=entry)


def blacklisted(rest: CutoverRest) -> None:
    entry = CurrentEntry(PartitionState.OFFLINE, OwnerEpoch(1))
    rest.copy("orders", ROUTE, [1], entry=entry)
    rest.put_intent("orders", replace(ORDERS, blacklisted=frozenset({1})))


def route_paused(rest: CutoverRest) -> None:
    switches = Switches(paused_routes=frozenset({BACK}))
    rest.put(rest.paths.settings, encode_switches(switches))


def copied_back(rest: CutoverRest) -> None:
    rest.put_intent("orders", ORDERS, route=BACK)


def other_name(rest: CutoverRest) -> None:
    rest.target.put("east.orders", 4)
    rest.put_intent("orders", replace(ORDERS, target_topic="east.orders"))


def fewer_partitions(rest: CutoverRest) -> None:
    rest.target.put("orders", 3)


def more_partitions(rest: CutoverRest) -> None:
    rest.target.put("orders", 5)


def not_all_copied(rest: CutoverRest) -> None:
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))


def behind(rest: CutoverRest) -> None:
    rest.copy("orders", ROUTE, [3], load=PartitionLoad(records_per_s=50.0, lag=1_000))


def without_rate(rest: CutoverRest) -> None:
    rest.copy("orders", ROUTE, [3], load=PartitionLoad(lag=1_000))


def without_progress(rest: CutoverRest) -> None:
    rest.copy("orders", ROUTE, [3], load=PartitionLoad(lag=1_000, no_progress_s=90.0))


def passed_over(rest: CutoverRest) -> None:
    gap = Gap("retention", 10, 20, rest.clock.wall_ms() + 5)
    entry = CurrentEntry(PartitionState.ONLINE, OwnerEpoch(1), gap=gap)
    rest.copy("orders", ROUTE, [0], entry=entry)


def compared_since(rest: CutoverRest) -> None:
    passed_over(rest)
    rest.clock.advance(60)
    rest.verify("orders")


def never_audited(rest: CutoverRest) -> None:
    put_audit(rest, TopicAudit())


def differing(rest: CutoverRest) -> None:
    audited(rest, {"missing": 3})


def shifted(rest: CutoverRest) -> None:
    audited(rest, {"shifted": 3})


def audited(rest: CutoverRest, counts: dict[str, int]) -> None:
    differences = Differences(5, 9, counts)
    ranges = {
        number: VerifiedRange(0, 100, rest.clock.wall_ms(), differences=differences)
        for number in range(4)
    }
    put_audit(rest, TopicAudit(partitions=ranges))


def put_audit(rest: CutoverRest, audit: TopicAudit) -> None:
    rest.put(rest.paths.audits.state(TopicKey(ROUTE, "orders")), encode_audit_state(audit))


def active_there(rest: CutoverRest) -> None:
    rest.groups_there.add("billing", {("orders", 0): 3}, state="Stable")


def active_here(rest: CutoverRest) -> None:
    rest.groups.add("billing", {("orders", 0): 30}, state="Stable")


def without_map(rest: CutoverRest) -> None:
    rest.copied.first = 50


def streams(rest: CutoverRest) -> None:
    rest.groups.groups["billing"].kind = "connect"


def another_reader(rest: CutoverRest) -> None:
    rest.groups.add("audit", {("orders", 1): 3})


def smaller_records(rest: CutoverRest) -> None:
    rest.source.put("orders", 4, configs={"max.message.bytes": "2000000"})
    rest.target.put("orders", 4, configs={"max.message.bytes": "1000000"})


def other_settings(rest: CutoverRest) -> None:
    rest.source.put("orders", 4, configs={"segment.ms": "5"})


def another_cutover(rest: CutoverRest) -> None:
    plan = CutoverPlan("0" * 16, ROUTE, ("orders",), topics={"orders": 4})
    rest.put_request(CutoverRequest(plan, Wanted.START, "r", "r"), "wave")


def right(principal: str, operation: str) -> TopicAcl:
    return TopicAcl("orders", LITERAL, principal, "*", operation, ALLOW)


def writer_without_right(rest: CutoverRest) -> None:
    rest.acls["source"].acls = {right("User:shop", WRITE)}


def reader_without_right(rest: CutoverRest) -> None:
    rest.acls["source"].acls = {right("User:report", READ)}


def fleet_without_right(rest: CutoverRest) -> None:
    rest.acls["source"].acls = set()


def everyone_writes(rest: CutoverRest) -> None:
    rest.acls["source"].acls = {right("User:*", WRITE)}


def no_authorizer_here(rest: CutoverRest) -> None:
    rest.acls["source"].failure = NoAuthorizer("none")


def shared_transaction(rest: CutoverRest) -> None:
    put_transaction(rest, {("orders", 0), ("stock", 1), ("__consumer_offsets", 7)})


def long_transaction(rest: CutoverRest) -> None:
    put_transaction(rest, {("orders", 0)}, age_ms=30_000)


def hidden_transaction(rest: CutoverRest) -> None:
    put_transaction(rest, {("orders", 0)}, kind=TransactionKind.HIDDEN)


def put_transaction(
    rest: CutoverRest,
    partitions: set[tuple[str, int]],
    *,
    age_ms: int = 100,
    kind: TransactionKind = TransactionKind.OPEN,
) -> None:
    began_ms = rest.clock.wall_ms() - age_ms
    one = TopicTransaction(
        kind, 4_001, "shop-1", began_ms=began_ms, partitions=frozenset(partitions)
    )
    rest.writers["source"].transactions = [one]


def transactions_unknown(rest: CutoverRest) -> None:
    rest.writers["source"].unknown = ("broker 2 does not respond",)


def producer_of_more(rest: CutoverRest) -> None:
    rest.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    now_ms, old_ms = rest.clock.wall_ms(), rest.clock.wall_ms() - 400_000
    rest.writers["source"].producers = {
        ("orders", 1): {4_001: now_ms, 4_002: now_ms},
        ("quiet", 0): {4_001: now_ms, 4_002: old_ms},
    }
    rest.writers["source"].ids = {4_001: "shop-1"}


def producers_unknown(rest: CutoverRest) -> None:
    rest.writers["source"].producers = {("orders", 1): PartitionUnavailable("no leader")}


def rights_unread(rest: CutoverRest) -> None:
    rest.acls["target"].failure = AclRefused("no right to see rights")


@pytest.mark.parametrize(
    ("change", "check", "level", "text"),
    [
        (paused, "topics", "blocks", "orders: it is paused"),
        (stopped, "topics", "blocks", "orders: it is stopped: source topic was deleted"),
        (deleting, "topics", "blocks", "orders: it is deleting"),
        (reversed_, "topics", "blocks", "orders: it is reversed"),
        (failing, "online", "blocks", "orders/2: ERROR: no right to write"),
        (blacklisted, "online", "blocks", "orders/1: it is blacklisted"),
        (route_paused, "way back", "blocks", "target.source: the route is paused"),
        (copied_back, "way back", "blocks", "target.source has this topic already: active"),
        (other_name, "names", "blocks", "its name at the target is east.orders"),
        (fewer_partitions, "partitions", "blocks", "the target has 3 partitions"),
        (more_partitions, "partitions", "blocks", "the target has 5 partitions"),
        (not_all_copied, "partitions", "blocks", "3 of 4 partitions are copied"),
        (behind, "lag", "warning", "drained in 20.0 s at the rate of now, orders/3 last"),
        (
            without_rate,
            "lag",
            "warning",
            "orders/3: its lag, or the rate of its copy, is not known",
        ),
        (without_progress, "lag", "blocks", "orders/3: records wait and none is copied for 60 s"),
        (passed_over, "gaps", "warning", "orders/0: offsets 10 to 20 were passed over"),
        (never_audited, "audit", "warning", "orders: never verified"),
        (differing, "audit", "blocks", "12 missing"),
        (shifted, "audit", "warning", "12 shifted"),
        (active_there, "groups", "blocks", "billing: active on the target"),
        (active_here, "members", "warning", "billing: consumers are members at the source"),
        (without_map, "groups", "blocks", "billing: no map"),
        (streams, "groups", "warning", "billing: not synced: connect groups are not synced"),
        (another_reader, "other groups", "warning", "audit: offsets of these groups"),
        (smaller_records, "settings", "warning", "it refuses larger batches"),
        (other_settings, "settings", "warning", "segment.ms is 5 at the source"),
        (another_cutover, "other cutovers", "blocks", "the cutover wave has it: PLANNED"),
        (writer_without_right, "rights", "blocks", "User:shop: may WRITE orders at source"),
        (reader_without_right, "rights", "warning", "User:report: may READ orders at source"),
        (fleet_without_right, "rights", "warning", "orders: User:ANONYMOUS may not WRITE it"),
        (everyone_writes, "rights", "warning", "User:*: may WRITE orders at source"),
        (no_authorizer_here, "rights", "warning", "source has no authorizer, target has one"),
        (
            shared_transaction,
            "transactions",
            "blocks",
            "shop-1: its transaction has records of stock",
        ),
        (long_transaction, "transactions", "warning", "a transaction is open for 30 s on orders"),
        (hidden_transaction, "transactions", "warning", "a transaction is hidden on orders"),
        (transactions_unknown, "transactions", "warning", "broker 2 does not respond"),
        (producer_of_more, "producers", "warning", "shop-1: it writes orders, and also quiet"),
        (producers_unknown, "producers", "warning", "orders/1: its producers are not known"),
        (rights_unread, "rights", "warning", "cannot be read: no right to see rights"),
    ],
)
def test_what_is_the_matter(
    rest: CutoverRest, change: Change, check: str, level: str, text: str
) -> None:
    change(rest)
    seen = found(rest)
    assert [(at, weight) for at, weight, said in seen if text in said] == [(check, level)], seen


@pytest.mark.parametrize(
    ("change", "level"),
    [(other_name, "warning"), (more_partitions, "warning"), (route_paused, ""), (copied_back, "")],
)
def test_less_blocks_without_a_way_back(rest: CutoverRest, change: Change, level: str) -> None:
    change(rest)
    seen = [weight for check, weight, _ in found(rest, wayBack=False) if check != "way back"]
    assert seen == ([level] if level else [])


def test_a_gap_that_was_compared_since_is_none(rest: CutoverRest) -> None:
    compared_since(rest)
    assert found(rest) == []


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({"topics": ["orders", "ordrs"]}, "ordrs: no topic of source.target has such a name"),
        ({"groups": ["biling"]}, "biling: no group of source with offsets on these topics"),
    ],
)
def test_patterns_that_stand_for_nothing(
    rest: CutoverRest, wish: dict[str, Any], text: str
) -> None:
    assert [weight for _, weight, said in found(rest, **wish) if text in said] == ["blocks"]


def test_groups_need_maps_both_ways(rest: CutoverRest) -> None:
    maps = [each for each in findings(rest) if each["check"] == "offset map"]
    assert [(each["subject"], each["level"]) for each in maps] == [
        ("source.target, target.source", "ok")
    ]
    switches = Switches(route_settings={BACK: '{"offset_map": false}'})
    rest.put(rest.paths.settings, encode_switches(switches))
    seen = [
        said for check, level, said in found(rest) if (check, level) == ("offset map", "blocks")
    ]
    assert seen == ["target.source: without an offset map offsets of groups cannot be translated"]
    assert found(rest, wayBack=False, groups=[])[-1][0] == "other groups"


def test_offsets_that_are_to_be_the_same(rest: CutoverRest) -> None:
    assert "offsets" not in {each["check"] for each in findings(rest)}
    shift = PartitionLoad(records_per_s=5.0, lag=0, offsets=OffsetShift(4, 90, "a gap"))
    rest.put(
        rest.paths.settings,
        encode_switches(Switches(route_settings={ROUTE: '{"offsets": {"same": ".*"}}'})),
    )
    rest.copy("orders", ROUTE, [0], load=shift)
    rest.clock.advance(LOADS_MAX_AGE_S)
    seen = [said for check, _, said in found(rest) if check == "offsets"]
    assert seen == ["orders/0: offsets are shifted by 4 from 90 on: a gap"]


def test_fences_say_what_they_hold(rest: CutoverRest, tmp_path: Path) -> None:
    def fence(**wish: Any) -> tuple[str, str]:
        (each,) = [each for each in findings(rest, **wish) if each["check"] == "fence"]
        return each["level"], each["text"]

    assert fence()[0] == "warning"
    assert fence(fence="acl", principal="User:fleet") == (
        "ok",
        "only User:fleet may write to these topics at source; readers go on, writes past it are seen and"
        " named",
    )
    assert fence(fence="acl", wayBack=False)[1].startswith("nobody may write")
    refused = fence(fence="command", fenceCommand="../gate")
    assert refused[0] == "blocks"
    assert "controller.fence_commands" in refused[1]
    rest.acls["source"].failure = NoAuthorizer("the brokers have no authorizer")
    assert fence(fence="acl") == ("blocks", "the brokers have no authorizer")


def test_producers_of_the_last_minutes_are_named_but_for_the_fleet(rest: CutoverRest) -> None:
    def text() -> str:
        (each,) = [each for each in findings(rest) if each["check"] == "producers"]
        return str(each["text"])

    assert text().startswith("no idempotent producer")
    now_ms = rest.clock.wall_ms()
    rest.writers["source"].producers = {("orders", 0): {7: now_ms, 8: now_ms, 9: 0}}
    rest.writers["source"].ids = {8: "test.target.source.w1.0"}
    assert text() == "1 producer has written in the last minutes: producer id 7"


def test_a_cluster_that_is_away_ends_the_plan(rest: CutoverRest) -> None:
    rest.acls["source"].failure = ClusterUnavailable("away")
    response = rest.call("POST", "/cutovers/move?src=source", json={"topics": ["orders"]})
    assert response.status_code == 503


def test_groups_of_topics_that_were_turned_are_found_in_both_maps(rest: CutoverRest) -> None:
    without_map(rest)
    plan = CutoverPlan("0" * 16, BACK, ("orders",), topics={"orders": 4})
    turn = Turn(BACK, here={"orders": (40,) * 4}, there={"orders": (40,) * 4})
    rest.put_cutover(Run("r", plan, turns=(turn,)))
    assert [said for check, _, said in found(rest) if check == "groups"] == [
        "billing: no map: the offset map has no segment for this offset"
    ]
    rest.groups.add("billing", {("orders", 0): 40})
    assert [said for check, _, said in found(rest) if check == "groups"] == []


def test_the_same_of_many_topics_is_one_finding() -> None:
    of_topics = [PlanFinding(f"t{n}", "audit", Level.WARNING, "never verified") for n in range(7)]
    other = PlanFinding("u", "audit", Level.WARNING, "stale")
    assert [finding.subject for finding in merged([*of_topics, other])] == [
        "t0, t1, t2, t3, t4 and 2 more",
        "u",
    ]
