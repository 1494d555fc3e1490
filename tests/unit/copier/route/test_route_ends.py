"""Release, failure and reports of partitions, between two clusters in memory."""

from collections import deque

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.model import GapPolicy, PartitionState, RouteSettings
from ureplicator_testkit.copier.line import MakeLine, assert_same, fill, records, seen
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.at_least_once import RENEW_S
from ureplicator_worker.copier.messages import (
    ClusterError,
    FencedOut,
    Forget,
    OwnershipConfirmed,
    OwnershipCrashed,
)
from ureplicator_worker.lifeline.messages import Add, Failed, Released

K0, K1 = ("t", 0), ("t", 1)


def test_a_released_partition_sends_nothing(make: MakeLine) -> None:
    """A Fetch response that arrives later must not be sent any more."""
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.source.frozen.add(1)
    line.turns(5)
    fill(line, K0, 5)
    line.ownership.events.post(Failed(partition, "released: taken away", temporary=True))
    line.turn()
    line.source.frozen.clear()
    line.turns(20)
    assert line.sent == [Failed(partition, "released: taken away", True)]
    assert line.target.logs[K0].taken == []
    assert line.pool.used_bytes == 0


@pytest.mark.parametrize("first", ["remove", "refused", "given up"])
def test_remove_has_one_response_whatever_crosses_it(make: MakeLine, first: str) -> None:
    """Failed is sent only before Remove was read; a second Released would end the partition's next Add."""
    line = make()
    fill(line, K0, 3)
    line.target.silent.add(1)
    line.ownership.hold.add(Forget)
    (partition,) = line.add(0)
    line.run(lambda: bool(line.target.requests))
    if first == "refused":
        line.ownership.events.post(Failed(partition, "released: taken away", temporary=True))
    elif first == "given up":
        raw = line.lane._partitions[partition]
        line.lane._stop(raw, "no records", temporary=False, discard=False)
    line.turn()
    line.copier.holder.remove(partition)
    if first == "remove":
        line.ownership.events.post(Failed(partition, "no such topic", True))
    line.run(lambda: bool(line.ownership.held_back), skip_s=1.0)
    assert list(line.ownership.held_back) == [Forget(partition)]
    assert line.sent == []
    line.ownership.let_pass()
    line.turns(3)
    assert line.sent == [Released((partition,))]
    assert line.copier.idle


def test_remove_drains_and_commits(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 50)
    partitions = line.add(0, 1)
    line.run(lambda: line.report(partitions[0]).records > 0)
    line.copier.holder.remove(partitions[0])
    line.run(lambda: bool(line.sent))
    assert line.sent == [Released((partitions[0],))]
    copied = sum(batches.field(batch, "records") for batch in line.target.logs[K0].taken)
    assert line.ownership.stored[partitions[0]] == copied
    line.copier.remove_all()
    line.run(lambda: line.copier.idle)


def test_remove_of_an_unknown_partition_is_released(make: MakeLine) -> None:
    line = make()
    line.ownership.hold.add(Add)
    (partition,) = line.add(0)
    line.copier.holder.remove(partition)
    line.run(lambda: bool(line.sent))
    assert line.sent == [Released((partition,))]
    line.ownership.let_pass()
    line.turns(3)
    assert line.copier.idle
    assert line.sent == [Released((partition,))]


def test_a_drain_is_given_up_in_time(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 3)
    line.target.silent.add(1)
    (partition,) = line.add(0)
    line.run(lambda: bool(line.target.requests))
    line.copier.holder.remove(partition)
    line.run(lambda: bool(line.sent), skip_s=1.0)
    assert line.sent == [Released((partition,))]
    line.turns(3)
    assert line.pool.used_bytes == 0


def test_requests_in_flight_are_cut_off_when_a_partition_is_released(make: MakeLine) -> None:
    """They are cut off as far as possible: the next owner sends the same records."""
    line = make(1)
    fill(line, K0, 3)
    line.target.frozen.add(1)
    (partition,) = line.add(0)
    line.run(lambda: any(raw.send.window.in_flight for raw in line.lane._partitions.values()))
    line.ownership.events.post(Failed(partition, "released: taken away", temporary=True))
    line.turns(3)
    line.target.frozen.clear()
    line.turns(10)
    assert line.target.logs[K0].taken == []
    assert line.pool.used_bytes == 0


def test_a_refusal_while_draining_ends_the_drain(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 3)
    line.target.frozen.add(1)
    (partition,) = line.add(0)
    line.turns(10)
    line.copier.holder.remove(partition)
    line.target.refuse[K0] = deque([29] * 100)
    line.target.frozen.clear()
    line.run(lambda: bool(line.sent))
    assert line.sent == [Released((partition,))]
    assert len(line.target.requests) == 1


def test_fenced_partitions_wait_for_the_proof(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.events.post(FencedOut())
    line.turn()
    fill(line, K0, 3)
    line.turns(20)
    assert line.target.logs[K0].taken == []
    assert "fenced" in line.report(partition).reason
    line.ownership.events.post(OwnershipConfirmed(partition, Position(0)))
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


@pytest.mark.parametrize(
    ("policy", "start", "there"),
    [(GapPolicy.EARLIEST, 8, 8), (GapPolicy.LATEST, 8, 20)],
)
def test_a_gap_at_the_source(make: MakeLine, policy: GapPolicy, start: int, there: int) -> None:
    line = make(settings=RouteSettings(on_gap=policy))
    fill(line, K0, 5)
    line.source.logs[K0].start = start
    line.ownership.located = there
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert seen(records(line.target, K0)) == seen(records(line.source, K0))[there:]
    assert line.report(partition).gaps == 1
    assert line.report(partition).gap_offsets == there


def test_a_gap_stops_the_partition_by_default(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 5)
    line.source.logs[K0].start = 8
    line.add(0)
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert "out of range" in line.sent[0].reason


def test_a_corrupt_batch_is_fetched_again_then_stops_the_partition(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 2)
    good = line.source.logs[K0].taken[1]
    line.source.logs[K0].taken[1] = good[:-1] + bytes([good[-1] ^ 1])
    (partition,) = line.add(0)
    line.run(lambda: line.ownership.stored.get(partition) == 4)
    line.source.logs[K0].taken[1] = good
    line.run(lambda: line.copied(partition))
    fill(line, K0, 1)
    bad = line.source.logs[K0].taken[2]
    line.source.logs[K0].taken[2] = bad[:-1] + bytes([bad[-1] ^ 1])
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert "corrupt at offset 8" in line.sent[0].reason
    line.source.logs[K0].taken.pop()
    assert_same(line, K0)


def test_what_came_before_a_corrupt_batch_arrives_though_the_target_is_slow(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 2)
    bad = line.source.logs[K0].taken[1]
    line.source.logs[K0].taken[1] = bad[:-1] + bytes([bad[-1] ^ 1])
    line.target.silent.add(1)
    line.add(0)
    line.turns(60)
    assert not line.sent
    line.target.silent.clear()
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert "corrupt at offset 4" in line.sent[0].reason
    line.source.logs[K0].taken.pop()
    assert_same(line, K0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_malformed_response_ends_its_connection_only(make: MakeLine, end: str) -> None:
    line = make(nodes=2)
    partitions = line.add(0, 1)
    fill(line, K0, 10)
    fill(line, K1, 10)
    kafka = getattr(line, end)
    kafka.garbled[2] = 5
    line.run(lambda: line.copied(partitions[0]))
    line.run(lambda: "malformed response" in line.report(partitions[1]).reason)
    began_s = line.now_s
    line.run(lambda: line.copied(partitions[1]))
    assert line.now_s - began_s > 0.5 + 1.0 + 2.0
    assert_same(line, K0)
    assert_same(line, K1)
    assert line.report(partitions[1]).state is PartitionState.ONLINE


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_recreated_topic_is_another_topic(make: MakeLine, end: str) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    getattr(line, end).topic_ids["t"] = "another"
    getattr(line, f"{end}_metadata").refresh()
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert f"{end} topic t was recreated" in line.sent[0].reason


def test_an_error_of_the_whole_fetch_is_shown_and_not_hammered(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    line.source.fetch_error = 29
    (partition,) = line.add(0)
    line.turns(100, skip_s=0.01)
    assert line.report(partition).state is PartitionState.ERROR
    assert len(line.source.requests) < 20
    line.source.fetch_error = 0
    line.run(lambda: line.copied(partition))
    assert line.report(partition).state is PartitionState.ONLINE


def test_a_fetch_session_that_the_broker_dropped(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.source.sessions.clear()
    fill(line, K0, 3)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_an_idle_connection_that_the_target_closes_is_no_error(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.target.cut(1)
    line.turns(10)
    assert line.report(partition).state is PartitionState.ONLINE
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_an_error_of_the_clusters_ends_with_a_response(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.hold.add(Add)
    (second,) = line.add(1)
    line.ownership.events.post(ClusterError("source: no response", "source"))
    line.turn()
    assert line.report(partition).state is PartitionState.ONLINE
    report = line.report(second)
    assert (report.state, report.reason) == (PartitionState.ERROR, "source: no response")
    line.ownership.let_pass()
    line.run(lambda: line.report(second).state is PartitionState.ONLINE)


def test_committed_positions_are_published_at_the_source(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition), skip_s=6.0)
    assert [position.offset for position in (line.source_metadata.published[-1][K0],)] == [8]


def test_only_changed_positions_are_published(make: MakeLine) -> None:
    """Positions that would expire at the source are published, too; after a failure all that may be
    missing."""
    line = make()
    published = line.source_metadata.published
    for number in (0, 1):
        fill(line, ("t", number), 1)
    first, second = line.add(0, 1)
    line.run(lambda: line.copied(first) and line.copied(second))
    line.turns(3, skip_s=6.0)
    assert published[-1].keys() | published[0].keys() == {K0, K1}
    for _ in range(2):
        fill(line, K0, 1)
        line.run(lambda: line.copied(first), skip_s=6.0)
        line.turns(2, skip_s=6.0)
        assert published[-1].keys() == {K0}
    before = len(published)
    line.source_metadata.fail_publication("no coordinator")
    line.turns(2, skip_s=6.0)
    assert [positions.keys() for positions in published[before:]] == [{K0}]
    line.turns(3, skip_s=RENEW_S)
    assert {key for positions in published[before + 1 :] for key in positions} == {K0, K1}


def test_give_up_keeps_nothing(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 20)
    line.target.frozen.add(1)
    line.add(0)
    line.turns(20)
    line.copier.holder.give_up()
    assert line.copier.idle
    assert line.pool.used_bytes == 0
    line.turns(3)


def test_a_crashed_thread_ends_the_copier(make: MakeLine) -> None:
    line = make()
    line.ownership.events.post(OwnershipCrashed(ZeroDivisionError()))
    with pytest.raises(RuntimeError, match="ownership"):
        line.turn()
