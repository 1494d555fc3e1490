"""Histories of a worker whose main loop hangs while its ZooKeeper session lives."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.clock import ManualClock
from ureplicator_common.coordination.memory import MemoryCoordination
from ureplicator_common.model import SessionId, WorkerId
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_controller.engines.executor import Executor, Outcome
from ureplicator_controller.engines.metrics import ControlMetrics
from ureplicator_controller.engines.observer import Observer
from ureplicator_testkit.control.fleet import ControlFleet, Process, ids_of, partition, two_workers

A = WorkerId("a")


def asked_while_it_hangs(partitions: int = 2) -> tuple[ControlFleet, Process]:
    """a hangs, is drained, and is asked for what it holds: one of two partitions."""
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


def test_who_does_not_let_go_in_time_is_evicted_and_fenced() -> None:
    fleet, hanging = asked_while_it_hangs()
    fleet.wait(29)
    assert fleet.cycle().steps == ()
    fleet.wait(1)
    decided = fleet.cycle()
    assert isinstance(decided.steps[0], Evict)
    assert "worker a evicted: did not release source.target/t/0" in decided.reasons
    assert mark(fleet) == hanging.session
    assert fleet.fences("b") == ids_of("a")
    fleet.process("b").obey()
    before = list(fleet.commits[partition("t")])
    hanging.commit_all()
    assert fleet.commits[partition("t")] == before, "its copiers went on, and are fenced"


def test_the_leader_knows_when_to_look_again() -> None:
    fleet, _ = asked_while_it_hangs()
    assert fleet.cycle().wake_at_s == fleet.now_s + 30


def test_who_lets_go_in_time_is_not_evicted() -> None:
    fleet, slow = asked_while_it_hangs()
    fleet.wait(29)
    fleet.recover(slow)
    slow.obey()
    fleet.wait(5)
    assert not [step for step in fleet.cycle().steps if isinstance(step, Evict)]
    assert fleet.entry("t").holders.keys() == {"b"}, "it confirmed: nobody need be fenced"


def test_who_is_busy_with_one_after_the_other_is_not_evicted() -> None:
    """Time runs for each partition: 20 s for each of two, asked 20 s apart."""
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


def test_evicted_worker_that_registers_again_is_given_nothing_before_it_answers() -> None:
    fleet, hanging = asked_while_it_hangs()
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
    assert mark(fleet) == 0, "it has answered"
    fleet.wait(200)
    fleet.settle()
    assert fleet.counts() == {"a": 4, "b": 4}


def test_evicted_worker_confirms_nothing_for_what_it_said_before() -> None:
    fleet, hanging = asked_while_it_hangs()
    fleet.wait(30)
    fleet.cycle()
    fleet.register_again(hanging)
    fleet.cycle()
    assert fleet.entry("t").holders.keys() == {"a", "b"}
    assert fleet.fences("b") == ids_of("a")


def test_what_nobody_asked_of_it_stays_until_the_rebalance_delay_ends() -> None:
    """Its other partition is still being copied: it moves like that of a worker that vanished."""
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


def test_deletion_does_not_wait_for_who_hangs() -> None:
    fleet = two_workers(2)
    fleet.hang(fleet.process("a"))
    fleet.delete("t")
    fleet.settle()
    assert fleet.snapshot().topics
    fleet.wait(30)
    fleet.settle()
    assert not fleet.snapshot().topics
    assert fleet.entry("t").holders.keys() == {"a"}, "whoever adds it again fences a"


def test_a_restarted_worker_is_not_held_to_the_mark() -> None:
    fleet, hanging = asked_while_it_hangs()
    fleet.wait(30)
    fleet.cycle()
    fleet.kill(hanging)
    fleet.worker("a")
    fleet.tag("a")
    fleet.cycle()
    assert A in fleet.snapshot().sessions
    assert mark(fleet) == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_only_the_session_that_was_seen_is_evicted(restarted: bool) -> None:
    """A version knows no owner: the live node of a restarted worker has the same."""
    fleet, hanging = asked_while_it_hangs()
    seen = fleet.snapshot()
    fleet.wait(30)
    evict = fleet.planner(fleet.observe(), fleet.now_s).steps[0]
    assert isinstance(evict, Evict)
    if restarted:
        fleet.kill(hanging)
        fleet.worker("a")
    client, metrics = MemoryCoordination(fleet.store), ControlMetrics(CollectorRegistry())
    observer = Observer(client, fleet="test", clock=ManualClock(), delays=Delays())
    executor = Executor(client, paths=fleet.paths, observer=observer, metrics=metrics)
    outcome = executor.execute([evict], seen, seen.epoch)
    assert outcome is (Outcome.CONFLICT if restarted else Outcome.DONE)
    assert (fleet.store.node(fleet.paths.worker_live(A)) is not None) is restarted
    assert metrics.evictions._value.get() == (0 if restarted else 1)
