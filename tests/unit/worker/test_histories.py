"""Random histories: in any order of events, a partition is released only when no copier touches it.

The model has, per slot, a copier process with an inbox and an outbox: messages cross, are late, and
outlive their process. What it touches is compared with what the worker holds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ureplicator_common.model import OwnerEpoch, Partition, PartitionState, Route, SessionId
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_worker.core import events, held_partitions, instructions
from ureplicator_worker.core.partition_phases import PartitionPhase
from ureplicator_worker.core.reconcile import reconcile
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state import Pending, initial
from ureplicator_worker.core.state_machine import check_invariants, step
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierId,
    CopierReport,
    Failed,
    Order,
    PartitionReport,
    Released,
    Remove,
    Stop,
    StopRequest,
)

SLOTS = 2
PARTITIONS = [Partition(Route("a", target), "t", n) for target in "bc" for n in range(2)]


@dataclass
class Copier:
    """A process, with messages to it and from it that are under way."""

    id: CopierId
    inbox: deque[Order] = field(default_factory=deque)
    outbox: deque[events.Event] = field(default_factory=deque)
    touched: dict[Partition, OwnerEpoch] = field(default_factory=dict)
    connected: bool = True

    def do_next(self) -> None:
        match self.inbox.popleft():
            case Add(epochs):
                self.touched |= epochs
            case Remove(partitions):
                self.release(partitions)
            case Stop():
                self.release(tuple(self.touched))
                self.disconnect()

    def release(self, partitions: tuple[Partition, ...]) -> None:
        for partition in partitions:
            self.touched.pop(partition, None)
        self.send(events.FromCopier(self.id, Released(partitions)))

    def send(self, event: events.Event) -> None:
        if self.connected:
            self.outbox.append(event)

    def disconnect(self) -> None:
        self.send(events.CopierClosed(self.id))
        self.connected = False
        self.inbox.clear()


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = initial(slots=SLOTS, silence_s=30.0, now_s=0.0)
        self.copiers: dict[int, Copier] = {}
        self.starting: set[CopierId] = set()
        self.fencing: set[instructions.Fence] = set()
        self.lost: list[Copier] = []
        self.zxid = 0
        self.exit: instructions.Exit | None = None
        self.later: deque[events.Event] = deque()
        self.happens(events.Tick(0.0))

    @initialize(warm=st.booleans())
    def begin(self, warm: bool) -> None:
        """Half of the histories begin in the middle: everything ONLINE."""
        self.happens(events.SessionRestored(SessionId(1)))
        if warm:
            self.assign(dict.fromkeys(PARTITIONS, 1))
            for _ in range(3):
                self.settle()

    def happens(self, event: events.Event) -> None:
        before, held = self.state, dict(self.state.held)
        self.state, decided = step(before, event)
        assert before.held == held, "a step must not change the former state"
        for instruction in decided:
            self.perform(instruction)

    def perform(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartCopier(copier):
                assert copier.slot not in self.copiers, "two copiers on one slot"
                self.starting.add(copier)
            case instructions.Fence(route, slot):
                present = [c for c in self.copiers.values() if slot in (None, c.id.slot)]
                assert not any(self.on(c, route) for c in present), "it would fence a successor"
                self.fencing.add(instruction)
            case instructions.KillCopier(copier):
                self.starting.discard(copier)
                self.end(copier)
            case instructions.ToCopier(copier, order):
                known = self.copiers.get(copier.slot)
                if known is not None and known.connected:
                    assert known.id == copier
                    known.inbox.append(order)
            case instructions.Exit():
                self.exit = instruction

    @staticmethod
    def on(copier: Copier, route: Route) -> bool:
        return any(partition.route == route for partition in copier.touched)

    def end(self, copier: CopierId) -> None:
        """The process ends; messages it had sent may still arrive before its end is noticed."""
        process = self.copiers.pop(copier.slot, None)
        for event in process.outbox if process else ():
            self.later.append(event)
        self.later.append(events.CopierEnded(copier, "gone"))

    def lose(self, copier: Copier) -> None:
        """Its job ends; its process goes on where it cannot be seen, and commits what it touches."""
        copier.disconnect()
        del self.copiers[copier.id.slot]
        self.later += copier.outbox
        self.later.append(events.CopierLost(copier.id, "executor lost"))
        self.lost.append(copier)

    def fence(self, fence: instructions.Fence) -> None:
        self.fencing.discard(fence)
        for copier in self.lost:
            if fence.slot in (None, copier.id.slot):
                for partition in [p for p in copier.touched if p.route == fence.route]:
                    del copier.touched[partition]
        self.happens(events.Fenced(fence.route, fence.slot))

    running = precondition(lambda self: self.exit is None)

    @running
    @rule(epochs=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 2)))
    def assign_some(self, epochs: dict[Partition, int]) -> None:
        self.assign(epochs)

    def assign(self, epochs: dict[Partition, int]) -> None:
        self.zxid += 1
        entries = {p: AssignmentEntry(OwnerEpoch(epoch)) for p, epoch in epochs.items()}
        self.happens(events.AssignmentChanged(entries, self.zxid))

    @running
    @rule(seconds=st.sampled_from([0.1, 0.6, 3.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        for copier in self.copiers.values():
            self.report(copier.id.slot)
        self.happens(events.Tick(self.state.now_s + seconds))

    @running
    @precondition(lambda self: self.starting)
    @rule(data=st.data())
    def connects(self, data: st.DataObject) -> None:
        copier = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.remove(copier)
        self.copiers[copier.slot] = Copier(copier)
        self.happens(events.CopierConnected(copier))

    @running
    @precondition(lambda self: any(copier.inbox for copier in self.copiers.values()))
    @rule(data=st.data())
    def copier_works(self, data: st.DataObject) -> None:
        busy = [slot for slot, copier in self.copiers.items() if copier.inbox]
        self.copiers[data.draw(st.sampled_from(busy))].do_next()

    @running
    @precondition(lambda self: any(copier.outbox for copier in self.copiers.values()))
    @rule(data=st.data())
    def message_arrives(self, data: st.DataObject) -> None:
        talking = [slot for slot, copier in self.copiers.items() if copier.outbox]
        self.happens(self.copiers[data.draw(st.sampled_from(talking))].outbox.popleft())

    @running
    @precondition(lambda self: self.later)
    @rule()
    def end_is_noticed(self) -> None:
        self.happens(self.later.popleft())

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1))
    def report(self, slot: int) -> None:
        copier = self.copiers.get(slot)
        if copier is not None:
            figures = PartitionReport(PartitionState.ONLINE, committed=1, lag=0)
            copier.send(
                events.FromCopier(copier.id, CopierReport(dict.fromkeys(copier.touched, figures)))
            )

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1), temporary=st.booleans())
    def partition_fails(self, slot: int, temporary: bool) -> None:
        copier = self.copiers.get(slot)
        if copier is not None and copier.touched:
            partition = min(copier.touched)
            del copier.touched[partition]
            copier.send(events.FromCopier(copier.id, Failed(partition, "failed", temporary)))

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1))
    def lifeline_closes(self, slot: int) -> None:
        if slot in self.copiers:
            self.copiers[slot].disconnect()

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1))
    def process_ends(self, slot: int) -> None:
        if slot in self.copiers:
            self.end(self.copiers[slot].id)

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1))
    def executor_is_decommissioned(self, slot: int) -> None:
        if slot in self.copiers:
            self.happens(events.FromCopier(self.copiers[slot].id, StopRequest("decommissioned")))

    @running
    @precondition(lambda self: self.copiers)
    @rule(slot=st.integers(0, SLOTS - 1))
    def process_is_lost(self, slot: int) -> None:
        if slot in self.copiers:
            self.lose(self.copiers[slot])

    @running
    @precondition(lambda self: self.fencing)
    @rule(data=st.data(), works=st.booleans())
    def fence_ends(self, data: st.DataObject, works: bool) -> None:
        fence = data.draw(st.sampled_from(sorted(self.fencing, key=repr)))
        if works:
            self.fence(fence)
        else:
            self.fencing.remove(fence)
            self.happens(events.FenceFailed(fence.route, "unreachable", fence.slot))

    @running
    @rule(
        event=st.sampled_from(
            [
                events.SessionSuspended(),
                events.SessionLost(),
                events.SessionRestored(SessionId(1)),
                events.SessionRestored(SessionId(2)),
                events.DrainRequested(0.0),
                events.DrainRequested(100.0),
            ]
        )
    )
    def session_or_drain(self, event: events.Event) -> None:
        self.happens(event)

    @precondition(lambda self: self.exit is not None)
    @rule()
    def nothing_follows_the_exit(self) -> None:
        assert step(self.state, events.Tick(self.state.now_s + 100)) == (self.state, [])

    # What must hold.

    @invariant()
    def what_is_touched_is_held_by_that_slot(self) -> None:
        if self.exit is not None and self.exit.code != 0:
            return  # the process ends, and its copiers with it
        for slot, copier in self.copiers.items():
            for partition in copier.touched:
                held = self.state.held.get(partition)
                assert held is not None, f"{partition} released but touched by {copier.id}"
                assert held.sent
                assert held.slot == slot
        for lost in self.lost:
            for partition in lost.touched:
                held = self.state.held.get(partition)
                assert held is not None, f"{partition} released but not fenced from {lost.id}"
                assert held.slot == lost.id.slot

    @invariant()
    def a_visit_of_all_partitions_finds_nothing_to_do(self) -> None:
        """A step visits only the partitions that it concerns."""
        if self.exit is not None:
            return
        check_invariants(self.state, self.state.held)
        again = self.state.copy()
        held_partitions.visit(again, [*again.held, *again.assignment.entries])
        assert reconcile(again) == []
        assert again.held == self.state.held
        assert again.entries == {p: held.entry for p, held in again.held.items()}

    @invariant()
    def one_copier_touches_it(self) -> None:
        copiers = [*self.copiers.values(), *self.lost]
        touched = [p for copier in copiers for p in copier.touched]
        assert len(touched) == len(set(touched))

    @invariant()
    def what_is_published_is_what_is_held(self) -> None:
        if (
            self.state.publication.last is not None
            and self.state.publication.pending is Pending.NOTHING
        ):
            assert self.state.publication.last.entries.keys() == self.state.held.keys()

    def teardown(self) -> None:
        """Healed and left alone, everything wanted is ONLINE and nothing else is held."""
        if self.exit is not None:
            return
        self.happens(events.SessionRestored(SessionId(9)))
        for _ in range(70):
            self.settle()
            self.happens(events.Tick(self.state.now_s + 1.0))
        if self.state.drain is not None:
            assert self.exit is not None
            return
        assert {p: held.owner_epoch for p, held in self.state.held.items()} == {
            p: entry.owner_epoch for p, entry in self.state.assignment.entries.items()
        }
        assert all(held.phase is PartitionPhase.ONLINE for held in self.state.held.values())
        assert all(slot.phase is SlotPhase.RUNNING for slot in self.state.slots)

    def settle(self) -> None:
        while self.later:
            self.happens(self.later.popleft())
        for started in sorted(self.starting):
            self.starting.remove(started)
            self.copiers[started.slot] = Copier(started)
            self.happens(events.CopierConnected(started))
        for fence in sorted(self.fencing, key=repr):
            self.fence(fence)
        for copier in list(self.copiers.values()):
            while copier.inbox:
                copier.do_next()
            self.report(copier.id.slot)
            while copier.outbox:
                self.happens(copier.outbox.popleft())
            if not copier.connected and self.copiers.get(copier.id.slot) is copier:
                self.end(copier.id)


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase


def test_a_late_released_does_not_end_the_next_add() -> None:
    """Failed and Remove cross. A second Remove would have a second response, which comes when the
    partition was assigned again and removed once more: then the copier still has its Add to read."""
    histories = Histories()
    histories.begin(warm=True)
    copier = histories.copiers[0]
    partition = min(copier.touched)
    others = {p: 1 for p in PARTITIONS if p != partition}
    histories.partition_fails(0, temporary=True)
    histories.assign(others)
    copier.do_next()
    for _ in range(2):
        histories.happens(copier.outbox.popleft())
    histories.assign({**others, partition: 1})
    histories.assign(others)
    while copier.inbox:
        copier.do_next()
        while copier.outbox:
            histories.happens(copier.outbox.popleft())
        histories.what_is_touched_is_held_by_that_slot()
    assert partition not in histories.state.held
    histories.teardown()
