"""Cost of large fleets: many workers over the store in memory, under the real engines of one leader,
counted in cycles, virtual seconds and writes.

The workers act at once and report, each in a session of its own; how safely they do so is tested by
`ControlFleet`. Time advances by one debounce interval per cycle, and to the end of a delay when
nothing else is pending, so a run is the same every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ureplicator_common.coordination import Create, Node, Set
from ureplicator_common.model import Partition, PartitionState, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import CurrentEntry, CurrentState, LiveWorker, TopicIntent
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import decode_assignment, encode_current, encode_live_worker
from ureplicator_controller.core.state.external_view import (
    external_view,
    ideal_entry,
    whitelisted_partitions,
)
from ureplicator_controller.core.state.mismatches import Mismatch, mismatches
from ureplicator_controller.core.state.snapshot import Snapshot, parse
from ureplicator_controller.engines.observer import DEBOUNCE_S
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.manual_controllers import FLEET, PATHS, ROUTE, ManualController
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

MAX_CYCLES = 200
SLOTS = 2


@dataclass(frozen=True, slots=True)
class SettlingCost:
    """Cost until every partition was ONLINE at its ideal owner and nothing was left to do."""

    cycles: int
    virtual_s: float
    moves: int
    writes: int


class LargeFleet:
    """`topics` of `partitions` each; no worker yet."""

    def __init__(self, *, topics: int, partitions: int) -> None:
        self._store = MemoryStore()
        self._clock = ManualClock()
        self.leader = ManualController(MemoryCoordination(self._store), "leader", self._clock)
        self._hand = MemoryCoordination(self._store)
        self._hand.ensure(f"{PATHS.topics}/{ROUTE}")
        self._sessions: dict[WorkerId, SessionId] = {}
        self._read: dict[WorkerId, int] = {}
        with self._deliver_all():
            for number in range(topics):
                key = TopicKey(ROUTE, f"topic-{number:05d}")
                intent = TopicIntent(partitions, partitions, target_topic=key.topic)
                self._hand.transact([Create(PATHS.topic(key), encode_intent(intent))])

    def join(self, count: int) -> None:
        live = encode_live_worker(LiveWorker(slots=SLOTS))
        begin = len(self._sessions)
        with self._deliver_all():
            for number in range(begin, begin + count):
                worker = WorkerId(f"worker-{number:04d}")
                session = self._sessions[worker] = self._store.open_session()
                path = PATHS.worker_live(worker)
                self._store.apply(session, [Create(path, live, ephemeral=True)])

    def die(self, count: int) -> None:
        """Spread over the fleet, all at the same time."""
        names = sorted(self._sessions)
        with self._deliver_all():
            for worker in names[:: len(names) // count][:count]:
                self._store.expire(self._sessions.pop(worker))

    def settle(self) -> SettlingCost:
        """Run leader and workers in turn. Asserts that they settle as planned."""
        before, began_s, writes = self._owners(), self._clock.monotonic_s(), self.writes()
        cycles = 0
        while cycles < MAX_CYCLES:
            cycles += 1
            so_far = self.writes()
            wait_s = self.leader.loop.run_once()
            rested = not self._copy_and_report() and self.writes() == so_far
            if rested and wait_s > DEBOUNCE_S * 2 and not self._wrong():
                break
            self._clock.advance(wait_s if rested else DEBOUNCE_S)
        assert self._wrong() == [], f"not at rest after {cycles} cycles"
        after = self._owners()
        return SettlingCost(
            cycles=cycles,
            virtual_s=self._clock.monotonic_s() - began_s,
            moves=sum(before.get(partition) != owner for partition, owner in after.items()),
            writes=self.writes() - writes,
        )

    def writes(self) -> int:
        """Nodes that the leader has written so far."""
        return int(self.leader.figure("writes_total"))

    @contextmanager
    def _deliver_all(self) -> Iterator[None]:
        """The leader receives all changes together."""
        self.leader.client.hold_watches()
        yield
        self.leader.client.release_watches()

    def _copy_and_report(self) -> int:
        """Every worker copies what it is assigned and reports it; returns how many reported a change."""
        reported = 0
        with self._deliver_all():
            for worker, session in self._sessions.items():
                node = self._hand.get(PATHS.assignment(worker))
                if node is not None and self._read.get(worker) != node.stat.mzxid:
                    self._read[worker] = node.stat.mzxid
                    self._publish(worker, session, node)
                    reported += 1
        return reported

    def _publish(self, worker: WorkerId, session: SessionId, assignment: Node) -> None:
        entries = {
            partition: CurrentEntry(PartitionState.ONLINE, entry.owner_epoch, committed=True)
            for partition, entry in decode_assignment(assignment.data).entries.items()
        }
        path = PATHS.current_state(worker)
        data = encode_current(CurrentState(assignment.stat.mzxid, entries))
        there = self._hand.get(path) is not None
        write = Set(path, data, -1) if there else Create(path, data, ephemeral=True)
        self._store.apply(session, [write])

    def _snapshot(self) -> Snapshot:
        return parse(self._store.subtree(PATHS.root), PATHS, fleet=FLEET)

    def _wrong(self) -> list[Mismatch]:
        seen = self._snapshot()
        return mismatches(seen, external_view(seen))

    def _owners(self) -> dict[Partition, WorkerId | None]:
        seen = self._snapshot()
        entries = {
            partition: ideal_entry(seen, partition) for partition in whitelisted_partitions(seen)
        }
        return {partition: entry.worker if entry else None for partition, entry in entries.items()}
