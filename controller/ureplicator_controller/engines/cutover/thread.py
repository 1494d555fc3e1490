"""The thread that carries cutovers out while this process leads.

It alone writes `cutovers/<name>`, fenced by the leader's epoch, at the version that it has read. A step is
taken, then its result is written; both go on until a cutover has to wait. What a step does at the clusters is
not fenced, so it may be done twice, by this leader or by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination
from ureplicator_common.cutovers import Cutover, Wanted
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Route
from ureplicator_common.znodes.cutovers import decode_cutover, encode_cutover
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.cutover.progress import next_run, waiting
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.cutover.clusters import (
    CutoverClusters,
    FenceProgram,
    OpenClusters,
)
from ureplicator_controller.engines.cutover.fencing import Fencing
from ureplicator_controller.engines.cutover.moving import Moving
from ureplicator_controller.engines.cutover.rehearsal import Rehearsal
from ureplicator_controller.engines.cutover.turning import Turning
from ureplicator_controller.engines.fenced_writer import FencedNode, FencedWriter, WriteOutcome
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.syncs.thread import NOT_LEADING_S, STOP_TIMEOUT_S, Seen, Term

log = logging.getLogger(__name__)

BUSY_S = 0.05
"""Time between two looks at what a cutover waits for: clients are kept from writing meanwhile."""
OPENED_S = 0.2
"""The same once they may write again."""
IDLE_S = 0.2
FOLLOW_S = 1.0
"""Time between two looks at groups that have not gone over yet."""
RETRY_S = 1.0
MAX_STEPS = 20
"""Steps of one cutover in one round: more than there are states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverNeeds:
    """What the thread needs of its process. `proven`: the fleet, read now while this process leads."""

    fleet: str
    coordination: Coordination
    paths: Paths
    writer: FencedWriter
    open_clusters: OpenClusters
    program: FenceProgram
    seen: Seen
    proven: Callable[[], Snapshot | None]
    clock: Clock


class CutoverThread:
    """All cutovers of a fleet; `run_once` is one round, for tests to call."""

    def __init__(self, needs: CutoverNeeds) -> None:
        self._needs = needs
        self._clusters: dict[Route, CutoverClusters] = {}
        self._nodes: dict[str, FencedNode] = {}
        self._known: dict[str, Cutover] = {}
        self._rehearsals: dict[str, Rehearsal] = {}
        self._followed_at_s: dict[str, float] = {}
        self._epoch: int | None = None
        self._thread = PeriodicThread(self.run_once, name="cutovers", first_after_s=IDLE_S)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop; a thread that still waits for a cluster ends with the process."""
        if self._thread.stop(STOP_TIMEOUT_S):
            self._disconnect()

    def run_once(self) -> float:
        """One round; returns the wait until the next one."""
        seen = self._needs.seen()
        if seen is None or seen[0] != self._epoch:
            self._begin(None if seen is None else seen[0])
        if seen is None:
            return NOT_LEADING_S
        epoch, snapshot = seen
        waits = [
            self._carried_on(name, epoch, snapshot)
            for name in sorted({*snapshot.cutovers, *snapshot.cutover_requests})
        ]
        if not any(is_busy(cutover) for cutover in self._known.values()):
            self._disconnect()
        return min(waits, default=IDLE_S)

    def _begin(self, epoch: int | None) -> None:
        """Forget what another term knew."""
        self._epoch = epoch
        self._nodes, self._known, self._rehearsals = {}, {}, {}
        self._disconnect()

    def _disconnect(self) -> None:
        for clusters in self._clusters.values():
            clusters.close()
        self._clusters = {}

    def _carried_on(self, name: str, epoch: int, snapshot: Snapshot) -> float:
        """Bring one cutover on as far as it goes; a failure delays no other one."""
        try:
            return self._carry_on(name, epoch, snapshot)
        except OperatingError as error:
            self._nodes.pop(name, None)
            log.warning("cutover %s: trying again: %s", name, error)
            return max(RETRY_S, self._told(name, str(error), epoch))
        except Exception as error:  # the clients of these topics wait for it
            self._nodes.pop(name, None)
            log.exception("cutover %s: trying again in %g s", name, RETRY_S)
            return max(RETRY_S, self._told(name, f"{type(error).__name__}: {error}", epoch))

    def _told(self, name: str, error: str, epoch: int) -> float:
        """Show operators what fails, if ZooKeeper is not what does. The node may be another one than was
        known: a write whose outcome is not known may have been made."""
        try:
            node = self._node(name)
            data = node.read()
            found = None if data is None else decode_cutover(data)
            if found is None or not is_busy(found):
                return RETRY_S
            self._write(name, node, waiting(found, [error]), epoch)
        except OperatingError as another:
            log.warning("cutover %s: %s", name, another)
            return RETRY_S
        return BUSY_S

    def _node(self, name: str) -> FencedNode:
        needs = self._needs
        return FencedNode(needs.coordination, needs.paths.cutovers.state(name), needs.writer)

    def _carry_on(self, name: str, epoch: int, snapshot: Snapshot) -> float:
        cutover = self._current(name, snapshot)
        request = snapshot.cutover_requests.get(name)
        if request is not None:
            begun = next_run(request.value, cutover)
            if begun is not None:
                cutover = self._stored(name, begun, epoch)
        if cutover is None or not is_busy(cutover):
            return IDLE_S
        term = Term(epoch, seen=self._needs.seen, clock=self._needs.clock)
        for _ in range(MAX_STEPS):
            after = self._step(name, cutover, snapshot, term)
            if after == cutover:
                break
            moved_on = after.state is not cutover.state or after.steps != cutover.steps
            is_same_wait = replace(after, waits=cutover.waits) == cutover
            cutover = self._stored(name, after, epoch)
            if not is_busy(cutover) or (is_same_wait and not moved_on):
                break
        if not is_busy(cutover):
            return IDLE_S
        return BUSY_S if cutover.state in BEFORE_OPEN else OPENED_S

    def _current(self, name: str, snapshot: Snapshot) -> Cutover | None:
        """The node as this leader has written it, or as ZooKeeper has it."""
        if name not in self._nodes:
            self._nodes[name] = node = self._node(name)
            data = node.read()
            if data is not None:
                self._known[name] = decode_cutover(data)
        return self._known.get(name)

    def _stored(self, name: str, cutover: Cutover, epoch: int) -> Cutover:
        """The cutover, written. Raises OperatingError."""
        return self._write(name, self._nodes[name], cutover, epoch)

    def _write(self, name: str, node: FencedNode, cutover: Cutover, epoch: int) -> Cutover:
        if not node.write(encode_cutover(cutover), epoch=epoch):
            raise NotWritten(f"the node of cutover {name} was not written")
        before = self._known.get(name)
        if before is None or (before.state, before.run) != (cutover.state, cutover.run):
            log.info("cutover %s: %s %s", name, cutover.state, cutover.reason)
        self._known[name] = cutover
        return cutover

    def _step(self, name: str, cutover: Cutover, snapshot: Snapshot, term: Term) -> Cutover:
        needs = self._needs
        clusters = self._opened(cutover.plan.route)
        fencing = Fencing(name, clusters, needs.program, leads=lambda: self._leads(term.epoch))
        is_recent = term.reading()
        moving = Moving(
            fleet=needs.fleet,
            clusters=clusters,
            fencing=fencing,
            clock=needs.clock,
            may_write=lambda: is_recent() and self._leads(term.epoch),
        )
        if cutover.state not in BEFORE_OPEN:
            turning = Turning(
                coordination=needs.coordination,
                paths=needs.paths,
                writer=needs.writer,
                fencing=fencing,
                moving=moving,
                copies=clusters.copies,
                proven=needs.proven,
                clock=needs.clock,
                epoch=term.epoch,
                follows=self._follows(name),
            )
            return turning.step(cutover, snapshot)
        if cutover.wanted is Wanted.ABORT:
            return moving.take_back(cutover)
        if cutover.wanted is Wanted.REHEARSE:
            return self._rehearsed(name, moving, cutover, snapshot)
        return moving.step(cutover, snapshot)

    def _leads(self, epoch: int) -> bool:
        """Proof that this process leads: a write that changes nothing. Raises Unavailable."""
        return self._needs.writer.write((), epoch=epoch) is WriteOutcome.DONE

    def _follows(self, name: str) -> bool:
        now_s = self._needs.clock.monotonic_s()
        if now_s < self._followed_at_s.get(name, now_s):
            return False
        self._followed_at_s[name] = now_s + FOLLOW_S
        return True

    def _rehearsed(
        self, name: str, moving: Moving, cutover: Cutover, snapshot: Snapshot
    ) -> Cutover:
        rehearsal = self._rehearsals.pop(name, None)
        if rehearsal is None or rehearsal.run != cutover.run:
            rehearsal = Rehearsal(cutover.run, clock=self._needs.clock)
        after = rehearsal.step(moving, cutover, snapshot)
        if after.wanted is Wanted.REHEARSE:
            self._rehearsals[name] = rehearsal
        return after

    def _opened(self, route: Route) -> CutoverClusters:
        if route not in self._clusters:
            self._clusters[route] = self._needs.open_clusters(route)
        return self._clusters[route]


class NotWritten(OperatingError):
    """A node was not written: this process does not lead any more, or ZooKeeper did not say."""


def is_busy(cutover: Cutover) -> bool:
    """True if there is something to do for it now."""
    return cutover.state not in AT_REST and cutover.wanted is not Wanted.PLAN
