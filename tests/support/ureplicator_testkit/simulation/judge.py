"""The ZooKeeper store with a check at every write of any client.

E  a leader's nodes are written by the process that was elected last, and by no other
I  after each of its writes the invariants that production checks (`planning.invariants`)
S  each change of a partition's owner has an owner epoch above the one before
M  a worker is lost only after the rebalance delay; one that is back in time keeps its partitions
A  the leader overwrites nothing that operators wrote
T  take before give: no worker is given what a live worker, as the leader sees it, copies
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.coordination import Create, Delete, Node, Operation, Set
from ureplicator_common.model import Partition, Route, SessionId, WorkerId
from ureplicator_common.znode_contents import IdealEntry
from ureplicator_common.znodes.fleet import decode_switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_ideal, decode_intent
from ureplicator_common.znodes.workers import decode_assignment, decode_known_worker
from ureplicator_controller.core.planning.invariants import check_invariants
from ureplicator_controller.core.state.decoding import DecodeCache
from ureplicator_controller.core.state.snapshot import Delays, Snapshot, parse
from ureplicator_testkit.control.memory_coordination import MemoryStore
from ureplicator_testkit.simulation.kernel import Process, SimulationFailure, World

FLEET = "sim"
ROUTE = Route("source", "target")
TAGGED = Route("source-2", "target-2")
"""A route between clusters of its own, for workers with a tag; see `fleet`."""
PATHS = Paths(FLEET)
LATE_S = 10.0
"""A leader may learn of a worker's end, or of its return, that much later."""

LEADERS = (
    PATHS.ideal + "/",
    PATHS.assignments + "/",
    PATHS.shares + "/",
    PATHS.routes + "/",
    PATHS.history + "/",
)
GiveCheck = Callable[[WorkerId, Partition, Snapshot], str]
"""Reason why a partition must not be given to a worker, by that snapshot; "" if it may be."""


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """A worker's presence changed at `at_s`."""

    at_s: float
    present: bool


class JudgedStore(MemoryStore):
    def __init__(self, world: World, delays: Delays) -> None:
        super().__init__()
        self._world = world
        self._delays = delays
        self._memo = DecodeCache()
        self.writer: Process | None = None
        """The process that makes the next write; its session may have changed since it decided."""
        self.leader: Process | None = None
        self.epochs = 0
        self.moves = 0
        self.seen: dict[Process, tuple[float, Snapshot, bool]] = {}
        """Leader -> time of its last snapshot, the snapshot, and whether its watches may be late."""
        self.presence: dict[WorkerId, list[PresenceChange]] = {}
        self.operator_values: dict[str, list[tuple[float, bytes | None]]] = {}
        """Path that operators write -> every value it had, with the time of the change."""
        self.terms: dict[tuple[Partition, WorkerId, int], int] = {}
        """Owner and owner epoch -> number of the change of owner."""
        self.latest: dict[Partition, int] = {}
        """The last change of owner, also those to no owner."""
        self.reason_not_to_give: GiveCheck = lambda worker, partition, snapshot: ""

    def apply(self, session: SessionId, operations: Sequence[Operation]) -> None:
        before = {path: self.node(path) for path in _paths(operations)}
        super().apply(session, operations)
        after = {path: self.node(path) for path in before}
        self._judge_leader(operations)
        for path, node in after.items():
            self._note_operator_write(path, before[path], node)
            if path.startswith(PATHS.ideal + "/"):
                self._judge_ideal(path, before[path], node)
            elif path.startswith(PATHS.assignments + "/"):
                self._judge_assignment(path, before[path], node)
        if any(path.startswith(LEADERS[:2]) for path in after):
            found = check_invariants(self.parse())
            if found:
                raise SimulationFailure("I", str(found[0]))
        if any(path.startswith(PATHS.root + "/workers/") for path in after):
            self._note_presence()

    @property
    def zxid(self) -> int:
        return self._zxid

    def expire(self, session: SessionId) -> None:
        super().expire(session)
        self._note_presence()

    def parse(self) -> Snapshot:
        nodes = self.subtree(PATHS.root)
        return parse(nodes, PATHS, fleet=FLEET, delays=self._delays, cache=self._memo)

    # E

    def _judge_leader(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Set) and operation.path == PATHS.epoch:
                self.leader = self.writer
                self.epochs += 1
            elif self.leader is not self.writer and _is_leaders(operation):
                raise SimulationFailure("E", f"{operation.path} written by a leader of the past")

    # A

    def _note_operator_write(self, path: str, before: Node | None, after: Node | None) -> None:
        if not path.startswith((PATHS.topics, PATHS.workers_known, PATHS.settings)):
            return
        if self.writer is self.leader and before is not None and before.data:
            why = _overwritten(path, before, after)
            if why:
                raise SimulationFailure("A", f"{path}: the leader {why}")
        held = self.operator_values.setdefault(path, [])
        held.append((self._world.now_s, after.data if after else None))

    # S, M

    def _judge_ideal(self, path: str, before: Node | None, after: Node | None) -> None:
        route, topic = path.removeprefix(PATHS.ideal + "/").partition("/")[::2]
        if not topic:
            return
        old = decode_ideal(before.data).entries if before else {}
        new = decode_ideal(after.data).entries if after else {}
        for number, entry in new.items():
            partition = Partition.parse(f"{route}/{topic}/{number}")
            was = old.get(number)
            if was is not None and was.worker == entry.worker:
                continue
            self.moves += 1
            if was is not None and entry.owner_epoch <= was.owner_epoch:
                raise SimulationFailure(
                    "S", f"{partition}: the owner epoch of {entry.worker} did not grow"
                )
            self.latest[partition] = self.moves
            if entry.worker is not None:
                self.terms[partition, entry.worker, entry.owner_epoch] = self.moves
            if was is not None and was.worker is not None:
                self._judge_move(partition, was, entry)

    def _judge_move(self, partition: Partition, was: IdealEntry, entry: IdealEntry) -> None:
        owner = was.worker
        if owner is None or entry.reason != f"worker {owner} lost" or self.writer not in self.seen:
            return
        observed_s, snapshot, blind = self.seen[self.writer]
        switches = snapshot.switches
        if blind or switches.rebalance_requested != switches.rebalance_done:
            return
        away_s = self._away_s(owner, observed_s)
        if away_s < self._delays.rebalance_s - LATE_S:
            raise SimulationFailure(
                "M", f"{partition} moved from {owner}, who was away for {max(away_s, 0):.1f} s only"
            )

    def _away_s(self, worker: WorkerId, at_s: float) -> float:
        """Time of absence before `at_s`; a short return may have been missed. -1: present."""
        past = [change for change in self.presence.get(worker, ()) if change.at_s <= at_s]
        if past and past[-1].present:
            if at_s - past[-1].at_s > LATE_S:
                return -1.0
            past.pop()
        while len(past) > 2 and past[-1].at_s - past[-2].at_s < LATE_S:
            del past[-2:]
        return at_s - past[-1].at_s if past else at_s

    def _note_presence(self) -> None:
        names = {path.rpartition("/")[2] for path in self.subtree(PATHS.workers_live)} - {"live"}
        for name in sorted({*names, *self.presence}):
            worker = WorkerId(name)
            presence = self.presence.setdefault(worker, [])
            present = self._is_present(worker)
            if (not presence and present) or (presence and presence[-1].present != present):
                presence.append(PresenceChange(self._world.now_s, present))

    def _is_present(self, worker: WorkerId) -> bool:
        live = self.node(PATHS.worker_live(worker))
        known = self.node(PATHS.worker_known(worker))
        if live is None:
            return False
        evicted = decode_known_worker(known.data).evicted_session if known else 0
        return live.stat.owner != evicted

    # T

    def _judge_assignment(self, path: str, before: Node | None, after: Node | None) -> None:
        worker = WorkerId(path.rpartition("/")[2])
        if after is None:
            return
        assert self.writer in self.seen, "a leader wrote without a snapshot"
        old = decode_assignment(before.data).entries if before else {}
        for partition, entry in decode_assignment(after.data).entries.items():
            if partition not in old or old[partition].owner_epoch != entry.owner_epoch:
                why = self.reason_not_to_give(worker, partition, self.seen[self.writer][1])
                if why:
                    raise SimulationFailure("T", f"{partition} given to {worker}, but {why}")


def _paths(operations: Sequence[Operation]) -> Iterator[str]:
    return (
        operation.path for operation in operations if isinstance(operation, Create | Set | Delete)
    )


def _is_leaders(operation: Operation) -> bool:
    """True if only a leader may write it. An empty parent carries nothing; any process may create it."""
    carries_data = isinstance(operation, Set | Delete) or bool(getattr(operation, "data", b""))
    return carries_data and operation.path.startswith(LEADERS)


def _overwritten(path: str, before: Node, after: Node | None) -> str:
    """Difference that a leader's write made to an operator's write; "" if none."""
    if path.startswith(PATHS.topics):
        was = decode_intent(before.data)
        if after is None:
            return "" if was.state == "deleting" else f"removed a topic that is {was.state}"
        intent = decode_intent(after.data)
        intent = replace(intent, had_position=was.had_position)
        same = replace(intent, forget_positions=was.forget_positions) == was
        return "" if same else f"made {intent} of {was}"
    if after is None:
        return "removed it"
    if path.startswith(PATHS.workers_known):
        old, new = decode_known_worker(before.data), decode_known_worker(after.data)
        same = (old.blacklisted, old.draining) == (new.blacklisted, new.draining)
        return "" if same else f"made {new} of {old}"
    switched = decode_switches(before.data)
    done = decode_switches(after.data)
    kept = replace(
        done, rebalance_done=switched.rebalance_done, confirmed_lost=switched.confirmed_lost
    )
    same = kept == switched and done.confirmed_lost <= switched.confirmed_lost
    return "" if same else f"made {done} of {switched}"
