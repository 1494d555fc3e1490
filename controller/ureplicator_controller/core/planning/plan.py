"""What the leader does next: `plan(snapshot, now_s) -> Plan`. Pure.

A partition goes from one worker to another in steps, each of them one transaction, each safe to be
the last for ever, since a leader may die after any:

    1. ideal state  the new owner, with a new owner epoch
    2. take         out of the assignment of everybody who is not the owner (the dead too: one that
                    comes back must not find what is somebody else's by then)
    3. (wait)       until no live worker holds it (`holding`): it drains, commits, and says so
    4. ideal state  who confirmed leaves the holders, the owner enters them with its session
    5. give         into the owner's assignment, with the transactional ids to fence
    6. (wait)       until the owner is ONLINE
    7. both         the holders it fenced are forgotten, and it need not fence them again

Where nobody live holds the partition, 1 and 4 are one write and 5 follows in the same plan. The
holder is written down before the give: were it the other way round, a leader that dies in between
would leave a worker that copies and that nobody would fence.

Owner epochs order the owners of a partition. Each change of owner takes a new one, never an old
one again: `max(previous + 1, leader epoch << 20)`. The second term keeps them growing even if an
ideal state was lost (deleted by hand): a later leader begins above all that an earlier one can
have given. An assignment entry is never changed in its epoch: if the ideal state returned to a
worker that still holds the partition under an older epoch, it is taken, let go and given like any
other.

A deleted topic is taken from all and retired when nothing holds it. Holders that never confirmed
(dead, or frozen) outlive it in the ideal node, see `Retire`: a topic whitelisted again under the
same name would else be copied beside a process that thaws.

A live worker that never lets go would keep its partitions from moving (see `Plan.waiting`): it is
evicted (`eviction`), and the rest of the plan is made as if it were gone already.

What has an owner that lives and may keep it is moved for the sake of others only when it is time to
look at loads (`review_loads`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ureplicator_common.model import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    OwnerEpoch,
    Partition,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znodes import MAX_ASSIGNED
from ureplicator_controller.core.planning.bookkeeping import (
    mark_committed_positions,
    register_workers,
)
from ureplicator_controller.core.planning.eviction import (
    after_eviction,
    eviction_steps,
    overdue_workers,
    release_requested_since,
)
from ureplicator_controller.core.planning.load_balancing import balance_loads
from ureplicator_controller.core.planning.load_review import (
    LoadReview,
    preferred_workers,
    review_loads,
)
from ureplicator_controller.core.planning.membership import Membership, departure_reason, membership
from ureplicator_controller.core.planning.no_progress import with_move_count
from ureplicator_controller.core.planning.ownership import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView, partition_views
from ureplicator_controller.core.planning.placement import Move, Placement, even_counts
from ureplicator_controller.core.planning.steps import (
    Retire,
    Step,
    WriteAssignment,
    WriteIdeal,
)
from ureplicator_controller.core.planning.switches import (
    is_rebalance_due,
    mark_rebalance_done,
    may_move,
    without_delays,
)
from ureplicator_controller.core.state.exclusions import (
    BLACKLISTED,
    DELETING,
    PAUSED,
    STOPPED,
    exclusion_reason,
)
from ureplicator_controller.core.state.loads import Rates, settled_rates
from ureplicator_controller.core.state.snapshot import ReleaseRequest, Snapshot

EPOCH_SHIFT = 20
"""A million changes of owner per partition and leader before the terms of two leaders could meet;
2**31 leaders (ZooKeeper's version) still fit into 53 bits, what JSON readers keep exactly."""

NO_WORKER = "no worker may take it"


@dataclass(frozen=True, slots=True)
class Plan:
    """`wake_at_s`: when the next delay ends, None if none is pending. `reasons`: for people.

    `waiting`: partitions that are not given because of these workers: they live and hold it still,
    or nobody knows which transactional ids of theirs to fence. `release_requested_since`: when the live ones
    were first waited for; the leader hands it to the next plan (`Snapshot.release_requested_since`).
    """

    steps: tuple[Step, ...]
    wake_at_s: float | None
    reasons: tuple[str, ...]
    waiting: Mapping[Partition, tuple[WorkerId, ...]] = field(default_factory=dict)
    release_requested_since: Mapping[ReleaseRequest, float] = field(default_factory=dict)
    load_review_at_s: float | None = None


def plan(snapshot: Snapshot, now_s: float) -> Plan:
    """The steps that lead from this snapshot towards what operators want."""
    if is_rebalance_due(snapshot):
        return _rebalance(snapshot, now_s)
    return _plan(snapshot, now_s)


def _rebalance(snapshot: Snapshot, now_s: float) -> Plan:
    """Once without delays, and whatever the switches say; the delays that go on are forgotten."""
    decided = _plan(without_delays(snapshot), now_s)
    return replace(
        decided,
        steps=(*decided.steps, *mark_rebalance_done(snapshot)),
        reasons=("rebalance asked for", *decided.reasons),
    )


def _plan(snapshot: Snapshot, now_s: float) -> Plan:
    decided = _Planner(snapshot, now_s).run()
    late = overdue_workers(snapshot, decided.release_requested_since, now_s)
    if not late:
        return decided
    after = _Planner(after_eviction(snapshot, late, now_s), now_s).run()
    why = (f"worker {worker} evicted: did not let go of {late[worker]}" for worker in sorted(late))
    return replace(
        after,
        steps=(*eviction_steps(snapshot, late), *after.steps),
        reasons=(*why, *after.reasons),
    )


def next_epoch(previous: int, leader_epoch: int) -> OwnerEpoch:
    """Above everything that was given before."""
    return OwnerEpoch(max(previous + 1, leader_epoch << EPOCH_SHIFT))


class _Planner:
    """The scratch pad of one plan: filled top down by `run`, then thrown away."""

    def __init__(self, snapshot: Snapshot, now_s: float) -> None:
        self._snapshot = snapshot
        self._now_s = now_s
        self._census: Membership = membership(snapshot, now_s)
        self._look: LoadReview = review_loads(snapshot, self._census.takers, now_s)
        self._cases = partition_views(snapshot)
        self._holdings = HolderRules(snapshot)
        self._fences = FenceIds(snapshot)
        fit = preferred_workers(snapshot, self._census.takers, self._look)
        self._board = Placement(fit, (*self._census.away, *self._census.takers))
        self._wake_at_s: float | None = None
        self._reasons: Counter[str] = Counter()
        self._changed: set[TopicKey] = set()
        self._waiting: dict[Partition, tuple[WorkerId, ...]] = {}
        self._writes: dict[WorkerId, dict[Partition, AssignmentEntry]] = {}
        self._given: set[WorkerId] = set()

    def run(self) -> Plan:
        self._place(list(self._survey()))
        for case in self._each():
            self._decide(case)
            self._tell(case)
        steps = (
            *register_workers(self._snapshot, self._reasons),
            *mark_committed_positions(self._snapshot, self._each(), self._reasons),
            *self._ideal_and_retired(),
            *self._assignment_writes(),
        )
        reasons = tuple(
            f"{why} ({count})" if count > 1 else why for why, count in sorted(self._reasons.items())
        )
        asked = release_requested_since(self._snapshot, self._waiting, self._now_s)
        if asked:
            self._wake_by(min(asked.values()) + self._snapshot.delays.handover_s)
        load_review_at_s = self._look.next_at_s
        if load_review_at_s is not None:
            self._wake_by(load_review_at_s)
        return Plan(steps, self._wake_at_s, reasons, self._waiting, asked, load_review_at_s)

    def _each(self) -> Iterator[PartitionView]:
        return (case for topic in self._cases.values() for case in topic.values())

    # Where everything is, and what needs another owner.

    def _survey(self) -> Iterator[PartitionView]:
        """Fill the board; yield the wanted partitions without an owner that may keep them."""
        for case in self._each():
            listed = case.key in self._snapshot.blacklist
            unwanted = exclusion_reason(case.intent, case.partition.number, listed=listed)
            if case.unclear:
                self._count_unclear(case)
            elif unwanted:
                case.move = Move(None, unwanted)
            else:
                why = self._why_homeless(case)
                owner = case.before.worker if case.before else None
                no_progress = self._look.no_progress.get(case.partition, "")
                if why or no_progress:
                    case.move = Move(None, why or no_progress, no_progress=not why)
                    yield case
                elif owner is not None:
                    self._own(case, owner)
                    if owner in self._census.away:
                        self._wake_by(self._census.away[owner])

    def _own(self, case: PartitionView, owner: WorkerId) -> None:
        """What was moved for being stuck is not moved for the sake of even counts, too."""
        if case.before is not None and case.before.stuck_moves:
            self._board.count(owner)
        else:
            self._board.own(owner, case.key, case.partition)

    def _count_unclear(self, case: PartitionView) -> None:
        """Left where it is, but whoever has it has less room for others."""
        if case.before is not None and case.before.worker is not None:
            self._board.count(case.before.worker)
        elif case.told:
            self._board.count(case.told[0][0])

    def _why_homeless(self, case: PartitionView) -> str:
        """Why a wanted partition needs an owner; "" if it has one that may keep it."""
        entry = case.before
        if entry is None:
            return "new partition" if case.key in self._snapshot.ideal else "new topic"
        if entry.worker is None:
            return _why_again(entry.reason)
        switches, leaving = self._snapshot.switches, entry.worker in self._census.leaving
        if entry.worker in self._snapshot.sessions or case.told_to(entry.worker):
            why = departure_reason(entry.worker, self._census, self._snapshot)
            return why if may_move(switches, leaving) else ""
        if switches.frozen and not leaving:
            return ""
        return f"worker {entry.worker} lost before it began"

    def _wake_by(self, at_s: float) -> None:
        self._wake_at_s = at_s if self._wake_at_s is None else min(self._wake_at_s, at_s)

    # Who shall own what.

    def _place(self, homeless: Sequence[PartitionView]) -> None:
        if not self._census.takers:
            self._place_nowhere(homeless)
            return
        if homeless or self._look.is_due or not self._board.is_even():
            self._board.weigh(self._rates())
        for case in sorted(homeless, key=lambda case: -self._board.rate(case.partition)):
            move = case.move or Move(None, "")
            case.move = replace(move, worker=self._board.give(case.key, case.partition))
        moves = even_counts(self._board) if may_move(self._snapshot.switches, False) else {}
        if moves and self._now_s < self._census.settled_at_s:
            self._wake_by(self._census.settled_at_s)
            return
        if not moves:
            for back_by_s in self._census.away.values():  # until then its share is kept for it
                self._wake_by(back_by_s)
            moves = {} if homeless else self._relief()
        for partition, move in moves.items():
            self._cases[partition.key][partition.number].move = move

    def _relief(self) -> dict[Partition, Move]:
        """Moves to even out loads, if it is time for that and nothing is pending."""
        is_still = not self._census.away and self._now_s >= self._census.settled_at_s
        if not (is_still and self._look.is_due and may_move(self._snapshot.switches, False)):
            return {}
        board = self._board
        return balance_loads(board.owned(), board.counts, self._rates(), self._snapshot.limits)

    def _rates(self) -> Rates:
        return settled_rates(self._snapshot.loads)

    def _place_nowhere(self, homeless: Sequence[PartitionView]) -> None:
        """A lost owner is kept while there is no other: if it comes back, it just goes on."""
        for case in homeless:
            owner = case.before.worker if case.before else None
            if case.move is not None and (owner is None or owner in self._census.leaving):
                case.move = Move(None, f"{case.move.reason}; {NO_WORKER}")
            else:
                case.move = None

    # What that makes of the ideal states.

    def _decide(self, case: PartitionView) -> None:
        """The partition's next entry, and the give if its time has come."""
        before = case.before
        is_mended = bool(self._look.recovered) and case.partition in self._look.recovered
        if case.unclear or (case.move is None and case.is_settled() and not is_mended):
            case.after = before
            return
        if before is None and case.key not in self._snapshot.topics and not case.told:
            return
        entry = self._moved(case)
        holders: Mapping[WorkerId, SessionId] = self._holdings.remaining(case)
        if entry.worker is not None and not _is_told(case, entry.worker, entry):
            holders = self._try_to_give(case, entry.worker, entry, holders)
        elif entry.worker is None and entry.reason == DELETING:
            self._wait_for(case, self._holdings.live_holders(case, holders))
        case.after = entry if entry.holders == holders else replace(entry, holders=holders)
        if before is None or _differs(before, case.after):
            self._changed.add(case.key)

    def _moved(self, case: PartitionView) -> IdealEntry:
        """The entry with its new owner, if it gets one."""
        now_ms = self._snapshot.wall_ms
        before = self._look.recovered.get(case.partition, case.before)
        before = before or IdealEntry(None, OwnerEpoch(0), now_ms, "")
        move = case.move
        if move is None:
            return before
        if case.before is not None and move.worker == before.worker:
            return replace(before, reason=move.reason)
        self._reasons[move.reason] += 1
        epoch = next_epoch(before.owner_epoch, self._snapshot.epoch)
        entry = IdealEntry(move.worker, epoch, now_ms, move.reason)
        if move.worker is None:
            return entry
        return with_move_count(entry, before, self._snapshot.sessions if move.no_progress else {})

    def _try_to_give(
        self,
        case: PartitionView,
        owner: WorkerId,
        entry: IdealEntry,
        holders: Mapping[WorkerId, SessionId],
    ) -> Mapping[WorkerId, SessionId]:
        """The holders, the owner among them if it is given the partition now.

        Of an owner that is a holder since a former session, that session stays (see `holding`).
        """
        if owner not in self._snapshot.sessions:
            return holders
        live_holders = self._holdings.live_holders(case, holders)
        if live_holders:
            self._wait_for(case, live_holders)
            return holders
        others = sorted(worker for worker in holders if worker != owner)
        fence = self._fences.of(case.key.route, others)
        if fence is None:
            self._wait_for(case, others)
            return holders
        if self._is_full(owner):
            self._reasons[f"{owner} cannot be told of more than {MAX_ASSIGNED} partitions"] += 1
            return holders
        self._write_of(owner)[case.partition] = AssignmentEntry(entry.owner_epoch, fence)
        self._given.add(owner)
        self._reasons[f"given to {owner}"] += 1
        return {owner: self._snapshot.sessions[owner], **holders}

    def _is_full(self, worker: WorkerId) -> bool:
        """Nothing more fits into its assignment's node."""
        stored = self._snapshot.assignments.get(worker)
        told = self._writes.get(worker, stored.value.entries if stored else {})
        return len(told) >= MAX_ASSIGNED

    def _wait_for(self, case: PartitionView, workers: Sequence[WorkerId]) -> None:
        if workers:
            self._waiting[case.partition] = tuple(workers)

    # What that makes of the assignments.

    def _write_of(self, worker: WorkerId) -> dict[Partition, AssignmentEntry]:
        """The assignment being written for a worker, at first as it is stored."""
        if worker not in self._writes:
            stored = self._snapshot.assignments.get(worker)
            self._writes[worker] = dict(stored.value.entries) if stored else {}
        return self._writes[worker]

    def _tell(self, case: PartitionView) -> None:
        """Take what is not the owner's; where it stays, fence no more than is still needed."""
        if case.unclear or (case.after is case.before and case.is_settled()):
            return
        for worker, told in case.told:
            entry = case.after
            if entry and entry.worker == worker and entry.owner_epoch == told.owner_epoch:
                self._refresh_fence(case, worker, told, entry)
            else:
                del self._write_of(worker)[case.partition]
                self._reasons[f"taken from {worker}"] += 1

    def _refresh_fence(
        self, case: PartitionView, worker: WorkerId, told: AssignmentEntry, entry: IdealEntry
    ) -> None:
        """Only to shorten it: a holder's slots may grow, but not those it was given this with."""
        others = sorted(holder for holder in entry.holders if holder != worker)
        fence = self._fences.of(case.key.route, others)
        if fence is not None and not set(told.fence) <= set(fence):
            self._write_of(worker)[case.partition] = replace(told, fence=fence)

    # The steps.

    def _ideal_and_retired(self) -> Iterator[Step]:
        for key, topic in self._cases.items():
            stored = self._snapshot.ideal.get(key)
            version = stored.version if stored else None
            intent = self._snapshot.topics.get(key)
            if intent is None or intent.value.state is TopicState.DELETING:
                retire = self._retire(key, topic.values())
                if retire is not None:
                    self._reasons[f"topic {key} retired"] += 1
                    yield retire
                    continue
            if key in self._changed:
                yield WriteIdeal(key, IdealTopic(_entries(topic.values())), version)

    def _retire(self, key: TopicKey, topic: Collection[PartitionView]) -> Retire | None:
        """If nothing holds the topic, and something of it can still be removed."""
        intent = self._snapshot.topics.get(key)
        if intent is not None and intent.value.forget_positions:
            return None  # they are forgotten first, see `core.forgetting`
        for case in topic:
            holders = case.after.holders if case.after else {}
            if case.unclear or case.told or self._holdings.live_holders(case, holders):
                return None
        remains = {number: entry for number, entry in _entries(topic).items() if entry.holders}
        stored = self._snapshot.ideal.get(key)
        before = stored.value.entries if stored else {}
        if intent is None and remains.keys() == before.keys():
            return None
        return Retire(
            key,
            intent.version if intent else None,
            stored.version if stored else None,
            IdealTopic(remains) if remains else None,
        )

    def _assignment_writes(self) -> Iterator[Step]:
        """Takes first: what is given afterwards must be in no other assignment."""
        for worker in sorted(self._writes, key=lambda worker: (worker in self._given, worker)):
            stored = self._snapshot.assignments.get(worker)
            yield WriteAssignment(
                worker,
                Assignment(self._writes[worker]),
                stored.version if stored else None,
                takes_only=worker not in self._given,
            )


def _entries(topic: Collection[PartitionView]) -> dict[int, IdealEntry]:
    return {case.partition.number: case.after for case in topic if case.after is not None}


def _is_told(case: PartitionView, worker: WorkerId, entry: IdealEntry) -> bool:
    told = case.told_to(worker)
    return told is not None and told.owner_epoch == entry.owner_epoch


def _differs(before: IdealEntry, entry: IdealEntry) -> bool:
    """A session renewed by proof is worth no write of its own: back in time means no write."""
    return (
        before.worker != entry.worker
        or before.owner_epoch != entry.owner_epoch
        or before.reason != entry.reason
        or (before.stuck_moves, before.stuck_on) != (entry.stuck_moves, entry.stuck_on)
        or before.holders.keys() != entry.holders.keys()
        or (entry.worker is None and before.holders != entry.holders)
    )


def _why_again(reason: str) -> str:
    """Why a partition without owner gets one, from why it had none."""
    if reason.startswith(STOPPED):
        return "resumed"
    again = {PAUSED: "resumed", BLACKLISTED: "taken off the blacklist", DELETING: "new topic"}
    return again.get(reason, reason.removesuffix(f"; {NO_WORKER}"))
