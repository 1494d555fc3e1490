"""Changes that count for the leader: anything that a plan depends on, and nothing else."""

from __future__ import annotations

import random

import pytest

from ureplicator_common.coordination import Create, Delete, Set
from ureplicator_common.model import Route, TopicKey, WorkerId
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_controller.engines.observer import Observer
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

PATHS = Paths("f")
A, B = WorkerId("a"), WorkerId("b")
TOPIC = PATHS.topic(TopicKey(Route("x", "y"), "t"))
HISTORY = PATHS.history_block(0)
LOADS, USAGE = PATHS.measures.load(A), PATHS.measures.usage(A)


class Stage:
    """An observer that has made a snapshot, and another client."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.other = MemoryCoordination(store)
        for path in (*PATHS.skeleton, PATHS.history, TOPIC.rpartition("/")[0]):
            self.other.ensure(path)
        for path in (TOPIC, HISTORY, LOADS, USAGE):
            self.other.transact([Create(path, b"")])
        self._client = MemoryCoordination(store)
        self.observer = Observer(self._client, fleet="f", clock=ManualClock(), delays=Delays())
        self.observer.snapshot()

    def changed(self) -> bool:
        return self.observer.has_changed()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_nothing_has_changed_after_a_snapshot(stage: Stage) -> None:
    assert not stage.changed()
    assert not stage.changed()


@pytest.mark.parametrize("path", [LOADS, USAGE, HISTORY])
def test_measures_and_records_are_no_change(stage: Stage, path: str) -> None:
    for data in (b"1", b"2"):
        stage.other.transact([Set(path, data, -1)])
        assert not stage.changed()
    stage.other.transact([Set(TOPIC, b"1", -1)])
    assert stage.changed(), "it is compared with the last snapshot all the same"


@pytest.mark.parametrize(
    "operation", [Set(TOPIC, b"1", -1), Delete(TOPIC, -1)], ids=["set", "gone"]
)
def test_a_change_lasts_until_the_next_snapshot(stage: Stage, operation: Set | Delete) -> None:
    stage.other.transact([operation])
    stage.other.transact([Set(LOADS, b"1", -1)])
    assert stage.changed()
    assert stage.changed()
    stage.observer.snapshot()
    assert not stage.changed()


def test_which_workers_report_loads_is_a_change(stage: Stage) -> None:
    stage.other.transact([Create(PATHS.measures.load(B), b"")])
    assert stage.changed()
    stage.observer.snapshot()
    stage.other.transact([Delete(LOADS, -1)])
    assert stage.changed()


def test_a_node_that_is_made_anew_is_a_change(stage: Stage) -> None:
    stage.other.transact([Delete(TOPIC, -1), Create(TOPIC, b"")])
    assert stage.changed()


def test_what_no_plan_depends_on_may_come_and_go(stage: Stage) -> None:
    stage.other.transact([Delete(USAGE, -1), Create(PATHS.measures.usage(B), b"")])
    assert not stage.changed()
    stage.other.transact([Delete(HISTORY, -1)])
    assert not stage.changed()


def test_a_plan_can_be_forced(stage: Stage) -> None:
    stage.observer.force_plan()
    assert stage.changed()
    stage.observer.snapshot()
    assert not stage.changed()


@pytest.mark.parametrize("seed", range(10))
def test_changes_are_those_of_the_versions(seed: int) -> None:
    """Compared with the versions of all nodes that a plan depends on."""
    stage, chance = Stage(), random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    paths = [TOPIC, HISTORY, LOADS, USAGE, PATHS.assignment(A), PATHS.current_state(A)]

    def versions() -> dict[str, int]:
        ignored = (PATHS.history, PATHS.measures.usages)
        return {
            path: 0 if path.startswith(f"{PATHS.measures.loads}/") else node.stat.mzxid
            for path, node in stage.observer.nodes().items()
            if not path.startswith(ignored)
        }

    planned = versions()
    for _ in range(60):
        path = chance.choice(paths)
        there = stage.other.get(path) is not None
        gone = there and chance.random() < 0.3
        stage.other.transact(
            [Delete(path, -1) if gone else Set(path, b"1", -1) if there else Create(path, b"")]
        )
        assert stage.changed() == (versions() != planned)
        if chance.random() < 0.3:
            stage.observer.snapshot()
            planned = versions()
