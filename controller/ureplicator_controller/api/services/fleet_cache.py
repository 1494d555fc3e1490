"""State of the fleet as REST shows it: a cached ZooKeeper tree, parsed into one snapshot.

A state is parsed once per change and shared by all requests until the next change: a dashboard that
polls every second costs nothing while the fleet is idle. Loads and usage change all the time, on every
worker; a change of nothing else makes a new state only after `LOADS_MAX_AGE_S`.

**No stale reads.** Each request first checks with `sync` that ZooKeeper responds: the tree cache keeps
showing the last state it received, and the session notices a frozen server only seconds later. Without
a response `Unavailable` is raised, which becomes a 503. After a reconnect the tree cache reads everything
again. Requests that come before wait for one reload that they share.

**Read your writes.** ZooKeeper acknowledges a write before the tree cache receives the change, so the
writer waits in `settle` until the cache shows it, usually some milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Node, SessionState, Unavailable
from ureplicator_common.coordination.pending_writes import PendingWrites
from ureplicator_common.leaf_nodes import leaf_of
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import LiveController, TopicIntent
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.fleet import decode_controller
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.decoding import DecodeCache
from ureplicator_controller.core.state.external_view import ExternalView, external_view
from ureplicator_controller.core.state.snapshot import BalanceLimits, Snapshot, parse
from ureplicator_controller.core.state.topic_tallies import Tallies, TopicTallies

SETTLE_TIMEOUT_S = 1.0
"""Longest wait of a writer for the tree cache; after that it reads the node itself."""
_POLL_INTERVAL_S = 0.005
LOADS_MAX_AGE_S = 5.0
"""Workers write them as often."""


@dataclass(frozen=True, slots=True)
class FleetState:
    """The state that one response is drawn from. `leader` is None while no controller leads."""

    snapshot: Snapshot
    view: ExternalView
    leader: LiveController | None = None
    controllers: Mapping[str, LiveController] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """The nodes that all of it was parsed from, by path."""


class FleetCache:
    """Cache of the fleet's tree; one per process, shared by its threads."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        fleet: str,
        clock: Clock,
        limits: BalanceLimits | None = None,
    ) -> None:
        self.paths = Paths(fleet)
        self._fleet = fleet
        self._coordination = coordination
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._reloading = threading.Lock()
        self._memo = DecodeCache()
        self._state: FleetState | None = None
        self._parsed_at_s = 0.0
        self._compared: Mapping[str, Node] | None = None
        """The nodes that were last compared with those of the state, and whether they differ."""
        self._differs = False
        self._tallying = threading.Lock()
        self._topic_tallies = TopicTallies()
        self._tallied: tuple[FleetState, Tallies] | None = None
        self._losses = self._losses_read = 0
        self._tree_cache = coordination.tree_cache(
            self.paths.root, lambda: None, is_leaf=leaf_of(self.paths)
        )
        coordination.on_session(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._losses += 1

    def current(self) -> FleetState:
        """The state of the fleet now. Raises Unavailable."""
        self.check()
        if self._losses_read != self._losses:
            self._reload()
        nodes = self._tree_cache.nodes()
        with self._lock:
            if self._state is None or not self._is_shown(nodes, self._state):
                self._state, self._parsed_at_s = self._parsed(nodes), self._clock.monotonic_s()
            return self._state

    def _is_shown(self, nodes: Mapping[str, Node], state: FleetState) -> bool:
        """True if the state is that of the nodes, but for loads that are not old yet."""
        if state.nodes is nodes:
            return True
        if self._clock.monotonic_s() - self._parsed_at_s >= LOADS_MAX_AGE_S:
            return False
        if self._compared is not nodes:
            self._compared = nodes
            self._differs = _differ(
                state.nodes,
                nodes,
                but=(f"{self.paths.measures.loads}/", f"{self.paths.measures.usages}/"),
            )
        return not self._differs

    def _reload(self) -> None:
        """Have everything read again after a lost connection: none gets a state from before the loss.
        Concurrent requests share it."""
        losses = self._losses
        with self._reloading:
            if self._losses_read < losses:
                if not self._tree_cache.is_current():
                    self._tree_cache.refresh()
                self._losses_read = losses

    def intents(self) -> Mapping[TopicKey, TopicIntent]:
        """The intents of all whitelisted topics. Raises Unavailable."""
        return {key: stored.value for key, stored in self.current().snapshot.topics.items()}

    def tallies(self, state: FleetState) -> Tallies:
        """Tallies of the topics of a state; only those that changed since the last call are made anew."""
        with self._tallying:
            last = self._tallied
            if last is None or last[0] is not state:
                last = self._tallied = state, self._topic_tallies.of(state.snapshot, state.view)
            return last[1]

    def check(self) -> None:
        """Raise Unavailable unless ZooKeeper responds; without a connection at once, with the reason."""
        self._coordination.sync(self.paths.root)

    def settle(self, *paths: str, wait: Callable[[float], None] = time.sleep) -> None:
        """Return when the tree cache shows at least the present versions of `paths`. Never raises: the
        writes themselves have succeeded."""
        try:
            written = PendingWrites()
            for path in paths:
                written.expect(path, self._coordination.get(path))
            deadline_s = self._clock.monotonic_s() + SETTLE_TIMEOUT_S
            while not written.are_shown_by(self._tree_cache.nodes()):
                if self._clock.monotonic_s() >= deadline_s:
                    self._tree_cache.refresh({path})
                    return
                wait(_POLL_INTERVAL_S)
        except Unavailable:
            return

    def close(self) -> None:
        self._tree_cache.close()

    def _parsed(self, nodes: Mapping[str, Node]) -> FleetState:
        snapshot = parse(
            nodes,
            self.paths,
            fleet=self._fleet,
            wall_ms=self._clock.wall_ms(),
            limits=self._limits,
            cache=self._memo,
        )
        before = (self._state.snapshot, self._state.view) if self._state else None
        leader = nodes.get(self.paths.leader)
        below = f"{self.paths.controllers}/"
        return FleetState(
            snapshot=snapshot,
            view=external_view(snapshot, before),
            leader=_controller(leader) if leader else None,
            controllers={
                path.removeprefix(below): _controller(node)
                for path, node in nodes.items()
                if path.startswith(below)
            },
            nodes=nodes,
        )


def _differ(one: Mapping[str, Node], other: Mapping[str, Node], *, but: tuple[str, ...]) -> bool:
    """True if nodes differ, other than in the contents of those that begin with one of `but`."""
    return len(one) != len(other) or any(
        one.get(path) is not node and (path not in one or not path.startswith(but))
        for path, node in other.items()
    )


def _controller(node: Node) -> LiveController:
    try:
        return decode_controller(node.data)
    except UnreadableContent:
        return LiveController(id="?")
