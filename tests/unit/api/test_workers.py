"""Tags of workers, on in-memory clusters."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import ANY

import pytest

from ureplicator_common.model import ID_RULE, MAX_SLOTS, OwnerEpoch, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    TopicIntent,
)
from ureplicator_common.znodes.topics import encode_ideal
from ureplicator_common.znodes.workers import (
    decode_known_worker,
    encode_assignment,
    encode_known_worker,
)
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture, problem_of

W1 = WorkerId("w1")


def known(rest: RestFixture, worker: WorkerId = W1) -> KnownWorker | None:
    node = rest.other_client.get(rest.paths.worker_known(worker))
    return decode_known_worker(node.data) if node else None


@pytest.fixture
def working(rest: RestFixture) -> RestFixture:
    """w1 is live and known, with everything that the leader writes there."""
    rest.add_worker("w1")
    data = encode_known_worker(KnownWorker(3, last_seen_ms=7, evicted_session=SessionId(99)))
    rest.put(rest.paths.worker_known(W1), data)
    return rest


def test_a_worker_is_drained_and_undrained(working: RestFixture) -> None:
    for _ in range(2):
        response = working.call("DELETE", "/instances/w1")
        assert response.get_json() == {"worker": "w1", "blacklisted": True, "draining": True}
    shown = working.call("GET", "/instances").get_json()
    assert shown["blacklisted"] == ["w1"]
    assert shown["workers"]["w1"]["draining"] is True
    for _ in range(2):
        response = working.call("POST", "/instances/w1")
        assert response.get_json() == {"worker": "w1", "blacklisted": False, "draining": False}
    assert working.call("GET", "/instances").get_json()["blacklisted"] == []


def test_what_the_leader_wrote_is_kept(working: RestFixture) -> None:
    working.call("DELETE", "/instances/w1")
    there = known(working)
    assert there is not None
    assert (there.max_slots, there.last_seen_ms, there.evicted_session) == (3, 7, 99)


def test_a_repeated_request_writes_nothing(working: RestFixture) -> None:
    working.call("DELETE", "/instances/w1")
    before = working.other_client.get(working.paths.worker_known(W1))
    working.call("DELETE", "/instances/w1")
    assert working.other_client.get(working.paths.worker_known(W1)) == before


def test_a_live_worker_that_is_not_registered_yet(rest: RestFixture) -> None:
    rest.add_worker("w1", slots=4)
    assert rest.call("POST", "/instances/w1").status_code == 200
    assert known(rest) is None
    assert rest.call("DELETE", "/instances/w1").status_code == 200
    there = known(rest)
    assert there is not None
    assert (there.max_slots, there.draining) == (4, True)


def test_a_worker_that_is_gone_can_be_blacklisted(working: RestFixture) -> None:
    working.put(working.paths.worker_known(WorkerId("gone")), encode_known_worker(KnownWorker(2)))
    assert working.call("DELETE", "/instances/gone").status_code == 200


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_an_unknown_worker(working: RestFixture, method: str) -> None:
    assert problem_of(working.call(method, "/instances/unknown"), 404)["field"] == "worker"


@pytest.mark.parametrize("name", ["a/b", "%2E%2E", "%00", "%01", "@leader", "w" * 3_000, "%C3%A4"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/instances", None),
        ("POST", "/instances", None),
        ("PUT", "/import/workers", {"slots": 1, "blacklisted": False, "draining": False}),
        ("PUT", "/limits/workers", {"bytesPerSecond": 2_000_000}),
    ],
)
def test_an_id_that_no_worker_may_have_is_refused(
    working: RestFixture, method: str, path: str, body: object, name: str
) -> None:
    before = working.call("GET", "/instances").get_json()["allInstances"]
    problem = problem_of(working.call(method, f"{path}/{name}", json=body), 400)
    assert problem["field"] == "worker"
    assert problem["hint"] == ID_RULE
    assert len(problem["detail"]) < 500
    assert working.call("GET", "/instances").get_json()["allInstances"] == before


@pytest.mark.parametrize("applied", [True, False])
def test_draining_with_unknown_outcome_is_read_back(working: RestFixture, applied: bool) -> None:
    working.coordination.lose_next_response(applied=applied)
    assert working.call("DELETE", "/instances/w1").status_code == 200
    there = known(working)
    assert there is not None
    assert there.draining


@pytest.mark.parametrize("data", [b"{", b'{"maxSlots": 1000000000}'])
@pytest.mark.parametrize(("method", "is_drained"), [("DELETE", True), ("POST", False)])
def test_a_node_that_cannot_be_read_is_written_anew_with_all_possible_slots(
    working: RestFixture, data: bytes, method: str, is_drained: bool
) -> None:
    """Whoever fences the worker fences every transactional id that it may ever have had."""
    working.put(working.paths.worker_known(W1), data)
    assert working.call(method, "/instances/w1").status_code == 200
    assert known(working) == replace(
        known(working) or KnownWorker(0),
        max_slots=MAX_SLOTS,
        blacklisted=is_drained,
        draining=is_drained,
    )


def test_an_evicted_worker_is_shown_as_such(working: RestFixture) -> None:
    live = working.other_client.get(working.paths.worker_live(W1))
    assert live is not None
    data = encode_known_worker(KnownWorker(3, evicted_session=live.stat.owner))
    working.put(working.paths.worker_known(W1), data)
    shown = working.call("GET", "/instances/w1").get_json()["workers"]["w1"]
    assert (shown["live"], shown["evicted"]) == (False, True)


def test_a_worker_that_is_gone_is_forgotten(working: RestFixture) -> None:
    """A worker under an id that no worker may have, which an older version imported, is forgotten alike."""
    for id in ("gone", "@leader"):
        worker = WorkerId(id)
        working.put(working.paths.worker_known(worker), encode_known_worker(KnownWorker(2)))
        for _ in range(2):
            response = working.call("POST", f"/instances/{id}/forget")
            assert response.get_json() == {"worker": id, "forgotten": True}
        assert known(working, worker) == KnownWorker(2, forgotten=True, request_id=ANY)
    assert working.call("POST", "/instances/gone").status_code == 200
    assert known(working, WorkerId("gone")) == KnownWorker(2, request_id=ANY)


def test_a_worker_of_which_only_remains_are_there_is_forgotten(rest: RestFixture) -> None:
    gone = WorkerId("gone")
    rest.put(rest.paths.assignment(gone), encode_assignment(Assignment()))
    assert rest.call("POST", "/instances/gone/forget").status_code == 200
    assert known(rest, gone) == KnownWorker(MAX_SLOTS, forgotten=True, request_id=ANY)


def test_a_worker_that_lives_is_not_forgotten(working: RestFixture) -> None:
    problem = problem_of(working.call("POST", "/instances/w1/forget"), 409)
    assert problem["detail"] == "worker w1 is live"
    problem_of(working.call("POST", "/instances/unknown/forget"), 404)
    problem_of(working.call("POST", "/instances/a%2Fb/forget"), 404)


def test_a_worker_that_may_still_commit_is_not_forgotten(working: RestFixture) -> None:
    gone, entry = WorkerId("gone"), IdealEntry(None, OwnerEpoch(5), 0, "paused")
    working.put(working.paths.worker_known(gone), encode_known_worker(KnownWorker(2)))
    working.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    key = TopicKey(ROUTE, "orders")
    held = IdealTopic({1: replace(entry, holders={gone: SessionId(7)})})
    working.put(working.paths.ideal_topic(key), encode_ideal(held))
    problem = problem_of(working.call("POST", "/instances/gone/forget"), 409)
    assert f"may still commit {key}/1" in problem["detail"]
    working.put(working.paths.ideal_topic(key), encode_ideal(IdealTopic({1: entry})))
    assert working.call("POST", "/instances/gone/forget").status_code == 200
