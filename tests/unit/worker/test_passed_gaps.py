"""A gap that a copier passed over, in the state that the worker publishes."""

from dataclasses import replace

from ureplicator_common.model import Gap, OwnerEpoch, Partition, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.core import events
from ureplicator_worker.core.state import WorkerState, initial
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.lifeline.messages import CopierId, GapPassed

ROUTE = Route("a", "b")
P0 = Partition(ROUTE, "t", 0)
COPIER = CopierId(0, 1)
GAP = Gap("out of range", 5, 9, wall_ms=77)


def after(state: WorkerState, *happened: events.Event) -> WorkerState:
    for event in happened:
        state, _ = step(state, event)
    return state


def test_the_last_gap_is_published_with_the_partition() -> None:
    state = after(
        initial(slots=1, silence_s=60.0, now_s=0.0, routes=()),
        events.Tick(0.0),
        events.SessionRestored(SessionId(1)),
        events.CopierConnected(COPIER),
        events.AssignmentChanged({P0: AssignmentEntry(OwnerEpoch(1))}, 10),
        events.Fenced(ROUTE),
        events.FromCopier(COPIER, GapPassed(P0, GAP)),
        events.FromCopier(CopierId(0, 99), GapPassed(P0, replace(GAP, next_offset=10))),
        events.Tick(1.0),
    )
    assert state.publication.last is not None
    assert state.publication.last.entries[P0].gap == GAP
