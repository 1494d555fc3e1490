"""Snapshots for the leader, from a tree cache of the fleet, fit to decide on.

**Read your writes.** The tree cache hears of a write by a watch, some time after the store confirmed
it. A plan made in between would be made on a picture that its own leader has already changed; the
versions would refuse most of it, but not what is decided *about* another node (that a worker was
told to let go, say). So the executor notes each write here, and there is no snapshot until the
cache shows them all. If that takes too long, or a write had no answer, everything is read again.

**Presence.** When workers came and went is known to nobody but who watches: it is noted with each
snapshot in monotonic seconds, and begins anew with each leadership.

**A lost watch** must not blind us for ever: everything is read again every 30 s.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Node, Operation
from ureplicator_common.coordination.pending_writes import PendingWrites
from ureplicator_common.znodes import Paths
from ureplicator_controller.core.planning.membership import track_membership
from ureplicator_controller.core.state.snapshot import (
    BalanceLimits,
    DecodeCache,
    Delays,
    ReleaseRequest,
    Snapshot,
    parse,
)

DEBOUNCE_S = 0.1
MIN_PAUSE_S = 0.01
"""Least time between two cycles: the first change is answered at once, those after it together. As long
as the cycle before took, within these bounds: a partition that is handed over waits for two cycles, and
a big fleet, whose cycles take long, shall not keep the leader busy all the time."""
REFRESH_S = 30.0
CATCH_UP_S = 1.0
"""How long the tree cache may lag behind our own writes before everything is read again: a watch takes
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
        self._clock = clock
        self._delays = delays
        self._limits = limits or BalanceLimits()
        self._memo = DecodeCache()
        self._wake = threading.Event()
        self._tree_cache = coordination.tree_cache(self._paths.root, self._wake.set)
        self._pending = PendingWrites()
        self._behind_since_s: float | None = None
        self._unsure = False
        self._refreshed_at_s = clock.monotonic_s()
        self._woke_at_s = 0.0
        self._drawn_from: Mapping[str, int] | None = None
        self._presence = Snapshot(fleet=fleet, epoch=0)
        self.latest: Snapshot | None = None
        """What was decided on last, for other threads to look at; None before that."""

    def wait(self, timeout_s: float) -> None:
        """Until something changed, but no longer; and never more often than the debounce allows."""
        ended_at_s = self._clock.monotonic_s()
        pause_s = min(DEBOUNCE_S, max(MIN_PAUSE_S, ended_at_s - self._woke_at_s))
        self._wake.wait(max(0.0, min(timeout_s, self._refresh_in_s())))
        rest_s = ended_at_s + pause_s - self._clock.monotonic_s()
        if 0 < rest_s <= DEBOUNCE_S:
            threading.Event().wait(rest_s)
        self._wake.clear()
        self._woke_at_s = self._clock.monotonic_s()

    def wake(self) -> None:
        """End a wait, or the next one."""
        self._wake.set()

    def _refresh_in_s(self) -> float:
        return self._refreshed_at_s + REFRESH_S - self._clock.monotonic_s()

    def nodes(self) -> Mapping[str, Node]:
        """As last heard. Raises Unavailable."""
        return self._tree_cache.nodes()

    def is_ready(self) -> bool:
        """Whether the tree cache shows our own writes; reads again what is due. Raises Unavailable."""
        now_s = self._clock.monotonic_s()
        if self._unsure or self._refresh_in_s() <= 0 or self._lags_behind(now_s):
            self.resync()
        if self._pending.are_shown_by(self._tree_cache.nodes()):
            self._behind_since_s = None
        elif self._behind_since_s is None:
            self._behind_since_s = now_s
        return self._behind_since_s is None

    def has_changed(self) -> bool:
        """Whether anything changed that a plan looks at, since the last snapshot."""
        return self._drawn_from != self._fingerprint(self._tree_cache.nodes())

    def snapshot(self) -> Snapshot:
        """The fleet now, with presence. Raises Unavailable."""
        nodes = self._tree_cache.nodes()
        seen = parse(
            nodes,
            self._paths,
            fleet=self._fleet,
            delays=self._delays,
            limits=self._limits,
            wall_ms=self._clock.wall_ms(),
            cache=self._memo,
        )
        self._presence = self.latest = track_membership(
            self._presence, seen, self._clock.monotonic_s()
        )
        self._drawn_from = self._fingerprint(nodes)
        return self._presence

    def remember(
        self,
        release_requested_since: Mapping[ReleaseRequest, float],
        load_review_at_s: float | None,
    ) -> None:
        """What the plan made of the snapshot asked of workers, and when it looks at loads next."""
        self._presence = replace(
            self._presence,
            release_requested_since=release_requested_since,
            load_review_at_s=load_review_at_s,
        )

    def _fingerprint(self, nodes: Mapping[str, Node]) -> Mapping[str, int]:
        """Of loads only who tells any: what they tell changes all the time, see `core.look`."""
        loads, history = self._paths.loads + "/", self._paths.history
        return {
            path: 0 if path.startswith(loads) else node.stat.mzxid
            for path, node in nodes.items()
            if not path.startswith(history)
        }

    def _lags_behind(self, now_s: float) -> bool:
        return self._behind_since_s is not None and now_s - self._behind_since_s > CATCH_UP_S

    def fresh(self) -> Snapshot:
        """The fleet as the store has it now, without presence. Blocks. Raises Unavailable."""
        self._coordination.sync(self._paths.root)
        self._tree_cache.refresh()
        return parse(self._tree_cache.nodes(), self._paths, fleet=self._fleet, delays=self._delays)

    def begin(self) -> None:
        """A leadership begins: nothing noted before counts. Raises Unavailable."""
        self._presence = Snapshot(fleet=self._fleet, epoch=0)
        self.latest = None
        self.forget()
        self.resync()

    def forget(self) -> None:
        """Everything is news: plan again even if nothing changes."""
        self._drawn_from = None

    def resync(self) -> None:
        """Read everything again, after all that the store has confirmed. Raises Unavailable."""
        self._coordination.sync(self._paths.root)
        self._tree_cache.refresh()
        self._pending.clear()
        self._behind_since_s = None
        self._unsure = False
        self._refreshed_at_s = self._clock.monotonic_s()

    def doubt(self) -> None:
        """A write had no answer, or met what we had not seen: read again before the next look."""
        self._unsure = True
        self.forget()

    def expect(self, operations: Sequence[Operation]) -> None:
        """These were written: no snapshot until the tree cache shows them."""
        self._pending.add(operations, self._tree_cache.nodes())

    def close(self) -> None:
        self._tree_cache.close()
