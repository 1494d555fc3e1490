"""Mismatches of partitions whose records an open transaction at the source holds back.

Their workers copy all that they may: external view and ideal state agree, and only the lag tells (`lag`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ureplicator_common.model import Partition, TopicKey
from ureplicator_controller.core.reporting.lag import HELD_LONG_S, PartitionLag
from ureplicator_controller.core.state.external_view import ExternalView, is_active
from ureplicator_controller.core.state.mismatches import Mismatch, ideal_owner
from ureplicator_controller.core.state.snapshot import Snapshot

TopicLags = Mapping[TopicKey, Mapping[int, PartitionLag]]


def with_held(
    found: Collection[Mismatch], snapshot: Snapshot, view: ExternalView, lags: TopicLags
) -> list[Mismatch]:
    """The mismatches, then partitions without one that are held for `HELD_LONG_S` or longer, in order.

    A partition that is copied, to a target topic that does harm, has both reasons.
    """
    held = {mismatch.partition: mismatch for mismatch in _held(snapshot, view, lags)}
    known = [_with_reason(mismatch, held.pop(mismatch.partition, None)) for mismatch in found]
    return [*known, *sorted(held.values(), key=_place)]


def _with_reason(mismatch: Mismatch, held: Mismatch | None) -> Mismatch:
    if held is None or not mismatch.is_copied:
        return mismatch
    return replace(mismatch, reason=f"{held.reason}; {mismatch.reason}")


def _held(snapshot: Snapshot, view: ExternalView, lags: TopicLags) -> Iterator[Mismatch]:
    for key, partitions in lags.items():
        for number, lag in partitions.items():
            partition = Partition(key.route, key.topic, number)
            if not is_held(lag) or not is_active(snapshot, partition):
                continue
            actual = {worker: entry.state for worker, entry in view.of(partition).items()}
            since_ms = snapshot.wall_ms - round((lag.held_s or 0) * 1_000)
            ideal = ideal_owner(snapshot, partition)
            yield Mismatch(partition, ideal, actual, lag.reason, since_ms)


def is_held(lag: PartitionLag) -> bool:
    """True if a transaction has held records back for so long that it is named."""
    return bool(lag.held_records) and (lag.held_s or 0) >= HELD_LONG_S


def _place(mismatch: Mismatch) -> Partition:
    return mismatch.partition
