"""A leader of a large fleet reads again what is in doubt, and never the whole tree."""

from __future__ import annotations

import pytest

from ureplicator_common.coordination import Set
from ureplicator_common.model import WorkerId
from ureplicator_controller.engines.control_loop import MAX_IDLE_S
from ureplicator_testkit.control.manual_controllers import KEY, PATHS, ControllerFleet
from ureplicator_testkit.control.memory_coordination import MemoryTreeCache


@pytest.fixture
def fleet() -> ControllerFleet:
    return ControllerFleet()


@pytest.mark.parametrize("trouble", ["none", "conflict", "lost response", "late watches"])
def test_a_leader_never_reads_the_whole_tree_in_its_control_thread(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A big fleet is tens of thousands of nodes: only those in doubt are read again."""
    fleet.worker("a")
    fleet.one.run()
    whole: list[str] = []
    monkeypatch.setattr(MemoryTreeCache, "load", lambda cache: whole.append(repr(cache)))
    fleet.topic(1)
    if trouble == "conflict":
        fleet.one.client.hold_watches()
        path = PATHS.topic(KEY)
        fleet.client.transact([Set(path, b"{}", -1)])
        fleet.topic(2, "another")
        fleet.one.client.drop_watches()
    elif trouble == "lost response":
        fleet.one.client.lose_next_response(applied=True)
    elif trouble == "late watches":
        fleet.one.client.hold_watches()
    for _ in range(30):
        fleet.clock.advance(10)
        fleet.one.run()
    assert whole == []


def test_a_new_leader_reads_the_nodes_of_workers_and_no_topics(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker("a")
    fleet.topic(1)
    fleet.one.run()
    fleet.two.run()
    read: list[object] = []
    refresh = MemoryTreeCache.refresh

    def counted(cache: MemoryTreeCache, paths: set[str] | None = None) -> None:
        read.append(paths)
        refresh(cache, paths)

    monkeypatch.setattr(MemoryTreeCache, "refresh", counted)
    fleet.two.client.hold_watches()
    worker = fleet.worker("b")
    worker.close()
    fleet.one.client.expire()
    fleet.two.client.drop_watches()
    fleet.clock.advance(MAX_IDLE_S)
    fleet.two.run(1)
    assert fleet.two.leads
    (paths,) = read
    assert isinstance(paths, set)
    assert PATHS.worker_live(WorkerId("a")) in paths
    assert not any(path.startswith((PATHS.topics, PATHS.ideal)) for path in paths)
