"""Loads that workers measured, prepared for decisions.

Every worker writes its loads every few seconds. In a big fleet they are most of what changes, and few
decisions need them: `DecodedLoads` decodes a worker's node on first access, and in later cycles only when
it has changed. The leader reads loads when it places partitions, every `LOAD_REVIEW_INTERVAL_S` to balance
load and to find partitions without progress, and in each cycle while there are byte limits. A change of a
load does not trigger a cycle.

**Unknown is not zero.** A partition's rate counts once its owner has copied it for `SETTLED_S`.
Before that, or if its worker reports no loads (an older version, an unreadable node), the rate is
unknown: sums assume the average of the known rates, and load balancing leaves the worker out. So no
decision is based on the rate of a partition that was just moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from ureplicator_common.contents import PartitionLoad
from ureplicator_common.coordination import Node
from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znodes import UnreadableContent, decode_loads

LOAD_REVIEW_INTERVAL_S = 60.0
SETTLED_S = 240.0
"""Most of the window over which workers average (300 s)."""
NEGLIGIBLE_BYTES_PER_S = float(1 << 20)
"""Copied by one slot in about ten milliseconds. Smaller differences between workers are ignored."""

WorkerLoads = Mapping[Partition, PartitionLoad]
Rates = Mapping[WorkerId, Mapping[Partition, float]]
"""Settled bytes per second, as measured by the worker that owns the partition."""


class MeasuredLoads(dict[Partition, PartitionLoad]):
    """Loads of one worker, with their settled rates, which are found once."""

    @cached_property
    def settled(self) -> Mapping[Partition, float]:
        """Also of partitions that have made no progress for as long."""
        return {
            partition: load.steady_bytes_per_s
            for partition, load in self.items()
            if load.measured_s >= SETTLED_S or load.no_progress_s >= SETTLED_S
        }


class DecodedLoads(Mapping[WorkerId, WorkerLoads]):
    """Worker -> its loads, decoded by `read` on first access."""

    def __init__(
        self, nodes: Mapping[WorkerId, Node], read: Callable[[WorkerId, Node], WorkerLoads]
    ) -> None:
        self._nodes = nodes
        self._read = read
        self._decoded: dict[WorkerId, WorkerLoads] = {}

    def __getitem__(self, worker: WorkerId) -> WorkerLoads:
        if worker not in self._decoded:
            self._decoded[worker] = self._read(worker, self._nodes[worker])
        return self._decoded[worker]

    def __iter__(self) -> Iterator[WorkerId]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def readable_loads(data: bytes) -> WorkerLoads:
    """Loads of a node; an unreadable one counts as no loads."""
    try:
        return MeasuredLoads(decode_loads(data))
    except UnreadableContent:
        return {}


def settled_rates(loads: Mapping[WorkerId, WorkerLoads]) -> Rates:
    """Rates that have settled."""
    return {
        worker: (entries if isinstance(entries, MeasuredLoads) else MeasuredLoads(entries)).settled
        for worker, entries in loads.items()
    }
