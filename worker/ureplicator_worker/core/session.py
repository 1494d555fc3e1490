"""ZooKeeper session and assignment of a worker; the only writer of `session` and `assignment`.

ZooKeeper is not on the data path: a session that is suspended or lost changes nothing but what is
published. A restored one publishes everything again and reads the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ureplicator_common.coordination import SessionState
from ureplicator_common.model import Partition, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.core import held_partitions, publishing
from ureplicator_worker.core.events import AssignmentChanged
from ureplicator_worker.core.instructions import Instruction, ReadAssignment, Register
from ureplicator_worker.core.state import Session, StoredAssignment, WorkerState

READ_EVERY_S = 30.0
"""The assignment is read again this often: a lost watch must not hide a change for long."""


def read_if_due(state: WorkerState) -> list[Instruction]:
    due = state.now_s - state.assignment.read_at_s >= READ_EVERY_S
    return _read_assignment(state) if due and state.session.connected else []


def suspend(state: WorkerState) -> None:
    state.session = replace(state.session, state=SessionState.SUSPENDED)


def lose(state: WorkerState) -> None:
    state.session = replace(state.session, state=SessionState.LOST)


def restore(state: WorkerState, id: SessionId) -> list[Instruction]:
    """Publish everything again, also for the same session: a write while it was suspended may or may
    not have arrived."""
    register: list[Instruction] = [] if state.session.id == id else [Register(id)]
    state.session = Session(id, SessionState.CONNECTED)
    publishing.publish_everything(state)
    return [*register, *_read_assignment(state)]


def change_assignment(state: WorkerState, event: AssignmentChanged) -> None:
    """An older version is ignored: after a reconnect a server may lag."""
    seen = state.assignment
    if event.zxid != -1 and event.zxid < seen.zxid:
        return
    zxid = max(seen.zxid, event.zxid)
    state.assignment = StoredAssignment(event.entries, zxid, seen.read_at_s)
    held_partitions.visit(state, _changed(seen.entries, event.entries))
    if zxid > seen.zxid:
        publishing.publish_now(state)


def _changed(
    before: Mapping[Partition, AssignmentEntry], after: Mapping[Partition, AssignmentEntry]
) -> list[Partition]:
    """Partitions that are in one of them only, or under another owner epoch."""
    changed = [partition for partition in before if partition not in after]
    for partition, entry in after.items():
        known = before.get(partition)
        if known is None or known.owner_epoch != entry.owner_epoch:
            changed.append(partition)
    return changed


def _read_assignment(state: WorkerState) -> list[Instruction]:
    state.assignment = replace(state.assignment, read_at_s=state.now_s)
    return [ReadAssignment()]
