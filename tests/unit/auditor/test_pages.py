"""Pages of an auditor."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.control.audit_fixture import ROUTE, AuditFixture
from ureplicator_worker.auditor.failures import Failures
from ureplicator_worker.auditor.on_demand import SparkOnDemand
from ureplicator_worker.auditor.pages import MAX_FAILING, AuditorPages
from ureplicator_worker.auditor.requests import RequestedAudits


class Following:
    """A followed route, with the fields that pages show."""

    def __init__(self) -> None:
        self.route = ROUTE
        self.failures: Failures[str] = Failures()
        self.passes, self.passed, self.compared, self.differences = 3, 70, 60, 0
        self.error = ""


class Session:
    """Session of Spark, never started."""

    def start(self) -> None:
        raise PermanentError("no Java")

    def close(self) -> None:
        return


def pages_of(
    audits: AuditFixture, *followers: Any, requests: RequestedAudits | None = None
) -> AuditorPages:
    return AuditorPages(
        id="a1",
        fleet="test",
        requests=requests or audits.auditor(audits.client()),
        followers=followers,
        spark=SparkOnDemand(open=Session, idle_s=300, on_failed=print, clock=audits.clock),
        clock=audits.clock,
    )


def test_status_and_readiness() -> None:
    audits = AuditFixture()
    requests = audits.auditor(audits.client())
    pages = pages_of(audits, requests=requests)
    assert pages.ready()[0] is HTTPStatus.SERVICE_UNAVAILABLE
    pages.registered = True
    assert pages.ready()[0] is HTTPStatus.OK
    audits.request()
    requests.step()
    _, shown = pages.status()
    assert (shown["id"], shown["registered"], shown["routes"]) == ("a1", True, {})
    assert shown["spark"] == {"running": False, "starts": 0}
    assert shown["audits"] == {"done": 1, "cancelled": 0, "not_verified": 0, "failed": 0}


def test_failing_topics_are_shown_and_counted() -> None:
    audits = AuditFixture()
    following = Following()
    following.error = "Unavailable: not connected"
    now_s = audits.clock.monotonic_s()
    for number in range(MAX_FAILING + 5):
        following.failures.add(f"topic{number:02}", "no leader", now_s=now_s)
    pages = pages_of(audits, following)
    audits.clock.advance(20)
    shown = pages.status()[1]["routes"]["source.target"]
    assert (shown["passes"], shown["error"]) == (3, "Unavailable: not connected")
    topics = shown["topics"]
    assert (topics["failing"], topics["failures"], len(topics["first"])) == (25, 25, MAX_FAILING)
    assert topics["first"]["topic00"] == {
        "reason": "no leader",
        "failures": 1,
        "retryInSeconds": 40,
    }


def test_metrics_have_labels_that_are_known() -> None:
    audits = AuditFixture()
    following = Following()
    following.failures.add("orders", "no leader", now_s=0)
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in pages_of(audits, following).collect()
        for sample in family.samples
    }
    for outcome in ("done", "cancelled", "failed"):
        assert found["ureplicator_auditor_audits_total", outcome] == 0
    assert found["ureplicator_auditor_passes_total", "source.target"] == 3
    assert found["ureplicator_auditor_failures_total", "source.target"] == 1
    assert found["ureplicator_auditor_failing_topics", "source.target"] == 1
