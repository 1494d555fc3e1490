"""Brokers forget producers by the time of their last batch: old data is copied in order none the less."""

from collections import deque

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producer_memory import PRODUCER_KEPT_S
from ureplicator_testkit.copier.line import Line, MakeLine, assert_same
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.target import DOUBT_AFTER_S

K0 = ("t", 0)
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def put(line: Line, *ages_ms: int) -> None:
    """A batch of each age, too large to be merged."""
    log = line.source.logs[K0]
    for age_ms in ages_ms:
        row = (NOW_MS - age_ms, None, batches.incompressible(b"%d" % log.end, 9_000), ())
        log.put(batches.batch([row], codec=batches.ZSTD))


@pytest.mark.parametrize("refused", range(6))
@pytest.mark.parametrize(
    "ages_ms",
    [
        [2 * DAY_MS] * 8,
        [0, 0, 2 * DAY_MS, 0, 0, 2 * DAY_MS, 2 * DAY_MS, 0],
        [NOW_MS + 1] * 8,
    ],
    ids=["old", "old among young", "without a time"],
)
def test_a_producer_that_is_forgotten_between_any_two_batches(
    make: MakeLine, ages_ms: list[int], refused: int
) -> None:
    """Its next sequence counts as its first: a batch sent behind a refused one would be taken."""
    line = make(1)
    line.wall_s = NOW_MS / 1_000
    line.target.logs[K0].expired_ms = NOW_MS - DAY_MS
    put(line, *ages_ms)
    codes = [ErrorCode.NONE] * refused + [ErrorCode.NOT_ENOUGH_REPLICAS]
    line.target.refuse[K0] = deque(codes)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


@pytest.mark.parametrize("kept_s", [PRODUCER_KEPT_S, 60.0])
def test_a_producer_that_is_forgotten_in_a_pause(make: MakeLine, kept_s: float) -> None:
    """Brokers may forget it earlier than by default."""
    line = make(1)
    line.lane._target.producer_kept_s = kept_s
    line.wall_s = NOW_MS / 1_000
    put(line, *[0] * 8)
    (partition,) = line.add(0)
    line.run(lambda: line.copied(partition))
    line.turn(skip_s=min(DOUBT_AFTER_S, kept_s) + 1)
    line.target.logs[K0].forget_producers()
    line.target.refuse[K0] = deque([ErrorCode.NOT_ENOUGH_REPLICAS])
    put(line, *[0] * 8)
    line.run(lambda: line.copied(partition))
    assert_same(line, K0)


def test_young_data_is_sent_five_at_a_time(make: MakeLine) -> None:
    line = make(1)
    line.wall_s = NOW_MS / 1_000
    line.target.one_at_a_time = True
    put(line, *[round(PRODUCER_KEPT_S * 1_000) - 1] * 40)
    (partition,) = line.add(0)
    most = 0
    while not line.copied(partition):
        line.turn()
        most = max(most, *(raw.send.window.in_flight for raw in line.lane._partitions.values()))
    assert most == 5
