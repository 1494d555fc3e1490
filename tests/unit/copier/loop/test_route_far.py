"""Far brokers: batches that would wait for round trips are merged, and responses are large."""

import pytest

from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same, records, seen
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TransactionFleet
from ureplicator_testkit.records import batches
from ureplicator_worker.batches.merge_rules import FAR_MERGED_BYTES, MERGED_BYTES
from ureplicator_worker.copier.net.round_trip import FAR_S
from ureplicator_worker.copier.raw.fetch_schedule import FAR_PARTITION_BYTES, PARTITION_BYTES

K0 = ("t", 0)
CODEC_BITS = 7
NEAR_S = FAR_S / 10
FAR_TURN_S = 3 * FAR_S
BATCHES = 200
MERGED_AT_MOST = BATCHES // 3


def fill(line: Line, codec: int, *, count: int = 16, size: int = 1_000) -> None:
    """Batches of about 16 KB that no codec makes smaller."""
    log = line.source.logs[K0]
    for number in range(BATCHES):
        name = b"%d " % (log.end + number)
        values = [name + batches.incompressible(name + b"%d" % n, size) for n in range(count)]
        log.put(batches.batch([(1_000, b"k", value, ()) for value in values], codec=codec))


def copied(line: Line, *, turn_s: float) -> list[bytes]:
    """Batches of the target, once everything is copied."""
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition), skip_s=turn_s)
    assert_same(line, K0)
    return line.target.logs[K0].taken


@pytest.mark.parametrize("codec", batches.CODECS[1:])
def test_few_batches_are_sent_to_a_far_broker(make: MakeLine, codec: int) -> None:
    line = make()
    for _ in range(3):
        fill(line, codec)
    taken = copied(line, turn_s=FAR_TURN_S)
    assert len(taken) < MERGED_AT_MOST
    assert MERGED_BYTES + 10_000 < max(map(len, taken)) < FAR_MERGED_BYTES + 10_000
    assert {batches.field(batch, "attributes") & CODEC_BITS for batch in taken} == {codec}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[member.name for member in PROTOCOLS])
def test_few_batches_are_sent_in_transactions_to_a_far_broker(
    protocol: TransactionProtocol,
) -> None:
    fleet = TransactionFleet(protocol, "w1")
    try:
        fleet.give(0, "w1")
        put(fleet, 0, BATCHES, size=2_000)
        fleet.run_until_copied(skip_s=FAR_TURN_S)
        assert fleet.committed(0) == seen(records(fleet.source, K0))
        stored = fleet.target.logs[K0].taken
        assert sum(batches.field(batch, "records") > 1 for batch in stored) > 1
        assert len(stored) < BATCHES // 2
    finally:
        fleet.close()


def test_many_records_without_compression_are_merged_for_a_far_broker(make: MakeLine) -> None:
    line = make()
    fill(line, batches.NONE, count=160, size=100)
    assert len(copied(line, turn_s=FAR_TURN_S)) < MERGED_AT_MOST


def test_the_same_batches_are_sent_whole_to_a_near_broker(make: MakeLine) -> None:
    line = make()
    fill(line, batches.LZ4)
    assert len(copied(line, turn_s=NEAR_S)) == BATCHES


def test_batches_that_wait_for_no_other_are_sent_whole_to_a_far_broker(make: MakeLine) -> None:
    line = make()
    log = line.source.logs[K0]
    (partition,) = line.add(0)
    for number in range(40):
        name = b"%d" % number
        row = (1_000, None, name + batches.incompressible(name, 9_000), ())
        log.put(*[batches.batch([row], codec=batches.LZ4)] * 2)
        line.run(lambda: line.copied(partition), skip_s=FAR_TURN_S)
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) == 80


def test_little_waits_before_the_distance_of_the_target_is_known(make: MakeLine) -> None:
    """It would be sent as it is stored, five batches a round trip."""
    line = make()
    fill(line, batches.LZ4)
    line.target.hung.add(K0)
    (partition,) = line.add(0)
    line.turns(100)
    window = line.lane._partitions[partition].send.window
    assert 0 < window.queued_bytes < 600_000
    line.target.hung.clear()
    line.run(lambda: line.copied(partition), skip_s=FAR_TURN_S)
    assert_same(line, K0)
    assert len(line.target.logs[K0].taken) < MERGED_AT_MOST


def test_a_slow_line_gets_no_larger_batches_than_it_carries_in_time(make: MakeLine) -> None:
    line = make()
    fill(line, batches.LZ4)
    line.target.pace[1] = 10_000
    sizes = [len(batch) for batch in copied(line, turn_s=FAR_TURN_S)]
    assert 20_000 < max(sizes[BATCHES // 8 :]) < FAR_MERGED_BYTES // 2


@pytest.mark.parametrize(
    ("turn_s", "largest_bytes"), [(NEAR_S, PARTITION_BYTES), (FAR_TURN_S, FAR_PARTITION_BYTES)]
)
def test_a_far_source_responds_with_more_at_once(
    make: MakeLine, turn_s: float, largest_bytes: int
) -> None:
    line = make()
    for _ in range(3):
        fill(line, batches.LZ4)
    copied(line, turn_s=turn_s)
    topics = [topic for request in line.source.requests for topic in request.topics]
    partitions = [partition for topic in topics for partition in topic.partitions]
    assert max(part.partition_max_bytes for part in partitions) == largest_bytes
