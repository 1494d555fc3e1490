"""One route's copier between two clusters in memory that are slow, throttle it, or are partly away."""

import pytest

from ureplicator_common.model import PartitionState
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, fill
from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.copier.raw.target import FAST_S

K0, K1 = ("t", 0), ("t", 1)


def test_a_fetch_names_only_partitions_that_have_changed(make: MakeLine) -> None:
    """Others wait for the target meanwhile, and the buffers fill up and empty again."""
    line = make(150, buffer_bytes=64 << 20)
    partitions = line.add(*range(150))
    line.run(lambda: all(line.report(part).state is PartitionState.ONLINE for part in partitions))
    line.target.pace[1] = 200_000
    for number in range(60):
        fill(line, ("t", number), 6, size=20_000)
    line.turns(20)
    del line.source.requests[:]
    line.run(lambda: all(map(line.copied, partitions)))
    named = [
        (row.partition, row.fetch_offset)
        for request in line.source.requests
        for topic in request.topics
        for row in topic.partitions
    ]
    assert len({number for number, _ in named if number >= 60}) * 4 >= len(
        [number for number, _ in named if number >= 60]
    )


def test_memory_is_bounded_however_many_partitions_wait(make: MakeLine) -> None:
    """Each fetches at least 256 KiB, which for all of them is many times the limit."""
    line = make(100, buffer_bytes=4 << 20)
    line.target.frozen.add(1)
    for number in range(100):
        fill(line, ("t", number), 20, size=20_000)
    line.add(*range(100))
    most = 0
    for _ in range(200):
        line.turn()
        queued = sum(raw.window.queued_bytes for raw in line.lane._partitions.values())
        most = max(most, line.pool.used_bytes + line.pool.reserved_bytes, queued)
    assert most <= (4 << 20) + (128 << 10)
    line.target.frozen.clear()
    line.run(lambda: sum(report.lag for report in line.copier.report().values()) == 0)
    for number in range(100):
        assert_same(line, ("t", number))


@pytest.mark.parametrize("fault", ["frozen", "down", "slow"])
def test_a_broker_that_is_away_or_slow_holds_up_no_other(make: MakeLine, fault: str) -> None:
    """Batches that wait for it have used up the buffers before another partition has something to copy."""
    line = make(60, nodes=2, buffer_bytes=4 << 20)
    numbers = range(60)
    for number in numbers:
        line.target.move(("t", number), 2 if number % 6 else 1)
    partitions = line.add(*numbers)
    line.run(lambda: all(line.report(part).state is PartitionState.ONLINE for part in partitions))
    if fault == "slow":
        line.target.pace[2] = 3_000
    else:
        getattr(line.target, fault).add(2)
    for number in numbers:
        if number % 6:
            fill(line, ("t", number), 25, size=20_000)
    line.turns(100)
    began_s = line.now_s
    for number in numbers[::6]:
        fill(line, ("t", number), 3, size=20_000)
    line.run(lambda: all(map(line.copied, partitions[::6])))
    assert line.now_s - began_s < 3.0
    assert line.pool.used_bytes + line.pool.reserved_bytes <= (4 << 20) + (128 << 10)
    line.target.pace.clear()
    line.target.frozen.clear()
    line.target.down.clear()
    line.run(lambda: all(map(line.copied, partitions)))
    for number in numbers:
        assert_same(line, ("t", number))


@pytest.mark.parametrize("fault", ["frozen", "down"])
def test_two_brokers_that_are_away_hold_up_no_other(make: MakeLine, fault: str) -> None:
    """Each may have half of the buffers; what was never sent to them is given up, and fetched again."""
    line = make(60, nodes=3, buffer_bytes=4 << 20)
    for number in range(60):
        line.target.move(("t", number), 1 + number % 3)
    partitions = line.add(*range(60))
    line.run(lambda: all(line.report(part).state is PartitionState.ONLINE for part in partitions))
    getattr(line.target, fault).update((2, 3))
    for number in range(60):
        if number % 3:
            fill(line, ("t", number), 25, size=20_000)
    line.turns(100)
    began_s = line.now_s
    for number in range(0, 60, 3):
        fill(line, ("t", number), 3, size=20_000)
    line.run(lambda: all(map(line.copied, partitions[::3])))
    assert line.now_s - began_s < 3.0
    getattr(line.target, fault).clear()
    line.run(lambda: all(map(line.copied, partitions)))
    for number in range(60):
        assert_same(line, ("t", number))


def test_batches_behind_a_slow_line_are_copied_once_at_most(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make(buffer_bytes=1 << 20)
    partitions = line.add(0, 1)
    copied: list[bytes] = []
    adopt = line.pool.adopt

    def count(data: bytes, *, since_s: float | None = None) -> Lease:
        copied.append(data)
        return adopt(data, since_s=since_s)

    monkeypatch.setattr(line.pool, "adopt", count)
    fill(line, K0, 150)
    line.target.pace[1] = 10_000
    line.run(lambda: line.copied(partitions[0]))
    assert len(copied) <= 2 * 150
    assert line.pool.used_bytes == 0


def test_a_partition_with_slow_followers_holds_up_no_other(make: MakeLine) -> None:
    """A broker works on the requests of a connection one by one, and waits for followers."""
    line = make(3)
    partitions = line.add(0, 1, 2)
    for number in range(3):
        fill(line, ("t", number), 5)
    line.run(lambda: all(map(line.copied, partitions)))
    fill(line, K0, 40)
    line.run(lambda: line.lane._partitions[partitions[0]].send.window.in_flight == 5)
    line.target.hung.add(K0)
    longest_s = 0.0
    for turn in range(60):
        began_s = line.now_s
        fill(line, K1, 1)
        fill(line, ("t", 2), 1)
        line.run(lambda: all(map(line.copied, partitions[1:])))
        longest_s = max(longest_s, line.now_s - began_s)
        assert line.report(partitions[1]).state is PartitionState.ONLINE
        if turn == 0:
            assert longest_s < 2.5
            longest_s = 0.0
    assert longest_s < 0.5
    assert line.report(partitions[0]).reason == (
        "target: broker 1 waits for in-sync replicas: REQUEST_TIMED_OUT"
    )
    line.target.hung.clear()
    line.run(lambda: line.copied(partitions[0]), skip_s=0.03)
    fill(line, K0, 5)
    line.run(lambda: line.copied(partitions[0]))
    for number in range(3):
        assert_same(line, ("t", number))


def test_a_batch_that_was_sent_late_makes_no_partition_fast(make: MakeLine) -> None:
    """The time of an acknowledgement counts from when nothing was in flight."""
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.target.hung.add(K0)
    fill(line, K0, 20)
    send = line.lane._partitions[partition].send
    line.run(lambda: send.aside)
    line.target.hung.clear()
    line.target.one_at_a_time = True
    pause(line)
    line.run(lambda: send.window.in_flight == 5)
    pause(line)
    line.turns(3)
    assert send.aside
    line.target.one_at_a_time = False
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def pause(line: Line) -> None:
    """The target's broker does nothing for longer than a fast one takes."""
    line.target.frozen.add(1)
    line.turns(3, skip_s=2 * FAST_S)
    line.target.frozen.clear()


def test_a_leader_that_moves_while_followers_are_slow(make: MakeLine) -> None:
    line = make(nodes=2)
    partitions = line.add(0, 1)
    line.target.hung.add(K0)
    fill(line, K0, 20)
    line.run(lambda: "REQUEST_TIMED_OUT" in line.report(partitions[0]).reason)
    line.turns(30)
    line.target.move(K0, 2)
    line.target.hung.clear()
    line.run(lambda: line.copied(partitions[0]))
    assert_same(line, K0)


def test_a_throttled_partition_waits_and_is_not_in_error(make: MakeLine) -> None:
    """A connection that the broker reads no more, for its quota, is not silent; a new one would
    evade the quota."""
    line = make()
    fill(line, K0, 40)
    line.target.throttle_ms = 30_000
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).records > 0)
    count = len(line.target.requests)
    for _ in range(20):
        line.turn(skip_s=1.0)
        assert line.report(partition).state is PartitionState.ONLINE
    line.target.cut(1)
    line.turns(5, skip_s=1.0)
    assert len(line.target.requests) == count
    line.turns(10, skip_s=1.0)
    assert len(line.target.requests) > count
    line.target.throttle_ms = 0
    line.run(lambda: line.copied(partition), skip_s=1.0)
    assert_same(line, K0)


def test_requests_behind_a_throttled_one_are_not_silent(make: MakeLine) -> None:
    """The broker reads them when the time is over."""
    line = make()
    fill(line, K0, 40)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).records > 8)
    line.target.one_at_a_time = True
    line.run(lambda: any(connection.in_flight > 2 for connection in line.lane.sockets()[1].open))
    line.target.throttle_ms = 30_000
    line.turn()
    line.target.frozen.add(1)
    for _ in range(25):
        line.turn(skip_s=1.0)
        assert line.report(partition).state is PartitionState.ONLINE
    line.target.frozen.clear()
    line.target.throttle_ms = 0
    line.run(lambda: line.copied(partition), skip_s=1.0)
    assert_same(line, K0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_slow_line_is_not_a_silent_broker(make: MakeLine, end: str) -> None:
    """A response, or a request, may take minutes while its bytes move."""
    line = make()
    fill(line, K0, 40, size=50_000)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    getattr(line, end).pace[1] = 4_000
    reasons = set()
    for _ in range(600):
        line.turn(skip_s=0.5)
        reasons.add(line.report(partition).reason)
    assert line.copied(partition)
    assert_same(line, K0)
    assert reasons == {""}


@pytest.mark.parametrize("topics", [("t",), ("t", "u", "v")])
def test_partitions_take_turns_where_the_broker_has_no_session_left(
    make: MakeLine, topics: tuple[str, ...]
) -> None:
    """It fills a response in the order of the request, which names everything each time."""
    line = make(3, topics=topics, buffer_bytes=1 << 20)
    line.source.sessionless = True
    added = [part for topic in topics for part in line.add(0, 1, 2, topic=topic)]
    line.run(lambda: all(line.report(part).state is PartitionState.ONLINE for part in added))
    for key in line.source.logs:
        fill(line, key, 1)
    for _ in range(20):
        for key in (K0, K1):
            fill(line, key, 25)
        line.turn()
    late = [part for part in added if (part.topic, part.number) not in (K0, K1)]
    assert all(map(line.copied, late))


def test_a_share_that_shrinks_lets_small_responses_in(make: MakeLine) -> None:
    """Another route has partitions now, and this one holds something that waits for a lost broker."""
    line = make(2, nodes=2, buffer_bytes=64 << 20)
    partitions = line.add(0, 1)
    for number in range(2):
        fill(line, ("t", number), 1)
    line.run(lambda: all(map(line.copied, partitions)))
    line.target.frozen.add(1)
    fill(line, K0, 1)
    line.turns(10)
    line.pool.limit_bytes = 4 << 20
    for _ in range(3):
        fill(line, K1, 3)
        line.run(lambda: line.copied(partitions[1]))
    assert not line.copied(partitions[0])
    line.target.frozen.clear()
    line.run(lambda: line.copied(partitions[0]))
