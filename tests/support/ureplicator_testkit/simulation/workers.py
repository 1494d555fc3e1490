"""Worker process: the real state machine and engines; only the loop between them is simulated.

    loop        takes events from the queue, steps, performs instructions (as the daemon does)
    publisher   writes the worker's nodes
    proof       responds to the copiers' proof requests
    assignment  reads the assignment again
    fencer      one thread per request

Its copiers are processes of their own: they outlive it for a while, and may freeze without it.
Another worker process may have the same id, as when a supervisor starts a second one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ureplicator_common.coordination import SessionState
from ureplicator_common.model import OwnerEpoch, Partition, Route, WorkerId
from ureplicator_common.znode_contents import LiveWorker
from ureplicator_testkit.simulation.copiers import Copier
from ureplicator_testkit.simulation.judge import FLEET, PATHS, JudgedStore
from ureplicator_testkit.simulation.kafka import Kafka
from ureplicator_testkit.simulation.kernel import World
from ureplicator_testkit.simulation.sessions import SESSION_TIMEOUT_S, SessionProcess
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.slots import SlotPhase
from ureplicator_worker.core.state import WorkerState, initial
from ureplicator_worker.core.state_machine import step
from ureplicator_worker.engines.assignment import AssignmentWatch
from ureplicator_worker.engines.copier_inbox import CopierInbox
from ureplicator_worker.engines.fencing import Fencer
from ureplicator_worker.engines.ownership_proof import RETRY_S as PROOF_RETRY_S
from ureplicator_worker.engines.ownership_proof import Nodes, OwnershipProver
from ureplicator_worker.engines.publisher import CHECK_EVERY_S, NodePublisher
from ureplicator_worker.engines.publisher import RETRY_S as REPORT_RETRY_S
from ureplicator_worker.lifeline import messages
from ureplicator_worker.lifeline.messages import CopierId
from ureplicator_worker.lifeline.server import Disconnected

TICK_S = 0.7
SILENCE_S = 8.0
START_S = 2.0
GONE_S = 1.0
DRAIN_S = 8.0
LEAVE_S = 30.0
CAPACITY_TIMEOUT_S = 10.0


class _Prover(OwnershipProver):
    """Records the time of its last proof for the judge, as a zxid of the store."""

    store: JudgedStore
    proven_at = 0

    def _read(self, paths: Sequence[str]) -> Nodes:
        nodes = super()._read(paths)
        self.proven_at = self.store.zxid
        return nodes


class _Processes:
    """Simulated copiers have no process to watch."""

    def connected(self, copier: CopierId, pid: int, pid_space: str) -> None:
        pass


class Worker(SessionProcess):
    def __init__(
        self,
        world: World,
        name: str,
        *,
        id: str,
        slots: int,
        tags: tuple[str, ...],
        store: JudgedStore,
        kafkas: Mapping[Route, Kafka],
    ) -> None:
        super().__init__(world, name, store)
        self.id = WorkerId(id)
        self._judged, self._kafkas = store, kafkas
        self.slots = slots
        self._queue: deque[events.Event] = deque()
        self._ticked_s = 0.0
        self.hung = False
        self.leaves = False
        self.copiers: dict[CopierId, Copier] = {}
        self.state: WorkerState = initial(
            slots=slots,
            silence_s=SILENCE_S,
            now_s=world.now_s,
            capacity_timeout_s=CAPACITY_TIMEOUT_S,
            routes=tuple(kafkas),
        )
        self._room_at_s = 0.0
        self._make_engines(slots)
        self.client.on_session(self._session_changed)
        self._loop = self.actor("loop", self._turn)
        self._reporting = self.actor("publisher", self._report)
        self._proving = self.actor("proof", self._prove)
        self._reading = self.actor("assignment", self._read_assignment)
        self._publisher.announce(LiveWorker(slots=slots, tags=tags))
        for actor in (self._loop, self._reporting):
            world.soon(actor)

    def _make_engines(self, slots: int) -> None:
        self._assignment = AssignmentWatch(
            coordination=self.client, path=PATHS.assignment(self.id), put=self._put
        )
        self._publisher = NodePublisher(
            coordination=self.client,
            paths=PATHS,
            worker=self.id,
            session_timeout_s=SESSION_TIMEOUT_S,
            clock=self.world,
            on_registered=self._assignment.start,
            on_taken=self.kill,
        )
        self._prover = _Prover(
            coordination=self.client,
            paths=PATHS,
            worker=self.id,
            slots=slots,
            own_sessions=self._publisher.own_sessions,
            respond=self._send_response,
        )
        self._prover.store = self._judged
        self._inbox = CopierInbox(engine=_Processes(), prover=self._prover, put=self._put)
        self._fencer = Fencer(
            coordination=self.client,
            paths=PATHS,
            fleet=FLEET,
            worker=self.id,
            slots=slots,
            fence=self._fence,
            put=self._put,
        )

    def lose_capacity(self, for_s: float) -> None:
        """Spark ends its copiers and has no room for others."""
        self._room_at_s = self.world.now_s + for_s
        for copier in list(self.copiers.values()):
            copier.kill("executor lost")

    def drain(self) -> None:
        """SIGTERM."""
        self._put(events.DrainRequested(DRAIN_S))

    def leave(self) -> None:
        """SIGTERM, and others take the partitions first."""
        self.leaves = True
        self._put(events.LeaveRequested(LEAVE_S, DRAIN_S))

    def died(self) -> None:
        super().died()
        for copier in self.copiers.values():
            copier.driver_gone()

    # Engines.

    def _report(self) -> float:
        if not self._publisher._dirty:
            self._publisher._done.clear()
        return CHECK_EVERY_S if self._publisher.write_pending() else REPORT_RETRY_S

    def _prove(self) -> float | None:
        if not self._prover.process_next():
            return PROOF_RETRY_S
        return 0.01 if self._prover._queue else None

    def _send_response(
        self, copier: CopierId, response: messages.ProofResponse | messages.PublishedShares
    ) -> None:
        """The simulated copiers have no byte limits."""
        running = self.copiers.get(copier)
        if isinstance(response, messages.ProofResponse) and running is not None and running.alive:
            running.receive_proof(response, self._prover.proven_at)

    def _fence(self, route: Route, ids: Sequence[str]) -> None:
        for transactional_id in ids:
            self.point("fence a former process")
            self._kafkas[route].ledger.initialise(transactional_id)

    # The loop.

    def _put(self, event: events.Event) -> None:
        self._queue.append(event)
        self.world.soon(self._loop)

    def _turn(self) -> float | None:
        if self.hung:
            return TICK_S
        now_s = self.world.now_s
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            self._step(events.Tick(now_s))
        while self._queue and self.alive:
            self._step(self._queue.popleft())
        return max(0.01, self._ticked_s + TICK_S - now_s)

    def _step(self, event: events.Event) -> None:
        self.state, decided = step(self.state, event)
        for instruction in decided:
            self._perform(instruction)

    def _perform(self, instruction: instructions.Instruction) -> None:
        match instruction:
            case instructions.StartCopier(copier):
                room_in_s = max(0.0, self._room_at_s - self.world.now_s)
                delay_s = room_in_s + self.world.chance.random() * START_S
                self.world.later(delay_s, lambda: self._start_copier(copier))
            case instructions.ToCopier(copier, order):
                self._send(copier, order)
            case instructions.KillCopier(copier, reason):
                self._kill_copier(copier, reason)
            case instructions.Fence():
                self.world.soon(self.actor("fencer", lambda: self._fencer.attempt(instruction)))
            case instructions.Publish(current):
                self._publisher.publish(current)
                self.world.soon(self._reporting)
            case instructions.Register():
                self._publisher.refresh()
                self.world.soon(self._reporting)
            case instructions.AnnounceCapacity(no_capacity):
                self._publisher.announce(no_capacity=no_capacity)
                self.world.soon(self._reporting)
            case instructions.AnnounceLeaving():
                self._publisher.announce(leaving=True)
                self.world.soon(self._reporting)
            case instructions.ReadAssignment():
                self.world.soon(self._reading)
            case instructions.Exit(code, reason):
                self._leave(code, reason)

    def _leave(self, code: int, reason: str) -> None:
        """Write what is pending; then the session ends at once."""
        self._publisher.write_pending()
        self.kill(f"exit {code}: {reason}")
        self.store.expire(self.client._session)

    # Copiers.

    def _start_copier(self, id: CopierId) -> None:
        slot = self.state.slots[id.slot]
        if not self.alive or slot.run != id.run or slot.phase is not SlotPhase.STARTING:
            return

        def send(message: messages.Message) -> None:
            self._received(id, message)

        def ended(reason: str) -> None:
            self.world.later(self.world.chance.random() * GONE_S, lambda: self._closed(id))
            self.world.later(GONE_S * 2, lambda: self._put(events.CopierEnded(id, reason)))

        self.copiers[id] = Copier(
            self.world,
            self._kafkas,
            name=f"{self.name}.{id}",
            worker=self.id,
            slot=id.slot,
            terms=self._terms,
            send=send,
            ended=ended,
        )
        self._inbox.receive(id, messages.Hello(id, host="", pid=0, pid_space="", nonce=""))

    def _terms(self, partition: Partition, epoch: OwnerEpoch) -> int:
        return self._judged.terms.get((partition, self.id, epoch), 0)

    def _send(self, id: CopierId, message: messages.Message) -> None:
        copier = self.copiers.get(id)
        if copier is not None and copier.alive:
            copier.receive(message)

    def _kill_copier(self, id: CopierId, reason: str) -> None:
        copier = self.copiers.get(id)
        if copier is not None and copier.alive:
            copier.kill(reason)
        elif copier is None:
            self._put(events.CopierEnded(id, reason))

    def _closed(self, id: CopierId) -> None:
        self.copiers.pop(id, None)
        self._inbox.receive(id, Disconnected())

    def _received(self, id: CopierId, message: messages.Message) -> None:
        self._inbox.receive(id, message)
        if isinstance(message, messages.ProofRequest):
            self.world.soon(self._proving)

    # ZooKeeper.

    def _session_changed(self, state: SessionState) -> None:
        self._publisher.session_changed(state)
        if state is SessionState.CONNECTED:
            self.world.soon(self._reporting)
        self._assignment.session_changed(state)

    def _read_assignment(self) -> None:
        """The read that `AssignmentWatch.read_again` makes in a thread."""
        self.point("read the assignment")
        self._assignment.refresh()
