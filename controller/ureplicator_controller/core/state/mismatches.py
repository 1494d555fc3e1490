"""Mismatches between the external view and the ideal state, each with its reason.

Everything is compared by owner, from one snapshot, without side effects: a partition that is ONLINE
on another worker than its ideal one is a mismatch, not a success. So is one whose target topic does harm
to the records that its worker copies. (uReplicator compared only counts,
so a partition that was online in the wrong place passed for healthy.)
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from ureplicator_common.model import Partition, PartitionState, TopicKey, TopicState, WorkerId
from ureplicator_common.znode_contents import CurrentEntry, IdealEntry
from ureplicator_common.znodes.workers import MAX_ASSIGNED
from ureplicator_controller.core.state.external_view import (
    ExternalView,
    harm_to,
    ideal_entry,
    is_active,
)
from ureplicator_controller.core.state.mass_loss import mass_loss
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies, topic_tallies


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A partition whose external view differs from its ideal state, or whose target topic does harm.

    `ideal` and `actual` are worker -> state, as in the external view. `since_ms` (wall clock) is the first
    failure, if the partition fails at each try; else the last change of the ideal state: the mismatch is
    not older than that.
    """

    partition: Partition
    ideal: Mapping[WorkerId, PartitionState]
    actual: Mapping[WorkerId, PartitionState]
    reason: str
    since_ms: int

    @property
    def is_copied(self) -> bool:
        """True if its worker copies it, and no other does: something else is not as it should be."""
        return bool(self.ideal) and self.actual == self.ideal


def mismatches(
    snapshot: Snapshot, view: ExternalView, tallies: Tallies | None = None
) -> list[Mismatch]:
    """Mismatches of all partitions: of whitelisted topics in order, then of the others.

    `tallies`: of the same state of the fleet, if they are known; only topics that differ are looked at.
    """
    tallies = topic_tallies(snapshot, view) if tallies is None else tallies
    differing = [key for key, tally in tallies.by_topic.items() if tally.differing]
    numbers = {key: tallies.by_topic[key].differing for key in sorted(differing)}
    lost = _mass_lost(snapshot) if numbers else frozenset[WorkerId]()
    found = [
        mismatch(snapshot, view, Partition(key.route, key.topic, number), mass_lost=lost)
        for key, of_topic in numbers.items()
        for number in of_topic
    ]
    return sorted(
        (difference for difference in found if difference is not None),
        key=lambda each: (_is_unlisted(snapshot, each.partition), each.partition),
    )


def _is_unlisted(snapshot: Snapshot, partition: Partition) -> bool:
    """True if nobody wants the partition to be copied, and yet a worker reports it."""
    stored = snapshot.topics.get(partition.key)
    is_deleted = stored is None or stored.value.state is TopicState.DELETING
    return is_deleted or stored is None or partition.number >= stored.value.partitions


def topic_mismatches(snapshot: Snapshot, view: ExternalView, key: TopicKey) -> list[Mismatch]:
    """Mismatches of one topic, in order."""
    stored = snapshot.topics.get(key)
    numbers = {*range(stored.value.partitions if stored else 0), *view.topic(key)}
    lost = _mass_lost(snapshot)
    found = (
        mismatch(snapshot, view, Partition(key.route, key.topic, number), mass_lost=lost)
        for number in sorted(numbers)
    )
    return [item for item in found if item is not None]


def mismatch(
    snapshot: Snapshot, view: ExternalView, partition: Partition, *, mass_lost: Set[WorkerId]
) -> Mismatch | None:
    """Compare one partition's external view with its ideal state; None if they are equal, and its target
    topic does no harm.

    `mass_lost`: workers whose partitions the brake on mass loss keeps with them.
    """
    entry = ideal_entry(snapshot, partition)
    actual = view.of(partition)
    states = {worker: reported.state for worker, reported in actual.items()}
    owner = entry.worker if entry else None
    ideal = ideal_owner(snapshot, partition)
    is_settled = states == ideal and (owner is not None or not is_active(snapshot, partition))
    harm = harm_to(snapshot, partition)
    if is_settled and not harm:
        return None
    since_ms = (entry.failing_since_ms or entry.since_ms) if entry else 0
    differs = "" if is_settled else _mismatch_reason(snapshot, partition, entry, actual, mass_lost)
    reason = "; ".join(filter(None, (differs, harm)))
    return Mismatch(partition, ideal, states, reason, since_ms)


def ideal_owner(snapshot: Snapshot, partition: Partition) -> Mapping[WorkerId, PartitionState]:
    """The worker that should own the partition, as it should report it; empty without one."""
    entry = ideal_entry(snapshot, partition)
    return {} if entry is None or entry.worker is None else {entry.worker: PartitionState.ONLINE}


def _mass_lost(snapshot: Snapshot) -> frozenset[WorkerId]:
    loss = mass_loss(snapshot)
    return frozenset(loss.lost) if loss else frozenset()


def _mismatch_reason(
    snapshot: Snapshot,
    partition: Partition,
    entry: IdealEntry | None,
    actual: Mapping[WorkerId, CurrentEntry],
    mass_lost: Set[WorkerId],
) -> str:
    """Sentence for operators: the event that the partition is waiting for."""
    unreadable = _unreadable_reason(snapshot, partition, entry)
    if unreadable:
        return unreadable
    owner = entry.worker if entry else None
    others = ", ".join(sorted(worker for worker in actual if worker != owner))
    if owner is None:
        if others:
            return f"waiting for {others} to release it"
        return entry.reason if entry else "not placed yet"
    if owner not in snapshot.sessions and owner in snapshot.live:
        return f"worker {owner} was evicted and has not confirmed its assignment since"
    if owner in mass_lost:
        return (
            f"worker {owner} is gone; mass loss: it keeps the partition"
            " until enough workers are back or operators confirm the loss"
        )
    if owner not in snapshot.sessions:
        return f"worker {owner} is gone; it keeps the partition until the rebalance delay ends"
    if others:
        return _release_reason(snapshot, partition, others, actual)
    return _owner_reason(snapshot, partition, owner, actual)


def _release_reason(
    snapshot: Snapshot, partition: Partition, others: str, actual: Mapping[WorkerId, CurrentEntry]
) -> str:
    """Reason where the owner lives and other workers report the partition."""
    assignments = (snapshot.assignments.get(worker) for worker in actual)
    if any(stored and partition in stored.value.entries for stored in assignments):
        return f"waiting for its turn to move: {others} copies it until then"
    return f"waiting for {others} to release it"


def _owner_reason(
    snapshot: Snapshot,
    partition: Partition,
    owner: WorkerId,
    actual: Mapping[WorkerId, CurrentEntry],
) -> str:
    """Reason where the owner lives and no other worker reports the partition."""
    reported = actual.get(owner)
    if reported is not None:
        return reported.reason or f"worker {owner} reports {reported.state}"
    assignment = snapshot.assignments.get(owner)
    assigned = assignment.value.entries if assignment else {}
    if partition not in assigned:
        if len(assigned) >= MAX_ASSIGNED:
            return f"worker {owner} already has {MAX_ASSIGNED} partitions, the maximum: add workers"
        return f"not assigned to worker {owner} yet"
    return f"worker {owner} has not confirmed its assignment yet"


def _unreadable_reason(snapshot: Snapshot, partition: Partition, entry: IdealEntry | None) -> str:
    """Reason why the partition is left unchanged: an unreadable node; "" if there is none."""
    if partition.key in snapshot.unreadable_topics:
        return "left unchanged: a node of the topic is unreadable"
    involved = {entry.worker, *entry.holders} if entry else set()
    for worker in sorted(snapshot.unreadable_workers & involved):
        return f"left unchanged: a node of worker {worker} is unreadable"
    return ""
