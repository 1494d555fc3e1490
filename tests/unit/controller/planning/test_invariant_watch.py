"""Invariants are checked whenever what they are about differs, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.contents import (
    Assignment,
    AssignmentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
)
from ureplicator_common.model import OwnerEpoch, Partition, Route, SessionId, TopicKey, WorkerId
from ureplicator_controller.core.planning import invariants
from ureplicator_controller.core.planning.invariants import InvariantWatch, Violation
from ureplicator_controller.core.state.snapshot import Snapshot, Stored

KEY = TopicKey(Route("a", "b"), "t")
PARTITION = Partition(KEY.route, KEY.topic, 0)
ONE, TWO = WorkerId("w1"), WorkerId("w2")
NOBODY = SessionId(0)


def ideal(*holders: WorkerId) -> Stored[IdealTopic]:
    entry = IdealEntry(ONE, OwnerEpoch(1), 0, "placed", dict.fromkeys(holders, SessionId(1)))
    return Stored(IdealTopic({0: entry}), 0, 1, NOBODY)


def assigned(version: int = 0) -> Stored[Assignment]:
    entry = AssignmentEntry(OwnerEpoch(1))
    return Stored(Assignment({PARTITION: entry}), version, version, NOBODY)


GOOD = Snapshot("f", 1, ideal={KEY: ideal(ONE)}, assignments={ONE: assigned()})


@pytest.mark.parametrize(
    "violating",
    [
        replace(GOOD, assignments={**GOOD.assignments, TWO: assigned()}),
        replace(GOOD, ideal={KEY: ideal(TWO)}),
        replace(GOOD, ideal={}),
    ],
)
def test_a_violation_is_found_when_it_appears_and_told_while_it_lasts(violating: Snapshot) -> None:
    watch = InvariantWatch()
    assert watch.violations(GOOD) == []
    found = watch.violations(violating)
    assert found
    assert watch.violations(replace(violating, wall_ms=5)) == found
    assert watch.violations(replace(violating, unreadable_topics=frozenset({KEY}))) == []
    assert watch.violations(violating) == found
    assert watch.violations(GOOD) == []


def test_a_report_of_a_worker_checks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Snapshot] = []
    check = invariants.check_invariants

    def counted(seen: Snapshot) -> list[Violation]:
        checked.append(seen)
        return check(seen)

    monkeypatch.setattr(invariants, "check_invariants", counted)
    watch = InvariantWatch()
    for number in range(5):
        current = {ONE: Stored(CurrentState(number, {}), number, number, SessionId(1))}
        seen = replace(GOOD, current=current, ideal=dict(GOOD.ideal))
        assert watch.violations(seen) == []
    assert len(checked) == 1
    watch.violations(replace(GOOD, assignments={ONE: assigned(version=1)}))
    assert len(checked) == 2
