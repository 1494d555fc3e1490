"""Copier process: the real `Holder`, `Committer`, `AtLeastOnce` and `Ownership`, over a lane that counts.

    loop       follows the driver, copies a few records, commits at an interval, reports
    ownership  the thread that takes partitions over and commits
    starts     its second thread, which finds start positions at the source

The loop follows `ureplicator_worker.copier.route_copier` and `task` (the end). A commit that a dead copier
has in flight is left out: the transaction is open or complete, and positions are only read when stable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ureplicator_common.model import (
    Delivery,
    OwnerEpoch,
    Partition,
    WorkerId,
    transactional_id,
)
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_testkit.simulation.judge import FLEET, ROUTE
from ureplicator_testkit.simulation.kafka import Kafka, Positions, Rank, SimulatedCluster
from ureplicator_testkit.simulation.kernel import Process
from ureplicator_worker.copier.commit_failures import CommitFailures
from ureplicator_worker.copier.committer import Committer
from ureplicator_worker.copier.delivery import AtLeastOnce
from ureplicator_worker.copier.gaps import Gaps
from ureplicator_worker.copier.holder import Holder
from ureplicator_worker.copier.ownership.protocol import (
    Command,
    OwnershipEvent,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.lifeline import messages

TURN_S = 0.7
COMMIT_S = 1.5
STOP_TIMEOUT_S = 15.0
BATCH = 5
REPORT_S = 3.0

Terms = Callable[[Partition, OwnerEpoch], int]
"""Number of the change of owner that made the worker the owner with that owner epoch."""


class CountingLane(StubLane):
    """Copies a few records of each partition a turn; the target acknowledges them at once."""

    def __init__(self, kafka: Kafka, process: Process, positions: Positions) -> None:
        super().__init__()
        self._kafka, self._process, self._positions = kafka, process, positions

    def begin(self, partition: Partition, grant: messages.Grant, beginning: StartPosition) -> None:
        super().begin(partition, grant, beginning)
        self._positions.begun[partition] = beginning.position

    def work(self, now_s: float) -> None:
        for partition in list(self.position):
            if partition not in self.finished | self.suspended:
                self._copy(partition)

    def _copy(self, partition: Partition) -> None:
        log = self._kafka.source.logs[partition.topic, partition.number]
        position = self.position[partition]
        count = min(BATCH, log.end - position)
        if count > 0:
            self._process.point("produce")
            self._kafka.append(self._positions, partition, position, count)
            self.position[partition] = self.end[partition] = position + count


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
        self.lane = CountingLane(kafka, self, self.positions)
        committer = Committer(
            ROUTE,
            delivery=AtLeastOnce(interval_s=COMMIT_S),
            lane=self.lane,
            ownership=self._ownership,
            failures=CommitFailures(ROUTE, wall_ms=self.world.wall_ms),
        )
        self._holder = Holder(
            ROUTE,
            lane=self.lane,
            committers={Delivery.AT_LEAST_ONCE: committer},
            ownership=self._ownership,
            gaps=Gaps(
                lane=self.lane,
                ownership=self._ownership,
                send=self._send_to_driver,
                wall_ms=self.world.wall_ms,
            ),
            send=self._send_to_driver,
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
            self._holder.on_ownership(self._events.popleft())
        self.lane.work(self.world.now_s)
        self._holder.work(self.world.now_s)
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
        return not self._holder.owned or self.world.now_s > self._stop_by_s

    def _send_to_driver(self, message: messages.Message) -> None:
        if self.lifeline:
            self._deliver(message)

    def _handle_message(self, message: messages.Message) -> None:
        match message:
            case messages.Add(partitions):
                self._holder.add(partitions)
            case messages.Remove(partitions):
                for partition in partitions:
                    self._holder.remove(partition)
            case messages.ProofResponse():
                self._put(message)
            case messages.Stop():
                self._stop()

    def _stop(self) -> None:
        if self._stop_by_s is None:
            self._stop_by_s = self.world.now_s + STOP_TIMEOUT_S
            for partition in list(self._holder.owned):
                self._holder.remove(partition)

    def _report(self) -> dict[Partition, messages.PartitionReport]:
        """Without figures, which change at each turn."""
        return {
            partition: messages.PartitionReport(
                each.state, each.reason, committed=min(each.committed, 0)
            )
            for partition, each in self._holder.report().items()
        }
