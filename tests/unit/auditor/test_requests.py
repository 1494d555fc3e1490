"""Requested audits: claims, progress, outcomes, and what happens when an auditor dies or is cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import pytest

from ureplicator_common.audits import (
    AuditRun,
    Differences,
    Follower,
    LiveAuditor,
    RunningAudit,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.coordination import Operation, Set, Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.audit_fixture import KEY, ROUTE, AuditFixture
from ureplicator_worker.audit.result import AuditRequest, AuditResult, Finding, FindingKind
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.auditor.nodes import Change
from ureplicator_worker.auditor.requests import MAX_ATTEMPTS


@pytest.fixture
def audits() -> AuditFixture:
    return AuditFixture()


def test_without_a_request_nothing_is_done(audits: AuditFixture) -> None:
    assert not audits.auditor(audits.client()).step()


def test_without_a_request_zookeeper_is_not_asked(audits: AuditFixture) -> None:
    client = audits.client()
    auditor = audits.auditor(client)
    assert not auditor.step()

    def refused(path: str) -> NoReturn:
        raise AssertionError(f"{path} is read")

    client.get = client.children = refused  # type: ignore[method-assign]
    assert not auditor.step()


def test_a_requested_audit(audits: AuditFixture) -> None:
    audits.request()
    seen = []
    audits.before_end = lambda: seen.append(audits.running())
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    (running,) = seen
    assert running is not None
    assert (running.auditor, running.id, running.offsets, running.compared) == ("a1", "r1", 100, 50)
    state = audits.written()
    read_ms = audits.clock.wall_ms()
    assert state.partitions == {n: VerifiedRange(0, 50, read_ms, 50) for n in range(2)}
    assert (state.source_topic_id, state.target_topic_id) == ("s", "t")
    assert state.last is not None
    assert (state.last.outcome, state.last.records) == ("done", 100)
    assert state.last.report == "/reports/r1.json"
    assert audits.running() is None
    assert not audits.is_requested
    assert not auditor.step()
    assert auditor.counts == {"done": 1, "cancelled": 0, "not_verified": 0, "failed": 0}


def test_differences_are_kept_until_they_are_compared_again(audits: AuditFixture) -> None:
    audits.differing = [Finding(1, FindingKind.MISSING, 7, -1)]
    auditor = audits.auditor(audits.client())
    audits.request()
    auditor.step()
    state = audits.written()
    assert state.partitions[1].differences == Differences(7, 7, {"missing": 1})
    assert [finding.source_offset for finding in state.findings] == [7]
    audits.differing = []
    audits.request("r2")
    auditor.step()
    repaired = audits.state()
    assert repaired is not None
    assert (repaired.differences, repaired.findings) == ({}, ())


def test_the_oldest_request_comes_first(audits: AuditFixture) -> None:
    audits.whitelist("clicks", TopicIntent(2, 2, target_topic="clicks"))
    audits.request()
    audits.clock.advance(1)
    audits.request("r2", topic="clicks")
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    assert auditor.step()
    assert [request.topic for request in audits.compared] == ["orders", "clicks"]


def test_one_of_two_auditors_carries_a_request_out(audits: AuditFixture) -> None:
    audits.request()
    other = audits.auditor(audits.client(), "a2")
    steps: list[bool] = []
    audits.before_end = lambda: steps.append(other.step())
    assert audits.auditor(audits.client()).step()
    assert steps == [False]
    assert len(audits.compared) == 1


def test_the_request_of_an_auditor_that_died_is_taken_over(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()
    nodes = audits.nodes(client)
    ((key, wanted),) = nodes.requests()
    assert nodes.claim(key, wanted, RunningAudit("a1", wanted.id, 5))
    other = audits.auditor(audits.client(), "a2")
    assert not other.step()
    audits.store.expire(client.expire())
    assert other.step()
    assert audits.last_run().auditor == "a2"


def test_an_audit_whose_claim_is_lost_ends_without_a_result(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()

    def lose() -> None:
        client.expire()
        client.restore()

    audits.before_end = lose
    assert audits.auditor(client).step()
    assert audits.state() is None
    assert audits.is_requested


def test_a_cancelled_audit_keeps_what_was_verified(audits: AuditFixture) -> None:
    audits.request()
    audits.before_end = audits.cancel
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    state = audits.written()
    assert state.last is not None
    assert state.last.outcome == "cancelled"
    assert state.partitions[0].next == 25
    assert audits.running() is None
    assert auditor.counts["cancelled"] == 1


def test_progress_is_written_within_a_round(audits: AuditFixture) -> None:
    audits.request()
    seen = []
    auditor = audits.auditor(audits.client())
    compare = auditor._compare

    def watched(
        request: AuditRequest,
        on_progress: Callable[[AuditResult], None],
        watch: Watch | None = None,
    ) -> AuditResult:
        assert watch is not None
        watch(30)
        seen.append(audits.running())
        return compare(request, on_progress)

    auditor._compare = watched
    auditor.step()
    assert [running and running.compared for running in seen] == [30]


def test_a_failed_audit_has_its_reason_and_is_not_repeated(audits: AuditFixture) -> None:
    def fail() -> None:
        raise OperatingError("no broker responds")

    audits.request()
    audits.before_end = fail
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    assert audits.last_run().outcome == "OperatingError: no broker responds"
    assert not audits.is_requested
    assert auditor.counts["failed"] == 1


def test_a_result_waits_for_zookeeper(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()
    audits.before_end = client.suspend
    assert audits.auditor(client).step()
    state = audits.written()
    assert state.partitions[0].next == 50


def test_a_lost_response_writes_the_result_once(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()
    auditor = audits.auditor(client)
    compare = audits.compare

    def losing(*arguments: object) -> object:
        result = compare(*arguments)  # type: ignore[arg-type]
        client.lose_next_response(applied=True)
        return result

    auditor._compare = losing  # type: ignore[assignment]
    assert auditor.step()
    node = audits.operator.get(audits.paths.audits.state(KEY))
    assert node is not None
    assert node.stat.version == 0


def test_no_state_is_written_for_a_topic_that_was_removed(audits: AuditFixture) -> None:
    audits.request()
    audits.before_end = audits.remove
    assert audits.auditor(audits.client()).step()
    assert audits.state() is None


def test_a_request_that_cannot_be_read_is_left_to_operators(audits: AuditFixture) -> None:
    audits.request()
    audits.operator.transact([Set(audits.paths.audits.request(KEY), b"garbage", -1)])
    assert not audits.auditor(audits.client()).step()
    assert audits.is_requested


def test_an_id_belongs_to_one_live_process(audits: AuditFixture) -> None:
    first, second = audits.client(), audits.client()
    assert audits.nodes(first).register(LiveAuditor())
    assert audits.nodes(first).register(LiveAuditor())
    assert not audits.nodes(second).register(LiveAuditor())
    first.close()
    assert audits.nodes(second).register(LiveAuditor())


def test_a_claim_whose_carrier_was_cut_off_at_once_is_carried_out(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()
    auditor = audits.auditor(client)
    intent = auditor._nodes.intent

    def cut_off(key: TopicKey) -> TopicIntent | None:
        client.suspend()
        return intent(key)

    auditor._nodes.intent = cut_off  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        auditor.step()
    client.restore()
    auditor._nodes.intent = intent  # type: ignore[method-assign]
    assert audits.running() is not None, "the claim is of this session"
    assert auditor.step()
    assert audits.last_run().outcome == "done"


def test_a_claim_of_unknown_outcome_is_carried_out(audits: AuditFixture) -> None:
    audits.request()
    client = audits.client()
    auditor = audits.auditor(client)
    audits.operator.ensure(audits.paths.audits.claim(KEY).rpartition("/")[0])
    client.lose_next_response(applied=True)
    sync = client.sync
    client.sync = unavailable  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        auditor.step()
    client.sync = sync  # type: ignore[method-assign]
    assert audits.running() is not None
    assert auditor.step()
    assert not audits.is_requested


def unavailable(path: str) -> None:
    raise Unavailable(f"not connected: {path}")


def test_a_claim_on_a_request_that_was_withdrawn_meanwhile_is_released(
    audits: AuditFixture,
) -> None:
    audits.request()
    client = audits.client()
    auditor = audits.auditor(client)
    auditor._nodes.intent = unavailable  # type: ignore[assignment, method-assign]
    with pytest.raises(Unavailable):
        auditor.step()
    audits.cancel()
    assert not auditor.step()
    assert audits.running() is None


def test_the_request_of_a_topic_that_is_not_whitelisted_is_withdrawn(audits: AuditFixture) -> None:
    audits.request()
    audits.remove()
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    assert not auditor.step()
    assert not audits.is_requested
    assert (audits.running(), audits.state()) == (None, None)
    assert auditor.counts["cancelled"] == 1


def test_a_topic_removed_in_the_midst_takes_its_request_along(audits: AuditFixture) -> None:
    audits.request()
    audits.before_end = audits.remove
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    assert not audits.is_requested
    assert not auditor.step()


def test_a_request_that_ends_its_auditors_is_given_up(audits: AuditFixture) -> None:
    audits.request()
    for _ in range(MAX_ATTEMPTS):
        client = audits.client()
        nodes = audits.nodes(client)
        ((key, wanted),) = nodes.requests()
        assert nodes.claim(key, wanted, RunningAudit("a1", wanted.id, 5))
        audits.store.expire(client.expire())
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    assert audits.compared == []
    assert not audits.is_requested
    assert audits.last_run().outcome == f"given up: begun {MAX_ATTEMPTS} times without an end"
    assert auditor.counts["failed"] == 1


def test_a_result_that_cannot_be_written_does_not_hold_up_other_requests(
    audits: AuditFixture,
) -> None:
    audits.whitelist("clicks", TopicIntent(2, 2, target_topic="clicks"))
    audits.request()
    audits.clock.advance(1)
    audits.request("r2", topic="clicks")
    auditor = audits.auditor(audits.client())
    finish = auditor._nodes.finish

    def too_large(key: TopicKey, request: str, change: Change) -> None:
        if key == KEY:
            raise ValueError("a transaction of 999999 bytes is above 786432")
        finish(key, request, change)

    auditor._nodes.finish = too_large  # type: ignore[method-assign]
    assert auditor.step()
    assert auditor.step()
    assert [compared.topic for compared in audits.compared] == ["orders", "clicks"]
    assert not auditor.step(), "it is tried again later"
    assert audits.running() is None
    audits.clock.advance(60)
    auditor._nodes.finish = finish  # type: ignore[method-assign]
    assert auditor.step()
    assert not audits.is_requested


def test_a_withdrawn_audit_that_another_auditor_ended_keeps_its_outcome(
    audits: AuditFixture,
) -> None:
    audits.request()
    audits.before_end = lambda: audits.nodes(audits.client()).finish(
        KEY, "r1", lambda _: TopicAudit("s", "t", last=AuditRun("r1", "a0", 1, 2, "done", 77))
    )
    auditor = audits.auditor(audits.client())
    assert auditor.step()
    state = audits.written()
    assert state.last is not None
    assert (state.last.auditor, state.last.outcome, state.last.records) == ("a0", "done", 77)
    assert state.partitions[0].next == 25


def test_a_claim_lost_between_read_and_write_is_no_failure_of_the_audit(
    audits: AuditFixture,
) -> None:
    audits.request()
    client = audits.client()
    auditor = audits.auditor(client)
    transact = client.transact

    def expired(operations: Sequence[Operation]) -> None:
        if isinstance(operations[0], Set) and operations[0].path == audits.paths.audits.claim(KEY):
            audits.store.expire(client.expire())
            client.restore()
        transact(operations)

    client.transact = expired  # type: ignore[method-assign]
    assert auditor.step()
    assert audits.is_requested
    assert audits.state() is None


def test_counts_of_many_reasons_are_bounded(audits: AuditFixture) -> None:
    auditor = audits.auditor(audits.client())
    for number in range(5):

        def fail(number: int = number) -> None:
            raise OperatingError(f"broker {number} does not respond")

        audits.before_end = fail
        audits.request(f"r{number}")
        auditor.step()
    assert auditor.counts == {"done": 0, "cancelled": 0, "not_verified": 0, "failed": 5}


def test_nothing_is_written_while_nodes_are_there(audits: AuditFixture) -> None:
    """Auditors register every second, and try to follow every two."""
    client, other = audits.client(), audits.client()
    nodes = audits.nodes(client)
    written: list[Sequence[Operation]] = []
    assert nodes.register(LiveAuditor())
    assert nodes.follow(ROUTE, Follower("a1", 5))
    for either in (client, other):
        either.transact = written.append  # type: ignore[assignment, method-assign]
    assert nodes.register(LiveAuditor())
    assert nodes.follow(ROUTE, Follower("a1", 6))
    assert not audits.nodes(other, "a2").follow(ROUTE, Follower("a2", 6))
    assert written == []
