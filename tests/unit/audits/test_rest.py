"""`/audits`: states of topics, requests and their cancelling, metrics."""

from __future__ import annotations

from typing import Any

import pytest

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
from ureplicator_common.kafka import BatchTime
from ureplicator_common.model import TopicKey, TopicState, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import (
    decode_audit_request,
    encode_audit_claim,
    encode_audit_state,
    encode_auditor,
    encode_follower,
)
from ureplicator_testkit.control.rest_fixture import (
    ONE_ROUTE,
    ROUTE,
    NewRest,
    RestFixture,
    problem_of,
)

GROUP = position_group(fleet="test", route=ROUTE)
KEY = TopicKey(ROUTE, "orders")
PATH = "/audits/orders"
NOW_S = 1_769_860_800
NOW_MS = NOW_S * 1_000


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    """`orders` has 3 partitions here, whose logs hold 10 to 50; they were copied up to 20, 40 and never."""
    return set_up(rest)


def set_up(rest: RestFixture) -> RestFixture:
    rest.clock.advance(NOW_S - rest.clock.monotonic_s())
    rest.put_intent(
        "orders", TopicIntent(3, 3, source_topic_id="s", target_topic_id="t", target_topic="orders")
    )
    for number in range(3):
        rest.logs["source"].hold("orders", number, 10, 50)
    for number, offset in ((0, 20), (1, 40)):
        rest.positions.put(GROUP, "orders", number, offset)
    return rest


def put_state(rest: RestFixture, audit: TopicAudit) -> None:
    rest.put(rest.paths.audits.state(KEY), encode_audit_state(audit))


def requested(rest: RestFixture) -> RequestedAudit | None:
    node = rest.other_client.get(rest.paths.audits.request(KEY))
    return decode_audit_request(node.data) if node else None


def send(rest: RestFixture, body: dict[str, Any], *, query: str = "") -> Any:
    response = rest.call("POST", f"{PATH}{query}", json=body)
    assert response.status_code == 200, response.text
    return response.get_json()


# States.


def test_a_topic_that_was_never_verified(copied: RestFixture) -> None:
    shown = copied.call("GET", "/audits").get_json()
    assert shown["auditors"] == shown["followers"] == {}
    assert shown["staleAfterSeconds"] == 86_400
    (found,) = shown["audits"]
    assert found["state"] == "never verified"
    assert found["verifiedAt"] is found["secondsSinceVerified"] is None
    assert found["behindOffsets"] == 60


def test_a_verified_topic(copied: RestFixture) -> None:
    ranges = {
        number: VerifiedRange(10, next, NOW_MS - 60_000)
        for number, next in ((0, 20), (1, 30), (2, 11))
    }
    put_state(copied, TopicAudit("s", "t", ranges))
    shown = copied.call("GET", PATH).get_json()
    assert (shown["state"], shown["reason"]) == ("verified", "")
    assert (shown["secondsSinceVerified"], shown["behindOffsets"]) == (60, 10)
    assert shown["verified"][1] == {
        "partition": 1,
        "from": 10,
        "to": 30,
        "verifiedAt": NOW_MS - 60_000,
        "position": 40,
        "differences": {},
    }
    assert shown["last"] is None


def test_differences_and_the_last_audit(copied: RestFixture) -> None:
    differing = VerifiedRange(10, 20, NOW_MS, differences=Differences(12, 14, {"missing": 2}))
    run = AuditRun("r1", "a1", NOW_MS - 5, NOW_MS, "done", 8, 0, {"missing": 2}, "/reports/r1")
    findings = (Finding(0, "missing", 12), Finding(0, "foreign", -1, 7))
    put_state(copied, TopicAudit("s", "t", {0: differing}, findings, run))
    shown = copied.call("GET", PATH).get_json()
    assert (shown["state"], shown["differences"]) == ("differences found", {"missing": 2})
    assert shown["reason"] == "2 of 3 partitions never verified"
    assert shown["findings"] == [
        {"partition": 0, "kind": "missing", "sourceOffset": 12, "targetOffset": None},
        {"partition": 0, "kind": "foreign", "sourceOffset": None, "targetOffset": 7},
    ]
    assert shown["last"]["report"] == "/reports/r1"


def test_a_running_audit_and_its_auditor(copied: RestFixture) -> None:
    running = RunningAudit("a1", "r1", NOW_MS - 9_000, 1_000, 250, 3)
    copied.put(copied.paths.audits.claim(KEY), encode_audit_claim(running), ephemeral=True)
    copied.put(
        copied.paths.audits.auditor("a1"), encode_auditor(LiveAuditor("h", 7)), ephemeral=True
    )
    follower = encode_follower(Follower("a1", NOW_MS))
    copied.put(copied.paths.audits.follower(ROUTE), follower, ephemeral=True)
    shown = copied.call("GET", "/audits").get_json()
    assert shown["audits"][0]["running"]["compared"] == 250
    assert shown["auditors"] == {"a1": "h:7"}
    assert shown["followers"] == {"source.target": "a1"}


def test_an_unreadable_state_is_listed_and_taken_for_none(copied: RestFixture) -> None:
    copied.put(copied.paths.audits.state(KEY), b"garbage")
    assert copied.call("GET", PATH).get_json()["state"] == "never verified"
    (unreadable,) = copied.call("GET", "/validation").get_json()["unreadable"]
    assert unreadable["path"] == copied.paths.audits.state(KEY)


def test_positions_that_cannot_be_read(copied: RestFixture) -> None:
    with copied.positions.failing():
        (found,) = copied.call("GET", "/audits").get_json()["audits"]
    assert found["behindOffsets"] is None


def test_an_unknown_topic(copied: RestFixture) -> None:
    for method in ("GET", "POST", "DELETE"):
        problem_of(copied.call(method, "/audits/nowhere"), 404)


# Requests.


def test_a_request_ends_at_the_positions(copied: RestFixture) -> None:
    shown = send(copied, {})
    assert shown["ranges"] == [
        {"partition": 0, "from": 10, "to": 20},
        {"partition": 1, "from": 10, "to": 40},
    ]
    assert (shown["offsets"], shown["auditors"], shown["dryRun"]) == (40, [], False)
    assert requested(copied) == RequestedAudit(
        shown["request"], NOW_MS, {0: OffsetRange(10, 20), 1: OffsetRange(10, 40)}
    )
    pending = copied.call("GET", PATH).get_json()["requested"]
    assert pending == {
        "id": shown["request"],
        "requested": NOW_MS,
        "offsets": 40,
        "attempts": 0,
    }


def test_a_dry_run_requests_nothing(copied: RestFixture) -> None:
    shown = send(copied, {"partitions": [1]}, query="?dry_run=true")
    assert shown["ranges"] == [{"partition": 1, "from": 10, "to": 40}]
    assert (shown["request"], shown["dryRun"]) == (None, True)
    assert requested(copied) is None


@pytest.mark.parametrize(
    ("body", "ranges"),
    [
        ({"from": 15, "to": 30}, {0: (15, 20), 1: (15, 30)}),
        ({"from": "30"}, {1: (30, 40)}),
        ({"from": 0, "to": 99, "partitions": [0, 0]}, {0: (10, 20)}),
        ({"from": "2026-01-31T11:00:00Z"}, {1: (25, 40)}),
        ({"to": "2026-01-31T11:00:00Z"}, {0: (10, 20), 1: (10, 25)}),
    ],
)
def test_a_range_of_offsets_or_times(
    copied: RestFixture, body: dict[str, Any], ranges: dict[int, tuple[int, int]]
) -> None:
    for number in range(3):
        times = [BatchTime(10, 24, NOW_MS - 7_200_000), BatchTime(25, 49, NOW_MS - 1_800_000)]
        copied.logs["source"].logs["orders", number].times = times
    found = {part["partition"]: (part["from"], part["to"]) for part in send(copied, body)["ranges"]}
    assert found == ranges


def test_a_rate_is_kept_with_the_request(copied: RestFixture) -> None:
    send(copied, {"bytesPerSecond": 1_000_000})
    wanted = requested(copied)
    assert wanted is not None
    assert wanted.bytes_per_s == 1_000_000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"from": -1}, "from"),
        ({"to": "2026-02-30T12:00:00Z"}, "to"),
        ({"from": 30, "to": 20}, "from"),
        ({"from": 20, "to": 20}, "from"),
        ({"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:00:00+01:00"}, "from"),
        ({"partitions": []}, "partitions"),
        ({"bytesPerSecond": 5}, "bytesPerSecond"),
        ({"until": 5}, "until"),
    ],
)
def test_a_wrong_request_is_refused(copied: RestFixture, body: dict[str, Any], field: str) -> None:
    problem = problem_of(copied.call("POST", PATH, json=body), 400)
    assert problem["field"] == field


def test_a_partition_that_is_not_copied_is_refused(copied: RestFixture) -> None:
    problem = problem_of(copied.call("POST", PATH, json={"partitions": [3]}), 400)
    assert problem["field"] == "partition"


def test_a_range_of_which_nothing_was_copied_is_refused(copied: RestFixture) -> None:
    problem = problem_of(copied.call("POST", PATH, json={"from": 45}), 409)
    assert problem["detail"] == "nothing of orders was copied in this range"


def test_one_audit_of_a_topic_at_a_time(copied: RestFixture) -> None:
    send(copied, {})
    problem = problem_of(copied.call("POST", PATH, json={}), 409)
    assert problem["detail"] == "an audit of orders is already requested"


def test_a_lost_response_makes_no_second_request(copied: RestFixture) -> None:
    copied.coordination.lose_next_response(applied=True)
    shown = send(copied, {})
    wanted = requested(copied)
    assert wanted is not None
    assert wanted.id == shown["request"]


def test_topics_that_cannot_be_compared_are_refused(new_rest: NewRest) -> None:
    handlers = [{"topics": "orders", "handler": "a.b:c"}]
    handled = set_up(new_rest(({**ONE_ROUTE[0], "handlers": handlers},)))
    assert "handler" in problem_of(handled.call("POST", PATH), 409)["detail"]
    plain = set_up(new_rest())
    plain.put_intent(
        "orders", TopicIntent(3, 3, stopped="source topic was deleted", target_topic="orders")
    )
    assert "stopped" in problem_of(plain.call("POST", PATH), 409)["detail"]
    plain.put_intent("orders", TopicIntent(3, 3, state=TopicState.DELETING, target_topic="orders"))
    problem_of(plain.call("POST", PATH), 409)


def test_cancelling(copied: RestFixture) -> None:
    shown = send(copied, {})
    cancelled = copied.call("DELETE", PATH).get_json()
    assert cancelled == {"topic": "orders", "route": "source.target", "request": shown["request"]}
    assert requested(copied) is None
    problem = problem_of(copied.call("DELETE", PATH), 404)
    assert problem["detail"] == "no audit of orders is requested"


# Metrics.


def test_metrics_of_each_route(copied: RestFixture) -> None:
    copied.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    ranges = {number: VerifiedRange(10, 20, NOW_MS - 60_000) for number in range(3)}
    put_state(copied, TopicAudit("s", "t", ranges))
    copied.call("GET", "/offset")
    text = copied.call("GET", "/metrics").text
    assert (
        'ureplicator_audit_topics{fleet="test",route="source.target",state="never_verified"} 1.0'
        in text
    )
    assert (
        'ureplicator_audit_topics{fleet="test",route="source.target",state="verified"} 1.0' in text
    )
    assert (
        'ureplicator_audit_topics{fleet="test",route="source.target",state="differing"} 0.0' in text
    )
    assert (
        'ureplicator_audit_seconds_since_verified{fleet="test",route="source.target"} 60.0' in text
    )
    assert 'ureplicator_audit_behind_offsets{fleet="test",route="source.target"} 20.0' in text
    assert 'ureplicator_auditors{fleet="test"} 0.0' in text
    with copied.zookeeper_unavailable():
        assert "ureplicator_audit_topics{" not in copied.call("GET", "/metrics").text
