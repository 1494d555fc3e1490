"""A worker process: the real state machine and engines; only the loop between them is ours.

    loop      takes events from the queue, steps, performs (as `daemon.Worker` does)
    reporter  writes what should be there        prover  answers the copiers' asks
    fencer    one thread for each request

Its copiers are processes of their own: they outlive it for a while, and may be frozen without it.
Another worker process may have the same id: the supervisor does not know of the former one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ureplicator_common import znodes
from ureplicator_common.coordination import SessionState, TreeCache, Unavailable
from ureplicator_common.model import (
    Assignment,
    LiveWorker,
    OwnerEpoch,
    Partition,
    Route,
    WorkerId,
)
from ureplicator_testkit.simulation.copiers import Copier
from ureplicator_testkit.simulation.judge import FLEET, PATHS, ROUTE, JudgedStore
from ureplicator_testkit.simulation.kafka import Kafka
from ureplicator_testkit.simulation.kernel import World
from ureplicator_testkit.simulation.members import SESSION_TIMEOUT_S, Member
from ureplicator_worker.core import events as ev
from ureplicator_worker.core.reconcile import WorkerState, initial
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.engines.fencing import Fencer
from ureplicator_worker.engines.ownership_proof import RETRY_S as PROOF_RETRY_S
from ureplicator_worker.engines.ownership_proof import Prover
from ureplicator_worker.engines.reporter import CHECK_S, Reporter
from ureplicator_worker.engines.reporter import RETRY_S as REPORT_RETRY_S
from ureplicator_worker.lifeline import messages as msg
from ureplicator_worker.lifeline.messages import CopierId

TICK_S = 0.7
SILENCE_S = 8.0
START_S = 2.0
GONE_S = 1.0
DRAIN_S = 8.0


class _Prover(Prover):
    """Tells the judge when it proved last, in the store's own time."""

    store: JudgedStore
    proven_at = 0

    def _look_at_live_node(self) -> str:
        stranger = super()._look_at_live_node()
        self.proven_at = self.store.zxid
        return stranger


class Worker(Member):
    def __init__(
        self,
        world: World,
        name: str,
        *,
        id: str,
        slots: int,
        store: JudgedStore,
        kafka: Kafka,
    ) -> None:
        super().__init__(world, name, store)
        self.id = WorkerId(id)
        self._judged, self._kafka = store, kafka
        self._slots = slots
        self._queue: deque[ev.Event] = deque()
        self._ticked_s = 0.0
        self._registered = False
        self._tree_cache: TreeCache | None = None
        self.hung = False
        self.copiers: dict[CopierId, Copier] = {}
        self.state: WorkerState = initial(
            slots=slots, silence_s=SILENCE_S, now_s=world.now_s, routes=(ROUTE,)
        )
        self._make_engines(slots)
        self.client.on_session(self._session_changed)
        self._loop = self.actor("loop", self._turn)
        self._reporting = self.actor("reporter", self._report)
        self._proving = self.actor("proof", self._prove)
        self._reading = self.actor("assignment", self._read_assignment)
        self._reporter.announce(LiveWorker(slots=slots))
        for actor in (self._loop, self._reporting):
            world.soon(actor)

    def _make_engines(self, slots: int) -> None:
        self._reporter = Reporter(
            coordination=self.client,
            paths=PATHS,
            worker=self.id,
            session_timeout_s=SESSION_TIMEOUT_S,
            clock=self.world,
            registered=self._begin,
            taken=self.kill,
        )
        self._prover = _Prover(
            coordination=self.client,
            paths=PATHS,
            worker=self.id,
            slots=slots,
            formers=self._reporter.formers,
            answer=self._answer,
        )
        self._prover.store = self._judged
        self._fencer = Fencer(
            coordination=self.client,
            paths=PATHS,
            fleet=FLEET,
            worker=self.id,
            slots=slots,
            fence=self._fence,
            happened=self._put,
        )

    def drain(self) -> None:
        """SIGTERM."""
        self._put(ev.Drain(DRAIN_S))

    def died(self) -> None:
        super().died()
        for copier in self.copiers.values():
            copier.driver_gone()

    # Engines.

    def _report(self) -> float:
        if not self._reporter._dirty:
            self._reporter._done.clear()
        return CHECK_S if self._reporter.turn() else REPORT_RETRY_S

    def _prove(self) -> float | None:
        if not self._prover.turn():
            return PROOF_RETRY_S
        return 0.01 if self._prover._queue else None

    def _answer(self, copier: CopierId, go: msg.Go) -> None:
        running = self.copiers.get(copier)
        if running is not None and running.alive:
            running.hear_go(go, self._prover.proven_at)

    def _fence(self, route: Route, ids: Sequence[str]) -> None:
        for each in ids:
            self.point("fence a former process")
            self._kafka.ledger.initialise(each)

    # The loop.

    def _put(self, event: ev.Event) -> None:
        self._queue.append(event)
        self.world.soon(self._loop)

    def _turn(self) -> float | None:
        if self.hung:
            return TICK_S
        now_s = self.world.now_s
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            self._step(ev.Tick(now_s))
        while self._queue and self.alive:
            self._step(self._queue.popleft())
        return max(0.01, self._ticked_s + TICK_S - now_s)

    def _step(self, event: ev.Event) -> None:
        self.state, instructions = step(self.state, event)
        for instruction in instructions:
            self._perform(instruction)

    def _perform(self, instruction: ev.Instruction) -> None:
        match instruction:
            case ev.StartCopier(copier):
                delay_s = self.world.chance.random() * START_S
                self.world.later(delay_s, lambda: self._start_copier(copier))
            case ev.AddPartitions(copier, epochs):
                self._send(copier, msg.Add(epochs))
            case ev.RemovePartitions(copier, partitions):
                self._send(copier, msg.Remove(partitions))
            case ev.StopCopier(copier):
                self._send(copier, msg.Stop())
            case ev.KillCopier(copier, reason):
                self._kill_copier(copier, reason)
            case ev.FenceRoute(route):
                self.world.soon(self.actor("fencer", lambda: self._fencer.attempt(route)))
            case ev.Publish(current):
                self._reporter.publish(current)
                self.world.soon(self._reporting)
            case ev.Register():
                self._reporter.refresh()
                self.world.soon(self._reporting)
            case ev.ReadAssignment():
                self.world.soon(self._reading)
            case ev.Exit(code, reason):
                self._leave(code, reason)

    def _leave(self, code: int, reason: str) -> None:
        """The last word is heard, then the session ends at once."""
        self._reporter.turn()
        self.kill(f"exit {code}: {reason}")
        self.store.expire(self.client._session)

    # Copiers.

    def _start_copier(self, id: CopierId) -> None:
        slot = self.state.slots[id.slot]
        if not self.alive or slot.run != id.run or slot.phase is not SlotPhase.STARTING:
            return

        def say(message: msg.Message) -> None:
            self._heard(id, message)

        def over(reason: str) -> None:
            self.world.later(self.world.chance.random() * GONE_S, lambda: self._closed(id))
            self.world.later(GONE_S * 2, lambda: self._put(ev.CopierEnded(id, reason)))

        self.copiers[id] = Copier(
            self._kafka,
            name=f"{self.name}.{id}",
            worker=self.id,
            slot=id.slot,
            terms=self._terms,
            say=say,
            over=over,
        )
        self._put(ev.CopierConnected(id))

    def _terms(self, partition: Partition, epoch: OwnerEpoch) -> int:
        return self._judged.terms.get((partition, self.id, epoch), 0)

    def _send(self, id: CopierId, message: msg.Message) -> None:
        copier = self.copiers.get(id)
        if copier is not None and copier.alive:
            copier.hear(message)

    def _kill_copier(self, id: CopierId, reason: str) -> None:
        copier = self.copiers.get(id)
        if copier is not None and copier.alive:
            copier.kill(reason)
        elif copier is None:
            self._put(ev.CopierEnded(id, reason))

    def _closed(self, id: CopierId) -> None:
        self.copiers.pop(id, None)
        self._prover.forget(id)
        self._put(ev.CopierClosed(id))

    def _heard(self, id: CopierId, message: msg.Message) -> None:
        match message:
            case msg.Report():
                self._put(ev.CopierReported(id, message))
            case msg.Released(partitions):
                self._put(ev.CopierReleased(id, partitions))
            case msg.Failed(partition, reason, temporary):
                self._put(ev.CopierFailed(id, partition, reason, temporary))
            case msg.Ask():
                self._prover.ask(id, message)
                self.world.soon(self._proving)

    # ZooKeeper.

    def _begin(self) -> None:
        """The live node is ours: from now on the assignment counts."""
        self._registered = True
        self._session_changed(self.client.state())
        self._tree_cache = self.client.tree_cache(
            PATHS.assignment(self.id), self._assignment_changed
        )
        self._assignment_changed()

    def _session_changed(self, state: SessionState) -> None:
        session = self.client.session()
        if not self._registered:
            return
        if state is SessionState.CONNECTED and session is not None:
            self._reporter.refresh()
            self.world.soon(self._reporting)
            self._put(ev.SessionRestored(session))
        elif state is SessionState.LOST:
            self._put(ev.SessionLost())
        else:
            self._put(ev.SessionSuspended())

    def _read_assignment(self) -> None:
        if self._tree_cache is None:
            return
        try:
            self.point("read the assignment")
            self._tree_cache.refresh()
        except Unavailable:
            return
        self._assignment_changed()

    def _assignment_changed(self) -> None:
        if self._tree_cache is None:
            return
        try:
            node = self._tree_cache.nodes().get(PATHS.assignment(self.id))
        except Unavailable:
            return
        assignment = Assignment() if node is None else znodes.decode_assignment(node.data)
        zxid = -1 if node is None else node.stat.mzxid
        self._put(ev.AssignmentChanged(assignment.entries, zxid))
