"""Publication of a worker's current state in ZooKeeper; the only writer of `publication`.

A change of a partition's state or owner epoch is published at once, a change of a reason alone within
`PUBLISH_EVERY_S`, so that a burst of reasons is one write. Nothing is published without a session; a
new session publishes everything again. `engines.publisher` does the writing.
"""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.znode_contents import CurrentState
from ureplicator_worker.core.instructions import Instruction, Publish
from ureplicator_worker.core.state import Pending, Publication, WorkerState

PUBLISH_EVERY_S = 0.1
"""Shortest time between two publications that differ in reasons only."""


def publish_now(state: WorkerState) -> None:
    """Have a change published in this step."""
    if state.publication.pending is not Pending.NOW:
        state.publication = replace(state.publication, pending=Pending.NOW)


def publish_soon(state: WorkerState) -> None:
    """Have a change published within `PUBLISH_EVERY_S`."""
    if state.publication.pending is Pending.NOTHING:
        state.publication = replace(state.publication, pending=Pending.SOON)


def publish_everything(state: WorkerState) -> None:
    """The session is new or was suspended: a write may have been lost."""
    state.publication = replace(state.publication, last=None, pending=Pending.NOW)


def publish_if_due(state: WorkerState) -> list[Instruction]:
    """The current state, if it changed and its time has come."""
    if not state.session.connected or not _due(state):
        return []
    current = CurrentState(seen_zxid=state.assignment.zxid, entries=state.entries)
    if current == state.publication.last:
        state.publication = replace(state.publication, pending=Pending.NOTHING)
        return []
    state.publication = Publication(current, state.now_s, Pending.NOTHING)
    return [Publish(current)]


def _due(state: WorkerState) -> bool:
    match state.publication.pending:
        case Pending.NOW:
            return True
        case Pending.SOON:
            return state.now_s - state.publication.at_s >= PUBLISH_EVERY_S
        case Pending.NOTHING:
            return False
