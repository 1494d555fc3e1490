"""Target offsets of real lanes between two clusters in memory: the records there are those of the source."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import GapPolicy, HandlerSettings, Partition, RouteSettings
from ureplicator_testkit.copier.line import Line, MakeLine, records, seen
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TRANSACTIONAL, TransactionFleet
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.target_offsets import target_offset
from ureplicator_worker.lifeline.measures import Segment

K0 = ("t", 0)
COUNT = 200


def text(number: int) -> bytes:
    return b"%d" % number


def put(source: MemoryKafka, *texts: bytes, key: bytes | None = None) -> None:
    rows = [(number, key, text, ()) for number, text in enumerate(texts)]
    source.logs[K0].put(batches.batch(rows))


def aborted(source: MemoryKafka, producer: int, commit: bool) -> None:
    sent = batches.batch(
        [(1, None, b"in a transaction", ())],
        producer_id=producer,
        attributes=batches.TRANSACTIONAL,
    )
    source.logs[K0].put(sent, batches.marker(base_offset=0, producer_id=producer, commit=commit))


def holed(source: MemoryKafka, rng: random.Random) -> None:
    """Batches of a compacted topic, transactions of producers, plain batches."""
    for number in range(COUNT):
        match rng.randrange(4):
            case 0:
                aborted(source, 50 + number, rng.random() < 0.5)
            case 1:
                rows = [(n, None, b"%d/%d" % (number, n), ()) for n in range(3)]
                source.logs[K0].put(batches.batch(rows, deltas=[0, 2, 3]))
            case _:
                put(source, *(b"%d-%d" % (number, n) for n in range(rng.randrange(1, 4))))


def assert_true(line: Line | TransactionFleet, segments: tuple[Segment, ...]) -> None:
    """Every offset of a segment is the same record at both ends."""
    source, target = (
        {row.offset: seen([row])[0] for row in records(kafka, K0)}
        for kafka in (line.source, line.target)
    )
    assert segments
    for first, end, at, _ in segments:
        for offset in range(first, end):
            assert source[offset] == target[at + offset - first]


@pytest.mark.parametrize("seed", range(3))
def test_records_lie_where_the_segments_say(make: MakeLine, seed: int) -> None:
    line = make(1)
    holed(line.source, random.Random(seed))  # noqa: S311
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    segments = line.lane.segments(partition)
    assert_true(line, segments)
    assert not any(segment.repeated for segment in segments)
    assert target_offset(segments, line.source.logs[K0].end) == line.target.logs[K0].end


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_markers_and_aborted_batches_of_our_own_are_none_of_the_source(
    protocol: TransactionProtocol,
) -> None:
    fleet = TransactionFleet(protocol, "w1")
    rng = random.Random(1)  # noqa: S311
    try:
        partition = fleet.give(0, "w1")
        for number in range(30):
            put(fleet.source, b"%d" % number)
            if rng.random() < 0.2:
                fleet.ledger.fail_next("commit", rng.choice(["before", "after"]))
            fleet.turns(5, skip_s=0.1)
        fleet.run_until_copied()
        segments = fleet.workers["w1"].lane.segments(partition)
        assert len(segments) > 5
        assert_true(fleet, segments)
        committed = {
            batches.field(batch, "base_offset") for batch in fleet.target.logs[K0].committed()
        }
        for segment in segments:
            assert segment.first == segment.end or segment.target in committed
        assert not any(segment.repeated for segment in segments)
    finally:
        fleet.close()


def test_what_a_lost_owner_has_sent_is_repeated(make: MakeLine) -> None:
    """It committed nothing of the last batches: they are sent again, and the rest for the first time."""
    line = make(1)
    put(line.source, b"0", b"1")
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    position, end = line.ownership.stored[partition], line.ownership.ends[partition]
    put(line.source, b"2", b"3", b"4")
    line.run(lambda: line.copied(partition))
    line.copier.remove_all()
    line.run(lambda: line.copier.idle)
    line.ownership.stored[partition], line.ownership.ends[partition] = position, end
    put(line.source, b"5")
    line.add(0)
    line.run(lambda: line.copied(partition))
    segments = line.lane.segments(partition)
    assert segments == (Segment(2, 5, 5, repeated=True), Segment(5, 6, 8))
    assert_true(line, segments)


def test_a_truncated_log_that_was_written_on(make: MakeLine) -> None:
    line = make(1, settings=RouteSettings(on_gap=GapPolicy.EARLIEST))
    put(line.source, b"0", b"1", b"2", b"3")
    line.source.move(K0, 1)
    put(line.source, b"4", b"5")
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.source.logs[K0].truncate(4)
    line.source.move(K0, 1)
    line.source_metadata.refresh()
    put(line.source, b"new-4", b"new-5", b"new-6")
    line.run(lambda: len(records(line.target, K0)) == 9)
    segments = line.lane.segments(partition)
    assert segments == (Segment(0, 4, 0), Segment(4, 7, 6))
    assert_true(line, segments)


def test_outputs_of_a_handler(make: MakeLine) -> None:
    """Records without output lie nowhere; those with one lie where it does."""
    handler = HandlerSettings("t", f"{MODULE}:fan_out", '{"topics": []}')
    line = make(1, settings=RouteSettings(handlers=(handler,)))
    rng = random.Random(3)  # noqa: S311
    for number in range(60):
        put(line.source, text(number), key=b"none-" if rng.random() < 0.3 else b"k")
    partition: Partition
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    segments = line.lane.segments(partition)
    assert_true(line, segments)
    there = records(line.target, K0)
    for offset in range(60):
        at = target_offset(segments, offset)
        assert (at is None) is (offset < segments[0].first)
        missed = [row for row in there[: at or 0] if int(row.value or b"") >= offset]
        assert missed == []


def test_a_handled_partition_that_goes_on_knows_nothing_before_its_position(
    make: MakeLine,
) -> None:
    """A consumer that stands there must not be sent to the end of the log."""
    handler = HandlerSettings("t", f"{MODULE}:fan_out", '{"topics": []}')
    line = make(1, settings=RouteSettings(handlers=(handler,)))
    put(line.source, *map(text, range(10)))
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.copier.remove_all()
    line.run(lambda: line.copier.idle)
    line.add(0)
    line.run(lambda: line.copied(partition))
    segments = line.lane.segments(partition)
    assert segments == (Segment(10, 10, 10),)
    assert target_offset(segments, 9) is None


def test_what_was_aborted_and_is_not_sent_again_lies_nowhere() -> None:
    """The source deletes records between the abort and the next transaction."""
    settings = replace(TRANSACTIONAL, on_gap=GapPolicy.EARLIEST)
    fleet = TransactionFleet(PROTOCOLS[0], "w1", settings=settings)
    fleet.checks = False
    try:
        partition = fleet.give(0, "w1")
        put(fleet.source, b"0", b"1")
        fleet.run_until_copied()
        end = fleet.target.logs[K0].end
        fleet.ledger.fail_next("commit", "before")
        put(fleet.source, b"2", b"3")
        while fleet.target.logs[K0].end == end:
            fleet.turn()
        fleet.source.logs[K0].start = 4
        put(fleet.source, b"4")
        fleet.run_until_copied()
        segments = fleet.workers["w1"].lane.segments(partition)
        assert_true(fleet, segments)
        assert not any(
            segment.first <= offset < segment.end for segment in segments for offset in (2, 3)
        )
    finally:
        fleet.close()
