"""A source log that was truncated and written on: an unclean election, seen by epochs (KIP-595)."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import GapPolicy, Partition, PartitionState, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, failure, values
from ureplicator_testkit.records.batches import batch

K0 = ("t", 0)
GOES_ON = [GapPolicy.EARLIEST, GapPolicy.LATEST]


def put(line: Line, *texts: bytes) -> None:
    """One batch of one record each."""
    for text in texts:
        line.source.logs[K0].put(batch([(0, None, text, ())]))


def elect(line: Line, end: int) -> None:
    """A leader whose log ends there, in a new epoch."""
    line.source.logs[K0].truncate(end)
    line.source.move(K0, 1)
    line.source_metadata.refresh()


def copied(make: MakeLine, on_gap: GapPolicy = GapPolicy.STOP) -> tuple[Line, Partition]:
    """Four records in epoch 0 and two in epoch 1 are copied."""
    line = make(1, settings=RouteSettings(on_gap=on_gap))
    put(line, b"0", b"1", b"2", b"3")
    line.source.move(K0, 1)
    put(line, b"4", b"5")
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    return line, partition


def reason_of_stop(line: Line) -> str:
    failed = failure(line)
    assert not failed.temporary
    return failed.reason


@pytest.mark.parametrize(("end", "epoch", "place"), [(5, 1, 5), (4, 0, 4), (2, 0, 2)])
def test_a_truncated_log_stops_the_partition_though_it_is_longer_now(
    make: MakeLine, end: int, epoch: int, place: int
) -> None:
    line, partition = copied(make)
    elect(line, end)
    put(line, *(b"new-%d" % number for number in range(9)))
    reason = reason_of_stop(line)
    assert f"truncated: epoch {epoch} ends at {place}, position is 6 (on_gap: stop)" in reason
    assert values(line.target, K0) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert line.ownership.stored[partition] == 6


@pytest.mark.parametrize("policy", GOES_ON)
@pytest.mark.parametrize("end", [5, 4, 2])
def test_the_policy_goes_on_where_the_log_is_another_one(
    make: MakeLine, policy: GapPolicy, end: int
) -> None:
    """Nothing is repeated from the beginning or skipped up to the end: nothing new is lost."""
    line, partition = copied(make, on_gap=policy)
    elect(line, end)
    put(line, b"new-0", b"new-1", b"new-2", b"new-3", b"new-4")
    line.run(lambda: line.copied(partition))
    assert values(line.target, K0)[6:] == [b"new-%d" % number for number in range(5)]
    report = line.report(partition)
    assert (report.gaps, report.state) == (1, PartitionState.ONLINE)
    assert report.gap_offsets == 0, "nothing of the source was left out"


def test_logs_that_differ_in_several_epochs_are_compared_again(make: MakeLine) -> None:
    line, partition = copied(make, on_gap=GapPolicy.EARLIEST)
    log = line.source.logs[K0]
    elect(line, 2)
    put(line, b"new-2", b"new-3")
    elect(line, 3)
    put(line, b"newer-3", b"newer-4", b"newer-5")
    line.run(lambda: len(values(line.target, K0)) == 10)
    assert line.report(partition).gaps == 1
    assert values(line.target, K0)[6:] == [b"new-2", b"newer-3", b"newer-4", b"newer-5"]
    assert log.epoch == 3


def test_the_epoch_in_the_position_finds_what_happened_meanwhile(make: MakeLine) -> None:
    """Truncated and written on between two owners."""
    line, partition = copied(make)
    line.copier.remove_all()
    line.run(lambda: line.copier.idle)
    line.sent.clear()
    elect(line, 4)
    put(line, b"new-4", b"new-5", b"new-6")
    line.add(0)
    assert "truncated: epoch 0 ends at 4, position is 6" in reason_of_stop(line)
    assert values(line.target, K0) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert line.ownership.stored[partition] == 6


def test_a_log_that_only_grows_is_no_gap(make: MakeLine) -> None:
    line, partition = copied(make)
    line.source.move(K0, 1)
    put(line, b"6")
    line.source.refuse[K0] = deque([int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    line.run(lambda: line.copied(partition))
    assert values(line.target, K0)[-1] == b"6"
    assert line.report(partition).gaps == 0
