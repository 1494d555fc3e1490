"""Spans of requests and events: one trace for a request and all that it caused."""

from __future__ import annotations

import pytest

from ureplicator_common.model import EventKind, OwnerEpoch, Partition, Route, WorkerId
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.spans import Span, event_span, parsed_traceparent, request_span

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MOVED = PastEvent(
    7,
    EventKind.MOVE,
    "w1 is drained",
    1_000,
    request=f"{TRACE}/olga",
    partition=Partition(Route("a", "b"), "orders", 3),
    source=WorkerId("w1"),
    target=WorkerId("w2"),
    owner_epoch=OwnerEpoch(4),
    took_ms=250,
)


def requested(id: str, *, status: int = 200, parent: int | None = None) -> Span:
    return request_span(
        id,
        method="DELETE",
        path="/instances/w1",
        pattern="/instances/<path:worker>",
        status=status,
        caller="olga",
        begin_ms=900,
        end_ms=920,
        parent=parent,
    )


def event(past: PastEvent) -> Span:
    span = event_span("west", past)
    assert span is not None
    return span


def test_an_event_is_below_the_request_that_caused_it() -> None:
    above, below = requested(TRACE), event(MOVED)
    assert above.trace == below.trace == int(TRACE, 16)
    assert below.parent == above.id != below.id
    assert (below.begin_ms, below.end_ms) == (1_000, 1_250)
    assert above.name == "DELETE /instances/<path:worker>"
    assert below.name == "move"
    assert {name: below.attributes[f"ureplicator.{name}"] for name in ("from", "to", "topic")} == {
        "from": "w1",
        "to": "w2",
        "topic": "orders",
    }
    assert below.attributes["enduser.id"] == "olga"


@pytest.mark.parametrize("id", [f"{TRACE}-4f1c09aa", "drain-of-tuesday-4f1c09aa", "0" * 32])
def test_a_request_and_its_events_share_a_trace_whatever_its_id(id: str) -> None:
    caused = event(PastEvent(1, EventKind.WORKER, "gone", 5, request=id, worker=WorkerId("w1")))
    assert caused.trace == requested(id).trace != 0
    assert (caused.trace == int(TRACE, 16)) == id.startswith(TRACE)


def test_events_that_nobody_requested_are_traces_of_their_own() -> None:
    first, second = (
        event(PastEvent(number, EventKind.WORKER, "gone", 5, worker=WorkerId("w1")))
        for number in (1, 2)
    )
    assert first.parent is None
    assert len({first.trace, second.trace, first.id, second.id}) == 4
    assert "ureplicator.request" not in first.attributes


def test_a_move_is_traced_when_it_has_ended() -> None:
    ended = MOVED
    under_way = PastEvent(7, EventKind.MOVE, "", 1_000, partition=ended.partition)
    assert event_span("west", under_way) is None


def test_only_failures_of_the_server_are_failures() -> None:
    assert [requested(TRACE, status=status).has_failed for status in (200, 404, 500, 503)] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", (TRACE, 0x00F067AA0BA902B7)),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-later", (TRACE, 0x00F067AA0BA902B7)),
        ("", None),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-00f067aa0ba902b7", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
    ],
)
def test_traceparent_is_read_as_w3c_has_it(header: str, found: object) -> None:
    assert parsed_traceparent(header) == found
