"""Copier process: the real `Ownership`, and a simplified data path.

    loop       follows the driver, copies a few records, commits at an interval, reports
    ownership  the thread that takes partitions over and commits
    starts     its second thread, which finds start positions at the source

The loop follows `ureplicator_worker.copier.route_copier` (phases, suspension, draining, messages) and
`task` (the end). A commit that a dead copier has in flight is left out: the transaction is open or
complete, and positions are only read when stable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    WorkerId,
    transactional_id,
)
from ureplicator_testkit.simulation.judge import FLEET, ROUTE
from ureplicator_testkit.simulation.kafka import Kafka, Positions, Rank, SimulatedCluster
from ureplicator_testkit.simulation.kernel import Process
from ureplicator_worker.copier.ownership.protocol import (
    Begun,
    ClusterError,
    Command,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
    Forget,
    Forgotten,
    OwnershipConfirmed,
    OwnershipEvent,
    OwnershipRefused,
    ProofRequested,
    Start,
    StartFailed,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.lifeline import messages

TURN_S = 0.7
COMMIT_S = 1.5
COMMIT_RETRY_S = 0.2
DRAIN_S = 10.0
STOP_TIMEOUT_S = 15.0
BATCH = 5
REPORT_S = 3.0

Terms = Callable[[Partition, OwnerEpoch], int]
"""Number of the change of owner that made the worker the owner with that owner epoch."""


@dataclass(slots=True, eq=False)
class Copy:
    """One partition being copied: `position` is what the target has acknowledged."""

    partition: Partition
    begun: Begun
    position: int
    committed: int
    draining_until_s: float | None = None
    suspended: bool = False
    fetched: bool = False
    failure: tuple[str, bool] | None = None


class SimulatedOwnership(Ownership):
    """The caller takes the commands (`queue`) and performs the steps."""

    def __init__(self, *, queue: Callable[[Command], None], **about: Any) -> None:
        self._queue = queue
        super().__init__(**about)

    def put(self, command: Command) -> None:
        self._queue(command)


class Copier(Process):
    """`send` delivers a message to the driver; `ended` reports that the lifeline is closed."""

    def __init__(
        self,
        kafka: Kafka,
        *,
        name: str,
        worker: WorkerId,
        slot: int,
        terms: Terms,
        send: Callable[[messages.Message], None],
        ended: Callable[[str], None],
    ) -> None:
        super().__init__(kafka.world, name)
        self._kafka = kafka
        self._terms = terms
        self._ranks: dict[Partition, Rank] = {}
        self._proven_at: dict[int, int] = {}
        self._deliver, self._ended = send, ended
        self.lifeline = True
        self._inbox: deque[messages.Message] = deque()
        self._events: deque[OwnershipEvent] = deque()
        self._commands: deque[Command] = deque()
        self._starting: dict[Partition, OwnerEpoch] = {}
        self._releasing: dict[Partition, messages.Message] = {}
        self.copies: dict[Partition, Copy] = {}
        self._trouble = ""
        self._committing = False
        self._commit_at_s = self._again_at_s = 0.0
        self._stop_by_s: float | None = None
        self._reported: dict[Partition, messages.PartitionReport] = {}
        self._report_at_s = 0.0
        id = transactional_id(fleet=FLEET, route=ROUTE, worker=worker, slot=slot)
        self.positions = Positions(kafka, self, id, rank=self._rank, owns=self._owns)
        self._ownership = SimulatedOwnership(
            queue=self._put,
            name=name,
            worker=worker,
            slot=slot,
            store=self.positions,
            source=SimulatedCluster(kafka, self, kafka.source),
            target=SimulatedCluster(kafka, self, kafka.target),
            post=self._post,
            clock=self.world,
        )
        self._loop = self.actor("loop", self._turn)
        self._owner = self.actor("ownership", self._own)
        self._starter = self.actor("starts", self._find_starts)
        self.world.soon(self._loop)

    def _rank(self, partition: Partition) -> Rank:
        return self._ranks.get(partition, (0, 0))

    def _owns(self, partition: Partition) -> bool:
        return self._ownership.may_commit(partition)

    def receive(self, message: messages.Message) -> None:
        """A message from the driver."""
        self._inbox.append(message)
        self.world.soon(self._loop)

    def receive_proof(self, response: messages.ProofResponse, proven_at: int) -> None:
        """`proven_at`: when the proof was made."""
        self._proven_at[response.request_id] = proven_at
        self.receive(response)

    def driver_gone(self) -> None:
        self.lifeline = False
        self.world.soon(self._loop)

    def died(self) -> None:
        self.positions.close()
        self._ended("its process is gone")

    # The thread of ownership.

    def _put(self, command: Command) -> None:
        self._commands.append(command)
        self.world.soon(self._owner)

    def _own(self) -> float | None:
        if not self._commands:
            self._ownership.step()
            return self._ownership.timeout_s()
        command = self._commands.popleft()
        if isinstance(command, messages.ProofResponse):
            self._note_proof(command)
        self._ownership.step(command)
        if self._ownership.source_side.pending:
            self.world.soon(self._starter)
        return 0.0 if self._commands else self._ownership.timeout_s()

    def _find_starts(self) -> float | None:
        """The thread of the source's side."""
        self._ownership.source_side.step()
        return 0.0 if self._ownership.source_side.pending else None

    def _note_proof(self, response: messages.ProofResponse) -> None:
        proven_at = self._proven_at.pop(response.request_id)
        for partition, grant in response.granted.items():
            self._ranks[partition] = (self._terms(partition, grant.owner_epoch), proven_at)
            self.positions.partitions[grant.target_topic, partition.number] = partition

    def _post(self, event: OwnershipEvent) -> None:
        self._events.append(event)
        self.world.soon(self._loop)

    # The loop.

    def _turn(self) -> float | None:
        if not self.lifeline:
            self._stop()
        while self._inbox:
            self._handle_message(self._inbox.popleft())
        while self._events:
            self._handle_event(self._events.popleft())
        self._work()
        self._send_report()
        if self._is_done():
            self.kill("stop requested")
            return None
        return TURN_S

    def _send_report(self) -> None:
        """A changed report at once, and all of it periodically: the driver detects silence."""
        report, now_s = self._report(), self.world.now_s
        if report != self._reported or now_s >= self._report_at_s:
            self._reported, self._report_at_s = report, now_s + REPORT_S
            self._send_to_driver(messages.CopierReport(report))

    def _is_done(self) -> bool:
        if self._stop_by_s is None:
            return False
        held = self._starting or self.copies or self._releasing
        return not held or self.world.now_s > self._stop_by_s

    def _send_to_driver(self, message: messages.Message) -> None:
        if self.lifeline:
            self._deliver(message)

    def _handle_message(self, message: messages.Message) -> None:
        match message:
            case messages.Add(partitions):
                self._add(partitions)
            case messages.Remove(partitions):
                for partition in partitions:
                    self._remove(partition)
            case messages.ProofResponse():
                self._put(message)
            case messages.Stop():
                self._stop()

    def _add(self, partitions: Mapping[Partition, OwnerEpoch]) -> None:
        new = {part: epoch for part, epoch in partitions.items() if part not in self.copies}
        self._starting.update(new)
        if new:
            self._put(Start(new))

    def _remove(self, partition: Partition) -> None:
        copy = self.copies.get(partition)
        if copy is None:
            self._starting.pop(partition, None)
            self._forget(partition, messages.Released((partition,)))
        else:
            copy.failure = None
            self._drain(copy)

    def _drain(self, copy: Copy) -> None:
        if copy.draining_until_s is None:
            copy.draining_until_s = self.world.now_s + DRAIN_S

    def _stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = self.world.now_s + STOP_TIMEOUT_S
            for partition in [*self._starting, *self.copies]:
                self._remove(partition)

    def _work(self) -> None:
        for copy in list(self.copies.values()):
            if self.copies.get(copy.partition) is copy and copy.draining_until_s is None:
                self._copy_some(copy)
        now_s = self.world.now_s
        drained = [copy for copy in self.copies.values() if copy.draining_until_s is not None]
        for copy in drained:
            if copy.committed == copy.position or now_s > (copy.draining_until_s or 0.0):
                self._release(copy)
        waiting = len(drained) > 0 and now_s >= self._again_at_s
        if now_s >= self._commit_at_s or waiting:
            self._commit()

    def _copy_some(self, copy: Copy) -> None:
        log = self._kafka.source.logs[copy.partition.topic, copy.partition.number]
        copy.fetched = True
        count = min(BATCH, log.end - copy.position)
        if count <= 0 or copy.suspended:
            return
        self.point("produce")
        self._kafka.append(self.positions, copy.partition, copy.position, count)
        copy.position += count

    def _commit(self) -> None:
        self._commit_at_s = self.world.now_s + COMMIT_S
        if self._committing:
            return
        due = {
            copy.partition: Commitment(copy.position, 0, copy.begun.grant, copy.begun.beginning)
            for copy in self.copies.values()
            if not copy.suspended and copy.position != copy.committed
        }
        if due:
            self._committing = True
            self._put(Commit(due))

    def _release(self, copy: Copy) -> None:
        del self.copies[copy.partition]
        failure = copy.failure
        self._forget(
            copy.partition,
            messages.Failed(copy.partition, *failure)
            if failure
            else messages.Released((copy.partition,)),
        )

    def _forget(self, partition: Partition, message: messages.Message) -> None:
        if partition not in self._releasing:
            self._put(Forget(partition))
        self._releasing[partition] = message

    def _handle_event(self, event: OwnershipEvent) -> None:
        match event:
            case ProofRequested(request, partitions):
                self._send_to_driver(messages.ProofRequest(request, partitions))
            case Begun(partition):
                self._begin(partition, event)
            case OwnershipConfirmed(partition):
                self._trouble = ""
                if partition in self.copies:
                    self.copies[partition].suspended = False
            case OwnershipRefused(partition, reason):
                self._end(partition, reason, temporary=True)
            case StartFailed(partition, reason, temporary):
                self._end(partition, reason, temporary)
            case Forgotten(partition):
                message = self._releasing.pop(partition, None)
                if message is not None:
                    self._send_to_driver(message)
            case Committed(positions):
                self._committed(positions)
            case CommitFailed():
                self._committing = False
                self._again_at_s = self.world.now_s + COMMIT_RETRY_S
            case FencedOut():
                self._committing = False
                for copy in self.copies.values():
                    copy.suspended = True
            case ClusterError(reason):
                self._trouble = reason

    def _begin(self, partition: Partition, event: Begun) -> None:
        self._trouble = ""
        if self._starting.pop(partition, None) is None:
            return
        position = event.beginning.position
        self.positions.begun[partition] = position
        self.copies[partition] = Copy(partition, event, position, position)

    def _end(self, partition: Partition, reason: str, temporary: bool) -> None:
        copy = self.copies.get(partition)
        if copy is not None:
            if copy.draining_until_s is None:
                copy.failure = (reason, temporary)
            self._release(copy)
        elif self._starting.pop(partition, None) is not None:
            self._forget(partition, messages.Failed(partition, reason, temporary))

    def _committed(self, positions: Mapping[Partition, Commitment]) -> None:
        self._trouble = ""
        self._committing = False
        for partition, item in positions.items():
            if partition in self.copies:
                self.copies[partition].committed = item.position

    def _report(self) -> dict[Partition, messages.PartitionReport]:
        waiting = PartitionState.ERROR if self._trouble else PartitionState.OFFLINE
        reports = {
            partition: messages.PartitionReport(waiting, self._trouble or "starting")
            for partition in self._starting
        }
        for partition, copy in self.copies.items():
            state, reason = self._state(copy)
            reports[partition] = messages.PartitionReport(
                state, reason, committed=min(copy.committed, 0)
            )
        return reports

    def _state(self, copy: Copy) -> tuple[PartitionState, str]:
        if copy.draining_until_s is not None:
            return PartitionState.OFFLINE, "stopping"
        if self._trouble or copy.suspended:
            return PartitionState.ERROR, self._trouble or "fenced: waiting for the proof"
        if copy.fetched:
            return PartitionState.ONLINE, ""
        return PartitionState.OFFLINE, "starting: waiting for the first response"
