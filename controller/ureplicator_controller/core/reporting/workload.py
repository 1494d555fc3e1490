"""Workload and lag of workers and topics: uReplicator's `/admin/workloadinfo`, as workers measured it.

All values are measured by the copying worker (`PartitionLoad`). uReplicator took rates from an audit
service and counted all partitions of a topic alike. Its number of *expected workers* assumed a capacity of
8 MiB/s for each. What a worker can copy depends on the machine, the batches and the codecs, so that is a
setting (`controller.expected_worker_bytes_per_s`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_controller.core.planning.no_progress import REPORT_AFTER_S, suspect_workers
from ureplicator_controller.core.state.external_view import (
    ideal_entries,
    ideal_entry,
    is_active,
)
from ureplicator_controller.core.state.loads import SETTLED_S, WorkerLoads
from ureplicator_controller.core.state.snapshot import Snapshot

LAGGING_RECORDS = 100_000
LAGGING_S = 900.0
"""uReplicator's bounds of a lagging partition: records, and time at the rate at which they are copied."""


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over some partitions; bytes per second are the mean over the last minutes."""

    partitions: int
    bytes_per_s: float
    records_per_s: float

    @classmethod
    def of(cls, loads: WorkerLoads) -> Total:
        return cls(
            len(loads),
            sum(load.steady_bytes_per_s for load in loads.values()),
            sum(load.records_per_s for load in loads.values()),
        )

    def as_json(self) -> dict[str, object]:
        return {
            "partitions": self.partitions,
            "bytesPerSecond": round(self.bytes_per_s),
            "msgsPerSecond": round(self.records_per_s, 1),
        }


def workload(
    snapshot: Snapshot, route: Route | None = None, *, expected_worker_bytes_per_s: float
) -> dict[str, object]:
    """Workload of one route or of all, with uReplicator's field names.

    `expected_worker_bytes_per_s`: what a worker is expected to copy.
    """
    owned = {
        worker: {
            partition: load
            for partition, load in snapshot.loads.get(worker, {}).items()
            if route in (None, partition.route) and _is_owner(snapshot, worker, partition)
        }
        for worker in sorted(snapshot.sessions)
    }
    workers = list(_workers(snapshot, owned))
    every = {partition: load for loads in owned.values() for partition, load in loads.items()}
    total = Total.of(every)
    lagging = sum(bool(row["laggingTopicPartition"]) for row in workers)
    return {
        "autoBalancingEnabled": snapshot.switches.auto_balancing,
        "numOfExpectedWorkers": round(total.bytes_per_s / expected_worker_bytes_per_s)
        + 1
        + lagging,
        "numOfLaggingWorkers": lagging,
        "topicWorkload": total.as_json(),
        "topics": list(_topics(every)),
        "workerInstances": workers,
    }


def is_lagging(load: PartitionLoad) -> bool:
    """Test for a lag above both bounds, or a lag without progress."""
    if load.lag > 0 and load.no_progress_s >= REPORT_AFTER_S:
        return True
    return load.lag > LAGGING_RECORDS and load.lag > LAGGING_S * load.records_per_s


def _is_owner(snapshot: Snapshot, worker: WorkerId, partition: Partition) -> bool:
    entry = ideal_entry(snapshot, partition)
    return entry is not None and entry.worker == worker and is_active(snapshot, partition)


def _topics(every: WorkerLoads) -> Iterator[dict[str, object]]:
    topics: dict[TopicKey, dict[Partition, PartitionLoad]] = {}
    for partition, load in every.items():
        topics.setdefault(partition.key, {})[partition] = load
    for key in sorted(topics):
        yield {"topic": key.topic, "route": str(key.route), **Total.of(topics[key]).as_json()}


def _workers(
    snapshot: Snapshot, owned: Mapping[WorkerId, WorkerLoads]
) -> Iterator[dict[str, object]]:
    suspects = suspect_workers(snapshot, ideal_entries(snapshot))
    for worker, loads in owned.items():
        total = Total.of(loads)
        settled = sum(load.measured_s >= SETTLED_S for load in loads.values())
        yield {
            "workerId": worker,
            "numberOfTopicPartitions": total.partitions,
            "totalWorkload": round(total.bytes_per_s),
            "msgsPerSecond": round(total.records_per_s, 1),
            "settledPartitions": settled,
            "suspect": worker in suspects,
            "laggingTopicPartition": [
                _lagging(partition, load)
                for partition, load in sorted(loads.items())
                if is_lagging(load)
            ],
        }


def _lagging(partition: Partition, load: PartitionLoad) -> dict[str, object]:
    rate = load.records_per_s
    return {
        "topicName": partition.topic,
        "partitionId": partition.number,
        "route": str(partition.route),
        "latestOffset": load.position + load.lag if load.position >= 0 else None,
        "commitOffset": load.committed if load.committed >= 0 else None,
        "lag": load.lag,
        "lagTime": round(load.lag / rate) if rate > 0 else None,
    }
