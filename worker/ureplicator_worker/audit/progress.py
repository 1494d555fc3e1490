"""Progress of an audit in source offsets, for a bar. Pure."""

from __future__ import annotations

from ureplicator_worker.audit.result import AuditRequest, AuditResult, PartitionRange


def progress(request: AuditRequest, result: AuditResult, passed: int) -> tuple[int, int]:
    """Offsets that are done, and all. `passed`: those of the round that runs.

    What the source's log no longer has at its start counts for neither, and partitions of a resumed result
    that were not requested do not count.
    """
    reached = {part.partition: part.verified_to for part in result.partitions}
    total = sum(max(0, part.end - _begin(part)) for part in request.partitions)
    done = sum(
        max(0, min(reached.get(part.partition, 0), part.end) - _begin(part))
        for part in request.partitions
    )
    return min(done + passed, total), total


def _begin(wanted: PartitionRange) -> int:
    return max(wanted.first, wanted.log_start)
