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

from ureplicator_common.coordination import Node
from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.workers import decode_loads
from ureplicator_controller.core.state.decoding import Stored

LOAD_REVIEW_INTERVAL_S = 60.0
SETTLED_S = 240.0
"""Most of the window over which workers average (300 s)."""
NEGLIGIBLE_BYTES_PER_S = float(1 << 20)
"""Rate that one slot copies in about ten milliseconds. Smaller differences between workers are ignored."""

RECENT_WRITES = 2
"""Loads that were written so many times since count as recent: a worker writes them every ten seconds."""

WorkerLoads = Mapping[Partition, PartitionLoad]
_NO_LOADS: WorkerLoads = {}
Rates = Mapping[WorkerId, Mapping[Partition, float]]
"""Settled bytes per second, as measured by the worker that owns the partition."""


class MeasuredLoads(dict[Partition, PartitionLoad]):
    """Loads of one worker, with their settled rates, which are found once."""

    @cached_property
    def settled(self) -> Mapping[Partition, float]:
        """Settled rates, also of partitions that have made no progress for as long."""
        return {
            partition: load.steady_bytes_per_s
            for partition, load in self.items()
            if load.measured_s >= SETTLED_S or load.no_progress_s >= SETTLED_S
        }


class DecodedLoads(Mapping[WorkerId, WorkerLoads]):
    """Worker -> its loads, decoded by `read` on first access. `last`: those that were decoded last, which may
    be of an earlier write."""

    def __init__(
        self,
        nodes: Mapping[WorkerId, Node],
        read: Callable[[WorkerId, Node], WorkerLoads],
        last: Callable[[WorkerId], Stored[WorkerLoads] | None],
    ) -> None:
        self._nodes = nodes
        self._read = read
        self._last = last
        self._decoded: dict[WorkerId, WorkerLoads] = {}

    def __getitem__(self, worker: WorkerId) -> WorkerLoads:
        if worker not in self._decoded:
            self._decoded[worker] = self._read(worker, self._nodes[worker])
        return self._decoded[worker]

    def recent(self, worker: WorkerId) -> WorkerLoads:
        """Loads that are at most `RECENT_WRITES` writes old, decoded only if there are none; empty if it has
        written none."""
        node, last = self._nodes.get(worker), self._last(worker)
        if node is None:
            return _NO_LOADS
        stat = node.stat
        if last is not None and last.owner == stat.owner and _is_recent(last.version, stat.version):
            return last.value
        return self[worker]

    def __iter__(self) -> Iterator[WorkerId]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _is_recent(version: int, newest: int) -> bool:
    return 0 <= newest - version <= RECENT_WRITES


def recent_loads(loads: Mapping[WorkerId, WorkerLoads], worker: WorkerId) -> WorkerLoads:
    """Loads of a worker for people, whom some seconds do not matter; empty if it has none."""
    if isinstance(loads, DecodedLoads):
        return loads.recent(worker)
    return loads.get(worker, _NO_LOADS)


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
