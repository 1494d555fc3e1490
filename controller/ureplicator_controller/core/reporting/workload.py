"""What workers carry, and what lags: uReplicator's `/admin/workloadinfo`, from the workers' own word.

All of it is measured by who copies (`PartitionLoad`). uReplicator took rates from an audit service
and counted all partitions of a topic alike. Its number of *expected workers* is not told: it came
from a fixed capacity of 8 MiB/s per worker, and what a worker can carry depends on the machine, the
batches and the codecs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.model import Partition, PartitionLoad, Route, TopicKey, WorkerId
from ureplicator_controller.core.planning.no_progress import REPORT_AFTER_S, suspect_workers
from ureplicator_controller.core.state.external_view import (
    ideal_entry,
    is_active,
)
from ureplicator_controller.core.state.loads import SETTLED_S
from ureplicator_controller.core.state.snapshot import Snapshot

LAGGING_RECORDS = 100_000
LAGGING_S = 900.0
"""uReplicator's bounds: so many records behind, and so long at the rate they are copied."""

Loads = Mapping[Partition, PartitionLoad]


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over some partitions; bytes per second are the mean over the last minutes."""

    partitions: int
    bytes_per_s: float
    records_per_s: float

    @classmethod
    def of(cls, loads: Loads) -> Total:
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


def workload(snapshot: Snapshot, route: Route | None = None) -> dict[str, object]:
    """Of one route or of all, in uReplicator's words."""
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
    return {
        "autoBalancingEnabled": snapshot.switches.auto_balancing,
        "numOfLaggingWorkers": sum(bool(each["laggingTopicPartition"]) for each in workers),
        "topicWorkload": Total.of(every).as_json(),
        "topics": list(_topics(every)),
        "workerInstances": workers,
    }


def is_lagging(load: PartitionLoad) -> bool:
    """Behind by much, and for long; or behind and standing still."""
    if load.lag > 0 and load.no_progress_s >= REPORT_AFTER_S:
        return True
    return load.lag > LAGGING_RECORDS and load.lag > LAGGING_S * load.records_per_s


def _is_owner(snapshot: Snapshot, worker: WorkerId, partition: Partition) -> bool:
    entry = ideal_entry(snapshot, partition)
    return entry is not None and entry.worker == worker and is_active(snapshot, partition)


def _topics(every: Loads) -> Iterator[dict[str, object]]:
    topics: dict[TopicKey, dict[Partition, PartitionLoad]] = {}
    for partition, load in every.items():
        topics.setdefault(partition.key, {})[partition] = load
    for key in sorted(topics):
        yield {"topic": key.topic, "route": str(key.route), **Total.of(topics[key]).as_json()}


def _workers(snapshot: Snapshot, owned: Mapping[WorkerId, Loads]) -> Iterator[dict[str, object]]:
    unfit = suspect_workers(snapshot)
    for worker, loads in owned.items():
        total = Total.of(loads)
        settled = sum(load.measured_s >= SETTLED_S for load in loads.values())
        yield {
            "workerId": worker,
            "numberOfTopicPartitions": total.partitions,
            "totalWorkload": round(total.bytes_per_s),
            "msgsPerSecond": round(total.records_per_s, 1),
            "settledPartitions": settled,
            "blamed": worker in unfit,
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
