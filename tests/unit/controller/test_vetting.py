"""Vetting of plans: a refused step stops what it is about, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ureplicator_common.model import Limited, OwnerEpoch, Partition, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    TopicIntent,
)
from ureplicator_common.znodes import codec
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.planning.plan import Plan
from ureplicator_controller.core.planning.steps import (
    MarkPositions,
    Step,
    WriteAssignment,
    WriteIdeal,
    WriteShares,
)
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.vetting import (
    MAX_REASON,
    MAX_ROUNDS,
    MAX_SUBJECTS,
    Isolated,
    VettedPlan,
    subjects,
    vet,
    vetted_plan,
)

ROUTE = Route("a", "b")
GOOD, BAD = TopicKey(ROUTE, "good"), TopicKey(ROUTE, "bad")
W = WorkerId("w")
SEEN = Snapshot(fleet="test", epoch=1)
PATHS = Paths("test")


def ideal(key: TopicKey, *, why: str = "new topic") -> WriteIdeal:
    return WriteIdeal(key, IdealTopic({0: IdealEntry(W, OwnerEpoch(1), 0, why)}), None)


def giving(key: TopicKey, *, fence: int = 0) -> WriteAssignment:
    """Assignment of a partition whose holder the worker is not."""
    entry = AssignmentEntry(OwnerEpoch(1), tuple(f"id-{number}" for number in range(fence)))
    assignment = Assignment({Partition(ROUTE, key.topic, 0): entry})
    return WriteAssignment(W, assignment, None, revokes_only=False)


def planned(*steps: Step, seen: Callable[[Snapshot], bool] = lambda _: True) -> VettedPlan:
    """Vetted plan of these steps; the first is left out of a snapshot that `seen` says no to."""

    def plan(snapshot: Snapshot) -> Plan:
        return Plan(steps if seen(snapshot) else steps[1:], None, ())

    return vetted_plan(SEEN, plan=plan, paths=PATHS)


def is_bad_planned(snapshot: Snapshot) -> bool:
    return BAD not in snapshot.unreadable_topics


def test_a_violated_invariant_isolates_its_topic() -> None:
    done = planned(giving(BAD), ideal(GOOD), seen=is_bad_planned)
    assert done.vetted.steps == (ideal(GOOD),)
    assert not done.vetted.refused
    assert [subject.topics for subject in done.isolated] == [{BAD}]
    assert done.isolated[0].violations == 1


@pytest.mark.parametrize(
    "step",
    [
        ideal(BAD, why=" ".join(map(str, range(5_000)))),
        MarkPositions(
            BAD,
            TopicIntent(1, 1, request_id=" ".join(map(str, range(5_000))), target_topic="orders"),
            0,
        ),
        giving(BAD, fence=5_000),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_node_that_is_too_big_isolates_its_topic(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "LIMIT_BYTES", 4_096)
    done = planned(step, ideal(GOOD), seen=is_bad_planned)
    assert done.vetted.steps == (ideal(GOOD),)
    assert [subject.topics for subject in done.isolated] == [{BAD}]
    assert done.isolated[0].violations == 0


def test_what_a_refused_step_leads_to_counts_as_no_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "LIMIT_BYTES", 4_096)
    too_big = ideal(BAD, why=" ".join(map(str, range(5_000))))
    vetted = vet([too_big, giving(BAD)], SEEN, PATHS)
    assert [refusal.violations for refusal in vetted.refused] == [0, 0]


def test_shares_that_are_too_big_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LIMIT_BYTES", 4_096)
    limits = {
        Limited.parse(f"topic:a.b/{number * 7_919 % 104_729}"): number for number in range(5_000)
    }
    done = planned(WriteShares(W, {0: limits}, None), ideal(GOOD))
    assert done.vetted.steps == (ideal(GOOD),)
    assert len(done.isolated) == 1


def test_a_step_that_is_planned_all_the_same_ends_the_plan_there() -> None:
    done = planned(ideal(GOOD), giving(BAD), ideal(TopicKey(ROUTE, "later")))
    assert done.vetted.steps == (ideal(GOOD),)
    assert 0 < len(done.isolated) <= MAX_ROUNDS


def test_what_is_shown_of_it_is_bounded() -> None:
    keys = frozenset(TopicKey(Route("a", "b"), f"t{number}") for number in range(MAX_SUBJECTS))
    too_big, wrong = Isolated("x" * 1_000, topics=keys), Isolated("y", workers=frozenset({W}))
    shown = subjects([too_big, wrong, Isolated("WriteShares: z"), Isolated("later", topics=keys)])
    assert len(shown) == MAX_SUBJECTS
    assert max(len(subject.reason) for subject in shown) == MAX_REASON
    few = subjects([wrong, Isolated("WriteShares: z")])
    assert [(subject.what, subject.reason) for subject in few] == [
        ("step", "WriteShares: z"),
        ("worker w", "y"),
    ]
