"""A route whose partitions are quiet: reports, publication and renewal of positions."""

import pytest

from ureplicator_common.model import Partition, PartitionState
from ureplicator_testkit.copier.line import ROUTE, Line, MakeLine, fill
from ureplicator_worker.copier.delivery import RENEW_S
from ureplicator_worker.copier.raw.net.metadata import ClusterUnreachable
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
    """In a fetch session a partition without data or error is not in the response."""
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
