"""One route of a copier process: the real `Holder`, `Committer`, `AtLeastOnce` and `Ownership`, over a lane
that counts.

    ownership  the thread that takes partitions over and commits
    starts     its second thread, which finds start positions at the source
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    Route,
    WorkerId,
    transactional_id,
)
from ureplicator_testkit.copier.stub_lane import StubLane
from ureplicator_testkit.simulation.judge import FLEET
from ureplicator_testkit.simulation.kafka import Kafka, Positions, Rank, SimulatedCluster
from ureplicator_testkit.simulation.kernel import Process
from ureplicator_worker.copier.commit_failures import CommitFailures
from ureplicator_worker.copier.commits import Commits
from ureplicator_worker.copier.gaps import Gaps
from ureplicator_worker.copier.holder import Holder
from ureplicator_worker.copier.messages import Command, OwnershipEvent
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.lifeline import messages

COMMIT_S = 1.5
BATCH = 5

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


class RouteCopier:
    """`send` delivers a message to the driver; `changed` lets the process's loop turn."""

    def __init__(
        self,
        process: Process,
        kafka: Kafka,
        *,
        route: Route,
        worker: WorkerId,
        slot: int,
        terms: Terms,
        send: Callable[[messages.Message], None],
        changed: Callable[[], None],
    ) -> None:
        self._world = kafka.world
        self._terms = terms
        self._changed = changed
        self._ranks: dict[Partition, Rank] = {}
        self._proven_at: dict[int, int] = {}
        self._events: deque[OwnershipEvent] = deque()
        self._commands: deque[Command] = deque()
        id = transactional_id(fleet=FLEET, route=route, worker=worker, slot=slot)
        self.positions = Positions(kafka, process, id, rank=self._rank, owns=self._owns)
        source, target = (
            SimulatedCluster(kafka, process, model) for model in (kafka.source, kafka.target)
        )
        self._ownership = SimulatedOwnership(
            queue=self._put,
            name=process.name,
            worker=worker,
            slot=slot,
            store=self.positions,
            source=source,
            target=target,
            post=self._post,
            count=Takeovers(self.positions, source=source, target=target),
            clock=self._world,
        )
        self.lane = CountingLane(kafka, process, self.positions)
        commits = Commits(
            route,
            lane=self.lane,
            ownership=self._ownership,
            commit_interval_s=COMMIT_S,
            transaction_interval_s=COMMIT_S,
            failures=CommitFailures(route, wall_ms=self._world.wall_ms),
        )
        self.holder = Holder(
            route,
            lane=self.lane,
            commits=commits,
            ownership=self._ownership,
            gaps=Gaps(
                lane=self.lane,
                ownership=self._ownership,
                send=send,
                wall_ms=self._world.wall_ms,
            ),
            send=send,
        )
        self._owner = process.actor(f"ownership of {route}", self._own)
        self._starter = process.actor(f"starts of {route}", self._find_starts)

    def work(self, now_s: float) -> None:
        """One turn of the loop."""
        self.holder.now_s = now_s
        while self._events:
            self.holder.on_ownership(self._events.popleft())
        self.lane.work(now_s)
        self.holder.work()

    def receive_proof(self, response: messages.ProofResponse, proven_at: int) -> None:
        """`proven_at`: when the proof was made."""
        self._proven_at[response.request_id] = proven_at
        self._put(response)

    def release_all(self) -> None:
        for partition in list(self.holder.owned):
            self.holder.remove(partition)

    def _rank(self, partition: Partition) -> Rank:
        return self._ranks.get(partition, (0, 0))

    def _owns(self, partition: Partition) -> bool:
        return self._ownership.may_commit(partition)

    # The thread of ownership.

    def _put(self, command: Command) -> None:
        self._commands.append(command)
        self._world.soon(self._owner)

    def _own(self) -> float | None:
        if not self._commands:
            self._ownership.step()
            return self._ownership.timeout_s()
        command = self._commands.popleft()
        if isinstance(command, messages.ProofResponse):
            self._note_proof(command)
        self._ownership.step(command)
        if self._ownership.source_side.pending:
            self._world.soon(self._starter)
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
        self._changed()
