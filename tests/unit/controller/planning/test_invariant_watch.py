"""Invariants of the topics that are not at rest are checked in each cycle, all of them once a minute."""

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
from ureplicator_controller.core.planning.invariants import (
    FULL_CHECK_INTERVAL_S,
    InvariantWatch,
    Violation,
)
from ureplicator_controller.core.state.fleet_index import FleetIndexer
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


class Watched:
    """A watch with the indexes of the snapshots that it is given."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._watch = InvariantWatch()
        self._indexer = FleetIndexer()

    def violations(self, seen: Snapshot) -> list[Violation]:
        return self._watch.violations(seen, self._indexer.of(seen), self.now_s)


@pytest.mark.parametrize(
    "violating",
    [
        replace(GOOD, assignments={**GOOD.assignments, TWO: assigned()}),
        replace(GOOD, ideal={KEY: ideal(TWO)}),
        replace(GOOD, ideal={}),
    ],
)
def test_a_violation_is_found_when_it_appears_and_told_while_it_lasts(violating: Snapshot) -> None:
    watched = Watched()
    assert watched.violations(GOOD) == []
    found = watched.violations(violating)
    assert found
    assert watched.violations(replace(violating, wall_ms=5)) == found
    assert watched.violations(replace(violating, unreadable_topics=frozenset({KEY}))) == []
    assert watched.violations(violating) == found
    assert watched.violations(GOOD) == []


def test_topics_at_rest_are_checked_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Snapshot] = []
    check = invariants.check_invariants

    def counted(seen: Snapshot) -> list[Violation]:
        checked.append(seen)
        return check(seen)

    monkeypatch.setattr(invariants, "check_invariants", counted)
    watched = Watched()
    for number in range(5):
        current = {ONE: Stored(CurrentState(number, {}), number, number, SessionId(1))}
        assert watched.violations(replace(GOOD, current=current)) == []
    assert len(checked) == 1
    watched.now_s += FULL_CHECK_INTERVAL_S
    assert watched.violations(GOOD) == []
    assert len(checked) == 2
