"""Passes behind the copy of a route: which ranges are compared, and what the states say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ureplicator_common.audits import VerifiedRange
from ureplicator_common.audits.standing import AuditState, CopiedTopic, standing
from ureplicator_common.coordination import Operation, Unavailable
from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import HandlerSettings, RouteSettings, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.audit_fixture import KEY, AuditFixture, Progress
from ureplicator_testkit.control.following_fixture import (
    GROUP,
    copied,
    failing_topic,
    follower,
    ranges,
)
from ureplicator_testkit.control.memory_coordination import MemoryCoordination
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader
from ureplicator_worker.audit.result import (
    AuditRequest,
    AuditResult,
    Finding,
    FindingKind,
    PartitionResult,
)
from ureplicator_worker.audit.rounds import Watch
from ureplicator_worker.auditor.following import (
    PASS_S,
    TOPIC_S,
)
from ureplicator_worker.auditor.nodes import Change
from ureplicator_worker.auditor.sampling import FIRST_OFFSETS, REFRESH_MS


@pytest.fixture
def audits() -> AuditFixture:
    return AuditFixture()


@pytest.fixture
def positions() -> MemoryPositionReader:
    return MemoryPositionReader()


def test_it_begins_at_the_positions_and_compares_what_is_copied_then(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 1_000, 0)
    assert following.step()
    assert audits.compared == []
    state = audits.state()
    assert standing(state, CopiedTopic(2), now_ms=0, stale_after_s=1).verified_partitions == 1
    copied(positions, 1_015, 7)
    audits.clock.advance(30)
    following.step()
    copied(positions, 1_600, 7)
    audits.clock.advance(30)
    following.step()
    assert ranges(audits) == [
        [(0, 1_000, 1_015, -1), (1, 0, 7, -1)],
        [(0, 1_015, 1_600, 1_015)],
    ]
    state = audits.written()
    now_ms = audits.clock.wall_ms()
    assert state.partitions[0] == VerifiedRange(1_000, 1_600, now_ms, 1_600)
    assert state.partitions[1] == VerifiedRange(0, 7, now_ms - 30_000, 7)
    found = standing(
        state, CopiedTopic(2, "s", "t", {0: 1_600, 1: 7}), now_ms=now_ms, stale_after_s=60
    )
    assert (found.state, found.behind_offsets) == (AuditState.VERIFIED, 0)
    assert (following.passed, following.compared) == (607, 607)


def test_a_partition_is_compared_when_its_copy_can_be_read_up_to_the_position(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    """The marker of the data arrives after the position: a leader was elected."""
    logs = MemoryLogReader()
    following = follower(audits, positions, logs=logs)
    copied(positions, 0, 0)
    following.step()
    written = Provenance("A", "s", "t", "w", 0, 1, target_end=50, markers=1)
    positions.groups[GROUP].positions["orders", 0] = Position(50, metadata=written.encode())
    positions.put(GROUP, "orders", 1, 10)
    logs.hold("orders", 0, 0, 50)
    log = logs.logs["orders", 0]
    log.open_from = 0
    following.step()
    assert [audit[0][0] for audit in ranges(audits)] == [1]
    log.end, log.open_from = 51, None
    following.step()
    assert [audit[0][0] for audit in ranges(audits)] == [1, 0]
    state = standing(
        audits.written(), CopiedTopic(2, "s", "t", {0: 30, 1: 10}), now_ms=0, stale_after_s=1
    )
    assert state.state is AuditState.VERIFIED


def test_a_copy_that_lost_its_end_is_compared_at_once(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    logs = MemoryLogReader()
    following = follower(audits, positions, logs=logs)
    copied(positions, 0)
    following.step()
    written = Provenance("A", "s", "t", "w", 0, 1, target_end=50, markers=1)
    positions.groups[GROUP].positions["orders", 0] = Position(50, metadata=written.encode())
    logs.hold("orders", 0, 0, 30)
    following.step()
    assert len(ranges(audits)) == 1


def test_settings_that_change_meanwhile_take_effect(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    masked = HandlerSettings("orders", "a.b:c")
    audits.publish(RouteSettings(handlers=(masked,)))
    copied(positions, 10, 10)
    following.step()
    assert audits.compared == []
    audits.publish(RouteSettings())
    following.step()
    assert len(audits.compared) == 1


def test_beyond_the_rate_it_samples_and_states_the_coverage(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions, rate=10_000)
    copied(positions, 0, 0)
    following.step()
    copied(positions, 10, 0)
    following.step()
    copied(positions, 12_010, 0)
    following.step()
    assert 10_000 * PASS_S / 100 == 3_000, "records are of 100 bytes"
    assert ranges(audits)[1] == [(0, 9_010, 12_010, -1)]
    state = audits.written()
    assert (state.passed, state.skipped) == (12_010, 9_000)


def test_the_first_comparison_of_a_topic_is_short_and_the_next_one_follows_at_once(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    """A topic that was busy while no auditor ran, with records of any size."""
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    copied(positions, 90_000, 0)
    assert following.repeated() == 0
    assert ranges(audits) == [[(0, 0, FIRST_OFFSETS // 2, -1)]]
    assert audits.written().partitions[0].next == FIRST_OFFSETS // 2
    assert following.repeated() == PASS_S
    assert ranges(audits)[1] == [(0, FIRST_OFFSETS // 2, 90_000, FIRST_OFFSETS // 2)]
    assert audits.written().skipped == 0


def test_a_topic_without_a_record_that_shows_its_size_goes_on_with_a_guess(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()

    def markers(
        request: AuditRequest, on_progress: Progress, watch: Watch | None = None
    ) -> AuditResult:
        result = audits.compare(request, on_progress)
        nothing = (replace(partition, compared=0) for partition in result.partitions)
        return replace(result, partitions=tuple(nothing))

    following._compare = markers
    copied(positions, 9_000, 0)
    following.step()
    following.step()
    assert ranges(audits)[-1] == [(0, FIRST_OFFSETS // 2, 9_000, FIRST_OFFSETS // 2)]


def test_differences_that_are_found_again_stay(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    audits.differing = [Finding(1, FindingKind.MISSING, 7, -1)]
    copied(positions, 10, 10)
    following.step()
    compared = len(audits.compared)
    for _ in range(20):
        audits.clock.advance(PASS_S)
        following.step()
        state = audits.written()
        assert state.differences == {"missing": 1}
        assert [finding.source_offset for finding in state.findings] == [7]
    assert ranges(audits)[compared:] == [[(1, 0, 8, -1)]] * 4, "after 0, 60, 180 and 480 s"
    assert following.differences == 1


def test_a_difference_that_was_none_is_gone_after_the_next_pass(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    """A copy that could not be read yet."""
    following = follower(audits, positions)
    copied(positions, 5_000, 0)
    following.step()
    audits.differing = [Finding(0, FindingKind.MISSING, 5_007, -1)]
    copied(positions, 5_010, 0)
    following.step()
    assert audits.written().differences == {"missing": 1}
    audits.differing = []
    audits.clock.advance(PASS_S)
    following.step()
    state = audits.written()
    assert (state.differences, state.findings) == ({}, ())
    assert state.partitions[0] == VerifiedRange(4_007, 5_010, state.partitions[0].at_ms, 5_010)
    compared = len(audits.compared)
    following.step()
    assert len(audits.compared) == compared


def test_the_topic_verified_longest_ago_comes_first(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    audits.clock.advance(5)
    audits.whitelist("clicks", TopicIntent(1, 1, target_topic="clicks"))
    copied(positions, 0, topic="clicks")
    following.step()
    copied(positions, 9, topic="clicks")
    copied(positions, 9, 9)
    following.step()
    assert [request.topic for request in audits.compared] == ["orders", "clicks"]


def test_topics_that_are_not_copied_or_not_equal_are_left_out(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    audits.remove()
    audits.whitelist("paused", TopicIntent(1, 1, state=TopicState.PAUSED, target_topic="paused"))
    audits.whitelist(
        "stopped", TopicIntent(1, 1, stopped="source topic was deleted", target_topic="stopped")
    )
    audits.whitelist("masked", TopicIntent(1, 1, target_topic="masked"))
    following = follower(audits, positions)
    for topic in ("paused", "stopped", "masked"):
        copied(positions, 5, topic=topic)
    assert following.step()
    assert all(audits.state(topic) is None for topic in ("paused", "stopped", "masked"))


def test_a_topic_that_was_remade_begins_again(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 90, 90)
    following.step()
    audits.whitelist(
        "orders",
        TopicIntent(2, 2, source_topic_id="s2", target_topic_id="t", target_topic="orders"),
    )
    copied(positions, 5, 5)
    following.step()
    state = audits.written()
    assert (state.source_topic_id, state.partitions[0].next) == ("s2", 5)


def test_a_quiet_topic_shows_a_time_that_is_not_old(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    copied(positions, 10, 10)
    following.step()
    began_ms = audits.clock.wall_ms()
    for _ in range(3):
        audits.clock.advance(REFRESH_MS / 2_500)
        following.step()
    state = audits.written()
    assert state.partitions[0].at_ms == began_ms + 1.2 * REFRESH_MS
    assert len(audits.compared) == 1


def test_one_of_two_auditors_follows_a_route(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    copied(positions, 0, 0)
    first, second = follower(audits, positions), follower(audits, positions, id="a2")
    assert first.step()
    assert first.step()
    assert not second.step()


def test_the_route_of_an_auditor_that_died_is_followed_soon(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    copied(positions, 0, 0)
    first, second = follower(audits, positions), follower(audits, positions, id="a2")
    assert first.repeated() == PASS_S
    wait_s = second.repeated()
    assert wait_s <= 2, "a pass and a session timeout more still fit into 60 s"
    client = first._nodes._coordination
    assert isinstance(client, MemoryCoordination)
    audits.store.expire(client.expire())
    assert second.repeated() == PASS_S


def test_a_topic_that_fails_does_not_hold_up_the_others(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    audits.whitelist("broken", TopicIntent(1, 1, target_topic="broken"))
    following = follower(audits, positions)
    copied(positions, 0, topic="broken")
    following.step()
    audits.clock.advance(5)
    copied(positions, 0, 0)
    following.step()
    failing_topic(audits, following, "broken")
    copied(positions, 9, topic="broken")
    copied(positions, 9, 9)
    assert following.step()
    assert [request.topic for request in audits.compared] == ["broken", "orders"]
    state = audits.written()
    assert state.partitions[0].next == 9
    (failure,) = following.failures.failing.values()
    assert failure.reason == "RuntimeError: Job aborted due to stage failure"
    broken = audits.written("broken")
    assert (broken.failure, broken.partitions[0].next) == (failure.reason, 0)
    assert following.failures.total == 1


def test_a_topic_that_fails_is_tried_again_after_growing_delays(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    failing_topic(audits, following, "orders")
    copied(positions, 9, 9)
    tried = []
    for second in range(0, 600, 30):
        before = len(audits.compared)
        following.step()
        if len(audits.compared) > before:
            tried.append(second)
        audits.clock.advance(30)
    assert tried == [0, 60, 180, 480]
    following._compare = audits.compare
    audits.clock.advance(600)
    following.step()
    assert following.failures.failing == {}
    state = audits.written()
    assert (state.partitions[0].next, state.passed, state.skipped) == (9, 18, 0)
    assert state.failure == ""


def test_a_topic_whose_partitions_cannot_be_read_is_failing(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()

    def half(
        request: AuditRequest, on_progress: Progress, watch: Watch | None = None
    ) -> AuditResult:
        result = audits.compare(request, on_progress)
        nothing = PartitionResult(0, -1, -1, end=9, notes=("no leader",))
        return replace(result, partitions=(nothing, *result.partitions[1:]))

    following._compare = half
    copied(positions, 9, 9)
    following.step()
    (failure,) = following.failures.failing.values()
    assert failure.reason == "1 partitions incomplete, first 0: no leader"
    state = audits.written()
    assert state.failure == failure.reason
    assert (state.partitions[0].next, state.partitions[1].next) == (0, 9)


def test_a_topic_that_takes_too_long_keeps_what_was_compared(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    audits.before_end = lambda: audits.clock.advance(TOPIC_S + 1)
    copied(positions, 10, 10)
    following.step()
    state = audits.written()
    assert state.partitions[0].next == 5
    (failure,) = following.failures.failing.values()
    assert failure.reason == f"not compared within {TOPIC_S:.0f} s"


def test_a_topic_that_was_removed_is_not_failing_any_more(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()
    copied(positions, 9, 9)
    following.step()
    assert following._record_bytes
    failing_topic(audits, following, "orders")
    copied(positions, 20, 20)
    following.step()
    assert following.failures.failing
    audits.remove()
    following.step()
    assert (following.failures.failing, following._record_bytes) == ({}, {})


def test_a_pass_ends_with_zookeeper(audits: AuditFixture, positions: MemoryPositionReader) -> None:
    following = follower(audits, positions)
    copied(positions, 0, 0)
    following.step()

    def cut_off() -> None:
        assert isinstance(following._nodes._coordination, MemoryCoordination)
        following._nodes._coordination.suspend()

    audits.before_end = cut_off
    copied(positions, 9, 9)
    with pytest.raises(Unavailable):
        following.step()
    assert following.failures.failing == {}
    assert following.error.startswith("Unavailable: ")


def test_a_failure_is_forgotten_when_nothing_is_left_to_compare(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 5, 5)
    following.step()
    failing_topic(audits, following, "orders")
    copied(positions, 9, 9)
    following.step()
    audits.clock.advance(600)
    copied(positions, 5, 5)
    following.step()
    state = audits.written()
    assert state.failure == ""


def test_a_state_that_cannot_be_written_does_not_hold_up_the_others(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    audits.whitelist("clicks", TopicIntent(1, 1, target_topic="clicks"))
    write = following._nodes.write

    def too_large(key: TopicKey, change: Change) -> None:
        if key == KEY:
            raise ValueError("a transaction of 999999 bytes is above 786432")
        write(key, change)

    following._nodes.write = too_large  # type: ignore[method-assign]
    copied(positions, 5, 5)
    copied(positions, 5, topic="clicks")
    assert following.step()
    assert audits.state("clicks") is not None
    assert [str(key) for key in following.failures.failing] == ["source.target/orders"]


def test_no_state_is_left_of_a_topic_that_is_removed_while_it_is_written(
    audits: AuditFixture, positions: MemoryPositionReader
) -> None:
    following = follower(audits, positions)
    copied(positions, 5, 5)
    client = following._nodes._coordination
    assert isinstance(client, MemoryCoordination)
    transact = client.transact

    def late(operations: Sequence[Operation]) -> None:
        if any(operation.path == audits.paths.audits.state(KEY) for operation in operations):
            client.transact = transact  # type: ignore[method-assign]
            audits.remove()
        transact(operations)

    client.transact = late  # type: ignore[method-assign]
    following.step()
    assert audits.state() is None
    assert following.failures.failing == {}
