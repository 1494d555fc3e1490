"""Writers in memory do as those of brokers, for the same transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ureplicator_common.kafka.transactions.writer_requests import KafkaWriters
from ureplicator_common.kafka.transactions.writers import Writers
from ureplicator_testkit.kafka.coordinated import CoordinatedCluster
from ureplicator_testkit.kafka.memory_writers import MemoryWriters

LATER_MS = 10_000_000
EARLY_MS = 2_000
KEY = ("in", 0)


@pytest.fixture
def cluster() -> CoordinatedCluster:
    """Transactions that are open, decided, and hanging without an id."""
    made = CoordinatedCluster({"in": 1, "out": 1})
    made.begin("open", 1, KEY)
    made.begin("ending", 2, KEY).state = "PrepareAbort"
    made.write(3, [KEY])
    made.begin("other", 4, ("out", 0))
    return made


def real(cluster: CoordinatedCluster) -> Writers:
    return KafkaWriters(cluster)


def twin(cluster: CoordinatedCluster) -> Writers:
    found = KafkaWriters(cluster).transactions_on(["in", "out"]).found
    producers = {KEY: {1: 1_001, 2: 1_001, 3: 1_001}}
    ids = {1: "open", 2: "ending"}
    return MemoryWriters([*found], producers=dict(producers), ids=ids)


@pytest.mark.parametrize("of", [real, twin])
def test_the_same_is_found_and_refused(
    cluster: CoordinatedCluster, of: Callable[[CoordinatedCluster], Writers]
) -> None:
    writers = of(cluster)
    found = writers.transactions_on(["in"]).found
    assert sorted(one.producer_id for one in found) == [1, 2, 3]
    refused = writers.abort(found, now_ms=EARLY_MS)
    assert sorted(one.producer_id for one in refused) == [2, 3]
    assert sorted(one.producer_id for one in writers.abort(found, now_ms=LATER_MS)) == [2]
    assert [one.producer_id for one in writers.transactions_on(["in"]).found] == [2]


@pytest.mark.parametrize("of", [real, twin])
def test_the_same_producers(
    cluster: CoordinatedCluster, of: Callable[[CoordinatedCluster], Writers]
) -> None:
    writers = of(cluster)
    assert writers.recent_producers([KEY], since_ms=1_001, without=[3]) == {
        KEY: {1: 1_001, 2: 1_001}
    }
    assert writers.recent_producers([KEY], since_ms=1_002) == {KEY: {}}
    assert writers.transactional_ids([1, 3]) == {1: "open"}
