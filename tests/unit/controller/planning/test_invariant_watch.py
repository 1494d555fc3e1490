"""Invariants of the topics that are not at rest are checked in each cycle, and of workers in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import OwnerEpoch, Partition, Route, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
)
from ureplicator_controller.core.planning.invariants import (
    WORKERS_IN_TURN,
    InvariantWatch,
    Violation,
)
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.snapshot import Snapshot

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
        self._watch = InvariantWatch()
        self._indexer = FleetIndexer()

    def violations(self, seen: Snapshot) -> list[Violation]:
        return self._watch.violations(seen, self._indexer.of(seen))


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


def test_workers_are_checked_in_turn_whatever_the_index_says() -> None:
    """An index that holds everything for at rest hides nothing for long."""
    workers = [WorkerId(f"w{number}") for number in range(7)]
    bad = replace(GOOD, ideal={}, assignments={worker: assigned() for worker in workers})
    watch, index = InvariantWatch(), replace(FleetIndexer().of(bad), busy=frozenset())
    assert {violation.reason.split()[0] for violation in watch.violations(bad, index)} == {
        *workers,
        "assigned",
    }
    turns = [
        {violation.reason.split()[0] for violation in watch.violations(bad, index)} - {"assigned"}
        for _ in range(4)
    ]
    assert all(len(turn) == WORKERS_IN_TURN for turn in turns)
    assert set().union(*turns) == set(workers)
