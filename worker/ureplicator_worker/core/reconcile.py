"""One step of a worker under way: wanted against held, and the instructions that follow.

`state` tells the rules. A turn is made of a state, changed by one event, and ends in `reconcile`,
which looks at everything as a whole: no instruction hangs on one event that must not be missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ureplicator_common.coordination import SessionState
from ureplicator_common.model import (
    AssignmentEntry,
    CurrentState,
    OwnerEpoch,
    Partition,
    Route,
    SessionId,
)
from ureplicator_worker.core import events
from ureplicator_worker.core.partition import HeldPartition, PartitionPhase, failed, move
from ureplicator_worker.core.slots import Home, Slot, SlotPhase, choose
from ureplicator_worker.lifeline.messages import CopierId

PUBLISH_EVERY_S = 0.1
"""Changed reasons wait for each other so long; changed states go at once."""
LATE_START_S = 15.0
"""A copier not connected by then finds no room: Spark starts one in 1-2 s, 5 s on a busy
machine."""
LATE_END_S = 60.0
"""A copier whose lifeline closed drains for 15 s, then waits for its threads, some 30 s with both
clusters silent. One that is still there is killed, and again after as long: it may be frozen."""
READ_EVERY_S = 30.0
"""The assignment is read again so often: a lost watch must not blind a worker for ever."""
KILL_GRACE_S = 5.0
"""After `drain_timeout_s`, for killed processes to be gone."""


@dataclass(frozen=True, slots=True)
class Fence:
    """How far the fencing of this worker's former process is on one route."""

    done: bool = False
    asked: bool = False
    retry_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerState:
    """`silence_s`: a copier that says nothing for so long, though it has partitions, is killed.

    `routes`: those of the configuration. They are fenced when the worker has a session, before
    anything is assigned: on a cluster that never saw a transaction this takes seconds.
    """

    slots: tuple[Slot, ...]
    silence_s: float
    routes: tuple[Route, ...] = ()
    now_s: float = 0.0
    session: SessionId | None = None
    session_state: SessionState = SessionState.LOST
    wanted: Mapping[Partition, AssignmentEntry] = field(default_factory=dict)
    seen_zxid: int = -1
    read_at_s: float = 0.0
    held: Mapping[Partition, HeldPartition] = field(default_factory=dict)
    homes: Mapping[Partition, Home] = field(default_factory=dict)
    fences: Mapping[Route, Fence] = field(default_factory=dict)
    drain_until_s: float | None = None
    drain_killed: bool = False
    published: CurrentState | None = None
    published_at_s: float = 0.0
    publish_due: bool = True
    exited: bool = False


def initial(
    *, slots: int, silence_s: float, now_s: float, routes: tuple[Route, ...] = ()
) -> WorkerState:
    """A worker before its first step."""
    return WorkerState(
        slots=tuple(Slot(number) for number in range(slots)),
        silence_s=silence_s,
        routes=routes,
        now_s=now_s,
        read_at_s=now_s,
    )


class Turn:
    """One step under way: mutable copies of the state's parts, and the instructions so far."""

    def __init__(self, state: WorkerState) -> None:
        self.before = state
        self.now_s = state.now_s
        self.session, self.session_state = state.session, state.session_state
        self.wanted, self.seen_zxid = state.wanted, state.seen_zxid
        self.read_at_s = state.read_at_s
        self.slots = list(state.slots)
        self.held = dict(state.held)
        self.homes = dict(state.homes)
        self.fences = dict(state.fences)
        self.drain_until_s, self.drain_killed = state.drain_until_s, state.drain_killed
        self.published, self.published_at_s = state.published, state.published_at_s
        self.due = state.publish_due
        self.urgent = False
        self.exited = False
        self.instructions: list[events.Instruction] = []

    def frozen(self) -> WorkerState:
        return WorkerState(
            slots=tuple(self.slots),
            silence_s=self.before.silence_s,
            routes=self.before.routes,
            now_s=self.now_s,
            session=self.session,
            session_state=self.session_state,
            wanted=self.wanted,
            seen_zxid=self.seen_zxid,
            read_at_s=self.read_at_s,
            held=self.held,
            homes=self.homes,
            fences=self.fences,
            drain_until_s=self.drain_until_s,
            drain_killed=self.drain_killed,
            published=self.published,
            published_at_s=self.published_at_s,
            publish_due=self.due or self.urgent,
            exited=self.exited,
        )

    # One partition.

    def put(self, partition: Partition, held: HeldPartition) -> None:
        """The only writer of `held`; notes what of it is to be published, and how soon."""
        old = self.held.get(partition)
        self.held[partition] = held
        if old is None or (old.shown, old.owner_epoch) != (held.shown, held.owner_epoch):
            self.urgent = True
        elif old.entry != held.entry:
            self.due = True

    def move(self, partition: Partition, to: PartitionPhase, reason: str, **change: Any) -> None:
        held = self.held[partition]
        self.put(partition, move(partition, held, to, reason, now_s=self.now_s, **change))

    def fail(self, partition: Partition, reason: str, *, temporary: bool) -> None:
        held = self.held[partition]
        self.put(partition, failed(partition, held, reason, temporary=temporary, now_s=self.now_s))

    def begin(self, partition: Partition, epoch: OwnerEpoch, counts: dict[int, int]) -> None:
        home = self.homes.get(partition)
        slot = choose(counts, home)
        counts[slot] += 1
        unclean = home is not None and home.bound
        self.held[partition] = HeldPartition(slot=slot, owner_epoch=epoch, unclean=unclean)
        self.move(partition, PartitionPhase.STARTING, "starting")
        self.urgent = True

    def let_go(self, partition: Partition) -> None:
        """Nobody of ours touches it: it leaves what is published."""
        held = self.held[partition]
        self.move(partition, PartitionPhase.OFFLINE, "let go", sent=False)
        del self.held[partition]
        self.homes[partition] = Home(held.slot, bound=held.unclean)
        self.urgent = True

    def wants(self, partition: Partition) -> bool:
        """Still ours, under the owner epoch that it is held with."""
        entry = self.wanted.get(partition)
        same = entry is not None and entry.owner_epoch == self.held[partition].owner_epoch
        return same and self.drain_until_s is None

    # One copier.

    def present(self, copier: CopierId) -> Slot | None:
        """Its slot, if it is the present run there; a former run's word counts for nothing."""
        slot = self.slots[copier.slot]
        return slot if slot.run == copier.run and slot.phase is not SlotPhase.IDLE else None

    def touched_by(self, copier: CopierId) -> list[Partition]:
        return [p for p, held in self.held.items() if held.sent and held.slot == copier.slot]

    def close(self, copier: CopierId, reason: str) -> None:
        """Nothing reaches the copier any more; what it touched is let go when it has ended."""
        slot = self.slots[copier.slot]
        self.slots[copier.slot] = slot.enter(SlotPhase.CLOSING, self.now_s)
        for partition in self.touched_by(copier):
            if self.held[partition].phase is not PartitionPhase.STOPPING:
                self.move(partition, PartitionPhase.ERROR, reason)

    # Wanted against held.

    def read_assignment(self) -> None:
        self.read_at_s = self.now_s
        self.instructions.append(events.ReadAssignment())

    def reconcile(self) -> None:
        if self.drain_until_s is not None:
            self._stop_copiers(self.drain_until_s)
        wanted = {} if self.drain_until_s is not None else self.wanted
        self._take_away(wanted)
        self._take_on(wanted)
        self._watch_slots()
        self._fence_ahead()
        self._tell()
        if self.drain_until_s is not None:
            self._leave(self.drain_until_s)
        self._publish()

    def _take_away(self, wanted: Mapping[Partition, AssignmentEntry]) -> None:
        removed: dict[CopierId, list[Partition]] = {}
        for partition, held in list(self.held.items()):
            if self.wants(partition):
                continue
            entry = wanted.get(partition)
            if not held.sent:
                self.let_go(partition)
            elif held.phase is not PartitionPhase.STOPPING:
                why = "taken away" if entry is None else f"owner epoch is {entry.owner_epoch} now"
                why = "the worker stops" if self.drain_until_s is not None else why
                self.move(partition, PartitionPhase.STOPPING, f"stopping: {why}")
                slot = self.slots[held.slot]
                if slot.phase is SlotPhase.RUNNING:
                    removed.setdefault(slot.copier, []).append(partition)
        for copier, partitions in removed.items():
            self.instructions.append(events.RemovePartitions(copier, tuple(partitions)))

    def _take_on(self, wanted: Mapping[Partition, AssignmentEntry]) -> None:
        missing = sorted(wanted.keys() - self.held.keys())
        if not missing:
            return
        counts = dict.fromkeys(range(len(self.slots)), 0)
        for held in self.held.values():
            counts[held.slot] += 1
        for partition in missing:
            self.begin(partition, wanted[partition].owner_epoch, counts)

    def _watch_slots(self) -> None:
        for number, slot in enumerate(self.slots):
            if slot.phase is SlotPhase.IDLE:
                if self.drain_until_s is None and slot.start_at_s <= self.now_s:
                    self._start(number)
            elif slot.phase is SlotPhase.STARTING:
                if self.now_s - slot.since_s >= LATE_START_S:
                    self._no_room(number)
            elif slot.phase is SlotPhase.RUNNING:
                quiet_s = self.now_s - slot.heard_s
                if quiet_s > self.before.silence_s and self.touched_by(slot.copier):
                    reason = f"copier silent for {quiet_s:.0f} s"
                    self.close(slot.copier, reason)
                    self.instructions.append(events.KillCopier(slot.copier, reason))
            elif self.now_s - slot.since_s >= LATE_END_S:
                self.slots[number] = slot.enter(SlotPhase.CLOSING, self.now_s)
                self.instructions.append(
                    events.KillCopier(slot.copier, "it does not end by itself")
                )

    def _start(self, number: int) -> None:
        self.slots[number] = slot = self.slots[number].started(self.now_s)
        waiting = tuple(sorted(p for p, held in self.held.items() if held.slot == number))
        self.instructions.append(events.StartCopier(slot.copier, waiting))

    def _no_room(self, number: int) -> None:
        reason = f"no Spark capacity: slot {number} has no copier after {LATE_START_S:.0f} s"
        for partition, held in list(self.held.items()):
            if held.slot == number and held.phase is PartitionPhase.STARTING:
                self.move(partition, PartitionPhase.ERROR, reason, retry_at_s=self.now_s)

    def _tell(self) -> None:
        """Send what waits to copiers that run, once the route's former owner of our name is
        fenced."""
        added: dict[CopierId, dict[Partition, OwnerEpoch]] = {}
        for partition, held in list(self.held.items()):
            slot = self.slots[held.slot]
            if held.sent or slot.phase is not SlotPhase.RUNNING:
                continue
            if held.phase is PartitionPhase.ERROR and held.retry_at_s > self.now_s:
                continue
            if not self._fenced(partition.route):
                continue
            if held.phase is PartitionPhase.ERROR:
                self.move(
                    partition, PartitionPhase.STARTING, f"starting again after: {held.reason}"
                )
            self.put(partition, replace(self.held[partition], sent=True))
            added.setdefault(slot.copier, {})[partition] = held.owner_epoch
        for copier, epochs in added.items():
            self.slots[copier.slot] = replace(self.slots[copier.slot], heard_s=self.now_s)
            self.instructions.append(events.AddPartitions(copier, epochs))

    def _fence_ahead(self) -> None:
        if self.session is not None and self.drain_until_s is None:
            for route in self.before.routes:
                self._fenced(route)

    def _fenced(self, route: Route) -> bool:
        fence = self.fences.get(route, Fence())
        if not (fence.done or fence.asked) and fence.retry_at_s <= self.now_s:
            self.fences[route] = replace(fence, asked=True)
            self.instructions.append(events.FenceRoute(route))
        return fence.done

    # Leaving.

    def _stop_copiers(self, until_s: float) -> None:
        late = self.now_s >= until_s
        for slot in self.slots:
            if slot.phase is SlotPhase.RUNNING:
                self.slots[slot.number] = slot.enter(SlotPhase.CLOSING, self.now_s)
                self.instructions.append(events.StopCopier(slot.copier))
            elif slot.phase is SlotPhase.STARTING:
                self.slots[slot.number] = slot.enter(SlotPhase.CLOSING, self.now_s)
                self.instructions.append(events.KillCopier(slot.copier, "the worker stops"))
            elif slot.phase is SlotPhase.CLOSING and late and not self.drain_killed:
                self.instructions.append(events.KillCopier(slot.copier, "not drained in time"))
        self.drain_killed = self.drain_killed or late

    def _leave(self, until_s: float) -> None:
        if all(slot.phase is SlotPhase.IDLE for slot in self.slots) and not self.held:
            late = self.now_s >= until_s
            self._exit(events.Exit(int(late), "not drained in time" if late else "drained"))
        elif self.now_s >= until_s + KILL_GRACE_S:
            self._exit(events.Exit(1, "copiers did not end"))

    def _exit(self, exit: events.Exit) -> None:
        self.exited = True
        self.due = True
        self._publish()
        self.instructions.append(exit)

    def _publish(self) -> None:
        due = self.due or self.urgent
        waited = self.now_s - self.published_at_s >= PUBLISH_EVERY_S
        if not due or self.session_state is not SessionState.CONNECTED:
            return
        if not (self.urgent or waited or self.exited):
            return
        self.due = self.urgent = False
        current = CurrentState(
            seen_zxid=self.seen_zxid,
            entries={partition: held.entry for partition, held in self.held.items()},
        )
        if current != self.published:
            self.published, self.published_at_s = current, self.now_s
            self.instructions.append(events.Publish(current))
