"""Observer of the fleet for the leader: snapshots from a cached tree, fit to decide on.

**Read your writes.** The tree cache receives a change by a watch, some time after ZooKeeper confirmed
the write. A plan made in between would be made on a state that its own leader has already changed; the
versions would refuse most of its writes, but not what is decided *about* another node (for example that
a worker was requested to release a partition). So the executor registers each write here, and there is
no snapshot until the cache shows them all. If that takes too long, or a write was refused or its outcome is
unknown, the nodes that it was about are read again.

**Membership.** When workers joined and vanished is known only to a process that watches: it is recorded
with each snapshot in monotonic seconds, and starts from zero with each leadership.

**An outage.** A new connection is there before the cache has read anything over it. A plan on the picture of
before would take partitions from workers that are back. So there is none until the cache's own thread has
read everything again.

**Lost watches** are bounded in their effect: the cache's thread compares all nodes with the servers in turn,
`VERIFIED_PER_S` of them, in a standby as well. So a quiet fleet costs ZooKeeper the same however large it is,
the control thread waits for none of it, and a new leader need not read everything first.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Node, Operation
from ureplicator_common.coordination.pending_writes import PendingWrites
from ureplicator_common.leaf_nodes import leaf_of
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.planning.membership import track_membership
from ureplicator_controller.core.state.decoding import DecodeCache
from ureplicator_controller.core.state.snapshot import (
    BalanceLimits,
    Delays,
    PendingRelease,
    ReleaseRequest,
    Snapshot,
    parse,
)

DEBOUNCE_S = 0.1
MIN_PAUSE_S = 0.01
"""Bounds of the pause between two cycles: the first change is handled at once, the following ones
together. The pause is as long as the previous cycle took, within these bounds: the handover of a
partition takes two cycles, and the long cycles of a large fleet must not keep the leader always busy."""
VERIFIED_PER_S = 100
"""Nodes compared with the servers: all 2,000 of a fleet with 1,000 topics in 20 s."""
MAX_VERIFIED = 500
"""Nodes that are compared at a time: about a tenth of a second of the cache's thread."""
PREPARE_INTERVAL_S = 10.0
"""Time between two readings of a standby: each takes some hundredths of a second in a large fleet."""
CATCH_UP_TIMEOUT_S = 1.0
"""Longest lag of the tree cache behind the own writes before everything is read again: a watch takes
milliseconds."""


class Observer:
    """One per process; `snapshot` is for the control thread, `fresh` for any."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        fleet: str,
        clock: Clock,
        delays: Delays,
        limits: BalanceLimits | None = None,
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._paths = Paths(fleet)
        self._of_workers = (
            self._paths.workers_live,
            self._paths.workers_known,
            self._paths.assignments,
            self._paths.current,
            self._paths.epoch,
            self._paths.leader,
        )
        self._clock = clock
        self._delays = delays
        self._limits = limits or BalanceLimits()
        self._decode_cache = DecodeCache()
        self._wake = threading.Event()
        self._tree_cache = coordination.tree_cache(
            self._paths.root, self._wake.set, is_leaf=leaf_of(self._paths)
        )
        self._pending = PendingWrites()
        self._behind_since_s: float | None = None
        self._doubtful: set[str] = set()
        self._verified_at_s = clock.monotonic_s()
        self._woke_at_s = 0.0
        self._prepared_at_s: float | None = None
        self._seen_nodes: Mapping[str, Node] | None = None
        """Nodes in which nothing has changed since the last snapshot; None: plan again, whatever has
        changed."""
        measures = self._paths.measures
        self._loads = f"{measures.loads}/"
        self._ignored = (
            self._paths.history,
            self._paths.syncs,
            self._paths.isolated,
            measures.usages,
        )
        self._membership = Snapshot(fleet=fleet, epoch=0)
        self.latest: Snapshot | None = None
        """The last snapshot that a plan was made on, for other threads; None before the first."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something changes, at most this long, and at least for the debounce pause."""
        ended_at_s = self._clock.monotonic_s()
        pause_s = min(DEBOUNCE_S, max(MIN_PAUSE_S, ended_at_s - self._woke_at_s))
        self._wake.wait(max(0.0, timeout_s))
        rest_s = ended_at_s + pause_s - self._clock.monotonic_s()
        if 0 < rest_s <= DEBOUNCE_S:
            threading.Event().wait(rest_s)
        self._wake.clear()
        self._woke_at_s = self._clock.monotonic_s()

    def wake(self) -> None:
        """End a wait, or the next one."""
        self._wake.set()

    def nodes(self) -> Mapping[str, Node]:
        """The cached nodes. Raises Unavailable."""
        return self._tree_cache.nodes()

    def is_ready(self) -> bool:
        """True if the tree cache shows the own writes; reads what is doubtful. Raises Unavailable.

        For the leader: a standby decides nothing, and reads the leader node by itself.
        """
        if not self._tree_cache.is_current():
            return False
        now_s = self._clock.monotonic_s()
        if self._doubtful or self._lags_behind(now_s):
            self._read_again({*self._doubtful, *self._pending.paths()})
        if self._pending.are_shown_by(self._tree_cache.nodes()):
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = now_s
        return self._behind_since_s is None

    def verify(self) -> None:
        """Have some nodes compared with the servers, by the time since the last call."""
        now_s = self._clock.monotonic_s()
        count = min(MAX_VERIFIED, int((now_s - self._verified_at_s) * VERIFIED_PER_S))
        if count:
            self._tree_cache.verify(count)
            self._verified_at_s = now_s

    def has_changed(self) -> bool:
        """True if anything that a plan depends on has changed since the last snapshot."""
        nodes, seen = self._tree_cache.nodes(), self._seen_nodes
        if seen is None or (nodes is not seen and self._differ(seen, nodes)):
            return True
        self._seen_nodes = nodes
        return False

    def snapshot(self) -> Snapshot:
        """The fleet now, with membership. Raises Unavailable."""
        nodes = self._tree_cache.nodes()
        self._membership = self.latest = track_membership(
            self._membership, self._parsed(nodes), self._clock.monotonic_s()
        )
        self._seen_nodes = nodes
        return self._membership

    def prepared(self) -> Snapshot | None:
        """The fleet now, without membership, every `PREPARE_INTERVAL_S`. Raises Unavailable.

        For a standby: what it has decoded and indexed, it need not decode and index before its first plan as
        the leader.
        """
        now_s = self._clock.monotonic_s()
        if self._prepared_at_s is not None and now_s - self._prepared_at_s < PREPARE_INTERVAL_S:
            return None
        self._prepared_at_s = now_s
        return self._parsed(self._tree_cache.nodes())

    def _parsed(self, nodes: Mapping[str, Node]) -> Snapshot:
        return parse(
            nodes,
            self._paths,
            fleet=self._fleet,
            delays=self._delays,
            limits=self._limits,
            wall_ms=self._clock.wall_ms(),
            cache=self._decode_cache,
        )

    def remember(
        self,
        pending_releases: Mapping[ReleaseRequest, PendingRelease],
        load_review_at_s: float | None,
    ) -> None:
        """Carry over from the last plan: open release requests and the time of the next load review."""
        self._membership = replace(
            self._membership,
            pending_releases=pending_releases,
            load_review_at_s=load_review_at_s,
        )

    def _differ(self, seen: Mapping[str, Node], nodes: Mapping[str, Node]) -> bool:
        """True if nodes differ that a plan depends on. Of loads only which workers report any: the figures
        change all the time, see `core.planning.load_review`. Plans know nothing of usage.

        Most nodes are the same objects in both, and need no other look.
        """
        replaced = {
            path: before for path, node in nodes.items() if (before := seen.get(path)) is not node
        }
        for path, before in replaced.items():
            if path.startswith(self._ignored):
                continue
            if before is None:
                return True
            if not path.startswith(self._loads) and before.stat.mzxid != nodes[path].stat.mzxid:
                return True
        created = sum(before is None for before in replaced.values())
        if len(seen) + created == len(nodes):
            return False
        return any(not path.startswith(self._ignored) for path in seen.keys() - nodes.keys())

    def _lags_behind(self, now_s: float) -> bool:
        return (
            self._behind_since_s is not None and now_s - self._behind_since_s > CATCH_UP_TIMEOUT_S
        )

    def fresh(self) -> Snapshot:
        """The fleet, read after a `sync`, without membership. Blocks. Raises Unavailable."""
        self._coordination.sync(self._paths.root)
        self._tree_cache.refresh()
        return parse(self._tree_cache.nodes(), self._paths, fleet=self._fleet, delays=self._delays)

    def begin_leadership(self) -> None:
        """Drop all state of a former leadership; read the nodes of workers again, and what watches have
        reported. Raises Unavailable."""
        self._membership = Snapshot(fleet=self._fleet, epoch=0)
        self.latest = None
        self.force_plan()
        nodes = self._tree_cache.nodes() if self._tree_cache.is_current() else {}
        self._read_again({path for path in nodes if path.startswith(self._of_workers)})

    def force_plan(self) -> None:
        """Treat everything as changed: plan again."""
        self._seen_nodes = None

    def _read_again(self, paths: Collection[str]) -> None:
        """Read these paths after a `sync`: all that is pending or doubtful among them. Raises Unavailable."""
        self._coordination.sync(self._paths.root)
        self._tree_cache.refresh(paths)
        self._pending.clear()
        self._doubtful.clear()
        self._behind_since_s = None

    def doubt(self, operations: Sequence[Operation]) -> None:
        """Read the nodes of this write again before the next snapshot: its outcome is unknown, or it met a
        state that the cache did not show."""
        self._doubtful.update(operation.path for operation in operations)
        self.force_plan()

    def expect(self, operations: Sequence[Operation]) -> None:
        """Make no snapshot until the tree cache shows these writes."""
        self._pending.add(operations, self._tree_cache.nodes())

    def close(self) -> None:
        self._tree_cache.close()
