"""Events of the fleet, and the request that caused each move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ureplicator_common.coordination import Set
from ureplicator_common.model import (
    EventKind,
    Gap,
    Limited,
    Partition,
    SessionId,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import PastEvent, PositionChange, Switches
from ureplicator_common.znodes.workers import encode_current, encode_known_worker
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.reporting.events import fleet_events, log_line
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, partition, two_workers


def events(fleet: ControlFleet, before: Snapshot | None) -> list[PastEvent]:
    """Events that the next cycle would log."""
    seen = fleet.observe()
    return fleet_events(before, seen, plan(seen, fleet.now_s).steps, leader="c1")


def lines(fleet: ControlFleet, before: Snapshot) -> list[str]:
    return [log_line(event) for event in events(fleet, before)]


def leave(fleet: ControlFleet, id: str, request: str) -> None:
    known = fleet.snapshot().known[WorkerId(id)].value
    tagged = replace(known, draining=True, request_id=request)
    path = fleet.paths.worker_known(WorkerId(id))
    data = encode_known_worker(tagged)
    fleet.store.apply(fleet.store.open_session(), [Set(path, data, -1)])


def test_new_leader_logs_the_state_of_the_fleet() -> None:
    fleet = two_workers(2)
    (first,) = events(fleet, None)
    assert first.kind is EventKind.LEADER
    assert first.reason == "c1 leads with epoch 1: 2 workers, 1 topics, balancing"


def test_unchanged_fleet_has_no_events() -> None:
    fleet = two_workers(2)
    assert events(fleet, fleet.observe()) == []


@pytest.mark.parametrize(
    ("happens", "line"),
    [
        (lambda fleet: fleet.worker("c"), "worker c: joined"),
        (lambda fleet: fleet.kill(fleet.process("b")), "worker b: gone"),
        (
            lambda fleet: fleet.topic(
                "t", 2, positions={1: PositionChange(5, "r9", "done", 20), 0: PositionChange(7)}
            ),
            "source.target/t/1: position set from 20 to 5 (request r9)",
        ),
        (
            lambda fleet: fleet.topic("t", 2, positions={0: PositionChange(-1, "r9", "no")}),
            "source.target/t/0: position not forgotten, was none: no (request r9)",
        ),
        (
            lambda fleet: fleet.switch(Switches(frozen=True, request_id="r7")),
            "frozen (request r7)",
        ),
        (
            lambda fleet: fleet.switch(Switches(auto_balancing=False, request_id="r8")),
            "auto-balancing switched off (request r8)",
        ),
        (
            lambda fleet: fleet.switch(Switches(paused_routes=frozenset({ROUTE}), request_id="r9")),
            "route source.target paused (request r9)",
        ),
        (
            lambda fleet: fleet.switch(
                Switches(limits={Limited.route(ROUTE): 50_000}, request_id="r9")
            ),
            "byte limit of route source.target set to 50000 bytes/s (request r9)",
        ),
        (
            lambda fleet: fleet.switch(
                Switches(route_settings={ROUTE: '{"on_gap":"latest"}'}, request_id="r9")
            ),
            'settings of route source.target changed: {"on_gap":"latest"} (request r9)',
        ),
        (
            lambda fleet: fleet.process("a").announce(no_capacity="no free cores"),
            "worker a: has no capacity: no free cores",
        ),
    ],
    ids=[
        "join",
        "loss",
        "position",
        "refused position",
        "freeze",
        "autobalancing",
        "pause",
        "limit",
        "route settings",
        "no capacity",
    ],
)
def test_events_other_than_moves(happens: Callable[[ControlFleet], object], line: str) -> None:
    fleet = two_workers(2)
    before = fleet.observe()
    happens(fleet)
    assert line in lines(fleet, before)


def test_worker_that_comes_back_has_not_joined() -> None:
    fleet = two_workers(2)
    fleet.kill(fleet.process("b"))
    before = fleet.observe()
    fleet.worker("b")
    assert lines(fleet, before) == ["worker b: back"]


def test_restart_between_two_snapshots() -> None:
    fleet = two_workers(2)
    before = fleet.observe()
    fleet.kill(fleet.process("b"))
    fleet.worker("b")
    assert lines(fleet, before) == ["worker b: restarted: it has another session"]


def test_eviction_is_logged_once() -> None:
    fleet = two_workers(2)
    fleet.hang(fleet.process("b"))
    leave(fleet, "b", "r1")
    fleet.settle()
    fleet.wait(31)
    before = fleet.observe()
    steps = plan(before, fleet.now_s).steps
    assert any(isinstance(step, Evict) for step in steps)
    logged = [log_line(event) for event in fleet_events(before, before, steps, leader="c1")]
    assert "worker b: evicted: did not release a partition within 30 s" in logged
    fleet.cycle()
    assert "worker b: gone" not in lines(fleet, before)


# --- The request that caused a move


def moved(fleet: ControlFleet) -> list[tuple[str, str]]:
    """Partition and request of each move that would be logged now."""
    found = [event for event in events(fleet, fleet.observe()) if event.kind is EventKind.MOVE]
    return [(str(event.partition), event.request) for event in found]


def test_request_of_a_whitelisted_topic() -> None:
    fleet = two_workers(2)
    fleet.topic("u", 1, request_id="add-u")
    assert moved(fleet) == [(str(partition("u")), "add-u")]


def test_requests_of_a_paused_and_resumed_topic() -> None:
    fleet = two_workers(1)
    fleet.topic("t", 1, state=TopicState.PAUSED, request_id="pause-t")
    assert moved(fleet) == [(str(partition("t")), "pause-t")]
    fleet.settle()
    fleet.topic("t", 1, state=TopicState.ACTIVE, request_id="resume-t")
    assert moved(fleet) == [(str(partition("t")), "resume-t")]


def test_requests_of_a_paused_and_resumed_route() -> None:
    fleet = two_workers(1)
    fleet.topic("t", 1, request_id="add-t")
    fleet.switch(Switches(paused_routes=frozenset({ROUTE}), request_id="pause"))
    assert moved(fleet) == [(str(partition("t")), "pause")]
    fleet.settle()
    before = fleet.observe()
    fleet.switch(Switches(request_id="resume"))
    assert moved(fleet) == [(str(partition("t")), "resume")]
    assert "route source.target resumed (request resume)" in lines(fleet, before)


def test_request_of_another_position() -> None:
    """A later request about the topic has not taken the partition from its worker."""
    fleet = two_workers(2)
    fleet.topic("t", 2, positions={1: PositionChange(5, "set-t")}, request_id="later")
    assert moved(fleet) == [(str(partition("t", 1)), "set-t")]


def test_request_of_a_drained_worker() -> None:
    fleet = two_workers(2)
    fleet.topic("t", 2, request_id="older")
    leave(fleet, "a", "drain-a")
    assert moved(fleet) == [(str(partition("t", 0)), "drain-a")]


def test_requests_of_a_rebalance_and_of_an_automatic_move() -> None:
    fleet = two_workers(4)
    fleet.worker("c")
    fleet.request_rebalance("now")
    assert [request for _, request in moved(fleet)] == ["now"]
    fleet.settle()
    fleet.kill(fleet.process("c"))
    fleet.observe()
    fleet.wait(121)
    assert [request for _, request in moved(fleet)] == [""]


def test_log_line_of_a_move_has_all_search_terms() -> None:
    fleet = two_workers(2)
    leave(fleet, "a", "drain-a")
    (event,) = [found for found in events(fleet, fleet.observe()) if found.kind is EventKind.MOVE]
    epoch = event.owner_epoch
    assert epoch > fleet.entry("t", 0).owner_epoch
    assert log_line(event) == (
        f"move source.target/t/0@{epoch}: a -> b: worker a drained (request drain-a)"
    )


GAP = Gap("offset 5 is out of range at the source", 5, 9, wall_ms=77)


def report_gap(fleet: ControlFleet, gap: Gap) -> Partition:
    """A worker publishes that it passed a gap in one of its partitions."""
    worker, stored = min(fleet.observe().current.items())
    found = min(stored.value.entries)
    entries = {**stored.value.entries, found: replace(stored.value.entries[found], gap=gap)}
    data = encode_current(replace(stored.value, entries=entries))
    fleet.store.apply(
        fleet.store.open_session(), [Set(fleet.paths.current_state(worker), data, -1)]
    )
    return found


def test_a_passed_gap_is_an_event_with_its_offsets() -> None:
    fleet = two_workers(2)
    before = fleet.observe()
    found = report_gap(fleet, GAP)
    (event,) = events(fleet, before)
    assert (event.kind, event.partition, event.wall_ms) == (EventKind.GAP, found, 77)
    assert (event.first_offset, event.next_offset) == (5, 9)
    assert "5 -> 9: offset 5 is out of range" in log_line(event)
    assert events(fleet, fleet.observe()) == []


def test_a_new_leader_logs_a_gap_that_is_not_in_the_history_yet() -> None:
    fleet = two_workers(2)
    report_gap(fleet, GAP)
    leader, gap = events(fleet, None)
    assert (leader.kind, gap.kind) == (EventKind.LEADER, EventKind.GAP)
    seen = fleet.observe()
    logged = replace(seen, history={0: Stored((gap,), 0, 0, SessionId(0))})
    assert [event.kind for event in fleet_events(None, logged, [], leader="c2")] == [
        EventKind.LEADER
    ]


def kinds_after(fleet: ControlFleet, logged: Sequence[PastEvent]) -> list[EventKind]:
    """Events of a new leader that finds this history."""
    seen = replace(fleet.observe(), history={0: Stored(tuple(logged), 0, 0, SessionId(0))})
    return [event.kind for event in fleet_events(None, seen, [], leader="c2")]


def test_a_gap_that_the_next_owner_passes_again_is_one_event() -> None:
    fleet = two_workers(2)
    report_gap(fleet, GAP)
    _, first = events(fleet, None)
    report_gap(fleet, replace(GAP, wall_ms=99))
    assert kinds_after(fleet, [first]) == [EventKind.LEADER]
    report_gap(fleet, replace(GAP, next_offset=10, wall_ms=99))
    assert kinds_after(fleet, [first]) == [EventKind.LEADER, EventKind.GAP]
    report_gap(fleet, replace(GAP, reason="truncated", wall_ms=99))
    assert kinds_after(fleet, [first]) == [EventKind.LEADER, EventKind.GAP]


def test_a_gap_that_two_owners_publish_before_it_is_logged_is_one_event() -> None:
    fleet = two_workers(2)
    found = report_gap(fleet, GAP)
    seen = fleet.observe()
    (worker, mine), (other, theirs) = sorted(seen.current.items())
    again = replace(mine.value.entries[found], gap=replace(GAP, wall_ms=99))
    entries = {**theirs.value.entries, found: again}
    both = {worker: mine, other: replace(theirs, value=replace(theirs.value, entries=entries))}
    logged = fleet_events(None, replace(seen, current=both), [], leader="c1")
    assert [(event.kind, event.wall_ms) for event in logged[1:]] == [(EventKind.GAP, 77)]


def test_a_gap_that_is_passed_again_after_its_position_was_set_is_another_event() -> None:
    fleet = two_workers(2)
    found = report_gap(fleet, GAP)
    _, first = events(fleet, None)
    logged = [replace(first, number=1), set_position(found, number=2)]
    assert kinds_after(fleet, logged) == [EventKind.LEADER], "the same report, published again"
    report_gap(fleet, replace(GAP, wall_ms=99))
    assert kinds_after(fleet, logged) == [EventKind.LEADER, EventKind.GAP]


def set_position(partition: Partition, *, number: int) -> PastEvent:
    return PastEvent(number, EventKind.POSITION, "position set", 88, partition=partition)
