"""Random histories with the same offsets keep every invariant, and a unit test detects each safeguard that is
removed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.exactly_once.same_mutants import SAME_MUTANTS
from ureplicator_testkit.forks import Run, runs
from ureplicator_testkit.seeds import seeds

MODULE = "ureplicator_testkit.exactly_once"

SAME = "tests/unit/copier/same_offsets/test_same_offsets.py::test_"
DOUBT = "tests/unit/copier/same_offsets/test_doubt.py::test_"
FAULTS = "tests/unit/copier/same_offsets/test_faults.py::test_"
BY_TRANSACTION = "tests/unit/copier/same_offsets/test_transactions.py::test_"
WINDOW = "tests/unit/copier/raw/test_gaps_in_window.py::test_"
TAIL = "tests/unit/copier/takeover/test_shared_tail.py::test_"

DIRECTED = {
    "begun-one-early": f"{SAME}a_log_begins_where_that_of_the_source_does",
    "begun-one-late": f"{SAME}a_log_begins_where_that_of_the_source_does",
    "filled-twice": f"{FAULTS}control_records_of_unknown_outcome_are_not_repeated",
    "filled-short": f"{SAME}what_compaction_took_is_filled",
    "doubt-taken-for-done": f"{FAULTS}control_records_that_are_refused",
    "transaction-taken-for-done": f"{BY_TRANSACTION}a_transaction_of_unknown_outcome_is_not_repeated",
    "filler-after-records": f"{FAULTS}no_filler_lies_behind_a_record",
    "fillers-behind-position": f"{DOUBT}a_first_record_behind_a_hole",
    "fillers-counted": f"{SAME}owners_that_are_killed_while_a_log_is_filled",
    "full-log-uncounted": f"{DOUBT}what_follows_a_filled_log_is_counted",
    "begun-before-stored": f"{SAME}owners_that_are_killed_while_a_log_is_filled",
    "start-not-stored": f"{FAULTS}a_broker_that_is_killed_shows_no_filler_beside_a_record",
    "fillers-left": f"{FAULTS}a_log_begins_once_its_fillers_are_deleted",
    "deleted-further": f"{SAME}a_log_begins_where_that_of_the_source_does",
    "deleted-for-nobody": f"{DOUBT}a_start_that_moves_when_its_partition_is_gone",
    "equal-over-a-shift": f"{SAME}old_records_are_fenced_and_the_next_gap_takes_the_shift_back",
    "equal-over-a-takeover": f"{FAULTS}a_claim_ends_where_another_owner_copied_shifted_records",
    "shared-is-closed": f"{FAULTS}a_shared_producer_is_never_closed",
    "unknown-is-shared": f"{TAIL}a_producer_is_used_on_while_its_leader_surely_knows_it",
    "never-forgotten": f"{TAIL}one_that_is_unknown_and_has_sent_something_is_not",
    "old-is-shared": f"{TAIL}a_producer_is_used_on_while_its_leader_surely_knows_it",
    "old-not-stored": f"{DOUBT}an_old_record_in_front_of_young_ones_is_sent_once",
    "shared-uncounted": f"{SAME}a_killed_owner_is_replaced_without_a_fence",
    "shared-one-further": f"{SAME}a_killed_owner_is_replaced_without_a_fence",
    "skipped-beside-another": f"{DOUBT}a_record_that_is_skipped_hides_no_other",
    "hole-beside-another": f"{DOUBT}a_hole_since_the_copy_hides_no_other",
    "sent-beside-a-gap": f"{WINDOW}beside_a_gap_that_is_being_filled_nothing_is_sent",
    "filled-beside-data": f"{WINDOW}a_gap_is_due_once_what_is_before_it_is_acknowledged",
    "holes-sent": f"{FAULTS}a_batch_with_a_hole_is_sent_as_two",
    "skip-not-stored": f"{FAULTS}behind_a_skipped_record_nothing_is_sent_before_a_commit",
}
"""Unit tests that detect them."""


def test_seeds_keep_every_invariant() -> None:
    (run,) = runs(MODULE, [["--same", "--seeds", str(seeds())]])
    assert run.code == 0, run.output
    assert f"{seeds()} seeds, no violation" in run.output


def test_each_mutant_has_its_proof() -> None:
    assert DIRECTED.keys() == SAME_MUTANTS.keys()


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
    arguments = [
        ["--same", f"--mutant={mutant}", f"--test={DIRECTED[mutant]}"] for mutant in mutants
    ]
    return dict(zip(mutants, runs(MODULE, arguments), strict=True))


@pytest.mark.parametrize("mutant", SAME_MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, found: Mapping[str, Run]) -> None:
    run = found[mutant]
    assert run.code == 1, run.output
    assert "FAILED" in run.output
    assert "error" not in run.output.splitlines()[-1]
