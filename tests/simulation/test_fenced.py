"""Random histories of exactly once without transactions keep every invariant, and detect each safeguard that
is removed; a unit test detects those whose harm needs more than a history can draw."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.exactly_once.fenced_mutants import FENCED_MUTANTS
from ureplicator_testkit.forks import Run, runs
from ureplicator_testkit.seeds import seeds

MODULE = "ureplicator_testkit.exactly_once"

FIRST = {
    "not-counted": 4,
    "counted-one-more": 8,
    "counted-one-less": 4,
    "all-data-counted": 4,
    "count-ignored": 4,
    "not-sought": 22,
    "marker-not-awaited": 22,
    "not-fenced": 39,
    "control-counted": 13,
    "unsequenced": 0,
    "sent-counts": 1,
    "always-closed": 4,
    "closed-in-doubt": 22,
    "closed-before-the-end": 4,
    "producer-not-stored": 34,
    "no-slot-fence": 4,
    "initialised-once": 3,
    "no-restart": 3,
    "unseen-is-committed": 3,
}
"""Seeds of histories that detect them."""

TAIL = "tests/unit/copier/takeover/test_target_tail.py::test_"
PLACE = "tests/unit/copier/takeover/test_source_place.py::test_"
MAP = "tests/unit/copier/takeover/test_counted_map.py::test_"
PRODUCERS = "tests/unit/copier/test_data_producers.py::test_"
FLEET = "tests/unit/copier/route/test_route_fenced.py::test_"
WINDOW = "tests/unit/copier/raw/test_send_window.py::test_"
OLD = "tests/unit/copier/raw/test_old_data.py::test_"
LOST = "tests/unit/copier/raw/test_target_lost.py::test_"

DIRECTED = {
    "records-left-counted": f"{TAIL}compaction_changes_no_count",
    "no-wrap": f"{TAIL}sequences_that_begin_again_at_0",
    "moved-by-hand-counted": f"{TAIL}a_position_that_was_moved_by_hand",
    "any-marker-ends": f"{TAIL}the_end_is_the_control_record_of_the_fence",
    "loss-hidden": f"{TAIL}control_records_of_many_tries_hide_no_loss",
    "fenced-after": f"{FLEET}a_marker_that_is_late_is_awaited",
    "witness-not-compared": f"{PLACE}a_record_that_is_another_one_disagrees",
    "aborted-counted": f"{PLACE}what_is_not_copied_does_not_count",
    "never-collected": f"{FLEET}what_the_source_deleted_since_the_copy_is_compared",
    "nothing-left-nothing-copied": f"{PLACE}a_source_that_begins_behind_all_copies",
    "matched-in-any-order": f"{PLACE}the_last_of_equal_copies_is_matched_in_order",
    "holes-mapped": f"{MAP}records_of_an_unknown_place_are_not",
    "count-not-mapped": f"{MAP}records_without_a_hole_at_the_target_are_mapped",
    "first-rows-left-out": f"{MAP}the_map_is_exact_over_owners_that_are_lost_in_a_row",
    "same-producer": f"{PRODUCERS}partitions_share_a_producer_until_one_begins_again",
    "not-renewed": f"{PRODUCERS}a_producer_in_use_is_renewed_in_time",
    "renewed-in-vain": f"{PRODUCERS}a_producer_that_nobody_can_fence_by_its_name_is_replaced",
    "sent-again-under-fresh-id": f"{FLEET}records_that_brokers_forget_are_never_sent_again",
    "old-is-sent-again": f"{FLEET}records_that_brokers_forget_are_never_sent_again",
    "late-try-ignored": f"{FLEET}a_try_that_arrives_late_is_appended_once",
    "old-in-flight": f"{WINDOW}next_to_an_old_batch_nothing_is_in_flight",
    "new-in-flight": f"{WINDOW}another_producer_begins_with_one_batch_in_flight",
    "no-doubt": f"{OLD}a_producer_that_is_forgotten_in_a_pause",
    "went-back-unseen": f"{LOST}a_log_that_forgot_the_producer_with_the_records",
    "gap-not-awaited": f"{FLEET}behind_a_gap_nothing_is_sent_before_a_commit",
    "skip-not-awaited": f"{FLEET}behind_a_skipped_record_nothing_is_sent_before_a_commit",
    "left-open": f"{FLEET}a_position_at_rest_is_closed_at_the_end",
    "confirmed-at-once": f"{FLEET}over_a_new_connection_nothing_is_sent_before_a_commit",
    "not-confirmed": f"{FLEET}over_a_new_connection_nothing_is_sent_before_a_commit",
    "old-connection": f"{FLEET}over_a_new_connection_nothing_is_sent_before_a_commit",
    "new-leader": f"{FLEET}to_a_new_leader_nothing_is_sent_before_a_commit",
}
"""Unit tests that detect them."""


def test_seeds_keep_every_invariant() -> None:
    (run,) = runs(MODULE, [["--fenced", "--seeds", str(seeds())]])
    assert run.code == 0, run.output
    assert f"{seeds()} seeds, no violation" in run.output


def test_each_mutant_has_its_proof() -> None:
    assert not FIRST.keys() & DIRECTED.keys()
    assert FIRST.keys() | DIRECTED.keys() == FENCED_MUTANTS.keys()


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Mapping[str, Run]:
    """Runs of the selected mutants."""
    mutants = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    arguments = [["--fenced", f"--mutant={mutant}", *proof(mutant)] for mutant in mutants]
    return dict(zip(mutants, runs(MODULE, arguments), strict=True))


def proof(mutant: str) -> list[str]:
    if mutant in DIRECTED:
        return [f"--test={DIRECTED[mutant]}"]
    return [f"--seed={FIRST[mutant]}"]


@pytest.mark.parametrize("mutant", FENCED_MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, found: Mapping[str, Run]) -> None:
    run = found[mutant]
    assert run.code == 1, run.output
    if mutant in FIRST:
        assert ": AssertionError: " in run.output.splitlines()[-2], "the mutant itself fails"
    else:
        assert "FAILED" in run.output
        assert "error" not in run.output.splitlines()[-1]
