"""Spans of writes, and of the events that a leading controller finds in the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import EventKind, Partition, WorkerId
from ureplicator_common.znode_contents import PastEvent, TopicIntent
from ureplicator_common.znodes.fleet import encode_history
from ureplicator_common.znodes.workers import decode_known_worker
from ureplicator_controller.api.app import TIMELINE
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

TRACE, CLIENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
MOVED = PastEvent(
    2,
    EventKind.MOVE,
    "drained",
    1_011_000,
    partition=Partition(ROUTE, "orders", 0),
    source=WorkerId("w1"),
    target=WorkerId("w2"),
)


def sample(rest: RestFixture, *events: PastEvent) -> None:
    rest.put(rest.paths.history_block(0), encode_history(events))
    rest.app.extensions[TIMELINE].run_once()
    rest.clock.advance(15)


def test_a_write_goes_on_with_the_trace_of_its_client(rest: RestFixture) -> None:
    rest.add_worker("w1")
    response = rest.call("DELETE", "/instances/w1", headers=TRACEPARENT)
    (span,) = rest.spans.sent
    assert (span.trace, span.parent) == (int(TRACE, 16), int(CLIENT, 16))
    assert span.name == "DELETE /instances/<path:worker>"
    assert span.attributes["http.response.status_code"] == response.status_code == 200
    node = rest.tree()[rest.paths.worker_known(WorkerId("w1"))]
    known = decode_known_worker(node.data)
    assert known.request_id == response.headers["X-Request-Id"]
    assert known.request_id.startswith(f"{TRACE}-")


def test_an_id_of_the_client_comes_before_its_trace(rest: RestFixture) -> None:
    rest.add_worker("w1")
    headers = {**TRACEPARENT, "X-Request-Id": "tuesday"}
    response = rest.call("DELETE", "/instances/w1", headers=headers)
    (span,) = rest.spans.sent
    assert response.headers["X-Request-Id"].startswith("tuesday-")
    assert span.parent is None


def test_what_is_refused_is_traced_and_what_is_read_is_not(rest: RestFixture) -> None:
    rest.call("GET", "/topics")
    rest.call("DELETE", "/instances/nobody")
    rest.call("POST", "/no/such/path")
    assert [span.attributes["http.response.status_code"] for span in rest.spans.sent] == [404, 404]
    assert [span.name for span in rest.spans.sent] == ["DELETE /instances/<path:worker>", "POST"]


def test_events_are_traced_once_when_they_have_ended(rest: RestFixture) -> None:
    rest.put_intent("orders", TopicIntent(1, 1, target_topic="orders"))
    rest.put_leader("c1")
    gone = PastEvent(1, EventKind.WORKER, "gone", 1_010_000, worker=WorkerId("w1"))
    sample(rest, gone)
    assert rest.spans.sent == [], "it is from before the first sample"
    sample(rest, gone, MOVED)
    assert rest.spans.sent == []
    for _ in range(2):
        sample(rest, gone, replace(MOVED, took_ms=300))
    (span,) = rest.spans.sent
    assert (span.name, span.begin_ms, span.end_ms) == ("move", 1_011_000, 1_011_300)


@pytest.mark.parametrize("leader", ["c2", ""])
def test_a_controller_that_does_not_lead_traces_no_event(rest: RestFixture, leader: str) -> None:
    if leader:
        rest.put_leader(leader)
    sample(rest)
    sample(rest, replace(MOVED, took_ms=300))
    assert rest.spans.sent == []
