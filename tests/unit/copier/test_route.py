"""A route's loop between two clusters in memory: what goes wrong there is made good here."""

from collections import deque
from collections.abc import Callable, Iterator

import pytest

from ureplicator_common.kafka.protocol import ErrorCode
from ureplicator_common.model import GapPolicy, PartitionState, RouteSettings
from ureplicator_testkit import batches as b
from ureplicator_testkit.broker import MemoryKafka
from ureplicator_testkit.line import Line, records, values
from ureplicator_worker.copier import ownership as own
from ureplicator_worker.copier.raw import target as raw_target
from ureplicator_worker.copier.raw.rebuild import Record
from ureplicator_worker.core.messages import Failed, Released

MakeLine = Callable[..., Line]
K0, K1 = ("t", 0), ("t", 1)


@pytest.fixture
def make() -> Iterator[MakeLine]:
    lines: list[Line] = []

    def make(partitions: int = 2, *, nodes: int = 1, **more: object) -> Line:
        source = MemoryKafka("A", {"t": partitions}, nodes=nodes)
        target = MemoryKafka("B", {"t": partitions}, nodes=nodes)
        lines.append(Line(source, target, **more))  # type: ignore[arg-type]
        return lines[-1]

    yield make
    for line in lines:
        line.close()
        assert line.pool.used_bytes == 0 or line.copier.report()


def fill(line: Line, key: tuple[str, int], batches: int, *, size: int = 20_000) -> None:
    """Batches that are too large to be merged."""
    for number in range(batches):
        line.source.logs[key].put(
            b.batch(
                [
                    (number, b"%d" % number, b"%d-%d" % (number, n) * (size // 20), ())
                    for n in range(4)
                ]
            )
        )


def seen(found: list[Record]) -> list[tuple[object, ...]]:
    return [(r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in found]


def assert_same(line: Line, key: tuple[str, int]) -> None:
    assert seen(records(line.target, key)) == seen(records(line.source, key))


def test_all_is_copied_once_and_in_order(make: MakeLine) -> None:
    line = make(3)
    for number in range(3):
        fill(line, ("t", number), 30)
    partitions = line.add(0, 1, 2)
    line.run(lambda: all(map(line.copied, partitions)))
    for number in range(3):
        assert_same(line, ("t", number))
    report = line.report(partitions[0])
    assert report.state is PartitionState.ONLINE
    assert (report.position, report.committed, report.records, report.lag) == (120, 120, 120, 0)
    assert line.pool.used_bytes == 0


def test_quiet_partitions_are_online_and_late_records_come(make: MakeLine) -> None:
    line = make()
    partitions = line.add(0, 1)
    line.run(lambda: all(line.report(p).state is PartitionState.ONLINE for p in partitions))
    fill(line, K1, 3)
    line.run(lambda: line.copied(partitions[1]))
    assert_same(line, K1)


def test_small_batches_of_one_answer_are_merged(make: MakeLine) -> None:
    line = make()
    for _ in range(50):
        line.source.logs[K0].put(b.batch(2, codec=b.LZ4))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) < 10


def test_transactions_arrive_committed_only(make: MakeLine) -> None:
    line = make()
    log = line.source.logs[K0]
    log.put(b.batch(2, producer_id=5, attributes=b.TRANSACTIONAL))
    log.put(b.marker(base_offset=0, producer_id=5, commit=True))
    log.aborted.append((6, log.end))
    log.put(b.batch(3, producer_id=6, attributes=b.TRANSACTIONAL))
    log.put(b.batch(1))
    log.put(b.marker(base_offset=0, producer_id=6, commit=False))
    log.put(b.emptied(b.marker(base_offset=0, producer_id=6, commit=False)))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert len(records(line.target, K0)) == 3
    assert line.report(partition).position == log.end == 9


@pytest.mark.parametrize("after", [0, 1, 40, 4_000])
@pytest.mark.parametrize("end", ["source", "target"])
def test_a_connection_that_breaks_anywhere(make: MakeLine, end: str, after: int) -> None:
    line = make()
    fill(line, K0, 10)
    (partition,) = line.add(0)
    line.turns(3)
    getattr(line, end).cut_after[1] = after
    line.run(lambda: line.copied(partition))
    fill(line, K0, 5)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_lost_answers_of_a_silent_target(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 20)
    line.target.silent.add(1)
    (partition,) = line.add(0)
    line.run(lambda: bool(line.target.logs[K0].taken))
    line.run(lambda: line.report(partition).state is PartitionState.ERROR, skip_s=1.0)
    line.target.silent.clear()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
    assert line.report(partition).state is PartitionState.ONLINE


def test_a_silent_source(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 20)
    line.source.silent.add(1)
    (partition,) = line.add(0)
    line.run(lambda: "silent" in line.report(partition).reason, skip_s=1.0)
    line.source.silent.clear()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


@pytest.mark.parametrize("end", ["source", "target"])
def test_leaders_move(make: MakeLine, end: str) -> None:
    line = make(nodes=2)
    partitions = line.add(0, 1)
    for round_ in range(6):
        for key in (K0, K1):
            fill(line, key, 5)
            getattr(line, end).move(key, 1 + (round_ + key[1]) % 2)
        line.run(lambda: all(map(line.copied, partitions)))
    assert_same(line, K0)
    assert_same(line, K1)


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_node_that_is_down_stops_its_partitions_only(make: MakeLine, end: str) -> None:
    line = make(nodes=2)
    getattr(line, end).down.add(2)
    partitions = line.add(0, 1)
    fill(line, K0, 10)
    fill(line, K1, 10)
    line.run(lambda: line.copied(partitions[0]))
    line.turns(20)
    assert line.report(partitions[1]).state is PartitionState.ERROR
    getattr(line, end).down.clear()
    line.run(lambda: line.copied(partitions[1]))
    assert_same(line, K1)
    assert line.report(partitions[1]).state is PartitionState.ONLINE


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_what_the_target_refuses_for_now_comes_again(
    make: MakeLine, code: int, accepted: int
) -> None:
    line = make()
    fill(line, K0, 20)
    line.target.refuse[K0] = deque([0] * accepted + [code] * 3 + [0] * 2 + [code])
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_a_producer_that_the_target_forgot(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    for _ in range(4):
        fill(line, K0, 5)
        line.run(lambda: line.copied(partition))
        line.target.logs[K0].forget_producers()
    assert_same(line, K0)


def test_no_batch_goes_out_while_a_new_producer_is_due(make: MakeLine) -> None:
    line = make()
    line.target.refuse[K0] = deque([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 9)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.hold.add(own.NewProducer)
    fill(line, K0, 3)
    line.turns(20)
    assert len(line.target.requests) == 1
    line.target.refuse.clear()
    line.ownership.let_pass()
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_a_batch_too_large_for_the_target_is_cut(make: MakeLine) -> None:
    line = make()
    for size in (100, 3_000, 100):
        line.source.logs[K0].put(b.batch(b.rows(8, size=size)))
    line.target.logs[K0].max_bytes = 8_000
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) > 3


def test_a_record_too_large_stops_its_partition_with_its_offset(make: MakeLine) -> None:
    line = make()
    log = line.source.logs[K0]
    log.put(b.batch(2), b.batch([(1, None, b"x" * 9_000, ())]), b.batch(1))
    line.target.logs[K0].max_bytes = 5_000
    partitions = line.add(0, 1)
    line.run(lambda: bool(line.said))
    (failed,) = line.said
    assert isinstance(failed, Failed)
    assert failed.partition == partitions[0]
    assert "offset 2: MESSAGE_TOO_LARGE" in failed.reason
    assert not failed.temporary
    assert line.ownership.stored[partitions[0]] == 2
    assert line.report(partitions[1]).state is PartitionState.ONLINE


def test_a_record_too_large_is_left_out_on_the_operators_word(make: MakeLine) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    log = line.source.logs[K0]
    log.epoch = 3
    log.put(b.batch([(1, None, b"small", ()), (1, None, b"x" * 9_000, ()), (1, None, b"last", ())]))
    log.epoch = 4
    log.put(b.batch([(1, None, b"y" * 9_000, ())]))
    line.target.logs[K0].max_bytes = 5_000
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert values(line.target, K0) == [b"small", b"last"]
    assert line.report(partition).skipped == 2
    assert line.copier._copies[partition].window.leader_epoch == 4


@pytest.mark.parametrize("code", [29, -1, int(ErrorCode.CORRUPT_MESSAGE)])
def test_what_is_no_fault_of_a_record_leaves_none_out(make: MakeLine, code: int) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    fill(line, K0, 3)
    line.target.refuse[K0] = deque([code])
    (partition,) = line.add(0)
    line.run(lambda: bool(line.said))
    assert isinstance(line.said[0], Failed)
    assert line.said[0].temporary
    assert line.ownership.stored[partition] == 0


def test_partitions_take_turns_in_full_requests(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five requests at once hold fewer batches than there are partitions."""
    monkeypatch.setattr(raw_target, "REQUEST_BYTES", 20_000)
    line = make(12)
    for number in range(12):
        fill(line, ("t", number), 40)
    partitions = line.add(*range(12))
    line.run(lambda: len(line.target.requests) > 60)
    copied = [line.report(partition).records for partition in partitions]
    assert min(copied) > 0
    assert max(copied) - min(copied) <= 4 * 5
    line.run(lambda: all(map(line.copied, partitions)))


def test_a_partition_that_cannot_be_sent_holds_up_no_other(make: MakeLine) -> None:
    """Its batches lie in buffers that others need."""
    line = make(2, buffer_bytes=4 << 20)
    partitions = line.add(0, 1)
    line.target.refuse[K0] = deque([ErrorCode.NOT_ENOUGH_REPLICAS] * 100_000)
    for _ in range(200):
        fill(line, K0, 1, size=5_000)
        fill(line, K1, 1, size=100_000)
        line.run(lambda: line.copied(partitions[1]), skip_s=0.2)
    assert_same(line, K1)
    assert line.pool.used_bytes < 4 << 20
    line.target.refuse.clear()
    line.run(lambda: line.copied(partitions[0]))
    assert_same(line, K0)


def test_what_waits_for_an_absent_target_is_bounded(make: MakeLine) -> None:
    line = make(8, buffer_bytes=8 << 20)
    line.target.down.add(1)
    for number in range(8):
        fill(line, ("t", number), 100, size=60_000)
    line.add(*range(8))
    line.turns(300)
    queued = sum(copy.window.queued_bytes for copy in line.copier._copies.values())
    assert 0 < queued <= (8 << 20) + 8 * (512 << 10)


def test_let_go_means_let_go(make: MakeLine) -> None:
    """An answer of the source that comes later must not be sent any more."""
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.source.frozen.add(1)
    line.turns(5)
    fill(line, K0, 5)
    line.ownership.events.append(own.NotOurs(partition, "taken away"))
    line.turn()
    line.source.frozen.clear()
    line.turns(20)
    assert line.said == [Released((partition,))]
    assert line.target.logs[K0].taken == []
    assert line.pool.used_bytes == 0


def test_remove_drains_and_commits(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 50)
    partitions = line.add(0, 1)
    line.run(lambda: line.report(partitions[0]).records > 0)
    line.copier.remove(partitions[0])
    line.run(lambda: bool(line.said))
    assert line.said == [Released((partitions[0],))]
    copied = sum(b.field(batch, "records") for batch in line.target.logs[K0].taken)
    assert line.ownership.stored[partitions[0]] == copied
    line.copier.remove_all()
    line.run(lambda: line.copier.idle)


def test_remove_answers_for_what_was_never_heard_of(make: MakeLine) -> None:
    line = make()
    line.ownership.hold.add(own.Start)
    (partition,) = line.add(0)
    line.copier.remove(partition)
    line.run(lambda: bool(line.said))
    assert line.said == [Released((partition,))]
    line.ownership.let_pass()
    line.turns(3)
    assert line.copier.idle
    assert line.said == [Released((partition,))]


def test_a_drain_is_given_up_in_time(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 3)
    line.target.silent.add(1)
    (partition,) = line.add(0)
    line.run(lambda: bool(line.target.requests))
    line.copier.remove(partition)
    line.run(lambda: bool(line.said), skip_s=1.0)
    assert line.said == [Released((partition,))]
    line.turns(3)
    assert line.pool.used_bytes == 0


def test_a_refusal_while_draining_ends_the_drain(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 3)
    line.target.frozen.add(1)
    (partition,) = line.add(0)
    line.turns(10)
    line.copier.remove(partition)
    line.target.refuse[K0] = deque([29] * 100)
    line.target.frozen.clear()
    line.run(lambda: bool(line.said))
    assert line.said == [Released((partition,))]
    assert len(line.target.requests) == 1


def test_fenced_partitions_wait_for_the_proof(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.events.append(own.FencedOut())
    line.turn()
    fill(line, K0, 3)
    line.turns(20)
    assert line.target.logs[K0].taken == []
    assert "fenced" in line.report(partition).reason
    line.ownership.events.append(own.StillOurs(partition))
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


@pytest.mark.parametrize(
    ("policy", "start", "there"),
    [(GapPolicy.EARLIEST, 8, 8), (GapPolicy.LATEST, 8, 20)],
)
def test_a_hole_at_the_source(make: MakeLine, policy: GapPolicy, start: int, there: int) -> None:
    line = make(settings=RouteSettings(on_gap=policy))
    fill(line, K0, 5)
    line.source.logs[K0].start = start
    line.ownership.located = there
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert seen(records(line.target, K0)) == seen(records(line.source, K0))[there:]
    assert line.report(partition).gaps == 1


def test_a_hole_stops_the_partition_unless_told_otherwise(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 5)
    line.source.logs[K0].start = 8
    line.add(0)
    line.run(lambda: bool(line.said))
    assert isinstance(line.said[0], Failed)
    assert "out of range" in line.said[0].reason


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
    line.run(lambda: bool(line.said))
    assert isinstance(line.said[0], Failed)
    assert "corrupt at offset 8" in line.said[0].reason
    assert_same_first(line, 8)


def assert_same_first(line: Line, count: int) -> None:
    first = records(MemorySource(line.source.logs[K0].taken[:-1]), K0)  # type: ignore[arg-type]
    assert seen(records(line.target, K0)) == seen(first)[:count]


class MemorySource:
    def __init__(self, taken: list[bytes]) -> None:
        self.logs = {K0: type("Log", (), {"taken": taken})}


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_topic_made_anew_is_another_topic(make: MakeLine, end: str) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    getattr(line, end).topic_ids["t"] = "another"
    getattr(line, f"{end}_directory").refresh()
    line.run(lambda: bool(line.said))
    assert isinstance(line.said[0], Failed)
    assert f"{end} topic t was made anew" in line.said[0].reason


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


def test_an_idle_connection_that_the_target_closes_is_no_trouble(make: MakeLine) -> None:
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


def test_the_pace_is_kept(make: MakeLine) -> None:
    line = make(1)
    line.pace.bytes_per_s = 1_000_000
    fill(line, K0, 200)
    (partition,) = line.add(0)
    started_s = line.now_s
    line.run(lambda: line.copied(partition))
    size = sum(map(len, line.source.logs[K0].taken))
    assert line.now_s - started_s > 0.6 * size / 1_000_000


def test_trouble_of_the_clusters_ends_with_an_answer(make: MakeLine) -> None:
    line = make()
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.events.append(own.Trouble("no producer id"))
    line.turn()
    assert line.report(partition).state is PartitionState.ERROR
    line.ownership.put(own.NewProducer())
    line.turn()
    assert line.report(partition).state is PartitionState.ONLINE


def test_committed_positions_are_published_at_the_source(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 1)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition), skip_s=6.0)
    assert [position.offset for position in (line.source_directory.published[-1][K0],)] == [8]


def test_give_up_leaves_nothing_behind(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 20)
    line.target.frozen.add(1)
    line.add(0)
    line.turns(20)
    line.copier.give_up()
    assert line.copier.idle
    assert line.pool.used_bytes == 0
    line.turns(3)


def test_a_broken_thread_ends_the_copier(make: MakeLine) -> None:
    line = make()
    line.ownership.events.append(own.Broken(ZeroDivisionError()))
    with pytest.raises(RuntimeError, match="ownership"):
        line.turn()
