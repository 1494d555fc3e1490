"""The right to copy: one thread per route goes through the order of `kafka.positions`, and commits.

    Add -----> (1) initialise own id ---> (2) request ==driver==> proof ---> (3) fence ---> (4) read
                     ^                                                                       | Begun
                     |  fenced, refused, or a response missing                               v
                     +----------------------------------------------------- Commit <--- (5) copying

Everything here blocks; the data loop does not: it puts commands into this thread's queue, and gets events by
its mailbox (`copier.messages`). Commits go one at a time; `proof_order` decides which step comes next. What a
start needs from the source is found by another thread (`source_side`), so commits never wait for the source.

While the id must be initialised again, copying goes on if only a response was missing: what is copied twice
is bounded by the next proof. If the id was *fenced*, another owner took something over: the loop suspends all
partitions until the driver's proof is back. One whose stored position is none that we committed had another
owner in between: it starts again from the store.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar, assert_never

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.list_offsets import by_topic
from ureplicator_common.kafka.map_log import MapLog
from ureplicator_common.kafka.positions import COMMAND_S, CommitRefused, PositionStore
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.position_rows import readable, unreadable
from ureplicator_common.model import Partition
from ureplicator_worker.copier.behind import CountBehind
from ureplicator_worker.copier.messages import (
    SOURCE,
    TARGET,
    Abort,
    Begun,
    ClusterError,
    Command,
    Commit,
    CommitFailed,
    Committed,
    ControlRecordsWritten,
    FencedOut,
    FindStarts,
    Forget,
    Forgotten,
    Join,
    Locate,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipCrashed,
    OwnershipEvent,
    ProducerForgotten,
    SourceFailed,
    StartsFound,
    WriteControlRecords,
)
from ureplicator_worker.copier.ownership.data_producers import DataProducers, producer_name
from ureplicator_worker.copier.ownership.gap_transactions import GapTransactions
from ureplicator_worker.copier.ownership.joining import join
from ureplicator_worker.copier.ownership.map_commits import MapCommits
from ureplicator_worker.copier.ownership.missing_markers import MissingMarkers
from ureplicator_worker.copier.ownership.position_records import (
    Records,
    bound_to,
    first_commitment,
    is_first,
    is_transactional,
    not_shown,
    position_records,
    target_key,
)
from ureplicator_worker.copier.ownership.producer_ids import ProducerIds
from ureplicator_worker.copier.ownership.proof_order import OrderState, ProofOrder
from ureplicator_worker.copier.ownership.renewals import Renewals
from ureplicator_worker.copier.ownership.source_side import SourceSide
from ureplicator_worker.copier.ownership.target_check import CheckTarget
from ureplicator_worker.copier.ownership.transactional import TransactionalDelivery
from ureplicator_worker.copier.ownership.trials import FIRST, Trials
from ureplicator_worker.copier.position_values import Commitment, StartPosition
from ureplicator_worker.copier.same_start import with_same_offsets
from ureplicator_worker.copier.start_position import (
    CannotStart,
    Disagrees,
    cluster_errors_named,
    read_target,
)
from ureplicator_worker.lifeline.messages import Add, Failed, Grant, ProofResponse

RETRY_S = 0.5
T = TypeVar("T")


class Ownership:
    """`put` returns at once; results come through `post`. Without `start` there is no thread: the caller
    calls `step`, whenever `timeout_s` is over."""

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
        count: CountBehind,
        map_log: MapLog | None = None,
        check: CheckTarget | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._written = partial(position_records, worker=worker, slot=slot)
        self._store, self._target, self._post = store, target, post
        self.source_side = SourceSide(
            name=name, source=source, put=self.put, post=post, count=count
        )
        self._producer_ids = ProducerIds(target, post)
        self._count = count
        new_name = partial(producer_name, worker, slot)
        self._data = DataProducers(store, new_name, check=check, clock=self._clock)
        self._gap_transactions = GapTransactions(store, new_name, clock=self._clock)
        self._renewals = Renewals()
        self._markers = MissingMarkers()
        self._maps = MapCommits(map_log)
        self._gaps: dict[Partition, Locate] = {}
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._order = ProofOrder()
        self._retry_at_s = 0.0
        self._transactions = TransactionalDelivery()
        self._renewing: frozenset[Partition] = frozenset()
        self._trials = Trials()
        self._thread = threading.Thread(target=self._run, name=f"ownership-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.source_side.start()

    def put(self, command: Command) -> None:
        """None ends the thread."""
        self._commands.put(command)

    def close(self) -> None:
        self.put(None)
        self._thread.join(timeout=20.0)
        self.source_side.close()
        self._target.close()

    def may_commit(self, partition: Partition) -> bool:
        """True as far as this thread knows; the coordinator decides."""
        return self._order.may_commit(partition)

    def _run(self) -> None:
        try:
            while True:
                try:
                    command = self._commands.get(timeout=self.timeout_s())
                except queue.Empty:
                    self.step()
                    continue
                if command is None:
                    return
                self.step(command)
        except Exception as error:  # a thread's error is seen only if it is posted
            self._post(OwnershipCrashed(error))

    def step(self, *commands: Command) -> None:
        """Perform commands, then request the proof and a producer id if they are due."""
        try:
            for command in commands:
                self._perform(command)
            for partition in self._data.renew(self._clock.monotonic_s()):
                self._post(ProducerForgotten(partition))
        except ClusterUnavailable as error:
            self._retry_later(error)
        self._request_proof()
        self._producer_ids.work(self._clock.monotonic_s())

    def timeout_s(self) -> float | None:
        """Time until the next step; None while none is due."""
        due_at_s = self._producer_ids.due_at_s
        if self._order.needs_initialising:
            due_at_s = min(due_at_s, self._retry_at_s)
        if due_at_s == math.inf:
            return None
        return max(0.01, due_at_s - self._clock.monotonic_s())

    def _retry_later(self, error: ClusterUnavailable, end: str = TARGET) -> None:
        self._retry_at_s = self._clock.monotonic_s() + min(RETRY_S, error.delay_s)
        self._post(ClusterError(str(error), end))

    def _request_proof(self) -> None:
        """Steps (1) and (2), as far as they are due."""
        if not self._order.needs_initialising or self._clock.monotonic_s() < self._retry_at_s:
            return
        if self._order.state is OrderState.UNINITIALISED:
            try:
                with cluster_errors_named("target"):
                    self._store.initialise()
            except ClusterUnavailable as error:
                self._retry_later(error)
                return
            self._order.initialised()
        if not self._order.needs_proof:
            return
        self._post(self._order.request())

    def _perform(self, command: Command) -> None:
        match command:
            case Add(partitions):
                self._order.add(partitions)
            case Forget(partition):
                self._order.forget(partition)
                self._trials.forget(partition)
                self._maps.forget(partition)
                self._data.forget(partition)
                self._transactions.forget(partition)
                self._gaps.pop(partition, None)
                self._post(Forgotten(partition))
            case ProofResponse():
                self._on_proof(command)
            case Commit(positions, number):
                held = {part: positions[part] for part in positions if part in self._order.held}
                lost = positions.keys() - held.keys()
                if any(is_transactional(part, positions[part].grant) for part in lost):
                    self._order.restart()
                self._commit(held, number)
            case Join():
                request = partial(
                    join,
                    command,
                    store=self._store,
                    target=self._target,
                    markers=self._markers,
                    now_s=self._clock.monotonic_s(),
                )
                if self._order.state is OrderState.PROVEN and (joined := self._attempt(request)):
                    self._post(joined)
            case Abort(producer):
                if self._transactions.is_announced(producer):
                    self._order.restart()
            case NewProducer():
                self._producer_ids.request()
            case WriteControlRecords():
                proven = self._order.state is OrderState.PROVEN
                write = self._gap_transactions.write
                self._post(write(command) if proven else ControlRecordsWritten())
            case Locate(partition):
                self._gaps[partition] = command
                self.source_side.request(command)
            case StartsFound(job, found):
                self._on_found(job, found)
            case SourceFailed(job, error) if isinstance(job, FindStarts):
                self._order.search_again(job.number)
                self._retry_later(error, SOURCE)
            case Located() | SourceFailed():
                self._on_located(command)
            case None:
                raise AssertionError("the end of the thread is no command to perform")
            case _:
                assert_never(command)

    def _on_proof(self, response: ProofResponse) -> None:
        """Steps (3) and (4) for what was granted."""
        proof = self._order.response(response)
        if proof is None:
            return
        for partition, reason in proof.refused.items():
            self._order.forget(partition)
            self._post(Failed(partition, f"released: {reason}", temporary=True))
        granted = proof.granted
        if not granted or self._order.state is OrderState.UNINITIALISED:
            return
        with cluster_errors_named("target"):
            self._store.fence(sorted({id for grant in granted.values() for id in grant.fence}))
            found = self._store.read(
                by_topic((grant.target_topic, part.number) for part, grant in granted.items())
            )
        self._order.proven()
        errors = {**unreadable(found), **self._gap_transactions.unsettled(found)}
        stored, hidden = readable(found), not_shown(granted, errors)
        for partition, error in hidden.items():
            self._fail(partition, f"target: {error}")
        granted = {part: grant for part, grant in granted.items() if part not in hidden}
        self._confirm_held(granted, stored)
        renewing, self._renewing = self._renewing & granted.keys(), frozenset()
        keys = {part: (granted[part].target_topic, part.number) for part in renewing}
        renewed = {part: (key, stored[key]) for part, key in keys.items()}
        if renewed and self._transact(renewed) is None:
            return
        self._transactions.announce(self._store, self._post)
        starting = {part: grant for part, grant in granted.items() if part in self._order.waiting}
        if starting:
            with cluster_errors_named("target"), self._target.within(COMMAND_S):
                target = read_target(starting, stored, self._target)
                behind = self._count.at_target(
                    {
                        (key := (grant.target_topic, part.number)): stored[key]
                        for part, grant in starting.items()
                    },
                    target.view,
                    target.ends,
                    shareable=self._data.shareable(starting),
                )
            now_s = self._clock.monotonic_s()
            unmarked = self._markers.lost_at_start(stored, target.ends, now_s)
            target = replace(target, unmarked=unmarked, behind=behind)
            number = self._order.search(starting)
            self.source_side.request(FindStarts(number, starting, stored, target))

    def _confirm_held(
        self,
        granted: Mapping[Partition, Grant],
        stored: Mapping[tuple[str, int], Position],
    ) -> None:
        """Confirm what is held, but for the offered ones: nothing of these is sent before their positions are
        taken."""
        for partition, grant in granted.items():
            if partition not in self._order.held:
                continue
            key = (grant.target_topic, partition.number)
            position = stored[key]
            if partition in self._trials.offered:
                self._fail(partition, self._trials.reason(key) or FIRST)
            elif self._order.is_ours(partition, position.offset):
                self._order.committed([(partition, position.offset)])
                self._post(OwnershipConfirmed(partition, position))
            else:
                self._fail(partition, f"another owner moved the position to {position.offset}")

    def _on_found(
        self, job: FindStarts, found: Mapping[Partition, StartPosition | CannotStart]
    ) -> None:
        """Step (5), for a portion of what was searched. What was forgotten or restarted counts no more.

        A position is renewed at once, or before the next transaction if the open one holds data.
        """
        begun: dict[Partition, Begun] = {}
        failed: dict[Partition, CannotStart] = {}
        for partition, result in with_same_offsets(job, found).items():
            if not self._order.is_searched(partition, job.number):
                continue
            if isinstance(result, CannotStart):
                failed[partition] = result
                if isinstance(result, Disagrees):
                    self._count.collect((job.grants[partition].target_topic, partition.number))
            else:
                begun[partition] = Begun(partition, job.grants[partition], result)
        failed |= self._data.refused(begun.values())
        begun = {part: event for part, event in begun.items() if part not in failed}
        renewed = self._renewals.due(list(failed), job, self._clock.monotonic_s())
        if self._transactions.used and renewed:
            self._renewing = frozenset(renewed)
            self._order.restart()
            self._post(CommitFailed("positions of partitions that cannot start are renewed"))
            return
        try:
            begun = self._data.given(begun, self._clock.monotonic_s())
        except ClusterUnavailable as unavailable:
            self._order.search_again(job.number)
            self._retry_later(unavailable)
            return
        fresh = {part: first_commitment(event) for part, event in begun.items() if is_first(event)}
        for event in begun.values():
            self._maps.begin(event.partition, event.beginning)
        later = {
            part: event
            for part, event in begun.items()
            if self._transactions.used or is_transactional(part, event.grant)
        }
        at_once = {part: event for part, event in begun.items() if part not in later}
        mapped = {part: commitment for part, commitment in fresh.items() if part in at_once}
        marks = self._attempt(lambda: self._maps.write(mapped, self._store))
        if marks is None:
            raise ClusterUnavailable("target: the offset map could not be written")
        first = self._trials.first(begun, job.stored, fresh=self._written(fresh, marks=marks))
        due = {part: record for part, record in first.items() if part in at_once}
        at_once = self._commit_first(at_once, fresh, {**due, **renewed})
        later = self._trials.offer(later, first)
        for partition, error in failed.items():
            self._fail(partition, str(error), temporary=error.temporary)
        for event in later.values():
            self._transactions.begin(event)
        if later:  # proven: results from before a restart begin nothing
            self._transactions.announce(self._store, self._post)
        for partition, event in {**at_once, **later}.items():
            start = event.beginning
            self._order.begin(partition, start.committed if partition in later else start.position)
            self._count.began(target_key(event))
            self._post(event)

    def _commit_first(
        self,
        begun: Mapping[Partition, Begun],
        fresh: Mapping[Partition, Commitment],
        records: Records,
    ) -> dict[Partition, Begun]:
        """Commit positions before the first byte is copied: a second start must not choose another one.
        Returns the partitions that may begin. `fresh`: those of the `records` that are not stored yet."""
        done = self._transact(records) if records else {}
        if done is None:
            raise ClusterUnavailable("target: first positions could not be committed")
        taken = {part: commitment for part, commitment in fresh.items() if part in done}
        if taken:
            self._post(Committed(self._maps.committed(taken)))
        return {part: event for part, event in begun.items() if part in done or part not in records}

    def _commit(self, positions: Mapping[Partition, Commitment], number: int) -> None:
        if self._order.state is not OrderState.PROVEN:
            self._post(CommitFailed("the proof that we are still the owner is due", number))
            return
        offered = self._trials.records(positions)
        others = {part: positions[part] for part in positions if part not in offered}
        with self._target.within(COMMAND_S):
            marks = self._attempt(lambda: self._maps.write(others, self._store), number)
            if marks is None:
                return
            records = {**self._written(others, marks=marks), **offered}
            bound = bound_to(others)
            done = self._transact(records, number, bound=bound) if records else {}
            if done is None:
                return
            if self._transactions.used:
                self._store.wait_for_markers()
        committed = self._maps.committed({part: positions[part] for part in done})
        self._post(Committed(committed, number, self._transactions.following(self._store)))
        with self._target.within(COMMAND_S):
            self._maps.read_former()

    def _transact(
        self, records: Records, number: int = 0, *, bound: Collection[Partition] = ()
    ) -> Records | None:
        """Commit them, and return those that were: one that is refused fails alone. None, with the failure
        posted, if none was: a refusal of what the transaction is `bound` to aborts it."""
        for partition, (_, position) in records.items():
            self._order.attempt(partition, position.offset)
        positions = dict(records.values())
        optional = {key for part, (key, _) in records.items() if part not in bound}
        aborted = ""
        try:
            refused = self._attempt(
                lambda: self._store.commit(positions, optional=optional), number
            )
        except CommitRefused as error:
            self._order.restart()
            refused, aborted = dict(error.refused), str(error)
        if refused is None:
            return None
        for partition, reason in self._trials.refuse(records, refused).items():
            self._fail(partition, reason)
        if aborted:
            self._post(CommitFailed(aborted, number))
            return None
        done = {part: record for part, record in records.items() if record[0] not in refused}
        self._order.committed((part, at.offset) for part, (_, at) in done.items())
        self._trials.taken(done)
        return done

    def _attempt(self, request: Callable[[], T], number: int = 0) -> T | None:
        """The response; None, with the failure posted: nothing is committed before the order was gone through
        again."""
        began_s = self._clock.monotonic_s()
        try:
            with cluster_errors_named("target"):
                return request()
        except Fenced as error:
            self._order.restart()
            self._post(FencedOut(number, str(error)))
        except ClusterUnavailable as error:
            self._order.restart()
            waited_s = self._clock.monotonic_s() - began_s
            self._post(CommitFailed(str(error), number, waited_s))
            self._retry_later(error)
        return None

    def _fail(self, partition: Partition, reason: str, *, temporary: bool = True) -> None:
        self._order.forget(partition)
        self._post(Failed(partition, reason, temporary))

    def _on_located(self, result: Located | SourceFailed) -> None:
        """The partition may have been forgotten since, or located again."""
        job = result.job
        assert isinstance(job, Locate)
        if self._gaps.get(job.partition) is not job:
            return
        del self._gaps[job.partition]
        if isinstance(result, Located):
            self._post(result)
        else:
            self._fail(job.partition, str(result.error))
