"""NodePublisher: nodes of a worker and their sessions, over coordination in memory."""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ureplicator_common.coordination import EXPIRY_ROUNDING_S, Create, Delete, Node
from ureplicator_common.model import OwnerEpoch, Partition, PartitionState, Route, WorkerId
from ureplicator_common.znode_contents import (
    CurrentEntry,
    CurrentState,
    LiveWorker,
    PartitionLoad,
    RouteUsage,
    WorkerUsage,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.workers import (
    decode_current,
    decode_live_worker,
    decode_loads,
    decode_usage,
)
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.engines.publisher import CHECK_EVERY_S, NodePublisher

WORKER = WorkerId("w")
PATHS = Paths("f")
LIVE = LiveWorker(slots=2, host="h", port=1, pid=2, version="v")
PARTITION = Partition(Route("a", "b"), "t", 0)
SESSION_TIMEOUT_S = 10.0


def current(state: PartitionState, zxid: int = 1) -> CurrentState:
    return CurrentState(zxid, {PARTITION: CurrentEntry(state, OwnerEpoch(1))})


TAKEN = "another live worker has the id w: stop it, or give this one another --id"


class Stage:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.client = MemoryCoordination(self.store)
        self.other = MemoryCoordination(self.store)
        self.clock = ManualClock()
        self.calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        for path in PATHS.skeleton:
            self.other.ensure(path)
        self.publisher = NodePublisher(
            coordination=self.client,
            paths=PATHS,
            worker=WORKER,
            session_timeout_s=SESSION_TIMEOUT_S,
            clock=self.clock,
            on_registered=lambda: self.calls.put("registered"),
            on_taken=self.calls.put,
        )

    def node(self, path: str) -> Node | None:
        return self.other.get(path)

    def is_ours(self, path: str) -> bool:
        node = self.node(path)
        return node is not None and node.stat.owner == self.client.session()

    def shows(self, expected: CurrentState) -> bool:
        node = self.node(PATHS.current_state(WORKER))
        return node is not None and decode_current(node.data) == expected


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.publisher.close()


def test_the_live_node_comes_first_and_is_announced(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    assert stage.calls.get(timeout=30) == "registered"
    node = stage.node(PATHS.worker_live(WORKER))
    assert node is not None
    assert decode_live_worker(node.data) == LIVE
    assert node.stat.owner == stage.client.session()


@pytest.mark.parametrize("interrupted", ["start", "capacity"])
def test_what_two_threads_announce_at_once_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """The registration is interrupted by the loop's announcement, just before its last step; or the loop."""
    publisher, set_ = stage.publisher, stage.publisher._set
    calls: list[Callable[[], None]] = [
        lambda: publisher.announce(LIVE),
        lambda: publisher.announce(no_capacity="no free cores"),
    ]
    first, second = calls if interrupted == "start" else reversed(calls)

    def interrupt(path: str, encode: Callable[[], bytes]) -> None:
        monkeypatch.setattr(publisher, "_set", set_)
        second()
        set_(path, encode)

    publisher.announce(replace(LIVE, port=9))
    monkeypatch.setattr(publisher, "_set", interrupt)
    first()
    assert publisher.write_pending()
    node = stage.node(PATHS.worker_live(WORKER))
    assert node is not None
    assert decode_live_worker(node.data) == replace(LIVE, no_capacity="no free cores")


def test_the_last_of_many_states_is_what_is_published(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    for zxid in range(100):
        stage.publisher.publish(current(PartitionState.OFFLINE, zxid))
    stage.publisher.publish(current(PartitionState.ONLINE, 100))
    assert stage.publisher.flush(30)
    assert stage.shows(current(PartitionState.ONLINE, 100))


def test_loads_are_published(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    loads = {PARTITION: PartitionLoad(bytes_per_s=15, records_per_s=2.5, lag=7)}
    stage.publisher.publish_measures(loads)
    assert stage.publisher.flush(30)
    node = stage.node(PATHS.measures.load(WORKER))
    assert node is not None
    assert decode_loads(node.data) == loads


def test_usage_is_published(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    usage = WorkerUsage(1_000, 95_000, {PARTITION.route: RouteUsage(7, 700)})
    stage.publisher.publish_measures(usage=usage)
    assert stage.publisher.flush(30)
    assert stage.is_ours(PATHS.measures.usage(WORKER))
    node = stage.node(PATHS.measures.usage(WORKER))
    assert node is not None
    assert decode_usage(node.data) == usage


def test_loads_too_many_for_a_node_are_left_out_without_harm(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    chance = random.Random(1)  # noqa: S311  # incompressible, not secret
    figures = [PartitionLoad(position=chance.getrandbits(120)) for _ in range(60_000)]
    loads = {Partition(Route("a", "b"), "t", at): load for at, load in enumerate(figures)}
    stage.publisher.publish_measures(loads)
    assert stage.publisher.flush(30)
    node = stage.node(PATHS.measures.load(WORKER))
    assert node is not None
    assert decode_loads(node.data) == {}


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_of_unknown_outcome_is_checked_and_repeated(stage: Stage, applied: bool) -> None:
    stage.publisher.start(LIVE)
    stage.calls.get(timeout=30)
    stage.client.lose_next_response(applied=applied)
    stage.publisher.publish(current(PartitionState.ONLINE))
    assert stage.publisher.flush(30)
    assert stage.shows(current(PartitionState.ONLINE))


def test_an_outage_delays_and_loses_nothing(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    stage.calls.get(timeout=30)
    stage.client.suspend()
    stage.publisher.publish(current(PartitionState.ONLINE))
    assert not stage.publisher.flush(0.3)
    stage.client.restore()
    assert stage.publisher.flush(30)
    assert stage.shows(current(PartitionState.ONLINE))


def test_a_new_session_publishes_everything_again(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    stage.publisher.publish(current(PartitionState.ONLINE))
    assert stage.publisher.flush(30)
    stage.client.suspend()
    stage.client.expire()
    assert stage.node(PATHS.worker_live(WORKER)) is None
    stage.client.restore()
    stage.publisher.refresh()
    assert stage.publisher.flush(30)
    assert stage.is_ours(PATHS.worker_live(WORKER))
    assert stage.is_ours(PATHS.current_state(WORKER))
    assert stage.calls.get(timeout=30) == "registered"
    assert stage.calls.empty()


def test_nodes_left_by_a_former_process_are_replaced_once_the_live_node_is_ours(
    stage: Stage,
) -> None:
    path = PATHS.current_state(WORKER)
    stage.other.transact([Create(path, b"{}", ephemeral=True)])
    stage.publisher.start(LIVE)
    stage.publisher.publish(current(PartitionState.ONLINE))
    assert stage.publisher.flush(30)
    assert stage.is_ours(path)


def test_a_taken_id_is_waited_for(stage: Stage) -> None:
    path = PATHS.worker_live(WORKER)
    stage.other.transact([Create(path, b"{}", ephemeral=True)])
    stage.publisher.start(LIVE)
    stage.publisher.publish(current(PartitionState.ONLINE))
    assert not stage.publisher.flush(0.5)
    assert stage.calls.empty()
    assert stage.node(PATHS.current_state(WORKER)) is None
    stage.other.close()
    stage.other = MemoryCoordination(stage.store)
    assert stage.calls.get(timeout=30) == "registered"
    eventually(lambda: stage.is_ours(path), 5, "the live node is ours")


def test_a_taken_id_is_given_up_after_the_session_timeout(stage: Stage) -> None:
    path = PATHS.worker_live(WORKER)
    stage.other.transact([Create(path, b"{}", ephemeral=True)])
    stage.publisher.start(LIVE)
    assert not stage.publisher.flush(0.3)
    stage.clock.advance(SESSION_TIMEOUT_S + EXPIRY_ROUNDING_S + 1)
    assert stage.calls.get(timeout=30) == TAKEN


def test_own_sessions_are_those_written_under(stage: Stage) -> None:
    stage.publisher.start(LIVE)
    assert stage.publisher.flush(30)
    first = stage.client.session()
    stage.client.suspend()
    stage.client.expire()
    stage.client.restore()
    stage.publisher.refresh()
    assert stage.publisher.flush(30)
    assert stage.publisher.own_sessions() == {first, stage.client.session()}


def another_process(stage: Stage) -> tuple[NodePublisher, MemoryCoordination]:
    """Another process of the same id; it is stepped by `turn`."""
    client = MemoryCoordination(stage.store)
    publisher = NodePublisher(
        coordination=client,
        paths=PATHS,
        worker=WORKER,
        session_timeout_s=SESSION_TIMEOUT_S,
        clock=stage.clock,
        on_registered=lambda: stage.calls.put("the other registered"),
        on_taken=stage.calls.put,
    )
    publisher.announce(LIVE)
    return publisher, client


def test_a_process_does_not_return_to_an_id_that_another_had_meanwhile() -> None:
    stage = Stage()
    stage.publisher.announce(LIVE)
    assert stage.publisher.write_pending()
    stage.client.suspend()
    stage.client.expire()
    other, client = another_process(stage)
    assert other.write_pending()
    client.expire()
    stage.client.restore()
    stage.publisher.refresh()
    assert not stage.publisher.write_pending()
    assert stage.node(PATHS.worker_live(WORKER)) is None
    received = [stage.calls.get_nowait() for _ in range(3)]
    assert received == [
        "registered",
        "the other registered",
        "another process has registered the id w since",
    ]


def test_the_latest_process_registers_again_after_its_session_ended() -> None:
    stage = Stage()
    stage.publisher.announce(LIVE)
    assert stage.publisher.write_pending()
    stage.client.expire()
    other, client = another_process(stage)
    assert other.write_pending()
    client.expire()
    client.restore()
    other.refresh()
    assert other.write_pending()
    node = stage.node(PATHS.worker_live(WORKER))
    assert node is not None
    assert node.stat.owner == client.session()


def test_a_taken_id_is_noticed_also_while_changes_never_pause() -> None:
    """Evicted, it has lost its live node with its session alive, and another process was faster."""
    stage = Stage()
    stage.publisher.announce(LIVE)
    assert stage.publisher.write_pending()
    stage.other.transact([Delete(PATHS.worker_live(WORKER))])
    other, _ = another_process(stage)
    assert other.write_pending()
    for zxid in range(int(SESSION_TIMEOUT_S + EXPIRY_ROUNDING_S + CHECK_EVERY_S) + 2):
        stage.clock.advance(1)
        stage.publisher.publish(current(PartitionState.ERROR, zxid))
        stage.publisher.write_pending()
    received = [stage.calls.get_nowait() for _ in range(3)]
    assert received[2] == TAKEN
