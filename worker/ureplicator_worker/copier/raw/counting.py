"""Counters of what was copied: what is sent in a transaction counts once that is committed. Hot path."""

from __future__ import annotations

from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction
from ureplicator_worker.copier.raw.partition import Copied, SendSide


def copied(send: SendSide, transaction: LaneTransaction) -> Copied:
    return transaction.copied[send] if send.transactional else send.copied


def count(
    send: SendSide,
    batch: Batch,
    *,
    transaction: LaneTransaction,
    latency: Latencies,
) -> None:
    """Count a batch that the target has acknowledged."""
    if batch.lease is not None:
        latency.of_fetches.record_since(batch.lease.since_s)
    counters = copied(send, transaction)
    counters.records += batch.records
    counters.bytes += len(batch.view)
    if send.transactional:
        transaction.times_ms.append(batch.max_timestamp_ms)
    else:
        latency.of_records.record(batch.max_timestamp_ms)


def count_committed(transaction: LaneTransaction, latency: Latencies) -> None:
    """Count what was sent in the transaction: readers with read_committed see it now."""
    for send, counters in transaction.copied.items():
        send.copied.add(counters)
        send.window.offsets.commit()
    latency.of_records.record(*transaction.times_ms)
