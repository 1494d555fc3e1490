"""The right to copy: one thread per route goes through the order of `kafka.positions`, and commits.

    Start ----> (1) initialise own id --> (2) request ==driver==> proof --> (3) fence --> (4) read --> Begin
                     ^                                                               |
                     |  fenced, refused, or an answer missing                        v
                     +--------------------------------------------------- Commit <-- copying (5)

Everything here blocks; the data loop does not. They talk by events: the loop puts commands into the
queue of this thread, this thread posts events into the loop's mailbox. Commits go one at a time.

While the id must be initialised again, copying goes on if only an answer was missing: data needs no
ownership in this lane, and what is copied twice is bounded by the next proof. If the id was *fenced*,
somebody else took something over: the loop suspends every partition until the driver's proof is back.
A partition whose stored position is not what we last committed was copied by somebody in between: it
starts again from the store.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import (
    COMMAND_S,
    CommitRefused,
    Fenced,
    PositionStore,
    Provenance,
    init_producer,
)
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_worker.copier.beginning import Commitment
from ureplicator_worker.copier.ownership_protocol import (
    Begun,
    ClusterError,
    Command,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
    Forget,
    Forgotten,
    Locate,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipCrashed,
    OwnershipEvent,
    OwnershipRefused,
    ProducerReady,
    ProofRequested,
    Start,
    StartFailed,
)
from ureplicator_worker.copier.start_position import (
    CannotStart,
    at,
    begin,
    look_around,
    policy_time,
    source_offset,
)
from ureplicator_worker.lifeline.messages import Grant, ProofResponse

RETRY_S = 0.5


class Ownership:
    """`put` returns at once; answers come through `post`.

    `start` makes the thread; without it somebody else calls `turn`, whenever `patience_s` is over.
    """

    def __init__(
        self,
        *,
        name: str,
        worker: str,
        slot: int,
        store: PositionStore,
        source: ClusterClient,
        target: ClusterClient,
        post: Callable[[OwnershipEvent], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._worker = worker
        self._slot = slot
        self._store = store
        self._source = source
        self._target = target
        self._post = post
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._initialised = False
        self._proven = False
        self._waiting: dict[Partition, OwnerEpoch] = {}
        self._held: dict[Partition, OwnerEpoch] = {}
        self._attempted: dict[Partition, set[int]] = {}
        self._request = 0
        self._asked = False
        self._asked_for: dict[Partition, OwnerEpoch] = {}
        self._retry_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"ownership-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, command: Command) -> None:
        """None ends the thread."""
        self._commands.put(command)

    def close(self) -> None:
        self.put(None)
        self._thread.join(timeout=20.0)
        self._source.close()
        self._target.close()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # nobody else would ever hear of it
            self._post(OwnershipCrashed(error))

    def _serve(self) -> None:
        while True:
            try:
                command = self._commands.get(timeout=self.patience_s())
            except queue.Empty:
                self.turn()
                continue
            if command is None:
                return
            self.turn(command)

    def turn(self, *commands: Command) -> None:
        """Obey, then go on with what is due."""
        try:
            for command in commands:
                self._perform(command)
        except ClusterUnavailable as error:
            self._trouble(error)
        self._advance()

    def patience_s(self) -> float | None:
        """Until the next try; for ever while there is nothing to try."""
        if not self._needs_proof():
            return None
        return max(0.01, self._retry_at_s - self._clock.monotonic_s())

    def _needs_proof(self) -> bool:
        missing = bool(self._waiting) or (not self._proven and bool(self._held))
        return missing and not self._asked

    def _trouble(self, error: ClusterUnavailable) -> None:
        self._retry_at_s = self._clock.monotonic_s() + min(RETRY_S, error.delay_s)
        self._post(ClusterError(str(error)))

    def _advance(self) -> None:
        """Steps (1) and (2), as far as they are due."""
        if not self._needs_proof() or self._clock.monotonic_s() < self._retry_at_s:
            return
        asked_for = dict(self._waiting)
        try:
            if not self._initialised:
                with at("target"):
                    self._store.initialise()
                self._initialised = True
            if not self._proven:
                asked_for |= self._held
        except ClusterUnavailable as error:
            self._trouble(error)
            return
        self._request += 1
        self._asked = True
        self._asked_for = asked_for
        self._post(ProofRequested(self._request, asked_for))

    def _perform(self, command: Command) -> None:
        match command:
            case Start(partitions):
                self._waiting.update(partitions)
            case Forget(partition):
                self._forget(partition)
                self._post(Forgotten(partition))
            case ProofResponse():
                self._on_go(command)
            case Commit(positions):
                self._commit({part: positions[part] for part in positions if part in self._held})
            case NewProducer():
                self._new_producer()
            case Locate(partition, grant):
                self._locate(partition, grant)
            case _:
                raise AssertionError(command)

    def _forget(self, partition: Partition) -> None:
        self._waiting.pop(partition, None)
        self._held.pop(partition, None)
        self._attempted.pop(partition, None)

    def _on_go(self, go: ProofResponse) -> None:
        """Steps (3) and (4) for what was granted."""
        if go.request_id != self._request:
            return
        self._asked = False
        for partition, reason in go.refused.items():
            if self._still_asked(partition):
                self._forget(partition)
                self._post(OwnershipRefused(partition, reason))
        granted = {
            partition: grant
            for partition, grant in go.granted.items()
            if self._still_asked(partition)
        }
        if not granted or not self._initialised:
            return
        with at("target"):
            self._store.fence(sorted({id for grant in granted.values() for id in grant.fence}))
            stored = self._store.read(_by_topic(granted))
        self._proven = True
        self._settle_held(granted, stored)
        self._begin_waiting(granted, stored)

    def _still_asked(self, partition: Partition) -> bool:
        """Not let go since, nor given to us anew: that is another question."""
        epoch = self._waiting.get(partition, self._held.get(partition))
        return epoch is not None and epoch == self._asked_for.get(partition)

    def _settle_held(
        self,
        granted: Mapping[Partition, Grant],
        stored: Mapping[tuple[str, int], Position],
    ) -> None:
        for partition, grant in granted.items():
            if partition not in self._held:
                continue
            offset = stored[(grant.target_topic, partition.number)].offset
            if offset in self._attempted.get(partition, {-1}):
                self._post(OwnershipConfirmed(partition))
            else:
                self._forget(partition)
                self._post(
                    StartFailed(partition, f"somebody else moved the position to {offset}", True)
                )

    def _begin_waiting(
        self,
        granted: Mapping[Partition, Grant],
        stored: Mapping[tuple[str, int], Position],
    ) -> None:
        starting = {part: grant for part, grant in granted.items() if part in self._waiting}
        if not starting:
            return
        around = look_around(starting, source=self._source, target=self._target)
        begun: dict[Partition, Begun] = {}
        for partition, grant in starting.items():
            position = stored[(grant.target_topic, partition.number)]
            try:
                beginning = begin(partition, grant, position, around=around, source=self._source)
            except CannotStart as error:
                self._forget(partition)
                self._post(StartFailed(partition, str(error), error.temporary))
            except PartitionUnavailable as error:  # the others need not wait for it
                self._forget(partition)
                self._post(StartFailed(partition, str(error), True))
            else:
                begun[partition] = Begun(partition, grant, beginning)
        self._fix_new_positions(begun)
        for partition, event in begun.items():
            self._held[partition] = self._waiting.pop(partition)
            self._attempted.setdefault(partition, set()).add(event.beginning.position)
            self._post(event)

    def _fix_new_positions(self, begun: Mapping[Partition, Begun]) -> None:
        """Commit a first position before the first byte: a second start must not choose another."""
        fresh = {
            partition: Commitment(
                event.beginning.position, event.beginning.leader_epoch, event.grant, event.beginning
            )
            for partition, event in begun.items()
            if event.beginning.committed != event.beginning.position
        }
        if fresh:
            self._commit(fresh)
            if not self._proven:
                raise ClusterUnavailable("target: first positions could not be committed")

    def _commit(self, positions: Mapping[Partition, Commitment]) -> None:
        if not self._proven:
            self._post(CommitFailed("the proof that we are still the owner is due"))
            return
        if not positions:
            self._post(Committed({}))
            return
        by_target = {
            (item.grant.target_topic, partition.number): partition
            for partition, item in positions.items()
        }
        for partition, item in positions.items():
            self._attempted.setdefault(partition, set()).add(item.position)
        try:
            with at("target"):
                self._store.commit(
                    {
                        target: self._position(positions[partition])
                        for target, partition in by_target.items()
                    }
                )
        except Fenced:
            self._begin_anew()
            self._post(FencedOut())
        except CommitRefused as error:
            self._begin_anew()
            for target, code in error.refused.items():
                self._forget(by_target[target])
                self._post(StartFailed(by_target[target], refusal(target[0], code), True))
            self._post(CommitFailed(str(error)))
        except ClusterUnavailable as error:
            self._begin_anew()
            self._post(CommitFailed(str(error)))
            self._trouble(error)
        else:
            self._attempted.update({part: {item.position} for part, item in positions.items()})
            self._post(Committed(positions))

    def _begin_anew(self) -> None:
        """Nothing may be committed before the order was gone through again."""
        self._initialised = self._proven = False

    def _position(self, item: Commitment) -> Position:
        return Position(
            offset=item.position,
            leader_epoch=item.leader_epoch,
            metadata=Provenance(
                source_cluster=item.beginning.source_cluster,
                source_topic=item.beginning.source_topic_id,
                target_topic=item.beginning.target_topic_id,
                worker=self._worker,
                slot=self._slot,
                owner_epoch=item.grant.owner_epoch,
            ).encode(),
        )

    def _new_producer(self) -> None:
        try:
            with at("target"), self._target.within(COMMAND_S):
                self._post(ProducerReady(init_producer(self._target, None)))
        except ClusterUnavailable as error:
            self._post(ClusterError(str(error)))
            time.sleep(min(RETRY_S, error.delay_s))
            self.put(NewProducer())

    def _locate(self, partition: Partition, grant: Grant) -> None:
        try:
            offset = source_offset(partition, self._source, policy_time(grant.settings.on_gap))
            self._post(Located(partition, offset))
        except ClusterUnavailable as error:
            self._post(StartFailed(partition, str(error), True))


def _by_topic(granted: Mapping[Partition, Grant]) -> dict[str, list[int]]:
    wanted: dict[str, list[int]] = {}
    for partition, grant in granted.items():
        wanted.setdefault(grant.target_topic, []).append(partition.number)
    return wanted


def refusal(target_topic: str, code: str) -> str:
    """A coordinator's word that would be read as the source's, said for people."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
        return f"target topic {target_topic} was deleted, or has not this partition"
    return f"position refused: {code}"
