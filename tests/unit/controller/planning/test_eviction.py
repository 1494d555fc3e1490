"""Eviction of a worker whose main loop hangs while its ZooKeeper session lives."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.model import SessionId, WorkerId
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_controller.core.vetting import vet
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.observer import Observer
from ureplicator_controller.engines.plan_executor import Executor, PlanOutcome
from ureplicator_testkit.control.fleet import (
    ControlFleet,
    ids_of,
    partition,
    two_workers,
)
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.control.worker_process import Process

A = WorkerId("a")


def drained_while_it_hangs(partitions: int = 2) -> tuple[ControlFleet, Process]:
    """a hangs and is drained: it should release one of two partitions."""
    fleet = two_workers(partitions)
    hanging = fleet.process("a")
    fleet.hang(hanging)
    fleet.tag("a", draining=True)
    fleet.settle()
    assert fleet.owners("t")[0] == "b"
    assert fleet.cycle().waiting[partition("t")] == ("a",)
    return fleet, hanging


def mark(fleet: ControlFleet) -> SessionId:
    return fleet.snapshot().known[A].value.evicted_session


def test_worker_that_does_not_release_in_time_is_evicted_and_fenced() -> None:
    fleet, hanging = drained_while_it_hangs()
    fleet.wait(29)
    assert fleet.cycle().steps == ()
    fleet.wait(1)
    decided = fleet.cycle()
    assert isinstance(decided.steps[0], Evict)
    assert "worker a evicted: did not release source.target/t/0" in decided.reasons
    assert mark(fleet) == hanging.session
    assert fleet.fences("b") == ids_of("a")
    fleet.process("b").catch_up()
    before = list(fleet.commits[partition("t")])
    hanging.commit_all()
    assert fleet.commits[partition("t")] == before, "its copiers went on, and are fenced"


def test_plan_wakes_at_the_end_of_the_handover_timeout() -> None:
    fleet, _ = drained_while_it_hangs()
    assert fleet.cycle().wake_at_s == fleet.now_s + 30


def test_worker_that_releases_in_time_is_not_evicted() -> None:
    fleet, slow = drained_while_it_hangs()
    fleet.wait(29)
    fleet.recover(slow)
    slow.catch_up()
    fleet.wait(5)
    assert not [step for step in fleet.cycle().steps if isinstance(step, Evict)]
    assert fleet.entry("t").holders.keys() == {"b"}, "it confirmed: no former holder to fence"


def test_worker_that_releases_one_by_one_is_not_evicted() -> None:
    """The timeout runs per partition: 20 s for each of two, requested 20 s apart."""
    fleet = two_workers(2)
    fleet.worker("c")
    slow = fleet.process("a")
    fleet.hang(slow)
    fleet.topic("t", 2, blacklisted=frozenset({0}))
    fleet.settle()
    for number in (0, 1):
        fleet.recover(slow)
        fleet.settle()
        fleet.hang(slow)
        fleet.topic("t", 2, blacklisted=frozenset({number}))
        fleet.settle()
        fleet.wait(20)
        assert not [step for step in fleet.cycle().steps if isinstance(step, Evict)]


def test_evicted_worker_gets_no_partitions_before_it_confirms() -> None:
    fleet, hanging = drained_while_it_hangs()
    fleet.wait(30)
    fleet.cycle()
    fleet.register_again(hanging)
    fleet.tag("a")
    fleet.topic("new", 6)
    fleet.elect()
    fleet.settle()
    assert A in fleet.snapshot().live
    assert A not in fleet.snapshot().sessions, "the mark outlives the leader"
    assert set(fleet.owners("new").values()) == {"b"}
    fleet.recover(hanging)
    fleet.settle()
    assert mark(fleet) == 0, "it has responded"
    fleet.wait(200)
    fleet.settle()
    assert fleet.counts() == {"a": 4, "b": 4}


def test_evicted_worker_confirms_nothing_by_its_former_report() -> None:
    fleet, hanging = drained_while_it_hangs()
    fleet.wait(30)
    fleet.cycle()
    fleet.register_again(hanging)
    fleet.cycle()
    assert fleet.entry("t").holders.keys() == {"a", "b"}
    assert fleet.fences("b") == ids_of("a")


def test_other_partitions_of_an_evicted_worker_stay_during_the_rebalance_delay() -> None:
    """Its other partition is still being copied, so it moves as after the loss of a worker."""
    fleet = two_workers(4)
    hanging = fleet.process("a")
    mine = [number for number, owner in fleet.owners("t").items() if owner == "a"]
    fleet.hang(hanging)
    fleet.topic("t", 4, blacklisted=frozenset({mine[0]}))
    fleet.settle()
    fleet.topic("t", 4)
    fleet.topic("t", 4, blacklisted=frozenset())
    fleet.tag("a", draining=False)
    fleet.worker("c")
    fleet.settle()
    fleet.wait(40)
    fleet.settle()
    fleet.wait(40)
    fleet.settle()
    assert fleet.owners("t")[mine[1]] == "a"
    assert mark(fleet) == hanging.session
    fleet.wait(120)
    fleet.settle()
    assert "a" not in fleet.counts()


def test_topic_deletion_does_not_wait_for_a_hanging_worker() -> None:
    fleet = two_workers(2)
    fleet.hang(fleet.process("a"))
    fleet.delete("t")
    fleet.settle()
    assert fleet.snapshot().topics
    fleet.wait(30)
    fleet.settle()
    assert not fleet.snapshot().topics
    assert fleet.entry("t").holders.keys() == {"a"}, "the next owner fences a"


def test_eviction_does_not_apply_to_a_restarted_worker() -> None:
    fleet, hanging = drained_while_it_hangs()
    fleet.wait(30)
    fleet.cycle()
    fleet.kill(hanging)
    fleet.worker("a")
    fleet.tag("a")
    fleet.cycle()
    assert A in fleet.snapshot().sessions
    assert mark(fleet) == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_only_the_observed_session_is_evicted(restarted: bool) -> None:
    """A version does not identify the owner: a restarted worker's live node has the same one."""
    fleet, hanging = drained_while_it_hangs()
    seen = fleet.snapshot()
    fleet.wait(30)
    evict = fleet.planner(fleet.observe(), fleet.now_s).steps[0]
    assert isinstance(evict, Evict)
    if restarted:
        fleet.kill(hanging)
        fleet.worker("a")
    client, metrics = MemoryCoordination(fleet.store), ControlMetrics(CollectorRegistry())
    observer = Observer(client, fleet="test", clock=ManualClock(), delays=Delays())
    vetted = vet([evict], seen, fleet.paths)
    executor = Executor(client, paths=fleet.paths, observer=observer, metrics=metrics)
    assert executor.execute(vetted, seen.epoch + 1) is not PlanOutcome.DONE
    assert metrics.evictions._value.get() == 0, "a refused transaction evicts no worker"
    outcome = executor.execute(vetted, seen.epoch)
    assert outcome is (PlanOutcome.CONFLICT if restarted else PlanOutcome.DONE)
    assert (fleet.store.node(fleet.paths.worker_live(A)) is not None) is restarted
    assert metrics.evictions._value.get() == (0 if restarted else 1)


def draining(partitions: int) -> tuple[ControlFleet, Process]:
    """a is drained of its partitions, has read so, and releases none by itself."""
    fleet = two_workers(2 * partitions)
    slow = fleet.process("a")
    fleet.tag("a", draining=True)
    fleet.cycle()
    slow.read()
    slow.publish()
    assert len(fleet.cycle().waiting) == partitions == len(slow.removed)
    return fleet, slow


def release_one(fleet: ControlFleet, slow: Process, after_s: float) -> bool:
    """Release one partition after that time; True if the worker is evicted."""
    fleet.wait(after_s)
    slow.release(sorted(slow.removed)[-1])
    slow.publish()
    return evicts(fleet)


def evicts(fleet: ControlFleet) -> bool:
    steps = fleet.cycle().steps
    fleet.process("b").catch_up()
    return any(isinstance(step, Evict) for step in steps)


def test_a_drain_that_goes_on_is_not_called_hanging() -> None:
    """All are requested at once: the last one is released 100 s later."""
    fleet, slow = draining(5)
    assert not any(release_one(fleet, slow, 20) for _ in range(5))
    assert fleet.process("b").copies.keys() == {partition("t", number) for number in range(10)}


def test_a_drain_that_comes_to_a_halt_is_evicted() -> None:
    fleet, slow = draining(4)
    assert not release_one(fleet, slow, 20)
    assert not release_one(fleet, slow, 20)
    fleet.wait(29)
    assert not evicts(fleet)
    assert fleet.cycle().wake_at_s == fleet.now_s + 1
    fleet.wait(1)
    assert evicts(fleet)


def test_a_drain_that_goes_on_for_ever_is_evicted() -> None:
    fleet, slow = draining(20)
    assert [release_one(fleet, slow, 25) for _ in range(12)] == [False] * 11 + [True]


def test_what_is_requested_later_does_not_hide_a_partition_that_hangs() -> None:
    fleet, slow = draining(1)
    fleet.tag("a", draining=False)
    fleet.topic("u", 4)
    fleet.cycle()
    slow.read()
    for part in sorted(slow.added.keys() - slow.removed.keys()):
        for act in (slow.start, slow.fence, slow.position, slow.commit):
            act(part)
    slow.publish()
    fleet.cycle()
    fleet.wait(10)
    fleet.tag("a", draining=True)
    fleet.cycle()
    slow.read()
    slow.publish()
    fleet.cycle()
    others = sorted(part for part in slow.removed if part.topic == "u")
    assert others
    fleet.wait(10)
    slow.release(others[0])
    slow.publish()
    assert not evicts(fleet)
    fleet.wait(10)
    assert evicts(fleet)
