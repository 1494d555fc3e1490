"""Equal offsets: gaps of the source are filled, and takeovers spend none."""

from __future__ import annotations

from random import Random

import pytest

from ureplicator_common.kafka.provenance import SameOffsets
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.same_fleet import SAME, SameFleet
from ureplicator_testkit.exactly_once.history import play
from ureplicator_worker.copier.raw import gap_filling
from ureplicator_worker.copier.start_position import FENCED

KEY = ("t", 0)
SEEDS = 10


def copied(fleet: SameFleet) -> int:
    return len(fleet.shifts(0))


def fences(fleet: SameFleet) -> int:
    return fleet.ledger.done.count("fence data")


def test_what_compaction_took_is_filled(fleet: SameFleet) -> None:
    put(fleet, 0, 20)
    fleet.compact(KEY, 15)
    fleet.give(0, "w1")
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}
    assert fleet.target.logs[KEY].end == fleet.source.logs[KEY].end


def test_a_killed_owner_is_replaced_without_a_fence(fleet: SameFleet) -> None:
    fleet.begin(0)
    put(fleet, 0, 7)
    fleet.run_until(lambda: copied(fleet) >= 12)
    fleet.kill("w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert (fences(fleet), set(fleet.shifts(0)), copied(fleet)) == (0, {0}, 17)


def test_a_killed_owner_that_sent_nothing_is_replaced_without_a_fence(fleet: SameFleet) -> None:
    fleet.give(0, "w1")
    fleet.run_until_copied()
    fleet.kill("w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert (fences(fleet), set(fleet.shifts(0))) == (0, {0})


@pytest.mark.parametrize("request_name", ["data producer", "commit", "read"])
def test_a_start_that_fails_for_a_time_is_replaced_without_a_fence(
    fleet: SameFleet, request_name: str
) -> None:
    """The coordinator is away while it begins: what it found is found once more."""
    fleet.begin(0)
    put(fleet, 0, 7)
    fleet.run_until(lambda: copied(fleet) >= 12)
    fleet.kill("w1")
    for _ in range(3):
        fleet.ledger.fail_next(request_name, "before")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert (fences(fleet), set(fleet.shifts(0)), copied(fleet)) == (0, {0}, 17)


def test_a_frozen_owner_that_thaws_shifts_nothing(fleet: SameFleet) -> None:
    fleet.begin(0)
    owner = fleet.workers["w1"]
    put(fleet, 0, 20, size=500)
    fleet.turn(skip_s=0.001)
    owner.frozen = True
    fleet.give(0, "w2")
    fleet.run_until_copied()
    owner.frozen = False
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(50)
    assert (set(fleet.shifts(0)), copied(fleet)) == ({0}, 30)


def test_old_records_are_fenced_and_the_next_gap_takes_the_shift_back(fleet: SameFleet) -> None:
    """Brokers forget their producer at once, so it cannot be shared."""
    fleet.age()
    fleet.begin(0)
    fleet.kill("w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert (fences(fleet), fleet.shifts(0)) == (1, [0] * 5 + [1] * 5)
    assert fleet.claim(0)[:3] == (5, 1, FENCED)
    put(fleet, 0, 6)
    fleet.compact(KEY, 13)
    fleet.run_until_copied()
    assert fleet.shifts(0)[-1] == 0


def test_a_log_begins_where_that_of_the_source_does(
    fleet: SameFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap_filling, "RESERVE", 2)
    monkeypatch.setattr(gap_filling, "FILLER_RECORDS", 5)
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    fleet.run_until_copied()
    assert (set(fleet.shifts(0)), copied(fleet)) == ({0}, 7)
    assert fleet.target.logs[KEY].start == 23
    assert fleet.claim(0) == SameOffsets(since=23)


@pytest.mark.usefixtures("small_fillers")
@pytest.mark.parametrize("turns", range(1, 40))
def test_owners_that_are_killed_while_a_log_is_filled(
    fleet: SameFleet, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(gap_filling, "STORED_S", 0.0)
    put(fleet, 0, 60)
    fleet.delete(KEY, 53)
    fleet.give(0, "w1")
    fleet.turns(turns, skip_s=0.01)
    fleet.kill("w1")
    fleet.turns(turns, skip_s=0.01)
    fleet.give(0, "w2")
    fleet.run_until_copied()
    assert (set(fleet.shifts(0)), copied(fleet)) == ({0}, 7)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_claims_hold_through_all_faults(seed: int) -> None:
    play(Random(seed), settings=SAME)  # noqa: S311  # repeatable
