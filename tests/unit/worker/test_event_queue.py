"""The queue of a worker's events: order, and reports that wait as one."""

from __future__ import annotations

import queue

import pytest

from ureplicator_common.model import Partition, PartitionState, Route
from ureplicator_worker.core.events import (
    CopierClosed,
    CopierEnded,
    CopierLost,
    DrainRequested,
    Event,
    FromCopier,
    Tick,
)
from ureplicator_worker.engines.event_queue import EventQueue
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import (
    CopierId,
    CopierReport,
    Failed,
    PartitionReport,
    Released,
)

ONE, TWO = CopierId(0, 1), CopierId(1, 1)
P0, P1 = (Partition(Route("a", "b"), "t", number) for number in range(2))


def report(copier: CopierId, latency: int, **positions: int) -> FromCopier:
    rows = {
        {"p0": P0, "p1": P1}[name]: PartitionReport(PartitionState.ONLINE, position=position)
        for name, position in positions.items()
    }
    return FromCopier(copier, CopierReport(rows, (latency,), latency))


def all_of(events: EventQueue) -> list[Event]:
    found: list[Event] = []
    try:
        while True:
            found.append(events.get(0.0))
    except queue.Empty:
        return found


def filled(*put: Event) -> EventQueue:
    events = EventQueue()
    for event in put:
        events.put(event)
    return events


def test_reports_of_a_copier_wait_as_one_in_the_place_of_the_first() -> None:
    events = filled(
        report(ONE, 1, p0=1, p1=1),
        Tick(1.0),
        report(TWO, 1),
        *(report(ONE, n, p0=n) for n in (2, 3)),
    )
    assert all_of(events) == [report(ONE, 3, p0=3, p1=1), Tick(1.0), report(TWO, 1)]


def test_segments_of_reports_that_wait_are_joined() -> None:
    first, second = (Segment(0, end, 7) for end in (3, 5))
    reports = ({P0: (first,), P1: (first,)}, {P0: (second,)})
    events = filled(*(FromCopier(ONE, CopierReport({}, segments=segments)) for segments in reports))
    (event,) = all_of(events)
    assert isinstance(event, FromCopier)
    assert isinstance(event.notice, CopierReport)
    assert event.notice.segments == {P0: (second,), P1: (first,)}


def test_a_queue_of_reports_does_not_grow() -> None:
    events = filled(*(report(ONE, number, p0=number) for number in range(10_000)))
    assert all_of(events) == [report(ONE, 9_999, p0=9_999)]


def test_a_report_that_was_taken_is_not_changed() -> None:
    events = filled(report(ONE, 1, p0=1))
    taken = events.get(0.0)
    events.put(report(ONE, 2, p0=2))
    assert taken == report(ONE, 1, p0=1)
    assert all_of(events) == [report(ONE, 2, p0=2)]


@pytest.mark.parametrize(
    "between",
    [
        FromCopier(ONE, Released((P0,))),
        FromCopier(ONE, Failed(P0, "why", True)),
        CopierClosed(ONE),
        CopierEnded(ONE, "why"),
        CopierLost(ONE, "why"),
    ],
)
def test_reports_from_before_and_after_another_event_of_the_copier_stay_apart(
    between: Event,
) -> None:
    put = [report(ONE, 1, p0=1), between, report(ONE, 2, p0=2)]
    assert all_of(filled(*put)) == put


def test_events_of_others_keep_their_order() -> None:
    put: list[Event] = [Tick(1.0), DrainRequested(1.0), CopierClosed(TWO), Tick(2.0)]
    assert all_of(filled(*put)) == put
