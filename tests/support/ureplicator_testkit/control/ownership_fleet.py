"""A fleet for ownership histories: plan, proofs and the copiers' ownership are real.

`ControlFleet` provides the store, the leader's plan and the workers' protocol. Here a worker starts,
commits and releases through the real ownership thread of a copier (`copier.ownership`) and the real
proof of its driver (`engines.ownership_proof`); Kafka is the ledger in memory. A frozen worker
receives no request; one that freezes inside a commit really blocks there.
"""

from __future__ import annotations

import queue
from typing import Any

from ureplicator_common.coordination import Create, Unavailable
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import (
    Partition,
    PartitionState,
    RouteSettings,
    SessionId,
    transactional_id,
)
from ureplicator_common.znodes.routes import encode_route
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.worker_process import Copy, Process
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_testkit.kafka.ledger import MemoryPositions, ScriptedLedger
from ureplicator_worker.copier.messages import (
    Begun,
    Commit,
    Committed,
    Forget,
    OwnershipConfirmed,
    OwnershipEvent,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment
from ureplicator_worker.copier.takeover.takeovers import Takeovers
from ureplicator_worker.engines.ownership_proof import OwnershipProver
from ureplicator_worker.lifeline.messages import Add, Failed, ProofRequest

BATCH = 10


class OwnershipWorker(Process):
    """One slot. `reasons`: why a partition is not copied, by the last message of its copier."""

    _fleet: OwnershipFleet

    def __init__(self, fleet: OwnershipFleet, id: str) -> None:
        self.reasons: dict[Partition, str] = {}
        self.begun: dict[Partition, Begun] = {}
        self._events: queue.SimpleQueue[OwnershipEvent] = queue.SimpleQueue()
        self._pending_request: ProofRequest | None = None
        self._own_id = transactional_id(fleet=fleet.name, route=ROUTE, worker=id, slot=0)  # type: ignore[arg-type]
        self._positions = MemoryPositions(fleet.ledger, self._own_id)
        super().__init__(fleet, id, slots=1)
        self._ownership = Ownership(
            name=id,
            worker=id,
            slot=0,
            store=self._positions,
            source=fleet.source,
            target=fleet.target,
            post=self._events.put,
            count=Takeovers(self._positions, source=fleet.source, target=fleet.target),
        )
        self._ownership.start()

    def _open_session(self) -> SessionId:
        self._coordination = MemoryCoordination(self._fleet.store)
        session = self._coordination.session()
        assert session is not None
        self._prover = OwnershipProver(
            coordination=self._coordination,
            paths=self._fleet.paths,
            worker=self.id,
            slots=1,
            own_sessions=lambda: (),
            respond=lambda _copier, _go: None,
        )
        return session

    def _announce(self) -> None:
        """Another process of the id may have its live node there."""
        self._fleet.register_again(self)

    def close(self) -> None:
        self._ownership.close()

    # Steps of `Process`.

    def start(self, partition: Partition) -> None:
        self.fence_former()
        added = self.added.get(partition)
        if added is not None and partition not in self.begun:
            self.reasons.pop(partition, None)
            self._ownership.put(Add({partition: added.owner_epoch}))
            self.process_until(lambda: partition in self.begun or partition in self.reasons)

    def fence(self, partition: Partition) -> None:
        """Part of the start."""

    position = fence

    def start_until_it_freezes_committing(self, partition: Partition) -> None:
        """Have it choose the start position, open a transaction for it, and block there."""
        self.read()
        self.fence_former()
        frozen = self._fleet.ledger.freeze_next("commit")
        self._ownership.put(Add({partition: self.added[partition].owner_epoch}))
        self.process_until(frozen.is_set)

    def commit(self, partition: Partition) -> None:
        """Copy a few more records and commit the position, if the ledger accepts it."""
        begun = self.begun.get(partition)
        if begun is None:
            return
        position = self._fleet.offset(partition) + BATCH
        item = Commitment(position, 0, begun.grant, begun.beginning)
        outcomes: list[OwnershipEvent] = []
        self._ownership.put(Commit({partition: item}))
        self.process_until(lambda: bool(outcomes) or partition not in self.begun, outcomes)

    def release(self, partition: Partition) -> None:
        copier = self.removed.get(partition)
        if copier is None:
            return
        if partition in self.begun:
            self.commit(partition)
            self._ownership.put(Forget(partition))
            self._drop(partition, "released")
        self._released(partition, copier)

    def can_commit(self, partition: Partition) -> bool:
        return self._positions.can_commit

    def _drop(self, partition: Partition, reason: str) -> None:
        self.begun.pop(partition, None)
        self.reasons[partition] = reason
        self.copies.pop(partition, None)
        self._report(partition, PartitionState.ERROR, reason=reason)

    # Messages of its copier.

    def process_until(self, until: Any, outcomes: list[OwnershipEvent] | None = None) -> None:
        """Process messages until the condition holds; a commit's outcome goes to `outcomes`."""
        while not until():
            self._respond()
            try:
                event = self._events.get(timeout=0.05)
            except queue.Empty:
                continue
            self._handle_event(event)
            if outcomes is not None and isinstance(event, Committed | OwnershipConfirmed):
                outcomes.append(event)

    def _handle_event(self, event: OwnershipEvent) -> None:
        match event:
            case ProofRequest():
                self._pending_request = event
            case Begun(partition, grant):
                self.begun[partition] = event
                copier = self.added[partition].copier
                self.copies[partition] = Copy(copier, grant.owner_epoch, "copying")
                self._report(partition, PartitionState.ONLINE)
            case Failed(partition, reason):
                self._drop(partition, reason)
            case Committed(positions):
                for partition in positions:
                    if partition in self.copies:
                        self.copies[partition].committed = True
                        self._report(partition, PartitionState.ONLINE, committed=1)

    def _respond(self) -> None:
        """The driver's response, if it can prove ownership; it maintains session and live node."""
        request = self._pending_request
        if request is None:
            return
        if not self.connected:
            self.connect()
        self._fleet.register_again(self)
        try:
            response = self._prover.prove(request)
        except Unavailable:
            return
        self._pending_request = None
        self._ownership.put(response)


class OwnershipFleet(ControlFleet):
    """The fleet, and both clusters with a topic `t`."""

    ledger: ScriptedLedger

    def __init__(self) -> None:
        super().__init__()
        self.source = MemoryCluster(cluster_model("A", {"t": 1}))
        self.target = MemoryCluster(cluster_model("B", {"t": 1}))
        settings = encode_route(RouteSettings())
        self.store.apply(self._session, [Create(self.paths.route(ROUTE), settings)])

    def _make_ledger(self) -> ScriptedLedger:
        return ScriptedLedger()

    def worker(
        self, id: str, *, slots: int = 1, tags: tuple[str, ...] = (), zone: str = ""
    ) -> OwnershipWorker:
        assert (slots, tags, zone) == (1, (), "")
        worker = OwnershipWorker(self, id)
        self.processes.append(worker)
        return worker

    def thaw(self, process: Process) -> None:
        """Have it continue where it was blocked."""
        super().thaw(process)
        self.ledger.thaw()

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 if none."""
        return self.ledger.read((partition.topic, partition.number)).offset

    def written_by(self, partition: Partition) -> str:
        """Worker of the last commit."""
        stored = self.ledger.positions[(partition.topic, partition.number)]
        provenance = Provenance.decode(stored.metadata)
        assert provenance is not None
        return provenance.worker

    def close(self) -> None:
        self.ledger.thaw()
        for process in self.processes:
            assert isinstance(process, OwnershipWorker)
            process.close()
