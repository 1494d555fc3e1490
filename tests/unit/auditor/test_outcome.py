"""Results of a comparison as contents of nodes."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.audits import EMPTY_RANGE, AuditRun, Differences, TopicAudit, VerifiedRange
from ureplicator_common.model import Delivery
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.result import (
    AuditResult,
    AuditState,
    Finding,
    FindingKind,
    PartitionResult,
)
from ureplicator_worker.auditor.outcome import (
    compared_ranges,
    difference_counts,
    failure_of,
    outcome_of,
    stored_findings,
    with_result,
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
    assert [finding.kind for finding in stored_findings(RESULT)] == [
        "missing",
        "altered",
        "missing",
    ]
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


UNCOMPARED = PartitionResult(1, 0, 90, 5, 90, uncompared="the target has no records")
RUN = AuditRun("r1", "a1", 5, 9, "done")
INTENT = TopicIntent(2, 2, source_topic_id="s", target_topic_id="t", target_topic="orders")


def test_an_audit_that_could_compare_nothing_is_not_done() -> None:
    result = replace(RESULT, partitions=(EQUAL, UNCOMPARED), findings=())
    assert result.state is AuditState.NOT_VERIFIED
    assert outcome_of(result) == "not verified: partition 1: the target has no records"
    assert failure_of(result) == outcome_of(result)
    assert compared_ranges(result, at_ms=7).keys() == {0}
    differing = replace(EQUAL, missing=1)
    both = replace(RESULT, partitions=(differing, UNCOMPARED))
    assert outcome_of(both) == outcome_of(result), "what was found does not cover the rest"


def test_a_range_without_a_record_proves_nothing_and_is_passed_behind_the_copy() -> None:
    markers = replace(EQUAL, compared=0, repeated=0)
    result = replace(RESULT, partitions=(markers,), findings=())
    assert result.state is AuditState.NOT_VERIFIED
    assert outcome_of(result) == f"not verified: {EMPTY_RANGE}"
    assert failure_of(result) == ""
    assert compared_ranges(result, at_ms=7).keys() == {0}
    missing = replace(RESULT, partitions=(replace(markers, missing=2),))
    assert outcome_of(missing) == "done"


def test_a_result_is_kept_under_the_ids_of_the_topics_that_were_compared() -> None:
    compared = replace(RESULT, source_topic_id="s", target_topic_id="t")
    unknown = replace(INTENT, source_topic_id="")
    state = with_result(None, compared, run=RUN, intent=unknown, at_ms=7)
    assert (state.source_topic_id, state.target_topic_id) == ("s", "t")


def test_a_result_of_another_topic_than_the_one_that_is_copied_verifies_nothing() -> None:
    before = TopicAudit("s", "t", {0: VerifiedRange(0, 9, 3)})
    other = replace(RESULT, source_topic_id="s2", target_topic_id="t")
    state = with_result(before, other, run=RUN, intent=INTENT, at_ms=7)
    assert state.partitions == before.partitions
    assert state.last is not None
    assert (
        state.last.outcome == "not verified: the source topic is not the one that was whitelisted"
    )
