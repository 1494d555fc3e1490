"""Batches queued or in flight when a partition is fenced, its leader moves, or its place is another one."""

from collections import deque

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import GapPolicy, Partition, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, fill, values
from ureplicator_worker.copier.messages import FencedOut, OwnershipConfirmed
from ureplicator_worker.copier.raw.partition import RawPartition
from ureplicator_worker.lifeline.messages import Released

K0 = ("t", 0)


def waiting(line: Line) -> tuple[Partition, RawPartition]:
    """A partition with one batch in flight and others queued behind it."""
    line.target.frozen.add(1)
    fill(line, K0, 5)
    (partition,) = line.add(0)
    line.turns(10)
    raw = line.lane._partitions[partition]
    assert raw.send.window.in_flight == 1
    assert isinstance(raw, RawPartition)
    assert len(raw.window._queue) == 4
    return partition, raw


def test_what_is_queued_while_fenced_is_not_sent(make: MakeLine) -> None:
    """Batches in flight may arrive, and their responses count; the rest waits for the proof."""
    line = make(1)
    partition, raw = waiting(line)
    line.ownership.events.post(FencedOut())
    line.turn()
    line.target.frozen.clear()
    line.run(lambda: raw.window.position == 4)
    line.turns(30)
    assert len(line.target.requests) == len(line.target.logs[K0].taken) == 1
    line.ownership.events.post(OwnershipConfirmed(partition, Position(0)))
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_nothing_is_fetched_while_fenced(make: MakeLine) -> None:
    """Neither committed nor sent, it would only fill the buffers of the partitions that are proven."""
    line = make(1)
    (partition,) = line.add(0)
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition))
    line.ownership.events.post(FencedOut())
    line.turns(5)
    requests = len(line.source.requests)
    fill(line, K0, 1)
    line.turns(30)
    assert len(line.source.requests) == requests
    line.ownership.events.post(OwnershipConfirmed(partition, Position(0)))
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_nothing_is_fetched_while_draining(make: MakeLine) -> None:
    """Queued batches are sent and committed, and no more."""
    line = make(1)
    partition, _ = waiting(line)
    line.copier.holder.remove(partition)
    line.turns(5)
    fill(line, K0, 1)
    requests = len(line.source.requests)
    line.turns(20)
    assert len(line.source.requests) == requests
    line.target.frozen.clear()
    line.run(lambda: line.sent == [Released((partition,))])
    assert line.ownership.stored[partition] == 5 * 4
    assert len(line.target.logs[K0].taken) == 5


def test_a_response_to_a_fetch_from_another_offset_is_left_out(make: MakeLine) -> None:
    """The fetch offset went back meanwhile: taken, the response would leave out what lies between."""
    line = make(1)
    partition, raw = waiting(line)
    line.source.frozen.add(1)
    line.turns(5)
    fill(line, K0, 3)
    place = raw.window.shed()
    assert place is not None
    line.lane._source.rewind(raw.fetch, *place)
    line.source.frozen.clear()
    line.target.frozen.clear()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_nothing_goes_to_a_new_leader_before_what_the_former_one_has_is_settled(
    make: MakeLine,
) -> None:
    """It could overtake what is in flight."""
    line = make(1, nodes=2)
    fill(line, K0, 3)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.target.frozen.add(1)
    fill(line, K0, 3)
    raw = line.lane._partitions[partition]
    line.run(lambda: raw.send.window.in_flight == 3)
    requests = len(line.target.requests)
    line.target.move(K0, 2)
    line.target_metadata.refresh()
    fill(line, K0, 3)
    line.turns(20)
    assert line.lane.sockets()[1].leader(*K0).node_id == 2
    assert len(line.target.requests) == requests
    line.target.frozen.clear()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_late_responses_prove_nothing_of_a_new_producer(make: MakeLine) -> None:
    """Several batches are in flight when the target shows a hole: what follows is sent one at a time."""
    line = make(1, settings=RouteSettings(on_gap=GapPolicy.EARLIEST))
    fill(line, K0, 3)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    raw = line.lane._partitions[partition]
    line.target.one_at_a_time = True
    log = line.target.logs[K0]
    log.truncate(log.end - 4)
    log.forget_producers()
    fill(line, K0, 20)
    line.run(lambda: line.report(partition).gaps == 1)
    place = raw.window.position
    while raw.window.position == place:
        assert raw.send.window.in_flight <= 1
        line.turn()
    line.run(lambda: line.copied(partition))
    assert set(values(line.target, K0)) <= set(values(line.source, K0))


def test_each_row_of_a_response_counts_for_its_partition(make: MakeLine) -> None:
    """Brokers name them in any order: one partition is refused, the others of the request are not."""
    line = make(3)
    keys = [("t", number) for number in range(3)]
    for key in keys:
        fill(line, key, 3)
    line.target.refuse[K0] = deque([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    partitions = line.add(0, 1, 2)
    line.run(lambda: line.copied(partitions[1]) and line.copied(partitions[2]))
    assert line.target.logs[K0].taken == []
    assert line.report(partitions[0]).committed == 0
    line.run(lambda: line.copied(partitions[0]))
    for key in keys:
        assert_same(line, key)
