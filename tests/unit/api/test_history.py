"""/history on in-memory clusters, and the ids by which a request is followed."""

from __future__ import annotations

import logging

import pytest

from ureplicator_common.model import EventKind, OwnerEpoch, Partition, WorkerId
from ureplicator_common.znode_contents import PastEvent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

MOVES = [
    PastEvent(
        number,
        EventKind.MOVE,
        "balance",
        1_000 + number,
        partition=Partition(ROUTE, "orders" if number % 10 else "quiet", number % 4),
        source=WorkerId("w1"),
        target=WorkerId("w2"),
        owner_epoch=OwnerEpoch(5),
        took_ms=300,
    )
    for number in range(129)
]
LAST = PastEvent(
    129, EventKind.WORKER, "drained", 1_129, request="mine-1f2ecafe/olga", worker=WorkerId("w1")
)


@pytest.fixture
def moved(rest: RestFixture) -> RestFixture:
    """129 moves, every tenth of `quiet`, the others of `orders`; then a worker is drained."""
    events = [*MOVES, LAST]
    for block in range(3):
        data = encode_history(events[block * 64 : block * 64 + 64])
        rest.put(rest.paths.history_block(block), data)
    return rest


def numbers(rest: RestFixture, query: str) -> list[int]:
    shown = rest.call("GET", f"/history?{query}").get_json()["history"]
    return [event["number"] for event in shown]


def test_the_last_events_newest_first(moved: RestFixture) -> None:
    shown = moved.call("GET", "/history").get_json()["history"]
    assert [event["number"] for event in shown] == list(range(129, 29, -1))
    assert shown[0] == {
        "number": 129,
        "time": "1970-01-01T00:00:01.129+00:00",
        "kind": "worker",
        "event": "worker-129",
        "worker": "w1",
        "reason": "drained",
        "request": "mine-1f2ecafe",
        "by": "olga",
    }
    assert shown[1] == {
        "number": 128,
        "time": "1970-01-01T00:00:01.128+00:00",
        "kind": "move",
        "event": "source.target/orders/0@5",
        "route": "source.target",
        "topic": "orders",
        "partition": 0,
        "from": "w1",
        "to": "w2",
        "ownerEpoch": 5,
        "reason": "balance",
        "request": "",
        "by": "",
        "tookMs": 300,
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("topic=quiet&limit=2", [120, 110]),
        ("topic=quiet&partition=2&limit=2", [110, 90]),
        ("topic=other", []),
        ("kind=worker", [129]),
        ("worker=w1&limit=2", [129, 128]),
        ("worker=w3", []),
        ("event=source.target/quiet/2@5&limit=1", [110]),
        ("event=worker-129", [129]),
        ("request=mine-1f2ecafe", [129]),
        ("src=source&limit=1", [129]),
    ],
)
def test_filters(moved: RestFixture, query: str, found: list[int]) -> None:
    assert numbers(moved, query) == found


def test_the_whole_history(moved: RestFixture) -> None:
    assert len(numbers(moved, "limit=500")) == 130


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=²", "limit"),
        ("topic=..", "topic"),
        ("partition=x", "partition"),
        ("kind=other", "kind"),
    ],
)
def test_a_refusal_names_its_field(moved: RestFixture, query: str, field: str) -> None:
    assert problem_of(moved.call("GET", f"/history?{query}"), 400)["field"] == field


@pytest.mark.parametrize("path", ["/history", "/topics"])
@pytest.mark.parametrize("limit", ["0", "-1", "999999999999"])
def test_a_wrong_limit_is_refused_with_its_bounds(
    moved: RestFixture, path: str, limit: str
) -> None:
    problem = problem_of(moved.call("GET", f"{path}?limit={limit}"), 400)
    assert problem["detail"].endswith(" is not a limit")
    assert "a whole number from 1 to 999999999" in problem["hint"]


def test_an_unreadable_block_hides_no_other(moved: RestFixture) -> None:
    moved.put(moved.paths.history_block(1), b"{")
    assert len(numbers(moved, "limit=500")) == 66
    unreadable = moved.call("GET", "/validation").get_json()["unreadable"]
    assert [node["path"] for node in unreadable] == [moved.paths.history_block(1)]


# --- Request ids


def whitelist(rest: RestFixture, *, as_: str) -> str:
    """Whitelist a topic under a caller's id; returns the id of the response."""
    response = rest.call("POST", "/topics/orders", headers={"X-Request-Id": as_})
    assert response.status_code == 201
    return str(response.headers["X-Request-Id"])


def test_header_log_and_intent_have_the_same_request_id(
    rest: RestFixture, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        id = whitelist(rest, as_="deploy-42")
    assert id.startswith("deploy-42-")
    intent = rest.intent("orders")
    assert intent is not None
    assert intent.request_id == id
    assert f"(request {id})" in caplog.text


def test_a_client_id_finds_all_its_requests(rest: RestFixture) -> None:
    one = whitelist(rest, as_="deploy-42")
    response = rest.call("DELETE", "/topics/orders", headers={"X-Request-Id": "deploy-42"})
    two = response.headers["X-Request-Id"]
    assert one != two
    events = [
        PastEvent(number, EventKind.SWITCH, "frozen", 1, request=request)
        for number, request in enumerate((one, two, "deploy-4", "deploy-42"))
    ]
    rest.put(rest.paths.history_block(0), encode_history(events))
    assert numbers(rest, "request=deploy-42") == [3, 1, 0]
    assert numbers(rest, f"request={two}") == [1]


@pytest.mark.parametrize("theirs", ["", "a b", "x" * 65, "ü", "a\tb"])
def test_an_invalid_id_is_replaced(rest: RestFixture, theirs: str) -> None:
    assert len(whitelist(rest, as_=theirs)) == 32


def test_a_refused_write_has_an_id_and_a_read_has_none(rest: RestFixture) -> None:
    assert rest.call("POST", "/topics/nowhere").headers["X-Request-Id"]
    assert "X-Request-Id" not in rest.call("GET", "/topics").headers


def test_a_write_behind_a_cutover_has_its_offsets(rest: RestFixture) -> None:
    reason = "cutover move: written at source behind OPEN, and not copied"
    late = PastEvent(
        0,
        EventKind.CUTOVER,
        reason,
        1_000,
        partition=Partition(ROUTE, "orders", 2),
        first_offset=40,
        next_offset=42,
    )
    rest.put(rest.paths.history_block(0), encode_history([late]))
    (shown,) = rest.call("GET", "/history?kind=cutover").get_json()["history"]
    assert (shown["topic"], shown["partition"], shown["worker"]) == ("orders", 2, None)
    assert (shown["firstOffset"], shown["nextOffset"]) == (40, 42)
    assert "from" not in shown
