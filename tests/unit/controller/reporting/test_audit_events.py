"""Events of audits: ends of requested ones, and differences found behind the copy."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.audits import AuditRun, Differences, TopicAudit, VerifiedRange
from ureplicator_common.model import EventKind, Partition, Route, SessionId, TopicKey
from ureplicator_controller.core.reporting.audit_events import audit_events
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Audits, Snapshot

KEY = TopicKey(Route("west", "east"), "orders")
RUN = AuditRun("r1", "a1", 1, 2, "done", 5_000, 0, {"missing": 2, "altered": 1})
TWO_MISSING = Differences(3, 9, {"missing": 2})


def seen(audit: TopicAudit | None = None, *, mzxid: int = 1) -> Snapshot:
    states = {KEY: Stored(audit, 0, mzxid, SessionId(0))} if audit else {}
    return Snapshot(fleet="test", epoch=1, wall_ms=7, audits=Audits(states=states))


def verified(next: int, found: Differences | None = None) -> TopicAudit:
    return TopicAudit("s", "t", {4: VerifiedRange(0, next, 5, next, found)})


def test_the_end_of_a_requested_audit() -> None:
    (event,) = audit_events(seen(), seen(replace(verified(9, TWO_MISSING), last=RUN)))
    assert (event.kind, event.request, event.partition) == (EventKind.AUDIT, "r1", None)
    assert event.reason == (
        "audit of west.east/orders: 5000 records compared, 3 differences (1 altered, 2 missing)"
    )


def test_an_audit_that_failed_and_one_without_difference() -> None:
    failed = replace(RUN, outcome="no broker responds", records=0, differences={})
    (event,) = audit_events(seen(), seen(replace(verified(9), last=failed)))
    assert event.reason == (
        "audit of west.east/orders: no broker responds; 0 records compared, no difference"
    )


def test_following_the_copy_is_no_event_unless_it_finds_more_differences() -> None:
    before, clean = seen(verified(9)), seen(verified(20), mzxid=2)
    assert list(audit_events(before, clean)) == []
    found = seen(verified(30, TWO_MISSING), mzxid=3)
    (event,) = audit_events(clean, found)
    assert event.partition == Partition(*KEY, 4)
    assert event.reason == "2 differences (2 missing) at source offsets 3 to 9"
    assert list(audit_events(found, seen(verified(40, TWO_MISSING), mzxid=4))) == []


def test_the_last_run_is_one_event() -> None:
    before = seen(replace(verified(9), last=RUN))
    assert list(audit_events(before, seen(replace(verified(20), last=RUN), mzxid=2))) == []
