"""Merging of comparisons into the state of a topic."""

from __future__ import annotations

import pytest

from ureplicator_common.audits import (
    MAX_FINDINGS,
    AuditRun,
    Differences,
    Finding,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.audits.ranges import merged_range, with_compared, with_run
from ureplicator_common.znodes.audits import decode_audit_state, encode_audit_state
from ureplicator_common.znodes.codec import LIMIT_BYTES

MISSING = Differences(20, 30, {"missing": 2})


def of(first: int, next: int, at_ms: int, found: Differences | None = None) -> VerifiedRange:
    return VerifiedRange(first, next, at_ms, next + 1_000, found)


@pytest.mark.parametrize(
    ("known", "new", "merged"),
    [
        pytest.param(None, of(0, 9, 1), of(0, 9, 1), id="first comparison"),
        pytest.param(of(0, 50, 1), of(50, 80, 2), of(0, 80, 2), id="goes on"),
        pytest.param(of(0, 50, 1), of(40, 80, 2), of(0, 80, 2), id="overlaps the end"),
        pytest.param(of(10, 50, 1), of(0, 60, 2), of(0, 60, 2), id="covers it"),
        pytest.param(of(10, 50, 1), of(0, 20, 2), of(0, 50, 1), id="overlaps the beginning"),
        pytest.param(of(0, 50, 1), of(10, 20, 2), of(0, 50, 1), id="within"),
        pytest.param(of(0, 50, 1), of(60, 80, 2), of(60, 80, 2), id="apart and further"),
        pytest.param(of(60, 80, 1), of(0, 50, 2), of(60, 80, 1), id="apart and before"),
        pytest.param(
            of(0, 50, 1, MISSING), of(50, 80, 2), of(0, 80, 2, MISSING), id="differences stay"
        ),
        pytest.param(
            of(0, 50, 1, MISSING), of(20, 31, 2), of(0, 50, 1), id="differences are repaired"
        ),
        pytest.param(
            of(0, 50, 1, MISSING),
            of(20, 30, 2),
            of(0, 50, 1, MISSING),
            id="the last is not covered",
        ),
        pytest.param(
            of(0, 50, 1, MISSING),
            of(50, 80, 2, Differences(70, 71, {"altered": 1, "missing": 1})),
            of(0, 80, 2, Differences(20, 71, {"missing": 3, "altered": 1})),
            id="differences add up",
        ),
    ],
)
def test_comparisons_are_merged(
    known: VerifiedRange | None, new: VerifiedRange, merged: VerifiedRange
) -> None:
    assert merged_range(known, new) == merged


def compared(
    before: TopicAudit | None,
    found: dict[int, VerifiedRange],
    *findings: Finding,
    source: str = "s",
) -> TopicAudit:
    return with_compared(before, found, findings, source_topic_id=source, target_topic_id="t")


def test_partitions_are_merged_one_by_one() -> None:
    first = compared(None, {0: of(0, 50, 1), 1: of(0, 9, 1)})
    second = compared(first, {1: of(9, 20, 2), 2: of(0, 5, 2)})
    assert second.partitions == {0: of(0, 50, 1), 1: of(0, 20, 2), 2: of(0, 5, 2)}


def test_nothing_is_kept_of_a_topic_with_another_id() -> None:
    run = AuditRun("r1", "a1", 1, 2, "done")
    first = with_run(compared(None, {0: of(0, 50, 1, MISSING)}, Finding(0, "missing", 20)), run)
    second = compared(first, {1: of(0, 9, 2)}, source="remade")
    assert (second.partitions, second.findings) == ({1: of(0, 9, 2)}, ())
    assert second.last == run


def test_findings_go_when_their_offsets_are_compared_again() -> None:
    found = [Finding(0, "missing", 20), Finding(0, "missing", 30), Finding(1, "altered", 5, 6)]
    first = compared(
        None, {0: of(0, 50, 1, MISSING), 1: of(0, 9, 1, Differences(5, 5, {"altered": 1}))}, *found
    )
    assert first.findings == tuple(found)
    assert compared(first, {0: of(25, 60, 2)}).findings == (found[0], found[2])
    repaired = compared(first, {0: of(0, 60, 2)})
    assert (repaired.findings, repaired.differences) == ((found[2],), {"altered": 1})


def test_the_first_findings_are_kept() -> None:
    found = [Finding(0, "missing", number) for number in range(MAX_FINDINGS + 5)]
    audit = compared(None, {0: of(0, 50, 1, Differences(0, 15, {"missing": 15}))}, *found)
    assert audit.findings == tuple(found[:MAX_FINDINGS])
    assert audit.differences == {"missing": 15}


def test_the_state_of_the_largest_topic_fits_into_a_node() -> None:
    wide = {
        number: VerifiedRange(
            number * 7_919 % 10_007 * 999_983_111,
            number * 104_729 % 99_991 * 1_299_709_111,
            1_769_860_800_000 + number * 7_919 % 60_000,
            number * 15_485_863 % 982_451_653 * 1_000,
        )
        for number in range(10_000)
    }
    data = encode_audit_state(compared(None, wide))
    assert len(data) < LIMIT_BYTES / 2
    assert decode_audit_state(data).partitions == wide


def test_what_was_compared_before_the_ids_were_known_counts() -> None:
    """An audit may begin before the leader has recorded the ids of a topic."""
    early = with_compared(
        None, {0: VerifiedRange(0, 500, 1)}, (), source_topic_id="", target_topic_id=""
    )
    later = with_compared(
        early, {0: VerifiedRange(500, 800, 2)}, (), source_topic_id="s", target_topic_id="t"
    )
    assert (later.partitions[0].first, later.partitions[0].next) == (0, 800)
    other = with_compared(
        later, {0: VerifiedRange(800, 900, 3)}, (), source_topic_id="s2", target_topic_id="t"
    )
    assert other.partitions[0].first == 800
