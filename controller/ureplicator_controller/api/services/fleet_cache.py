"""The fleet as REST shows it: a cache of its ZooKeeper tree, read as one snapshot.

A picture is made once per change and shared by all requests until the next one: a dashboard that
asks every second costs nothing in a fleet at rest.

**Honest when blind.** Before each picture ZooKeeper is asked to answer something (`sync`): a
cache goes on showing what it last heard, and a server that is frozen and not dead is noticed by
the session only seconds later. Without an answer there is no picture but `Unavailable`, which
becomes a 503. What changed while the connection was lost is heard of some time after it is back, so
the first picture after that is read anew.

**One reads what one wrote.** A write is acknowledged by ZooKeeper before the tree cache has heard of
it, so the writer waits here (`settle`) until the tree cache shows it, some milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Node, SessionState, Unavailable
from ureplicator_common.coordination.pending_writes import PendingWrites
from ureplicator_common.model import LiveController, TopicIntent, TopicKey
from ureplicator_common.znodes import Paths, UnreadableContent, decode_controller
from ureplicator_controller.core.state.external_view import ExternalView, external_view
from ureplicator_controller.core.state.snapshot import DecodeCache, Snapshot, parse

SETTLE_S = 1.0
"""How long a writer waits for its own tree cache; after that it reads everything anew."""
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class FleetState:
    """What one answer is made of. `leader` is None while nobody leads."""

    snapshot: Snapshot
    view: ExternalView
    leader: LiveController | None = None
    controllers: Mapping[str, LiveController] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """What it was drawn from."""


class FleetCache:
    """Reads the fleet's tree; one per process, shared by its threads."""

    def __init__(self, coordination: Coordination, *, fleet: str, clock: Clock) -> None:
        self.paths = Paths(fleet)
        self._fleet = fleet
        self._coordination = coordination
        self._clock = clock
        self._lock = threading.Lock()
        self._memo = DecodeCache()
        self._picture: FleetState | None = None
        self._drawn_from: Mapping[str, Node] | None = None
        self._losses = self._losses_read = 0
        self._tree_cache = coordination.tree_cache(self.paths.root, lambda: None)
        coordination.on_session(self._session_changed)

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._losses += 1

    def current(self) -> FleetState:
        """The fleet now. Raises Unavailable."""
        self.check()
        if self._losses_read != self._losses:
            self._open_eyes()
        nodes = self._tree_cache.nodes()
        with self._lock:
            if self._picture is None or self._drawn_from is not nodes:
                self._picture = self._draw(nodes)
                self._drawn_from = nodes
            return self._picture

    def _open_eyes(self) -> None:
        """Those who ask meanwhile read as well: whoever is answered was not blind."""
        losses = self._losses
        self._tree_cache.refresh()
        self._losses_read = losses

    def intents(self) -> Mapping[TopicKey, TopicIntent]:
        """What is whitelisted now. Raises Unavailable."""
        return {key: stored.value for key, stored in self.current().snapshot.topics.items()}

    def check(self) -> None:
        """Raise Unavailable unless ZooKeeper answers."""
        state = self._coordination.state()
        if state is not SessionState.CONNECTED:
            raise Unavailable(f"no connection ({state.value})")
        self._coordination.sync(self.paths.root)

    def settle(self, path: str, *, wait: Callable[[float], None] = time.sleep) -> None:
        """Return when the tree cache shows at least what `path` holds now. Never raises: it is done."""
        try:
            written = PendingWrites()
            written.expect(path, self._coordination.get(path))
            deadline_s = self._clock.monotonic_s() + SETTLE_S
            while not written.are_shown_by(self._tree_cache.nodes()):
                if self._clock.monotonic_s() >= deadline_s:
                    self._tree_cache.refresh()
                    return
                wait(_POLL_S)
        except Unavailable:
            return

    def close(self) -> None:
        self._tree_cache.close()

    def _draw(self, nodes: Mapping[str, Node]) -> FleetState:
        snapshot = parse(
            nodes, self.paths, fleet=self._fleet, wall_ms=self._clock.wall_ms(), cache=self._memo
        )
        leader = nodes.get(self.paths.leader)
        below = f"{self.paths.controllers}/"
        return FleetState(
            snapshot=snapshot,
            view=external_view(snapshot),
            leader=_controller(leader) if leader else None,
            controllers={
                path.removeprefix(below): _controller(node)
                for path, node in nodes.items()
                if path.startswith(below)
            },
            nodes=nodes,
        )


def _controller(node: Node) -> LiveController:
    try:
        return decode_controller(node.data)
    except UnreadableContent:
        return LiveController(id="?")
