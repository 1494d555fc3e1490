"""Cutovers at moments that random histories rarely draw: the real thread, over the twins of its histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ureplicator_common.coordination import Check, Operation
from ureplicator_common.cutovers import Cutover, CutoverState, FenceKind, Wanted
from ureplicator_common.model import Partition, Route, TopicState
from ureplicator_controller.core.state.snapshot import Delays
from ureplicator_testkit.cutover_histories.clients import Writer
from ureplicator_testkit.cutover_histories.clusters import BOB
from ureplicator_testkit.cutover_histories.copying import TOPICS, Copier
from ureplicator_testkit.cutover_histories.history import History
from ureplicator_testkit.cutover_histories.leaders import Client
from ureplicator_testkit.cutover_histories.operators import Run

THERE = Route("a", "b")
ACL, NONE = Run(FenceKind.ACL), Run(FenceKind.NONE)
STEPS = 400


def run_on(history: History, reached: Callable[[], bool]) -> None:
    for _ in range(STEPS):
        history.turn()
        if reached():
            return
    pytest.fail(f"not reached: {history.judge.node}")


def run_until(history: History, reached: Callable[[], bool]) -> Cutover:
    run_on(history, reached)
    return node_of(history)


def node_of(history: History) -> Cutover:
    assert history.judge.node is not None
    return history.judge.node


def state(history: History) -> CutoverState | None:
    return None if history.judge.node is None else history.judge.node.state


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("number", range(1, 13))
def test_a_write_without_a_response_may_have_been_made(
    number: int, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known before it is never written over it."""
    writes = 0

    def transact(self: Client, operations: Sequence[Operation]) -> None:
        nonlocal writes
        writes += not isinstance(operations[-1], Check)
        if writes == number:
            writes += 1
            self.lose_next_response(applied=applied)
        plain(self, operations)

    plain = Client.transact
    monkeypatch.setattr(Client, "transact", transact)
    history = History(1, [ACL])
    history.run()
    assert state(history) is CutoverState.DONE
    assert writes > number


def test_offsets_that_could_not_be_written_at_first_are_put_back_by_an_abort() -> None:
    history = History(1, [replace(ACL, limit_s=20.0)])
    there = history.clusters["b"].groups
    there.failing.add("g")
    run_until(history, lambda: bool(history.judge.node and history.judge.node.groups_before))
    assert "g" not in (node_of(history).groups_before or {})
    there.failing.clear()
    behind = history.clusters["a"].acls.behind
    behind["broker 1"] = frozenset()
    history._brokers = lambda: None  # type: ignore[method-assign]  # one lags to the end of the run
    run_until(history, lambda: "g" in node_of(history).groups)
    assert there.groups["g"].offsets
    run_until(history, lambda: node_of(history).wanted is Wanted.ABORT)
    behind.clear()
    run_until(history, lambda: state(history) is CutoverState.ABORTED)
    assert not there.groups["g"].offsets


def test_groups_that_do_not_respond_do_not_hold_up_the_turn() -> None:
    history = History(1, [ACL])
    run_until(history, lambda: state(history) is CutoverState.OPEN)
    history.clusters["a"].groups.lost = True
    run_until(history, lambda: state(history) is CutoverState.WATCHED)


def test_a_rehearsal_of_a_topic_that_is_deleted_ends() -> None:
    history = History(1, [replace(ACL, rehearses=True)])
    run_until(history, lambda: history.operator.phase == "runs")
    history.troubled.add("t")
    history.fleet.edit(THERE, "t", state=TopicState.DELETING)
    node = run_until(
        history, lambda: history.judge.node is not None and node_of(history).wanted is Wanted.PLAN
    )
    assert node.reason == "t is not copied on a.b any more"


def test_a_plan_that_is_requested_again_leaves_the_fence_of_its_first_run() -> None:
    history = History(1, [ACL, ACL])
    run_until(history, lambda: state(history) is CutoverState.WATCHED)
    request = history.operator.request
    assert request is not None
    history.operator.request = again = replace(request, run="again")
    history.operator._write(again)
    node = run_until(history, lambda: state(history) is CutoverState.ABORTED)
    assert (node.run, node.fences["a"]) == ("again", request.plan.acls)
    history.run()
    assert (state(history), history.open) == (CutoverState.DONE, "a")
    assert set(node_of(history).fences) == {"b"}


def freeze_before_it_names_its_producer(history: History, partition: Partition) -> Copier:
    """All that it has is copied, and for this one nothing follows the stored position."""
    worker = next(each for each in history.fleet.copiers if partition in each.copies)
    for own in list(worker.copies):
        worker.send(own, 1_000)
        worker._commit(own, producer="")
    worker.copies[partition].stage = "counted"
    history.fleet.freeze(worker)
    return worker


def test_a_worker_that_thaws_and_has_no_producer_yet_copies_nothing() -> None:
    """Its partition has no next owner, who would fence it."""
    history = History(1, [NONE])
    history.fleet.delays = Delays(rebalance_s=1_000.0, join_s=1.0, handover_s=4.0)
    starts, history.operator.turn = history.operator.turn, lambda: None  # type: ignore[method-assign]
    run_on(
        history,
        lambda: history.fleet.is_copied(THERE, TOPICS) and bool(history.acknowledged["u", 0]),
    )
    writers, history.writers = history.writers, []
    for writer in writers:
        writer._arrive(history)
        if writer.opened_at is not None:
            writer._end(history)
    worker = freeze_before_it_names_its_producer(history, Partition(THERE, "u", 0))
    history.operator.phase, history.operator.turn = "stops", starts  # type: ignore[method-assign]
    run_until(history, lambda: state(history) is CutoverState.WATCHED)
    history.writers, worker.deaf = [Writer(BOB, "b")], STEPS
    history.fleet.thaw(worker)
    history.run()
    assert state(history) is CutoverState.DONE
