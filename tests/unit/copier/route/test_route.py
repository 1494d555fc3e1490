"""One route's copier between two clusters in memory, through every kind of temporary failure."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import PartitionState, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, fill, records, values
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.gaps import SKIPPED_TOGETHER_S
from ureplicator_worker.copier.messages import NewProducer
from ureplicator_worker.copier.net import line_rate
from ureplicator_worker.copier.raw import produce_rules
from ureplicator_worker.copier.raw import source as raw_source
from ureplicator_worker.lifeline.messages import Failed, GapPassed, Released

K0, K1 = ("t", 0), ("t", 1)


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


def test_what_is_appended_while_a_fetch_is_performed_is_copied(make: MakeLine) -> None:
    """A broker takes the high watermark of a response before it reads the log."""
    line = make(1)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.source.late_appends[K0] = deque(batches.batch(2) for _ in range(10))
    line.run(lambda: bool(line.sent) or (line.source.logs[K0].end == 20 and line.copied(partition)))
    assert not line.sent
    assert_same(line, K0)


def test_small_batches_of_one_response_are_merged(make: MakeLine) -> None:
    line = make()
    for _ in range(50):
        line.source.logs[K0].put(batches.batch(2, codec=batches.LZ4))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) < 10


def test_transactions_arrive_committed_only(make: MakeLine) -> None:
    line = make()
    log = line.source.logs[K0]
    log.put(batches.batch(2, producer_id=5, attributes=batches.TRANSACTIONAL))
    log.put(batches.marker(base_offset=0, producer_id=5, commit=True))
    log.put(batches.batch(3, producer_id=6, attributes=batches.TRANSACTIONAL))
    log.put(batches.batch(1))
    log.put(batches.marker(base_offset=0, producer_id=6, commit=False))
    log.put(batches.emptied(batches.marker(base_offset=0, producer_id=6, commit=False)))
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


def test_lost_responses_of_a_silent_target(make: MakeLine) -> None:
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
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_what_the_target_refuses_temporarily_is_sent_again(
    make: MakeLine, code: int, accepted: int
) -> None:
    line = make()
    fill(line, K0, 20)
    line.target.refuse[K0] = deque([0] * accepted + [code] * 3 + [0] * 2 + [code])
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_a_partition_missing_in_a_response_is_sent_again(make: MakeLine) -> None:
    line = make()
    fill(line, K0, 5)
    line.target.omit.add(K0)
    (partition,) = line.add(0)
    line.run(lambda: len(line.target.requests) > 3)
    line.target.omit.clear()
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


def test_a_producer_that_is_lost_with_several_batches_in_flight_is_replaced(
    make: MakeLine,
) -> None:
    """The refusals of the others do not hide that of the first."""
    line = make()
    (partition,) = line.add(0)
    fill(line, K0, 1)
    line.run(lambda: line.copied(partition))
    line.target.frozen.add(1)
    fill(line, K0, 3)
    window = line.lane._partitions[partition].send.window
    line.run(lambda: window.in_flight == 3)
    line.target.refuse[K0] = deque([ErrorCode.UNKNOWN_PRODUCER_ID] * 3)
    line.target.frozen.clear()
    line.run(lambda: line.copied(partition))
    assert line.ownership.producers == 2
    assert_same(line, K0)


def test_no_batch_goes_out_while_a_new_producer_is_due(make: MakeLine) -> None:
    line = make()
    line.target.refuse[K0] = deque([ErrorCode.UNKNOWN_PRODUCER_ID] * 9)
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.ownership.hold.add(NewProducer)
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
        line.source.logs[K0].put(batches.batch(batches.rows(8, size=size)))
    line.target.logs[K0].max_bytes = 8_000
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) > 3


def test_batches_are_merged_no_further_than_the_target_takes_them(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal costs a round trip and a pause, so it happens once for a size."""
    line = make()
    log = line.target.logs[K0]
    log.max_bytes = 100_000
    sizes: list[int] = []
    produce = log.produce

    def measured(batch: bytes) -> tuple[int, int]:
        sizes.append(len(batch))
        return produce(batch)

    monkeypatch.setattr(log, "produce", measured)
    (partition,) = line.add(0)
    refused = []
    for _ in range(2):
        for _ in range(40):
            line.source.logs[K0].put(batches.batch(batches.rows(16, size=1_000)))
        line.run(lambda: line.copied(partition))
        refused.append(sum(size > log.max_bytes for size in sizes))
        sizes.clear()
    assert_same(line, K0)
    assert refused[0] > 0
    assert refused[1] == 0
    assert max(map(len, log.taken)) > 30_000


def test_a_record_too_large_stops_its_partition_with_its_offset(make: MakeLine) -> None:
    line = make()
    log = line.source.logs[K0]
    log.put(batches.batch(2), batches.batch([(1, None, b"x" * 9_000, ())]), batches.batch(1))
    line.target.logs[K0].max_bytes = 5_000
    partitions = line.add(0, 1)
    line.run(lambda: bool(line.sent))
    (failed,) = line.sent
    assert isinstance(failed, Failed)
    assert failed.partition == partitions[0]
    assert "offset 2: MESSAGE_TOO_LARGE" in failed.reason
    assert not failed.temporary
    assert line.ownership.stored[partitions[0]] == 2
    assert line.report(partitions[1]).state is PartitionState.ONLINE


def test_a_record_too_large_is_skipped_under_the_operators_policy(make: MakeLine) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    log = line.source.logs[K0]
    log.epoch = 3
    log.put(
        batches.batch(
            [(1, None, b"small", ()), (1, None, b"x" * 9_000, ()), (1, None, b"last", ())]
        )
    )
    log.epoch = 4
    log.put(batches.batch([(1, None, b"y" * 9_000, ())]))
    line.target.logs[K0].max_bytes = 5_000
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert values(line.target, K0) == [b"small", b"last"]
    assert line.report(partition).skipped == 2
    assert line.lane.progress([partition])[partition].leader_epoch == 4
    line.turns(2, skip_s=SKIPPED_TOGETHER_S)
    (passed,) = line.sent
    assert isinstance(passed, GapPassed)
    assert (passed.gap.first_offset, passed.gap.next_offset) == (1, 4)
    assert passed.gap.reason.startswith("2 records skipped (abort_on_send_failure: false)")
    assert "target refused offset 3: MESSAGE_TOO_LARGE" in passed.gap.reason


def test_a_record_that_is_invalid_says_nothing_about_the_size_of_batches(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is halved until it is alone; batches are merged as before, but for the first one, which a
    request that waits brings by itself."""
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    log = line.target.logs[K0]
    produce = log.produce

    def validated(batch: bytes) -> tuple[int, int]:
        return (ErrorCode.INVALID_RECORD, -1) if b"invalid" in batch else produce(batch)

    monkeypatch.setattr(log, "produce", validated)
    rows = batches.rows(8, size=1_000)
    rows[5] = (1, None, b"invalid", ())
    line.source.logs[K0].put(batches.batch(rows))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert line.report(partition).skipped == 1
    before = len(log.taken)
    for _ in range(12):
        line.source.logs[K0].put(batches.batch(batches.rows(16, size=1_000)))
    line.run(lambda: line.copied(partition))
    assert len(log.taken) == before + 2


def test_a_record_that_was_just_skipped_is_reported_before_the_release(make: MakeLine) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    line.source.logs[K0].put(batches.batch([(1, None, b"x" * 9_000, ())]))
    line.target.logs[K0].max_bytes = 5_000
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.copier.holder.remove(partition)
    line.run(lambda: len(line.sent) == 2, skip_s=0.0)
    assert isinstance(line.sent[0], GapPassed)
    assert line.sent[1] == Released((partition,))


@pytest.mark.parametrize("count", [1, 2])
def test_after_a_skip_no_record_takes_the_place_of_one_that_may_be_there(
    make: MakeLine, count: int
) -> None:
    """The limit of the topic is lowered between two tries. The first one was appended: what follows under
    its sequence would be taken for a repeat."""
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    after_append = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    line.target.belated[K0] = deque([int(after_append), int(ErrorCode.MESSAGE_TOO_LARGE)])
    fill_one(line, count)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    fill_one(line, count)
    line.run(lambda: line.copied(partition))
    assert set(values(line.target, K0)) == set(values(line.source, K0))


@pytest.mark.parametrize("count", [1, 2])
def test_after_a_skip_none_takes_the_place_of_one_whose_response_was_lost(
    make: MakeLine, count: int
) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.target.silent.add(1)
    fill_one(line, count)
    line.run(lambda: bool(line.target.logs[K0].taken))
    line.target.belated[K0] = deque([int(ErrorCode.MESSAGE_TOO_LARGE)])
    line.target.silent.clear()
    line.target.cut(1)
    line.run(lambda: line.copied(partition))
    fill_one(line, count)
    line.run(lambda: line.copied(partition))
    assert set(values(line.target, K0)) == set(values(line.source, K0))


def fill_one(line: Line, count: int) -> None:
    """One batch of so many records, each with its offset."""
    log = line.source.logs[K0]
    log.put(batches.batch([(0, None, b"%d" % (log.end + n), ()) for n in range(count)]))


@pytest.mark.parametrize(
    ("max_bytes", "reason"),
    [(1 << 20, "CORRUPT_MESSAGE"), (50_000, "the batch at offset 0 has changed in memory")],
)
def test_a_batch_that_changed_in_memory_is_not_copied(
    make: MakeLine, max_bytes: int, reason: str
) -> None:
    """Its halves are not copied either: brokers look at its size before its checksum."""
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    line.target.logs[K0].max_bytes = max_bytes
    (partition,) = line.add(0)
    line.run(lambda: line.report(partition).state is PartitionState.ONLINE)
    line.target.down.add(1)
    fill(line, K0, 3, size=200_000)
    window = line.lane._partitions[partition].send.window
    line.run(lambda: not window.empty)
    line.turns(10)
    assert window.head is not None
    window.head.view[-1_000] ^= 1
    line.target.down.clear()
    line.run(lambda: bool(line.sent), skip_s=0.2)
    assert isinstance(line.sent[0], Failed)
    assert line.sent[0].temporary
    assert reason in line.sent[0].reason
    assert not line.target.logs[K0].taken


@pytest.mark.parametrize("code", [29, -1, int(ErrorCode.CORRUPT_MESSAGE)])
def test_what_is_no_fault_of_a_record_leaves_none_out(make: MakeLine, code: int) -> None:
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    fill(line, K0, 3)
    line.target.refuse[K0] = deque([code])
    (partition,) = line.add(0)
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert line.sent[0].temporary
    assert line.ownership.stored[partition] == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_TIMESTAMP,
    ],
)
def test_a_fault_of_the_topic_leaves_no_record_out(make: MakeLine, code: ErrorCode) -> None:
    """The policy for records would empty the whole topic, record by record."""
    line = make(settings=RouteSettings(abort_on_send_failure=False))
    fill(line, K0, 3)
    line.target.refuse[K0] = deque([code] * 100)
    (partition,) = line.add(0)
    line.run(lambda: bool(line.sent))
    assert isinstance(line.sent[0], Failed)
    assert f"refused offset 0: {code.name}" in line.sent[0].reason
    assert line.ownership.stored[partition] == 0


def test_partitions_take_turns_in_full_requests(
    make: MakeLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five requests at once hold fewer batches than there are partitions."""
    monkeypatch.setattr(produce_rules, "REQUEST_BYTES", 20_000)
    monkeypatch.setattr(line_rate, "FIRST_BYTES", 16 << 20)
    monkeypatch.setattr(raw_source, "LIVE_RESPONSE_BYTES", 16 << 20)
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
    """Its batches occupy buffers that others need."""
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
    queued = sum(raw.window.queued_bytes for raw in line.lane._partitions.values())
    assert 0 < queued <= line.pool.used_bytes <= 8 << 20
