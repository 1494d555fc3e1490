"""A worker without a leader."""

from __future__ import annotations

from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.daemon import leader_missing


def test_a_fleet_without_a_leader_is_named() -> None:
    coordination, paths = MemoryCoordination(MemoryStore()), Paths("local")
    assert "waits for a leader of fleet local" in leader_missing(coordination, paths, "local")
    coordination.ensure(paths.leader)
    assert leader_missing(coordination, paths, "local") == ""
