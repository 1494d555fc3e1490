"""One route's copier on lines of limited bytes a turn: caught-up partitions beside others with a backlog."""

from __future__ import annotations

from itertools import groupby

import pytest

from ureplicator_common.model import PartitionState
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, fill
from ureplicator_worker.copier.loop.socket_selector import SocketSelector
from ureplicator_worker.copier.net.connections import BACKLOG_KEPT_S, Traffic

K0, K1 = ("t", 0), ("t", 1)
PARTITIONS = 7
PACE_BYTES = 50_000
MOST_TURNS = 6
"""To fetch, to send, to see it at the target; and three turns behind the records of others."""


def turns_of_a_record(line: Line) -> int:
    """Turns until a record of partition 0 is at the target."""
    fill(line, K0, 1, size=100)
    end = line.source.logs[K0].end
    turns = 0
    while line.target.logs[K0].end < end:
        line.turn()
        turns += 1
    return turns


@pytest.mark.parametrize("slow", ["source", "target", "both"])
def test_a_record_does_not_wait_behind_the_backlog_of_others(make: MakeLine, slow: str) -> None:
    line = make(PARTITIONS)
    partitions = line.add(*range(PARTITIONS))
    for number in range(PARTITIONS):
        fill(line, ("t", number), 1)
    line.run(lambda: all(map(line.copied, partitions)))
    for end in ("source", "target"):
        if slow in (end, "both"):
            getattr(line, end).pace[1] = PACE_BYTES
    for number in range(1, PARTITIONS):
        fill(line, ("t", number), 200)
    line.turns(100)
    turns = [turns_of_a_record(line) for _ in range(30)]
    assert max(turns) <= MOST_TURNS
    assert all(line.report(partition).lag > 0 for partition in partitions[1:])
    line.source.pace.clear()
    line.target.pace.clear()
    line.run(lambda: all(map(line.copied, partitions)))
    for number in range(PARTITIONS):
        assert_same(line, ("t", number))


def test_a_partition_changes_its_connection_in_order(make: MakeLine) -> None:
    """Bursts, and pauses long enough to be live again. The last live requests are slow: they lie behind
    another partition's."""
    line = make(2)
    (partition, _) = line.add(0, 1)
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition))
    line.target.pace[1] = 4_000
    raw = line.lane._partitions[partition]
    used: list[tuple[Traffic, Traffic]] = []

    def turn(skip_s: float = 0.03) -> None:
        line.turn(skip_s=skip_s)
        assert line.report(partition).reason == ""
        used.append((raw.fetch.via.traffic, raw.send.sent_via.traffic))

    for _ in range(3):
        fill(line, K1, 3)
        turn()
        for _ in range(3):
            fill(line, K0, 1, size=2_000)
            turn()
        fill(line, K0, 30)
        while not line.copied(partition):
            turn()
        for _ in range(6):
            turn(BACKLOG_KEPT_S / 4)
    ends = [[traffic for traffic, _ in groupby(end)] for end in zip(*used, strict=True)]
    assert all(len(end) >= 4 for end in ends), "it went to and fro"
    assert Traffic.ASIDE not in ends[1]
    assert_same(line, K0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_backlog_is_copied_where_a_broker_admits_one_connection(make: MakeLine, end: str) -> None:
    """A broker's limit of connections, or a firewall."""
    line = make(2)
    partitions = line.add(0, 1)
    for key in (K0, K1):
        fill(line, key, 1)
    line.run(lambda: all(map(line.copied, partitions)))
    getattr(line, end).max_connections = 1
    for key in (K0, K1):
        fill(line, key, 30)
    line.run(lambda: all(map(line.copied, partitions)))
    for key in (K0, K1):
        assert_same(line, key)


def test_what_full_responses_leave_out_keeps_its_backlog(make: MakeLine) -> None:
    """A response of many is full before the turn of each comes, on a slow line after many seconds."""
    line = make(12)
    partitions = line.add(*range(12))
    line.run(lambda: line.report(partitions[11]).state is PartitionState.ONLINE)
    for number in range(12):
        fill(line, ("t", number), 150)
    line.source.pace[1] = PACE_BYTES
    fetches = [raw.fetch for raw in line.lane._partitions.values()]
    line.run(lambda: all(fetch.via.traffic is Traffic.BACKLOG for fetch in fetches))
    for _ in range(300):
        line.turn()
        behind = [fetch for fetch in fetches if fetch.lag > 0]
        assert all(fetch.via.traffic is Traffic.BACKLOG for fetch in behind)
    line.source.pace.clear()
    line.run(lambda: all(map(line.copied, partitions)))


def test_a_record_is_sent_before_a_turn_receives_more_of_a_backlog(make: MakeLine) -> None:
    """The response to the other connection comes in many parts, a part and a record in each turn."""
    line = make(2)
    (live, backlog) = line.add(0, 1)
    for key in (K0, K1):
        fill(line, key, 1)
    line.run(lambda: line.copied(live) and line.copied(backlog))
    fill(line, K1, 150)
    fetch = line.lane._partitions[backlog].fetch
    line.run(lambda: fetch.via.traffic is Traffic.BACKLOG)
    line.source.pace[1] = PACE_BYTES
    source, *_ = line.lane.sockets()
    loop = SocketSelector(now_s=lambda: line.now_s)
    sent: list[tuple[int, int]] = []

    def received() -> int:
        return sum(connection._filled for connection in source.open if not connection.urgent)

    def work() -> None:
        line.copier.work(line.now_s)
        line.target.pump()
        sent.append((line.target.logs[K0].end, received()))

    passed = 0
    while fetch.lag:
        fill(line, K0, 1, size=100)
        line.source.pump()
        before = received()
        sent.clear()
        loop.turn(line.lane.sockets(), timeout_s=0.0, work=work)
        if before < received():
            passed += sent[0] == (line.source.logs[K0].end, before)
    loop.close()
    assert passed >= 20
    line.source.pace.clear()
    line.run(lambda: line.copied(live) and line.copied(backlog))
    for key in (K0, K1):
        assert_same(line, key)
