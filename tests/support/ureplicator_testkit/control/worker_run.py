"""A worker's state machine driven by hand: what it decides, and what it publishes."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.model import OwnerEpoch, Partition, PartitionState, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.partition_phases import PartitionPhase
from ureplicator_worker.core.state import WorkerState, initial
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.lifeline.messages import CopierId, CopierReport, PartitionReport

ROUTE = Route("a", "b")
SILENCE_S = 60.0


def part(number: int) -> Partition:
    return Partition(ROUTE, "t", number)


def entries(*numbers: int, epoch: int = 1) -> Mapping[Partition, AssignmentEntry]:
    return {part(number): AssignmentEntry(OwnerEpoch(epoch)) for number in numbers}


class Run:
    """A worker driven by hand: its state, and all instructions since they were last taken."""

    def __init__(
        self, *, slots: int = 2, running: bool = True, routes: tuple[Route, ...] = ()
    ) -> None:
        self.state: WorkerState = initial(
            slots=slots, silence_s=SILENCE_S, now_s=0.0, routes=routes
        )
        self.pending: list[instructions.Instruction] = []
        self.zxid = 10
        if running:
            self.do(events.Tick(0.0), events.SessionRestored(SessionId(1)))
            self.do(*(events.CopierConnected(CopierId(number, 1)) for number in range(slots)))
            self.take()

    def do(self, *events: events.Event) -> Run:
        for event in events:
            self.state, decided = step(self.state, event)
            self.pending += decided
        return self

    def wait(self, seconds: float) -> Run:
        return self.do(events.Tick(self.state.now_s + seconds))

    def assign(self, *numbers: int, epoch: int = 1) -> Run:
        self.zxid += 1
        return self.do(events.AssignmentChanged(entries(*numbers, epoch=epoch), self.zxid))

    def online(self, *numbers: int, epoch: int = 1) -> Run:
        self.assign(*numbers, epoch=epoch).do(events.Fenced(ROUTE))
        for number in numbers:
            self.report(number, PartitionState.ONLINE)
        self.take()
        return self

    def report(self, number: int, state: PartitionState, reason: str = "") -> Run:
        figures = PartitionReport(state, reason=reason, committed=5)
        return self.do(
            events.FromCopier(self.copier(number), CopierReport({part(number): figures}))
        )

    def copier(self, number: int) -> CopierId:
        return self.state.slots[self.state.held[part(number)].slot].copier

    def take(self) -> list[instructions.Instruction]:
        taken, self.pending = self.pending, []
        return taken

    def decisions(self) -> list[instructions.Instruction]:
        """Taken, without what is published and read."""
        return [
            one
            for one in self.take()
            if not isinstance(one, instructions.Publish | instructions.ReadAssignment)
        ]

    def seen(self) -> dict[int, tuple[PartitionState, str]]:
        assert self.state.publication.last is not None
        published = self.state.publication.last.entries
        return {p.number: (entry.state, entry.reason) for p, entry in published.items()}

    def phases(self) -> dict[int, PartitionPhase]:
        return {p.number: held.phase for p, held in self.state.held.items()}
