"""Events of audits: the end of each that was requested, and differences that an auditor found by itself.

An auditor that follows behind the copy writes a topic's state every few seconds. Only differences that were
not there before are an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ureplicator_common.audits import DONE, AuditRun, TopicAudit
from ureplicator_common.model import EventKind, Partition, TopicKey
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.core.state.snapshot import Snapshot


def audit_events(before: Snapshot, now: Snapshot) -> Iterator[PastEvent]:
    for key, stored in now.audits.states.items():
        former = before.audits.states.get(key)
        if former is not None and former.mzxid == stored.mzxid:
            continue
        known = former.value if former else TopicAudit()
        run = stored.value.last
        if run is not None and (known.last is None or known.last.id != run.id):
            yield _event(now, describe_run(key, run), request=run.id)
        else:
            yield from _found_behind(now, key, known, stored.value)


def describe_run(key: TopicKey, run: AuditRun) -> str:
    """`audit of west.east/orders: 5000 records compared, 3 differences (2 missing, 1 altered)`."""
    outcome = "" if run.outcome == DONE else f"{run.outcome}; "
    found = _counted(run.differences)
    return f"audit of {key}: {outcome}{run.records} records compared, {found}"


def _found_behind(
    now: Snapshot, key: TopicKey, known: TopicAudit, found: TopicAudit
) -> Iterator[PastEvent]:
    for number, verified in sorted(found.partitions.items()):
        former = known.partitions.get(number)
        before = former.differences.total if former and former.differences else 0
        if verified.differences is not None and verified.differences.total > before:
            offsets = f"source offsets {verified.differences.first} to {verified.differences.last}"
            reason = f"{_counted(verified.differences.counts)} at {offsets}"
            yield _event(now, reason, partition=Partition(*key, number))


def _counted(differences: Mapping[str, int]) -> str:
    total = sum(differences.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(differences.items()) if count)
    return f"{total} differences ({kinds})" if total else "no difference"


def _event(
    now: Snapshot, reason: str, *, request: str = "", partition: Partition | None = None
) -> PastEvent:
    return PastEvent(0, EventKind.AUDIT, reason, now.wall_ms, request=request, partition=partition)
