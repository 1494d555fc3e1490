"""A worker process of a `ControlFleet`: the real state machine, and a copier that the test advances.

The decisions are those of `ureplicator_worker.core`: what is held, when former processes of the id are
fenced, what is sent to copiers and what is published. Its engines are replaced by synchronous ones,
which act when the test calls them and take no time; the copiers' part is a few steps per partition:

    granted    own id initialised, ownership proven in the store
    fenced     ids of former owners initialised
    copying    position read: reported ONLINE, and may commit

The worker's clock is its own: it only makes pending changes due, and differs from the leader's.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ureplicator_common.coordination import Create, Delete, Operation, Set
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    WorkerId,
    transactional_id,
)
from ureplicator_common.znode_contents import CurrentState, LiveWorker
from ureplicator_common.znodes.workers import (
    decode_assignment,
    decode_known_worker,
    encode_current,
    encode_live_worker,
)
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.state import initial
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierId,
    CopierReport,
    Failed,
    PartitionReport,
    Released,
    Remove,
)

if TYPE_CHECKING:
    from ureplicator_testkit.control.fleet import ControlFleet


class InvariantViolated(AssertionError):
    """An invariant is violated."""


@dataclass
class Copy:
    """One partition that a copier works on. `stage`: granted, fenced, copying."""

    copier: CopierId
    owner_epoch: OwnerEpoch
    stage: str
    committed: bool = False


@dataclass(frozen=True)
class Added:
    """A partition that the state machine sent to a copier."""

    copier: CopierId
    owner_epoch: OwnerEpoch


class Process:
    """One process of a worker. Another process may have the same id: a frozen one remains."""

    def __init__(
        self,
        fleet: ControlFleet,
        id: str,
        slots: int,
        *,
        tags: tuple[str, ...] = (),
        zone: str = "",
    ) -> None:
        self.id = WorkerId(id)
        self.slots = slots
        self._live = LiveWorker(slots=slots, tags=tags, zone=zone)
        self.frozen = False
        self.hung = False
        self.dead = False
        self.session = SessionId(0)
        self.copies: dict[Partition, Copy] = {}
        self.added: dict[Partition, Added] = {}
        self.removed: dict[Partition, CopierId] = {}
        self._fleet = fleet
        self._own: dict[str, int] = {}
        self._clock_s = 0.0
        self._current = CurrentState(-1, {})
        self._unfenced: list[Route] = []
        self._queue: deque[events.Event] = deque()
        self._state = initial(slots=slots, silence_s=math.inf, now_s=0.0)
        self.connect()

    def __repr__(self) -> str:
        return f"{self.id}:{self.session:x}"

    @property
    def runs(self) -> bool:
        return not self.dead and not self.frozen

    @property
    def connected(self) -> bool:
        return self._fleet.store.alive(self.session)

    # The state machine and its engines.

    def _put(self, event: events.Event) -> None:
        """Step at once, or after the hang: the queue waits for the main loop."""
        self._queue.append(event)
        while self._queue and not self.hung:
            self._state, decided = step(self._state, self._queue.popleft())
            for instruction in decided:
                self._perform(instruction)

    def _perform(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartCopier(copier):
                self._queue.append(events.CopierConnected(copier))
            case instructions.ToCopier(copier, Add(epochs)):
                self.added |= {part: Added(copier, epoch) for part, epoch in epochs.items()}
            case instructions.ToCopier(copier, Remove(partitions)):
                self.removed |= dict.fromkeys(partitions, copier)
            case instructions.Fence(route, None):
                self._unfenced.append(route)
            case instructions.Publish(current):
                self._current = current
            case _:
                return  # the test decides when sessions and assignments are read

    def _tick(self) -> None:
        """Long enough for every change to be due for publication."""
        self._clock_s += 1.0
        self._put(events.Tick(self._clock_s))

    def _report(
        self, partition: Partition, state: PartitionState, *, reason: str = "", committed: int = -1
    ) -> None:
        report = PartitionReport(state, reason, committed=committed)
        copier = self.added[partition].copier
        self._put(events.FromCopier(copier, CopierReport({partition: report})))

    # Reads and writes of the store.

    def connect(self) -> None:
        """A new session and the live node; copying continues."""
        self.session = self._open_session()
        self._announce()
        self._put(events.SessionRestored(self.session))

    def _open_session(self) -> SessionId:
        return self._fleet.store.open_session()

    def _announce(self) -> None:
        """No live session may have the id."""
        self.register()

    def register(self) -> None:
        """The live node."""
        live = encode_live_worker(self._live)
        path = self._fleet.paths.worker_live(self.id)
        self._fleet.store.apply(self.session, [Create(path, live, ephemeral=True)])

    def announce(self, *, no_capacity: str = "", leaving: bool = False) -> None:
        """Write the live node again: the worker's Spark capacity changed, or it leaves."""
        live = encode_live_worker(replace(self._live, no_capacity=no_capacity, leaving=leaving))
        path = self._fleet.paths.worker_live(self.id)
        self._fleet.store.apply(self.session, [Set(path, live, -1)])

    def read(self) -> None:
        """Read the assignment."""
        node = self._fleet.store.node(self._fleet.paths.assignment(self.id))
        if node is not None:
            entries = decode_assignment(node.data).entries
            self._put(events.AssignmentChanged(entries, node.stat.mzxid))

    def publish(self) -> None:
        """Write the current state, if it differs from the node."""
        self._tick()
        path = self._fleet.paths.current_state(self.id)
        data = encode_current(self._current)
        before = self._fleet.store.node(path)
        write: list[Operation] = [Create(path, data, ephemeral=True)]
        if before is not None and before.stat.owner == self.session:
            if before.data == data:
                return
            write = [Set(path, data, before.stat.version)]
        elif before is not None:
            write.insert(0, Delete(path, before.stat.version))
        self._fleet.store.apply(self.session, write)

    def fence_former(self) -> None:
        """Initialise all ids that the worker ever had, where the state machine requested it."""
        while self._unfenced:
            route = self._unfenced.pop()
            for slot in range(max(self._noted_slots(), self.slots)):
                self._fleet.ledger.initialise(self._id_of(route, slot))
            self._put(events.Fenced(route))

    def _noted_slots(self) -> int:
        node = self._fleet.store.node(self._fleet.paths.worker_known(self.id))
        return decode_known_worker(node.data).max_slots if node else 0

    def _id_of(self, route: Route, slot: int) -> str:
        return transactional_id(fleet=self._fleet.name, route=route, worker=self.id, slot=slot)

    # The copiers.

    def start(self, partition: Partition) -> None:
        """Initialise the own id, then prove ownership in the store."""
        self.fence_former()
        added = self.added.get(partition)
        if added is None or partition in self.copies:
            return
        self._initialise(partition.route, added.copier)
        if self._proves(partition, added.owner_epoch):
            self.copies[partition] = Copy(added.copier, added.owner_epoch, "granted")

    def _initialise(self, route: Route, copier: CopierId) -> None:
        """Initialise the id, at the copier's start and after it was fenced.

        Everything copied under a fenced id must be proven again: the new epoch could commit it.
        """
        id = self._id_of(route, copier.slot)
        if not self._fleet.ledger.is_current(id, self._own.get(id)):
            self._own[id] = self._fleet.ledger.initialise(id)
            for partition in [part for part, copy in self.copies.items() if copy.copier == copier]:
                self.drop(partition, "fenced")

    def _proves(self, partition: Partition, owner_epoch: OwnerEpoch) -> bool:
        live = self._fleet.store.node(self._fleet.paths.worker_live(self.id))
        node = self._fleet.store.node(self._fleet.paths.assignment(self.id))
        entry = decode_assignment(node.data).entries.get(partition) if node else None
        if live is None or live.stat.owner != self.session or self._noted_slots() < self.slots:
            return False
        return entry is not None and entry.owner_epoch == owner_epoch

    def fence(self, partition: Partition) -> None:
        """Initialise the ids of former owners."""
        copy = self.copies.get(partition)
        entry = self._state.assignment.entries.get(partition)
        if copy is None or copy.stage != "granted":
            return
        if entry is None or entry.owner_epoch != copy.owner_epoch:
            return
        for id in entry.fence:
            self._fleet.ledger.initialise(id)
        copy.stage = "fenced"

    def position(self, partition: Partition) -> None:
        """Read the position and copy from there."""
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "fenced":
            return
        copy.stage = "copying"
        readers = self._fleet.readers
        readers[partition] = max(readers.get(partition, OwnerEpoch(0)), copy.owner_epoch)
        self._report(partition, PartitionState.ONLINE)

    def commit(self, partition: Partition) -> None:
        """Accepted unless fenced; a fenced process starts again with its proof."""
        copy = self.copies.get(partition)
        if copy is None or copy.stage != "copying":
            return
        if not self.can_commit(partition):
            self.drop(partition, "fenced")
            return
        if copy.owner_epoch < self._fleet.readers[partition]:
            raise InvariantViolated(
                f"{self!r} committed {partition} after a later owner read the position"
            )
        copy.committed = True
        self._fleet.commits.setdefault(partition, []).append(self.id)
        self._report(partition, PartitionState.ONLINE, committed=1)

    def can_commit(self, partition: Partition) -> bool:
        copy = self.copies.get(partition)
        if copy is None:
            return False
        id = self._id_of(partition.route, copy.copier.slot)
        return self._fleet.ledger.is_current(id, self._own.get(id))

    def drop(self, partition: Partition, reason: str) -> None:
        """Stop copying a partition until the next proof; the copier keeps the partition."""
        del self.copies[partition]
        if partition in self.added:
            self._report(partition, PartitionState.ERROR, reason=reason)

    def fail(self, partition: Partition, reason: str, *, local: bool = False) -> None:
        """The copier gives it up at a record or, `local`, since it lacks something here."""
        copier = self.added.pop(partition).copier
        self.copies.pop(partition, None)
        self._put(events.FromCopier(copier, Failed(partition, reason, False, local)))

    def succeed(self, partition: Partition) -> None:
        """The copier has passed what it failed at."""
        self._report(partition, PartitionState.ONLINE, committed=2)

    def release(self, partition: Partition) -> None:
        """Drain, commit and drop a partition that the state machine removed."""
        copier = self.removed.get(partition)
        if copier is not None:
            self.commit(partition)
            self._released(partition, copier)

    def _released(self, partition: Partition, copier: CopierId) -> None:
        self.copies.pop(partition, None)
        del self.removed[partition], self.added[partition]
        self._put(events.FromCopier(copier, Released((partition,))))

    # Complete rounds.

    def catch_up(self) -> None:
        """Everything a healthy worker does, completely."""
        if self.hung:
            self.commit_all()
            return
        if not self.connected:
            self.connect()
        self._fleet.register_again(self)
        self._tick()
        self.read()
        self.fence_former()
        for partition in sorted(self.added):
            for act in (self.release, self.start, self.fence, self.position, self.commit):
                act(partition)
        self.publish()

    def commit_all(self) -> None:
        """Commits of the copiers, without the main loop."""
        for partition in sorted(self.copies):
            self.commit(partition)
