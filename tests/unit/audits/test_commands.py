"""`ureplicator audits`, and audits in `ureplicator status`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ureplicator_common.audits import (
    AuditRun,
    Differences,
    Finding,
    OffsetRange,
    RequestedAudit,
    RunningAudit,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.model import TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.audits import (
    encode_audit_claim,
    encode_audit_request,
    encode_audit_state,
)
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import ROUTE, RestFixture

KEY = TopicKey(ROUTE, "orders")
GROUP = position_group(fleet="test", route=ROUTE)


@pytest.fixture
def url(rest: RestFixture) -> Iterator[str]:
    with serving(rest) as url:
        yield url


@pytest.fixture
def copied(rest: RestFixture) -> RestFixture:
    rest.put_intent("orders", TopicIntent(2, 2, target_topic="orders"))
    for number in range(2):
        rest.logs["source"].hold("orders", number, 10, 50)
        rest.positions.put(GROUP, "orders", number, 20)
    return rest


def differing(rest: RestFixture) -> None:
    now_ms = rest.clock.wall_ms()
    found = Differences(12, 12, {"missing": 1})
    audit = TopicAudit(
        partitions={n: VerifiedRange(10, 20, now_ms, differences=found) for n in range(2)},
        findings=(Finding(0, "missing", 12),),
        last=AuditRun("r1", "a1", now_ms, now_ms, "done", 18, 0, {"missing": 2}, "/reports/r1"),
    )
    rest.put(rest.paths.audits.state(KEY), encode_audit_state(audit))


def test_states_are_listed_and_counted(copied: RestFixture, url: str) -> None:
    copied.put_intent("quiet", TopicIntent(1, 1, target_topic="quiet"))
    differing(copied)
    listed = run("audits", url=url).stdout
    assert "2 missing" in listed
    assert "never verified" in listed
    status = run("status", url=url).stdout
    assert "audits      1 differences found, 1 never verified\n" in status
    assert "audits" in json.loads(run("status", "--json", url=url).stdout)


def test_one_topic(copied: RestFixture, url: str) -> None:
    differing(copied)
    running = RunningAudit("a1", "r2", 5, 1_000, 250)
    copied.put(copied.paths.audits.claim(KEY), encode_audit_claim(running), ephemeral=True)
    shown = run("audits", "show", "orders", url=url).stdout
    assert "orders on source.target: differences found" in shown
    assert "first differences" in shown
    assert "18 records compared, 2 missing; result in /reports/r1" in shown
    assert "running on a1: 25%" in shown


def test_a_request_that_ended_its_auditors(copied: RestFixture, url: str) -> None:
    wanted = RequestedAudit("r2", 5, {0: OffsetRange(0, 9)}, attempts=3)
    copied.put(copied.paths.audits.request(KEY), encode_audit_request(wanted))
    assert "requested, begun 3 times" in run("audits", url=url).stdout


def test_requesting_and_cancelling(copied: RestFixture, url: str) -> None:
    planned = run("audits", "request", "orders", "--dry-run", url=url)
    assert "requested" not in planned.stdout
    done = run("audits", "request", "orders", "--from", "15", "--partition", "1", url=url)
    assert "5 offsets" in done.stdout
    assert "no auditor runs" in done.stderr
    again = run("audits", "request", "orders", url=url)
    assert again.exit_code == 1
    assert "ureplicator audits cancel" in again.stderr
    cancelled = run("audits", "cancel", "orders", url=url)
    assert cancelled.stdout.endswith("is cancelled\n")
    limited = run("audits", "request", "orders", "--bytes-per-second", "20M", url=url)
    assert (limited.exit_code, limited.stderr.count("Error")) == (0, 0)
    node = copied.tree()[copied.paths.audits.request(KEY)]
    assert json.loads(node.data)["bytesPerS"] == 20_000_000
    refused = run("audits", "request", "orders", "--from", "soon", url=url)
    assert refused.stderr.startswith("--from: ")
