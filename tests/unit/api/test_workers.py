"""Tags of workers, on in-memory clusters."""

from __future__ import annotations

import pytest

from ureplicator_common.contents import KnownWorker
from ureplicator_common.model import SessionId, WorkerId
from ureplicator_common.znodes import decode_known_worker, encode_known_worker
from ureplicator_testkit.control.rest_fixture import RestFixture, problem_of

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


@pytest.mark.parametrize("name", ["unknown", "a/b", "%2E%2E", "%00"])
@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_an_unknown_worker(working: RestFixture, method: str, name: str) -> None:
    assert problem_of(working.call(method, f"/instances/{name}"), 404)["field"] == "worker"


@pytest.mark.parametrize("applied", [True, False])
def test_draining_with_unknown_outcome_is_read_back(working: RestFixture, applied: bool) -> None:
    working.coordination.lose_next_response(applied=applied)
    assert working.call("DELETE", "/instances/w1").status_code == 200
    there = known(working)
    assert there is not None
    assert there.draining


def test_a_node_that_cannot_be_read(working: RestFixture) -> None:
    working.put(working.paths.worker_known(W1), b"{")
    problem = problem_of(working.call("DELETE", "/instances/w1"), 500)
    assert "workers/known/w1" in problem["detail"]


def test_an_evicted_worker_is_shown_as_such(working: RestFixture) -> None:
    live = working.other_client.get(working.paths.worker_live(W1))
    assert live is not None
    data = encode_known_worker(KnownWorker(3, evicted_session=live.stat.owner))
    working.put(working.paths.worker_known(W1), data)
    shown = working.call("GET", "/instances/w1").get_json()["workers"]["w1"]
    assert (shown["live"], shown["evicted"]) == (False, True)
