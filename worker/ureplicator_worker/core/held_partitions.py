"""Changes of the partitions that a worker holds; the only writer of `held`, `entries`, `last_slots` and
`to_visit`.

A partition that is released leaves the published current state, and the leader may then assign it to
another worker. It is released in three cases only: it was never sent to a copier, its copier released
it, or its copier's process is gone, or fenced where it cannot be seen (see `fencing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace

from ureplicator_common.model import Gap, OwnerEpoch, Partition, PartitionState
from ureplicator_worker.core import publishing
from ureplicator_worker.core.partition_phases import (
    HeldPartition,
    PartitionPhase,
    failed,
    interrupted,
    move,
    retried,
)
from ureplicator_worker.core.slots import LastSlot, choose_slot
from ureplicator_worker.core.state import WorkerState
from ureplicator_worker.lifeline.messages import CopierId, Failed, PartitionReport


def hold(
    state: WorkerState,
    partition: Partition,
    epoch: OwnerEpoch,
    counts: dict[int, int],
    without_copier: Set[int],
) -> None:
    """Hold a newly assigned partition; `counts` are partitions per slot, and count it from now on."""
    last = state.last_slots.get(partition)
    slot = choose_slot(counts, last, without_copier)
    counts[slot] += 1
    held = HeldPartition(slot, epoch, unclean=last is not None and last.required)
    starting = move(partition, held, PartitionPhase.STARTING, "starting", now_s=state.now_s)
    put(state, partition, starting)


def change_slot(
    state: WorkerState, partition: Partition, counts: dict[int, int], without_copier: Set[int]
) -> None:
    """Hold a partition that no copier touches in another slot; `counts` as for `hold`."""
    held = state.held[partition]
    assert not held.sent, f"{partition}: it was sent to the copier of slot {held.slot}"
    slot = choose_slot(counts, None, without_copier)
    counts[held.slot] -= 1
    counts[slot] += 1
    put(state, partition, replace(held, slot=slot))


def release(state: WorkerState, partition: Partition) -> None:
    """No copier of this worker touches it: it leaves what is published."""
    held = state.held[partition]
    move(partition, held, PartitionPhase.OFFLINE, "released", now_s=state.now_s)
    _prepare_write(state, partition)
    del state.held[partition], state.entries[partition]
    state.last_slots[partition] = LastSlot(held.slot, required=held.unclean)
    publishing.publish_now(state)


def put(state: WorkerState, partition: Partition, held: HeldPartition) -> None:
    """Write `held` and have the change published, a change of state or epoch at once."""
    _prepare_write(state, partition)
    state.held[partition] = held
    old, entry = state.entries.get(partition), held.entry
    if entry == old:
        return
    state.entries[partition] = entry
    if old is None or (old.state, old.owner_epoch) != (entry.state, entry.owner_epoch):
        publishing.publish_now(state)
    else:
        publishing.publish_soon(state)


def _prepare_write(state: WorkerState, partition: Partition) -> None:
    """The former state keeps its mappings."""
    state.to_visit[partition] = None
    if state.shared:
        state.shared = False
        state.held, state.entries = dict(state.held), dict(state.entries)
        state.last_slots = dict(state.last_slots)


def visit(state: WorkerState, partitions: Iterable[Partition]) -> None:
    """Have `reconcile` visit them in this step."""
    state.to_visit.update(dict.fromkeys(partitions))


def visit_unsent(state: WorkerState, partitions: Iterable[Partition]) -> None:
    """Visit partitions that no copier was sent and that wait for no retry: they may be sent now."""
    held, now_s = state.held, state.now_s
    visit(state, [p for p in partitions if not held[p].sent and held[p].retry_at_s <= now_s])


def enter(state: WorkerState, partition: Partition, to: PartitionPhase, reason: str) -> None:
    put(state, partition, move(partition, state.held[partition], to, reason, now_s=state.now_s))


def fail(state: WorkerState, failure: Failed) -> None:
    """Note that a copier gave a partition up."""
    held = state.held[failure.partition]
    put(state, failure.partition, failed(held, failure, now_s=state.now_s))


def interrupt(state: WorkerState, partition: Partition, reason: str) -> None:
    """Note that a partition has no copier for now."""
    held = state.held[partition]
    put(state, partition, interrupted(partition, held, reason, now_s=state.now_s))


def set_reason(state: WorkerState, partition: Partition, reason: str) -> None:
    put(state, partition, replace(state.held[partition], reason=reason))


def note_retry(state: WorkerState, partition: Partition, report: PartitionReport) -> None:
    """Note that a copier reports a try after a failure."""
    held, online = state.held[partition], report.state is PartitionState.ONLINE
    after = retried(held, committed=report.committed, lag=report.lag, online=online)
    if after != held:
        put(state, partition, after)


def mark_sent(state: WorkerState, partition: Partition) -> None:
    put(state, partition, replace(state.held[partition], sent=True))


def mark_committed(state: WorkerState, partition: Partition) -> None:
    put(state, partition, replace(state.held[partition], committed=True))


def set_gap(state: WorkerState, partition: Partition, gap: Gap) -> None:
    put(state, partition, replace(state.held[partition], gap=gap))


def mark_unclean(state: WorkerState, partition: Partition) -> None:
    """Note that a copier died while it touched a partition."""
    put(state, partition, replace(state.held[partition], unclean=True))


def mark_clean(state: WorkerState, partition: Partition) -> None:
    put(state, partition, replace(state.held[partition], unclean=False))


def sent_to(state: WorkerState, copier: CopierId) -> list[Partition]:
    """Partitions that the copier was sent and has not released."""
    return [p for p, held in state.held.items() if held.sent and held.slot == copier.slot]


def in_slot(state: WorkerState, number: int) -> list[Partition]:
    return [partition for partition, held in state.held.items() if held.slot == number]


def counts_per_slot(state: WorkerState) -> dict[int, int]:
    counts = dict.fromkeys(range(len(state.slots)), 0)
    for held in state.held.values():
        counts[held.slot] += 1
    return counts
