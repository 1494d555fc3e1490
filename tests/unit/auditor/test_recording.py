"""An audit that was run from a terminal, in the state of its topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.audits import VerifiedRange
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Set
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.audit_fixture import KEY, ROUTE, AuditFixture
from ureplicator_worker.audit.result import AuditResult, PartitionResult
from ureplicator_worker.auditor.recording import CopiedAs, copied_as_in, record_in

RESULT = AuditResult(
    "source.target",
    "orders",
    "orders",
    (PartitionResult(0, 0, 50, 48, 50, compared=48),),
    began_ms=6,
    ended_ms=9,
)


def test_its_result_is_merged_with_what_auditors_verified() -> None:
    audits = AuditFixture()
    audits.request(next=20)
    audits.auditor(audits.client()).step()
    nodes = audits.nodes(audits.client())
    record_in(nodes, RESULT, auditor="command on h", began_ms=5, report="/r")
    state = audits.written()
    assert state.partitions[0] == VerifiedRange(0, 50, 5, 48)
    assert state.partitions[1].next == 20
    assert state.last is not None
    run = state.last
    assert (run.auditor, run.outcome, run.records, run.report) == ("command on h", "done", 48, "/r")
    assert (run.started_ms, run.ended_ms) == (5, 9)


def test_a_topic_that_is_not_whitelisted_has_no_state() -> None:
    audits = AuditFixture()
    audits.remove()
    record_in(audits.nodes(audits.client()), RESULT, auditor="command on h", began_ms=5, report="")
    assert audits.state() is None


def test_a_topic_that_was_remade_is_not_shown_as_verified() -> None:
    audits = AuditFixture()
    remade = replace(RESULT, source_topic_id="s2", target_topic_id="t")
    nodes = audits.nodes(audits.client())
    record_in(nodes, remade, auditor="command on h", began_ms=5, report="")
    assert audits.written().partitions == {}
    assert audits.last_run().outcome.startswith("not verified: the source topic")


FILE = RouteConfig.model_validate(
    {"source": "source", "target": "target", "naming": {"prefix": "f."}, "start": "latest"}
)


def test_a_topic_is_judged_by_what_workers_copy_it_by() -> None:
    audits = AuditFixture()
    nodes = audits.nodes(audits.client())
    assert copied_as_in(nodes, FILE, "clicks") == CopiedAs(FILE.settings, "f.clicks")
    live = RouteSettings(Delivery.EXACTLY_ONCE, offset_map=True, prefix="live.")
    audits.publish(live)
    assert copied_as_in(nodes, FILE, "clicks") == CopiedAs(live, "live.clicks")
    audits.whitelist("clicks", TopicIntent(2, 2, target_topic="before.clicks"))
    assert copied_as_in(nodes, FILE, "clicks") == CopiedAs(live, "before.clicks")


@pytest.mark.parametrize("what", ["route", "topic"])
def test_unreadable_settings_are_not_those_of_the_file(what: str) -> None:
    audits = AuditFixture()
    audits.publish(RouteSettings())
    path = audits.paths.route(ROUTE) if what == "route" else audits.paths.topic(KEY)
    audits.operator.transact([Set(path, b"{", -1)])
    with pytest.raises(PermanentError, match=f"{path} in ZooKeeper cannot be read"):
        copied_as_in(audits.nodes(audits.client()), FILE, "orders")
