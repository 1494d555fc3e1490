"""Many simulated workers in one process: real sessions in ZooKeeper, and no copying.

Each reports whatever is assigned to it as ONLINE at once, and its loads every ten seconds, as real workers
do. SIGUSR1 lets the state of one partition change every 50 ms, until SIGUSR2.

    python -m ureplicator_bench.fleets.simulated_workers HOSTS FLEET COUNT
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping

from ureplicator_common.coordination import Create, Node, Set, Unavailable
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Partition, PartitionState, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    CurrentEntry,
    CurrentState,
    LiveWorker,
    PartitionLoad,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.workers import (
    decode_assignment,
    encode_current,
    encode_live_worker,
    encode_loads,
)

SLOTS = 4
LOADS_EVERY_S = 10.0
CHANGE_EVERY_S = 0.05
CONNECT_S = 60.0
READY = "all workers are live"
_LOAD = PartitionLoad(
    bytes_per_s=1_000.0,
    records_per_s=10.0,
    steady_bytes_per_s=1_000.0,
    measured_s=300.0,
    held_s=300.0,
    position=62_500,
    committed=62_500,
    lag=0,
)


class SimulatedWorker:
    """One worker with its own session."""

    def __init__(self, hosts: str, paths: Paths, id: WorkerId) -> None:
        self._paths = paths
        self._id = id
        self._client = ZooKeeperCoordination(hosts=hosts, session_timeout_s=30)
        self._client.connect(CONNECT_S)
        self._writing = threading.Lock()
        self._reported: CurrentState | None = None
        self._loads = b""
        self._load_exists = False
        live = encode_live_worker(LiveWorker(slots=SLOTS))
        self._client.transact([Create(paths.worker_live(id), live, ephemeral=True)])
        self._cache = self._client.tree_cache(paths.assignment(id), self._changed)

    def _changed(self) -> None:
        node = self._cache.nodes().get(self._paths.assignment(self._id))
        if node is not None:
            self._report(node)

    def _report(self, node: Node) -> None:
        assigned = decode_assignment(node.data)
        loads = encode_loads(dict.fromkeys(assigned.entries, _LOAD))
        with self._writing:
            self._loads = loads
            self._put(CurrentState(node.stat.mzxid, _online(assigned)))

    def _put(self, state: CurrentState) -> None:
        path, data = self._paths.current_state(self._id), encode_current(state)
        first = self._reported is None
        self._client.transact(
            [Create(path, data, ephemeral=True) if first else Set(path, data, -1)]
        )
        self._reported = state

    def change_one(self, number: int) -> bool:
        """Report another reason for its first partition; False while it has none."""
        with self._writing:
            state = self._reported
            if state is None or not state.entries:
                return False
            partition = next(iter(state.entries))
            kind = PartitionState.OFFLINE if number % 2 == 0 else PartitionState.ONLINE
            entry = CurrentEntry(
                kind,
                state.entries[partition].owner_epoch,
                reason=f"change {number}",
                committed=True,
            )
            self._put(CurrentState(state.seen_zxid, {**state.entries, partition: entry}))
            return True

    def write_loads(self) -> None:
        with self._writing:
            if self._loads:
                path = self._paths.measures.load(self._id)
                write = Set(path, self._loads, -1)
                create = Create(path, self._loads, ephemeral=True)
                self._client.transact([write if self._load_exists else create])
                self._load_exists = True


def _online(assigned: Assignment) -> Mapping[Partition, CurrentEntry]:
    return {
        partition: CurrentEntry(PartitionState.ONLINE, entry.owner_epoch, committed=True)
        for partition, entry in assigned.entries.items()
    }


def _change(worker: SimulatedWorker, wanted: threading.Event) -> None:
    """Change one partition of the worker at an interval, while it is wanted."""
    number = 0
    while wanted.wait():
        number += 1
        began_s = time.monotonic()
        worker.change_one(number)
        time.sleep(max(0.0, began_s + CHANGE_EVERY_S - time.monotonic()))


def _write_loads(workers: list[SimulatedWorker]) -> None:
    while True:
        for worker in workers:
            began_s = time.monotonic()
            try:
                worker.write_loads()
            except Unavailable as error:
                print(error, flush=True)
            left_s = LOADS_EVERY_S / len(workers) - (time.monotonic() - began_s)
            time.sleep(max(0.0, left_s))


def main(hosts: str, fleet: str, count: int) -> None:
    """Run until the process is ended."""
    changing = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: changing.set())
    signal.signal(signal.SIGUSR2, lambda *_: changing.clear())
    paths = Paths(fleet)
    workers = [
        SimulatedWorker(hosts, paths, WorkerId(f"worker-{number:04d}")) for number in range(count)
    ]
    threading.Thread(target=_change, args=(workers[0], changing), daemon=True).start()
    print(READY, flush=True)
    _write_loads(workers)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
