"""Results of a comparison as contents of nodes."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.audits import Differences, VerifiedRange
from ureplicator_common.model import Delivery
from ureplicator_worker.audit.result import AuditResult, Finding, FindingKind, PartitionResult
from ureplicator_worker.auditor.outcome import (
    compared_ranges,
    difference_counts,
    outcome_of,
    stored_findings,
)

EQUAL = PartitionResult(0, 10, 50, 48, 50, compared=38, repeated=3)
DIFFERING = PartitionResult(1, 0, 90, 80, 90, compared=70, missing=2, altered=1)
FOUND = (
    Finding(0, FindingKind.REPEATED, 12, 14),
    Finding(1, FindingKind.MISSING, 20, -1),
    Finding(1, FindingKind.ALTERED, 33, 30, "value"),
    Finding(1, FindingKind.MISSING, 41, -1),
)
RESULT = AuditResult("west.east", "orders", "orders", (EQUAL, DIFFERING), FOUND)


def test_ranges_with_the_offsets_of_their_differences() -> None:
    assert compared_ranges(RESULT, at_ms=7) == {
        0: VerifiedRange(10, 50, 7, 48),
        1: VerifiedRange(0, 90, 7, 80, Differences(20, 41, {"missing": 2, "altered": 1})),
    }


def test_a_comparison_that_went_on_beyond_the_positions_has_the_time_of_its_end() -> None:
    beyond = replace(EQUAL, verified_to=60, target_to=58)
    result = replace(RESULT, partitions=(beyond, DIFFERING), ended_ms=99)
    found = compared_ranges(result, at_ms=7)
    assert found[0] == VerifiedRange(10, 60, 99, 58)
    assert found[1].at_ms == 7


def test_repeats_are_differences_only_in_exactly_once() -> None:
    assert difference_counts(RESULT) == {"altered": 1, "missing": 2}
    once = replace(RESULT, delivery=Delivery.EXACTLY_ONCE)
    assert difference_counts(once) == {"altered": 1, "missing": 2, "repeated": 3}
    assert [each.kind for each in stored_findings(RESULT)] == ["missing", "altered", "missing"]
    assert len(stored_findings(once)) == 4


def test_differences_whose_offsets_are_not_known_count_for_the_whole_range() -> None:
    for findings in (FOUND[:2], (*FOUND[:3], Finding(1, FindingKind.FOREIGN, -1, 5))):
        found = compared_ranges(replace(RESULT, findings=findings), at_ms=7)[1].differences
        assert found is not None
        assert (found.first, found.last) == (0, 89)


def test_a_partition_of_which_nothing_was_compared_has_no_range() -> None:
    nothing = PartitionResult(2, -1, -1, end=9, notes=("no leader",))
    result = replace(RESULT, partitions=(EQUAL, nothing))
    assert compared_ranges(result, at_ms=7).keys() == {0}
    assert outcome_of(result) == "1 partitions incomplete, first 2: no leader"
    assert outcome_of(RESULT) == "done"
    refused = replace(RESULT, not_comparable="its records go through a handler")
    assert outcome_of(refused) == "not comparable: its records go through a handler"
