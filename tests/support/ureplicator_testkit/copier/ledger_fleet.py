"""Copiers of several workers between two clusters in memory: real lanes, and the real order of ownership.

    LedgerFleet    the leader's writes (owners, epochs, whom to fence) and the drivers' proofs
    WorkerLine     one worker's copier: lane, holder and ownership thread are the product's
    ScriptedLedger transactional ids and positions at the target

The leader's rules are those of the product (`controller.core.planning.holders`): a partition is taken from
a live worker before it is given, and the next owner fences all that never confirmed its release. A frozen
worker does nothing until it is thawed; a killed one is replaced by a new process of the same name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.model import OwnerEpoch, Partition, PartitionState, RouteSettings
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.copier.line import ROUTE, CopierLine, records, seen
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.ledger import ScriptedLedger
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.messages import Command, Commit, OwnershipEvent
from ureplicator_worker.copier.ownership.target_check import CheckedTarget
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline.messages import (
    Failed,
    GapPassed,
    Grant,
    Message,
    ProofRequest,
    ProofResponse,
    Released,
)

BUFFER_BYTES = 1 << 20
COMMIT_INTERVAL_S = 0.2
TURNS = 1_500
"""Ten times as many as any history needs in the end."""


@dataclass
class MemoryTargetCheck:
    """`found`: what each check finds."""

    found: CheckedTarget = field(default_factory=CheckedTarget)

    def checked(self) -> CheckedTarget:
        return self.found


class SteppedOwnership(Ownership):
    """The ownership thread and the thread of its source's side, performed by the caller.

    `check`: of the target. `source_client`, `target_client`: their failures can be set. `hold`: kinds of
    commands that wait until `let_pass`.
    """

    def __init__(
        self,
        source: MemoryKafka,
        target: MemoryKafka,
        *,
        worker: str,
        ledger: ScriptedLedger,
        clock: ManualClock,
    ) -> None:
        self.events: Mailbox[OwnershipEvent] = Mailbox(lambda: None)
        self.hold: set[type[Command]] = set()
        self.held_back: deque[Command] = deque()
        self._queued: deque[Command] = deque()
        self.check = MemoryTargetCheck()
        store, clients = ledger.store(worker), (MemoryCluster(source), MemoryCluster(target))
        self.source_client, self.target_client = clients
        super().__init__(
            name=worker,
            worker=worker,
            slot=0,
            store=store,
            source=clients[0],
            target=clients[1],
            post=self.events.post,
            count=Takeovers(store, source=clients[0], target=clients[1]),
            check=self.check,
            clock=clock,
        )

    def put(self, command: Command) -> None:
        queue = self.held_back if type(command) in self.hold else self._queued
        queue.append(command)

    @property
    def commit_waits(self) -> bool:
        return any(isinstance(command, Commit) for command in self._queued)

    def let_pass(self) -> None:
        self.hold.clear()
        self._queued.extend(self.held_back)
        self.held_back.clear()

    def perform(self) -> None:
        """Everything that is queued or due."""
        self.step()
        while self._queued or self.source_side.pending:
            if self._queued:
                self.step(self._queued.popleft())
            else:
                self.source_side.step()

    def close(self) -> None:
        """Do nothing: there is no thread to end."""


class WorkerLine(CopierLine):
    """`epochs`: owner epochs of what it was sent. `removed`: what it was sent Remove for. `step_each`: turns
    between two steps of its ownership thread, which waits for coordinators. `aborts_next_commit`: its
    transaction is aborted while the thread has that commit still before it."""

    def __init__(
        self, name: str, source: MemoryKafka, target: MemoryKafka, ledger: ScriptedLedger
    ) -> None:
        self.name = name
        self.frozen = False
        self.step_each = 1
        self.aborts_next_commit = False
        self._turns = 0
        self.epochs: dict[Partition, OwnerEpoch] = {}
        self.removed: set[Partition] = set()
        self.failures: list[Failed] = []
        self._clock = ManualClock()
        self._slept_s = 0.0
        self.ownership = SteppedOwnership(
            source, target, worker=name, ledger=ledger, clock=self._clock
        )
        super().__init__(
            source,
            target,
            ownership=self.ownership,
            events=self.ownership.events,
            buffer_bytes=BUFFER_BYTES,
            commit_interval_s=COMMIT_INTERVAL_S,
        )

    def work(self, *, skip_s: float) -> None:
        self._slept_s += skip_s
        if self.frozen:
            return
        skip_s, self._slept_s = self._slept_s, 0.0
        self._clock.advance(skip_s)
        super().work(skip_s=skip_s)
        if self.aborts_next_commit and self.ownership.commit_waits:
            self.aborts_next_commit = False
            self.copier.holder.commits.abort("a partition was given up", self._clock.monotonic_s())
        self._turns += 1
        if self._turns % self.step_each == 0:
            self.ownership.perform()

    def take_messages(self) -> list[Message]:
        taken = list(self.sent)
        self.sent.clear()
        return taken


@dataclass
class Owner:
    """The leader's record of a partition. `wanted`: the worker that should have it. `holders`:
    processes that were given it and never confirmed the release."""

    wanted: str
    worker: str = ""
    epoch: OwnerEpoch = field(default_factory=lambda: OwnerEpoch(0))
    holders: list[WorkerLine] = field(default_factory=list)


class LedgerFleet:
    def __init__(
        self,
        source: MemoryKafka,
        target: MemoryKafka,
        *workers: str,
        settings: RouteSettings | None = None,
        ledger: ScriptedLedger | None = None,
    ) -> None:
        self.source, self.target = source, target
        self.settings = settings or RouteSettings()
        self.settings_version = 0
        self.ledger = ledger or ScriptedLedger()
        self.workers = {name: self._process(name) for name in workers}
        self.owners: dict[Partition, Owner] = {}
        self._killed: list[WorkerLine] = []
        self._before: dict[TargetPartition, Position] = {}

    def _process(self, name: str) -> WorkerLine:
        return WorkerLine(name, self.source, self.target, self.ledger)

    def give(self, number: int, worker: str, *, topic: str = "t") -> Partition:
        """The partition shall be this worker's, as soon as the former one has released it or is gone."""
        partition = Partition(ROUTE, topic, number)
        self.owners.setdefault(partition, Owner(worker)).wanted = worker
        return partition

    def kill(self, name: str) -> None:
        """Its process ends without a last commit; another one of the name begins."""
        former = self.workers[name]
        former.frozen = True
        former.close()
        self._killed.append(former)
        self.workers[name] = self._process(name)

    def turn(self, *, skip_s: float = 0.03) -> None:
        self.source.pump()
        self.target.pump()
        for worker in self.workers.values():
            worker.work(skip_s=skip_s)
            if not worker.frozen:
                self._lead(worker)
        for partition, owner in self.owners.items():
            self._assign(partition, owner)
        self.check_positions()

    def turns(self, count: int, *, skip_s: float = 0.03) -> None:
        for _ in range(count):
            self.turn(skip_s=skip_s)

    def run_until(self, reached: Callable[[], bool], *, turns: int = 500) -> None:
        """Turns of a millisecond, until it is reached."""
        for _ in range(turns):
            if reached():
                return
            self.turn(skip_s=0.001)
        raise AssertionError(f"not in {turns} turns")

    def run_until_copied(self, *, skip_s: float = 0.1) -> None:
        """Every partition is its wanted worker's, and all of it is committed."""
        for _ in range(TURNS):
            if all(self._is_copied(*owned) for owned in self.owners.items()):
                return
            self.turn(skip_s=skip_s)
        states = {name: line.copier.report() for name, line in self.workers.items()}
        raise AssertionError(f"not in {TURNS} turns: {states}")

    def _is_copied(self, partition: Partition, owner: Owner) -> bool:
        key = (partition.topic, partition.number)
        is_there = self.ledger.read(key).offset == self.source.logs[key].end
        return is_there and owner.worker == owner.wanted

    def _assign(self, partition: Partition, owner: Owner) -> None:
        """Take before give: live workers release it first."""
        if owner.holders != [self.workers.get(owner.worker)] and self._is_proven(partition, owner):
            owner.holders = [self.workers[owner.worker]]
        if owner.worker == owner.wanted:
            return
        owner.worker = ""
        live = [line for line in self.workers.values() if not line.frozen]
        target = self.workers[owner.wanted]
        if target.frozen or any(partition in line.copier.holder.owned for line in live):
            return
        owner.worker, owner.epoch = owner.wanted, OwnerEpoch(owner.epoch + 1)
        if target not in owner.holders:
            owner.holders.append(target)

    def _is_proven(self, partition: Partition, owner: Owner) -> bool:
        """The owner is ONLINE under its epoch, so all former ones are fenced."""
        worker = self.workers.get(owner.worker)
        if worker is None or worker.epochs.get(partition) != owner.epoch:
            return False
        report = worker.copier.report().get(partition)
        return report is not None and report.state is PartitionState.ONLINE

    def _lead(self, worker: WorkerLine) -> None:
        """Perform the work of the worker's driver: read, send and receive."""
        for message in worker.take_messages():
            self._receive(worker, message)
        for partition in list(worker.copier.holder.owned):
            if not self._owns(worker, partition) and partition not in worker.removed:
                worker.removed.add(partition)
                worker.copier.holder.remove(partition)
        for partition, owner in self.owners.items():
            if owner.worker == worker.name and partition not in worker.copier.holder.owned:
                worker.epochs[partition] = owner.epoch
                worker.add(partition.number, topic=partition.topic, epoch=owner.epoch)

    def _owns(self, worker: WorkerLine, partition: Partition) -> bool:
        owner = self.owners[partition]
        return owner.worker == worker.name and owner.epoch == worker.epochs.get(partition)

    def _receive(self, worker: WorkerLine, message: Message) -> None:
        match message:
            case ProofRequest(number, partitions):
                worker.copier.on_proof(self._prove(worker, number, partitions))
            case Released(partitions):
                for partition in partitions:
                    self._released(worker, partition)
            case Failed(partition):
                worker.failures.append(message)
                self._released(worker, partition)
            case GapPassed():
                pass
            case _:
                raise AssertionError(message)

    def _released(self, worker: WorkerLine, partition: Partition) -> None:
        worker.removed.discard(partition)
        owner = self.owners[partition]
        if owner.worker != worker.name and worker in owner.holders:
            owner.holders.remove(worker)

    def _prove(
        self, worker: WorkerLine, number: int, partitions: Mapping[Partition, OwnerEpoch]
    ) -> ProofResponse:
        granted: dict[Partition, Grant] = {}
        refused: dict[Partition, str] = {}
        for partition, epoch in partitions.items():
            owner = self.owners[partition]
            if (owner.worker, owner.epoch) == (worker.name, epoch):
                fence = {line.name for line in owner.holders} - {worker.name}
                granted[partition] = Grant(
                    epoch,
                    partition.topic,
                    fence=tuple(sorted(fence)),
                    settings=self.settings,
                    settings_version=self.settings_version,
                )
            else:
                refused[partition] = "not assigned to this worker any more"
        return ProofResponse(number, granted, refused)

    def check_positions(self) -> None:
        """None goes back, and none passes what the target holds."""
        for key, position in self.ledger.positions.items():
            before = self._before.get(key)
            if position == before:
                continue
            assert before is None or position.offset >= before.offset, (key, before, position)
            self._before[key] = position
            there = set(seen(records(self.target, key)))
            due = [row for row in records(self.source, key) if row.offset < position.offset]
            assert there.issuperset(seen(due)), (key, position)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.source.close()
        self.target.close()


def put(
    fleet: LedgerFleet,
    number: int,
    count: int,
    *,
    size: int = 1,
    topic: str = "t",
    time_ms: int = 0,
    key: Callable[[], bytes | None] = lambda: None,
) -> None:
    """Batches of one record each, which names its partition and offset. `size`: of the value, in such names;
    other values than the shortest are compressed, so that large batches are not merged."""
    log = fleet.source.logs[topic, number]
    for _ in range(count):
        name = b"%s/%d/%d " % (topic.encode(), number, log.end)
        value = name + batches.incompressible(name, len(name) * (size - 1))
        log.put(
            batches.batch(
                [(time_ms, key(), value, ())], codec=batches.ZSTD if size > 1 else batches.NONE
            )
        )
