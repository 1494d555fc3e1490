"""Loads on the real engines: measured loads lead to a move at the load review, not before."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_common.znodes.workers import encode_loads
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_testkit.control.manual_controllers import PATHS, ROUTE, ControllerFleet
from ureplicator_testkit.control.memory_coordination import MemoryCoordination

MB = 1_000_000


def measure(fleet: ControllerFleet, workers: Mapping[str, MemoryCoordination]) -> None:
    """Each partition of `a` carries five times as much as one of `b`."""
    for worker, client in workers.items():
        rate = (10 if worker == "a" else 2) * MB
        load = PartitionLoad(steady_bytes_per_s=rate, measured_s=300, held_s=300)
        data = encode_loads(dict.fromkeys(fleet.assignment_of(worker).entries, load))
        path = PATHS.measures.load(WorkerId(worker))
        node = fleet.client.get(path)
        client.transact([Set(path, data, -1) if node else Create(path, data, ephemeral=True)])


def test_measured_loads_lead_to_a_move_at_the_load_review() -> None:
    fleet = ControllerFleet()
    workers = {id: fleet.worker(id) for id in ("a", "b")}
    fleet.topic(6)
    fleet.one.run()
    for id, client in workers.items():
        fleet.report_online(client, id)
    fleet.one.run()
    fleet.clock.advance(10)
    fleet.one.run()
    before = {id: set(fleet.assignment_of(id).entries) for id in workers}
    measure(fleet, workers)
    fleet.one.run()
    quiet = fleet.one.figure("cycles_total", outcome="quiet")
    for _ in range(5):
        measure(fleet, workers)
        fleet.clock.advance(LOAD_REVIEW_INTERVAL_S / 8)
        fleet.one.run(1)
    assert fleet.one.figure("cycles_total", outcome="quiet") == quiet, "no load wakes the leader"
    assert {id: set(fleet.assignment_of(id).entries) for id in workers} == before
    fleet.clock.advance(LOAD_REVIEW_INTERVAL_S)
    for _ in range(4):
        fleet.one.run()
        for id, client in workers.items():
            fleet.report_online(client, id)
    after = {id: set(fleet.assignment_of(id).entries) for id in workers}
    gone: set[Partition] = before["a"] - after["a"]
    assert len(gone) == len(before["b"] - after["b"]) == 1
    assert gone < after["b"]
    assert all(partition.route == ROUTE for partition in gone)
