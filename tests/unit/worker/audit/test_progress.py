"""Offsets of the progress bar: they begin at 0 and end at all, whatever was deleted or resumed."""

from __future__ import annotations

import pytest

from ureplicator_worker.audit.progress import progress
from ureplicator_worker.audit.result import (
    AuditRequest,
    AuditResult,
    PartitionRange,
    PartitionResult,
)

WHOLE = PartitionRange(0, 100)
DELETED = PartitionRange(0, 1_100, log_start=1_000)
BOUNDED = PartitionRange(0, 90, 40)


@pytest.mark.parametrize(
    ("wanted", "verified", "passed", "shown"),
    [
        (WHOLE, (-1, -1), 0, (0, 100)),
        (WHOLE, (-1, -1), 30, (30, 100)),
        (WHOLE, (0, 60), 20, (80, 100)),
        (WHOLE, (0, 130), 0, (100, 100)),
        (WHOLE, (0, 60), 70, (100, 100)),
        (DELETED, (-1, -1), 0, (0, 100)),
        (DELETED, (1_000, 1_030), 0, (30, 100)),
        (DELETED, (1_000, 1_100), 0, (100, 100)),
        (BOUNDED, (-1, -1), 5, (5, 50)),
        (BOUNDED, (40, 90), 0, (50, 50)),
        (PartitionRange(0, 10, log_start=50), (0, 0), 0, (0, 0)),
    ],
)
def test_offsets_done(
    wanted: PartitionRange, verified: tuple[int, int], passed: int, shown: tuple[int, int]
) -> None:
    request = AuditRequest("a.b", "t", "t", (wanted,))
    others = PartitionResult(7, 0, 5_000)
    result = AuditResult("a.b", "t", "t", (PartitionResult(0, *verified), others))
    assert progress(request, result, passed) == shown
