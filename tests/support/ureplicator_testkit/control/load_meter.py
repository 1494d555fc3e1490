"""Loads for a `ControlFleet`: every worker reports what it copies, as real ones do."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_common.znodes.workers import encode_loads
from ureplicator_testkit.control.fleet import ControlFleet
from ureplicator_testkit.control.worker_process import Process

MB = 1_000_000
WINDOW_S = 300.0


class LoadMeter:
    """`rates`: bytes per second of each partition, wherever it is copied.

    `without_progress`: partitions without
    progress on any worker; `broken`: workers where no partition progresses. `idle`: partitions with
    nothing to copy. `silent`: workers that report no loads.
    """

    def __init__(self, fleet: ControlFleet, rates: Mapping[Partition, float]) -> None:
        self.fleet = fleet
        self.rates = dict(rates)
        self.without_progress: set[Partition] = set()
        self.idle: set[Partition] = set()
        self.broken: set[WorkerId] = set()
        self.silent: set[WorkerId] = set()
        self._held_since: dict[tuple[int, Partition], float] = {}
        self._moved_at: dict[tuple[int, Partition], float] = {}

    def write(self) -> None:
        """All connected workers report their loads once."""
        for process in self.fleet.running():
            if process.connected and process.id not in self.silent:
                loads = {partition: self._load(process, partition) for partition in process.copies}
                self._put(process, encode_loads(loads))
        kept = {(owner.session, p) for owner in self.fleet.processes for p in owner.copies}
        for since in (self._held_since, self._moved_at):
            for gone in since.keys() - kept:
                del since[gone]

    def _load(self, process: Process, partition: Partition) -> PartitionLoad:
        now_s, key = self.fleet.now_s, (process.session, partition)
        held_s = now_s - self._held_since.setdefault(key, now_s)
        stands_still = partition in self.without_progress or process.id in self.broken
        if not stands_still or key not in self._moved_at:
            self._moved_at[key] = now_s
        return PartitionLoad(
            records_per_s=0.0 if stands_still or partition in self.idle else 1.0,
            steady_bytes_per_s=self.rates.get(partition, 0.0),
            measured_s=min(held_s, WINDOW_S),
            held_s=held_s,
            no_progress_s=now_s - self._moved_at[key],
            lag=0 if partition in self.idle else 7,
            committed=5,
        )

    def _put(self, process: Process, data: bytes) -> None:
        path = self.fleet.paths.measures.load(process.id)
        node = self.fleet.store.node(path)
        write = Set(path, data, -1) if node else Create(path, data, ephemeral=True)
        self.fleet.store.apply(process.session, [write])

    def run(self, minutes: float) -> int:
        """Let time pass; returns the changes of owner that the leader made meanwhile."""
        moved = 0
        for _ in range(round(minutes * 2)):
            before = self._owners()
            self.fleet.wait(30)
            self.write()
            self.fleet.settle()
            after = self._owners()
            moved += sum(before.get(partition) != owner for partition, owner in after.items())
        return moved

    def _owners(self) -> dict[Partition, WorkerId | None]:
        return {
            Partition(key.route, key.topic, number): entry.worker
            for key, stored in self.fleet.contents().ideal.items()
            for number, entry in stored.value.entries.items()
        }

    def carried(self) -> dict[str, float]:
        """Bytes per second of each worker, by the ideal states."""
        carried: dict[str, float] = {}
        for partition, owner in self._owners().items():
            if owner is not None:
                carried[owner] = carried.get(owner, 0.0) + self.rates.get(partition, 0.0)
        return carried
