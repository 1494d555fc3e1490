"""A target that lost records which it acknowledged (an unclean election) is found, and named."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import GapPolicy, Partition, PartitionState, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, failure, values
from ureplicator_testkit.records import batches
from ureplicator_worker.lifeline.messages import GapPassed

K0 = ("t", 0)
RECORDS = 4


def fill(line: Line, count: int) -> None:
    """Queue so many batches of values that all differ, too large to be merged."""
    log = line.source.logs[K0]
    for _ in range(count):
        values = (b"%d" % (log.end + n) * 3_000 for n in range(RECORDS))
        log.put(batches.batch([(1, None, value, ()) for value in values]))


def copying(line: Line, count: int) -> Partition:
    """The partition, with so many batches copied."""
    fill(line, count)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    return partition


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_log_that_forgot_the_producer_with_the_records(make: MakeLine, lost: int) -> None:
    """It takes the next batch over the hole: over exactly the last batch, or over several."""
    line = make(1)
    partition = copying(line, 3)
    log = line.target.logs[K0]
    log.truncate(log.end - lost * RECORDS)
    log.forget_producers()
    start = log.end
    fill(line, 1)
    failed = failure(line)
    assert f"target lost offsets {start} to {3 * RECORDS - 1}" in failed.reason
    assert "on_gap: stop" in failed.reason
    assert not failed.temporary
    assert line.ownership.stored[partition] == 4 * RECORDS
    assert line.ownership.ends[partition] == log.end + lost * RECORDS


def test_the_first_batch_after_a_start_is_compared_with_the_position(make: MakeLine) -> None:
    line = make(1)
    partition = copying(line, 3)
    line.copier.holder.remove(partition)
    line.run(lambda: bool(line.sent))
    line.sent.clear()
    log = line.target.logs[K0]
    log.truncate(log.end - 1)
    line.add(0)
    fill(line, 1)
    assert f"target lost offsets {log.end} to {log.end}" in failure(line).reason


def test_a_log_that_still_knows_the_producer_gets_nothing_more(make: MakeLine) -> None:
    """It refuses the sequence; the restart compares the ends of the logs."""
    line = make(1)
    partition = copying(line, 3)
    log = line.target.logs[K0]
    log.truncate(log.end - RECORDS)
    fill(line, 5)
    failed = failure(line)
    assert f"does not continue before offset {3 * RECORDS}" in failed.reason
    assert failed.temporary
    assert log.end == 2 * RECORDS
    assert line.ownership.stored[partition] == 3 * RECORDS


@pytest.mark.parametrize("policy", [GapPolicy.EARLIEST, GapPolicy.LATEST])
def test_the_policy_for_gaps_goes_on_where_it_was(make: MakeLine, policy: GapPolicy) -> None:
    line = make(1, settings=RouteSettings(on_gap=policy))
    partition = copying(line, 3)
    log = line.target.logs[K0]
    log.truncate(log.end - RECORDS)
    log.forget_producers()
    fill(line, 3)
    line.run(lambda: line.report(partition).gaps == 1)
    line.run(lambda: line.copied(partition))
    there, ours = values(line.source, K0), values(line.target, K0)
    assert list(dict.fromkeys(ours)) == there[: 2 * RECORDS] + there[3 * RECORDS :]
    assert line.report(partition).state is PartitionState.ONLINE
    assert line.ownership.ends[partition] == log.end
    (passed,) = line.sent
    assert isinstance(passed, GapPassed)
    assert passed.gap.first_offset == passed.gap.next_offset  # the source has lost nothing


def test_a_fetch_response_that_comes_right_after_the_loss_is_left_out(make: MakeLine) -> None:
    """The policy has not decided yet, and what was queued before it is discarded."""
    line = make(1, settings=RouteSettings(on_gap=GapPolicy.LATEST))
    line.target_first = True
    partition = copying(line, 3)
    log = line.target.logs[K0]
    log.truncate(log.end - RECORDS)
    log.forget_producers()
    line.target.frozen.add(1)
    fill(line, 8)
    line.turns(10)
    line.source.frozen.add(1)
    line.turns(5)
    fill(line, 5)
    line.source.frozen.clear()
    line.target.frozen.clear()
    line.run(lambda: line.copied(partition))
    there, ours = values(line.source, K0), values(line.target, K0)
    assert list(dict.fromkeys(ours)) == there[: 2 * RECORDS] + there[3 * RECORDS :]
    assert line.report(partition).gaps == 1


def test_a_batch_that_was_appended_though_refused_is_no_loss(make: MakeLine) -> None:
    """Its successors are acknowledged first; sent again it is recognised, at its former offset."""
    line = make(1)
    partition = copying(line, 3)
    line.target.one_at_a_time = True
    line.target.belated[K0] = deque([ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
    fill(line, 60)
    line.run(lambda: line.copied(partition))
    assert not line.sent
    assert_same(line, K0)
