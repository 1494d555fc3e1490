"""State of a topic's audit, decided from what was compared, the topic as it is, and the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.audits import EMPTY_RANGE, AuditRun, Differences, TopicAudit, VerifiedRange
from ureplicator_common.audits.standing import (
    COMMITTED_WITHIN_MS,
    AuditState,
    CopiedTopic,
    Standing,
    standing,
)

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def audit(*verified: VerifiedRange) -> TopicAudit:
    return TopicAudit("s1", "t1", dict(enumerate(verified)))


def topic(
    *positions: int, partitions: int = 2, source: str = "s1", target: str = "t1"
) -> CopiedTopic:
    return CopiedTopic(partitions, source, target, dict(enumerate(positions)), NOW_MS)


def judged(known: TopicAudit | None, now: CopiedTopic) -> Standing:
    return standing(known, now, now_ms=NOW_MS, stale_after_s=7_200)


LATELY = VerifiedRange(0, 50, NOW_MS - HOUR_MS)
LONG_AGO = VerifiedRange(0, 50, NOW_MS - 3 * HOUR_MS)


def test_a_topic_that_was_never_compared() -> None:
    assert judged(None, topic(50, 60)) == Standing(AuditState.NEVER, behind_offsets=110)
    assert judged(audit(), topic()).state is AuditState.NEVER
    assert judged(None, topic()).behind_offsets is None


def test_verified_up_to_an_offset_and_a_time() -> None:
    found = judged(audit(LATELY, LATELY), topic(50, 60))
    assert found == Standing(
        AuditState.VERIFIED,
        behind_offsets=10,
        verified_ms=LATELY.at_ms,
        verified_partitions=2,
    )


def test_a_quiet_topic_stays_verified() -> None:
    assert judged(audit(LONG_AGO, LONG_AGO), topic(50, 50)).state is AuditState.VERIFIED


@pytest.mark.parametrize(
    ("known", "now", "reason"),
    [
        (
            audit(LONG_AGO, LATELY),
            topic(60, 60),
            "1 partitions were copied on and not verified for up to 10800 s",
        ),
        (
            audit(LONG_AGO, LATELY),
            topic(),
            "1 partitions were copied on and not verified for up to 10800 s",
        ),
        (audit(LATELY, LATELY), topic(50, 50, partitions=3), "1 of 3 partitions never verified"),
        (
            audit(LATELY, LATELY),
            topic(50, 49),
            "the positions of 1 partitions were moved back, first of 1",
        ),
        (audit(LATELY, LATELY), topic(50, 50, source="s2"), "the source topic was remade since"),
        (audit(LATELY, LATELY), topic(50, 50, target="t2"), "the target topic was remade since"),
    ],
)
def test_stale_with_its_reason(known: TopicAudit, now: CopiedTopic, reason: str) -> None:
    found = judged(known, now)
    assert (found.state, found.reason) == (AuditState.STALE, reason)


@pytest.mark.parametrize("later_ms", [-1, 0, COMMITTED_WITHIN_MS])
def test_records_may_be_compared_before_their_position_is_committed(later_ms: int) -> None:
    older = CopiedTopic(1, "s1", "t1", {0: 40}, LATELY.at_ms + later_ms)
    assert judged(audit(LATELY), older).state is AuditState.VERIFIED
    later = CopiedTopic(1, "s1", "t1", {0: 40}, LATELY.at_ms + COMMITTED_WITHIN_MS + 1)
    assert judged(audit(LATELY), later).state is AuditState.STALE


def test_differences_count_before_staleness() -> None:
    differing = VerifiedRange(0, 50, LONG_AGO.at_ms, differences=Differences(3, 4, {"missing": 2}))
    found = judged(audit(differing, LATELY), topic(60, 60))
    assert found.state is AuditState.DIFFERING
    assert "not verified for up to" in found.reason


def test_differences_of_a_topic_that_was_remade_do_not_count() -> None:
    differing = VerifiedRange(0, 50, LATELY.at_ms, differences=Differences(3, 4, {"missing": 2}))
    found = judged(audit(differing, LATELY), topic(7, 8, source="s2"))
    assert (found.state, found.behind_offsets) == (AuditState.STALE, 15)


def test_partitions_that_are_no_longer_copied_do_not_count() -> None:
    assert judged(audit(LATELY, LATELY, LONG_AGO), topic(50, 50)).verified_partitions == 2


def test_a_topic_that_cannot_be_compared_behind_the_copy_is_stale() -> None:
    failing = replace(audit(LATELY, LATELY), failure="no leader")
    found = judged(failing, topic(50, 60))
    assert found.state is AuditState.STALE
    assert found.reason == "it could not be compared behind the copy: no leader"
    assert (found.behind_offsets, found.verified_partitions) == (10, 2)
    never = judged(TopicAudit("s1", "t1", failure="no leader"), topic(50, 60))
    assert (never.state, never.reason) == (AuditState.NEVER, found.reason)
    remade = judged(failing, topic(50, 60, source="s2"))
    assert remade.reason == "the source topic was remade since"


def audited(outcome: str, *verified: VerifiedRange, ended_ms: int = NOW_MS) -> TopicAudit:
    return replace(audit(*verified), last=AuditRun("r", "a", 1, ended_ms, outcome))


def test_an_audit_that_proved_nothing_says_why() -> None:
    outcome = "not verified: partition 0: the target has no records"
    found = judged(audited(outcome), topic(50, 60))
    assert (found.state, found.reason) == (AuditState.NEVER, f"its last audit: {outcome}")
    later = judged(audited(outcome, LATELY, LATELY), topic(50, 60))
    assert (later.state, later.reason) == (AuditState.STALE, f"its last audit: {outcome}")


def test_an_audit_that_proved_nothing_counts_until_all_is_compared_again() -> None:
    outcome = "not verified: partition 0: the target has no records"
    before = audited(outcome, LATELY, LATELY, ended_ms=LATELY.at_ms - 1)
    assert judged(before, topic(50, 60)).state is AuditState.VERIFIED
    empty = audited(f"not verified: {EMPTY_RANGE}", LATELY, LATELY)
    assert judged(empty, topic(50, 60)).state is AuditState.VERIFIED
    never = judged(audited(f"not verified: {EMPTY_RANGE}"), topic(0, 0))
    assert never.reason == f"its last audit: not verified: {EMPTY_RANGE}"
