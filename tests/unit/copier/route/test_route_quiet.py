"""A route whose partitions are quiet, or that the target takes nothing of: reports, publication and renewal
of positions."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Partition, PartitionState
from ureplicator_testkit.copier.line import ROUTE, Line, MakeLine, assert_same, fill
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.copier.net.metadata import ClusterUnreachable
from ureplicator_worker.copier.source_offsets import PUBLISH_EVERY_S

K0 = ("t", 0)


def published(line: Line) -> int:
    return line.source_metadata.published[-1][K0].offset


def test_the_last_position_is_published_though_nothing_follows(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    for _ in range(4):
        fill(line, K0, 1)
        line.run(lambda: line.copied(partition))
    assert published(line) < line.source.logs[K0].end
    line.turns(2, skip_s=PUBLISH_EVERY_S)
    assert published(line) == line.source.logs[K0].end
    count = len(line.source_metadata.published)
    line.turns(5, skip_s=PUBLISH_EVERY_S)
    assert len(line.source_metadata.published) == count


def test_a_position_taken_over_is_published(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    line.ownership.stored[Partition(ROUTE, *K0)] = line.source.logs[K0].end
    line.add(0)
    line.turns(2, skip_s=PUBLISH_EVERY_S)
    assert published(line) == line.source.logs[K0].end


def test_positions_that_did_not_get_there_are_published_again(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.turns(2, skip_s=PUBLISH_EVERY_S)
    count = len(line.source_metadata.published)
    line.source_metadata.fail_publication("away")
    line.turns(2, skip_s=PUBLISH_EVERY_S)
    assert len(line.source_metadata.published) == count + 1


def commits(line: Line, count: int, *, skip_s: float) -> int:
    """Number of commits in so many turns."""
    before = line.ownership.commits
    line.turns(count, skip_s=skip_s)
    return line.ownership.commits - before


def test_a_quiet_position_is_committed_again_before_it_expires(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert commits(line, 10, skip_s=60) == 0
    assert commits(line, 3, skip_s=RENEW_S) >= 1
    assert line.ownership.stored[partition] == line.source.logs[K0].end


def test_a_position_taken_over_is_renewed_at_once_and_then_not_for_hours(make: MakeLine) -> None:
    line = make()
    line.ownership.stored[Partition(ROUTE, *K0)] = 0
    line.add(0)
    assert commits(line, 10, skip_s=10) == 1
    assert commits(line, 10, skip_s=10) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_an_error_that_has_passed_is_cleared_without_a_record(make: MakeLine, number: int) -> None:
    """A partition without data or error is not in the response of a fetch session."""
    line = make()
    partitions = line.add(0, 1)
    line.run(lambda: all(line.report(p).state is PartitionState.ONLINE for p in partitions))
    line.lane._partitions[partitions[number]].fetch.error = "no leader"
    assert line.report(partitions[number]).state is PartitionState.ERROR
    line.run(lambda: line.report(partitions[number]).state is PartitionState.ONLINE)


def test_unreachable_metadata_are_no_error_where_the_leader_responds(make: MakeLine) -> None:
    """The next partition of the same leader is copied; a leader that has sent nothing may be away."""
    line = make(nodes=2)
    partitions = line.add(0, 1)
    fill(line, K0, 1)
    line.run(lambda: line.copied(partitions[0]))
    line.target_metadata.events.post(ClusterUnreachable("no broker responds"))
    line.source_metadata.events.post(ClusterUnreachable("no broker responds"))
    line.turn()
    assert line.report(partitions[0]).reason == ""
    assert line.report(partitions[1]).reason == "target: no broker responds"
    line.turns(2, skip_s=10.0)
    assert line.report(partitions[0]).reason == "target: no broker responds"


def test_a_topic_without_metadata_yet_is_not_in_error(make: MakeLine) -> None:
    """Otherwise each new topic would show an ERROR, and wait for longer than the metadata take."""
    line = make(topics=("t", "u"))
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    (other,) = line.add(0, topic="u")
    shown: list[PartitionState] = []
    while PartitionState.ONLINE not in shown and len(shown) < 100:
        line.turn()
        shown.append(line.report(other).state)
    assert set(shown) == {PartitionState.OFFLINE, PartitionState.ONLINE}


def test_without_acknowledgements_no_position_moves(make: MakeLine) -> None:
    """The one on the target does not move, nor does the one that is published at the source (KIP-3, point
    2)."""
    line = make()
    (partition,) = line.add(0)
    fill(line, K0, 2)
    line.run(lambda: line.copied(partition))
    line.turns(2, skip_s=PUBLISH_EVERY_S)
    stored, shown = line.ownership.stored[partition], published(line)
    line.target.silent.add(1)
    fill(line, K0, 5)
    line.turns(200, skip_s=1.0)
    assert line.ownership.stored[partition] == stored == shown == published(line)
    line.target.silent.clear()
    line.run(lambda: line.copied(partition), skip_s=1.0)
    assert_same(line, K0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_retries_have_no_limit_and_memory_has_one(make: MakeLine, code: int) -> None:
    """A day of refusals, under load; then everything is there, once and in order (KIP-3, point 7)."""
    line = make(1, buffer_bytes=4 << 20)
    line.target.refuse[K0] = deque([code] * 100_000)
    (partition,) = line.add(0)
    for _ in range(24 * 60 // 10):
        fill(line, K0, 1, size=100_000)
        line.turn(skip_s=600)
        assert line.pool.used_bytes <= 4 << 20
    assert len(line.target.refuse[K0]) < 100_000 - 20
    assert line.ownership.stored[partition] == 0
    assert line.sent == []
    line.target.refuse.clear()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
