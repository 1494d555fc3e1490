"""What workers measured, as decisions may use it.

Every worker writes its loads every few seconds, so in a big fleet they are most of what changes, and
hardly anybody asks for them: a `DecodedLoads` decodes a worker's node when it is asked for that worker.
The leader asks when it places something, and every `LOAD_REVIEW_INTERVAL_S` to even out and to find what is
stuck; it does not wake up because a load changed.

**Unknown is not zero.** A partition's rate counts once its owner copied it for `SETTLED_S`. Before
that, or if its worker tells nothing (an older version, a node that cannot be read), nothing is
known: for sums it is taken to be as busy as the others are on average, and its worker is left out
when loads are evened out. So nothing is decided on the rates of what has just moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.coordination import Node
from ureplicator_common.model import Partition, PartitionLoad, WorkerId
from ureplicator_common.znodes import UnreadableContent, decode_loads

LOAD_REVIEW_INTERVAL_S = 60.0
SETTLED_S = 240.0
"""Most of the window over which workers average (300 s)."""
NEGLIGIBLE_BYTES_PER_S = float(1 << 20)
"""What one slot copies in about ten milliseconds: differences below are nobody's trouble."""

WorkerLoads = Mapping[Partition, PartitionLoad]
Rates = Mapping[WorkerId, Mapping[Partition, float]]
"""Settled bytes per second, as the worker that owns the partition measured them."""


class DecodedLoads(Mapping[WorkerId, WorkerLoads]):
    """Worker -> what it measured; what cannot be read is as if it had not been written."""

    def __init__(self, nodes: Mapping[WorkerId, Node]) -> None:
        self._nodes = nodes
        self._decoded: dict[WorkerId, WorkerLoads] = {}

    def __getitem__(self, worker: WorkerId) -> WorkerLoads:
        if worker not in self._decoded:
            self._decoded[worker] = _decode(self._nodes[worker])
        return self._decoded[worker]

    def __iter__(self) -> Iterator[WorkerId]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _decode(node: Node) -> WorkerLoads:
    try:
        return decode_loads(node.data)
    except UnreadableContent:
        return {}


def settled_rates(loads: Mapping[WorkerId, WorkerLoads]) -> Rates:
    """All that is known. A partition that makes no progress will not be measured any better."""
    return {
        worker: {
            partition: load.steady_bytes_per_s
            for partition, load in entries.items()
            if load.measured_s >= SETTLED_S or load.no_progress_s >= SETTLED_S
        }
        for worker, entries in loads.items()
    }
