"""A stream reads every offset once from its checkpoints alone, whatever happens to the topics."""

import pytest

from ureplicator_common.errors import ConfigurationError
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_worker.kafka_batches.bounds import Offsets
from ureplicator_worker.kafka_batches.logs import Logs
from ureplicator_worker.kafka_batches.losses import DataLost
from ureplicator_worker.kafka_batches.options import read_options
from ureplicator_worker.kafka_batches.planning import OffsetRange
from ureplicator_worker.kafka_batches.stream import StreamProgress

A, B = ("t", 0), ("t", 1)
OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


class Site:
    """Topic t with two partitions, offsets 3 to 9, and one run of a stream."""

    def __init__(self) -> None:
        self.model = cluster_model("A", {"t": 2})
        self.model.hold(start=3, end=9)

    def run(self, **options: str) -> StreamProgress:
        parsed = read_options(OPTIONS | options, streaming=True)
        return StreamProgress(parsed, Logs(MemoryCluster(self.model), parsed))


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_first_batch_writes_down_where_reading_begins(site: Site) -> None:
    """Restarted before its first record, a stream that begins at the end still misses nothing."""
    first = site.run().next({}, limit=0)
    assert first == {A: 9, B: 9}
    assert site.run().ranges({}, first) == []
    site.model.hold(start=3, end=12)
    again = site.run()
    assert again.next(first, limit=0) == {A: 12, B: 12}
    assert again.ranges(first, {A: 12, B: 12}) == [
        OffsetRange("t", 0, 9, 12),
        OffsetRange("t", 1, 9, 12),
    ]


def test_open_transactions_are_waited_for(site: Site) -> None:
    site.model.logs[A].open_from = 5
    assert site.run().next({A: 3, B: 3}, limit=0) == {A: 5, B: 9}


def test_a_limit_is_shared(site: Site) -> None:
    assert site.run().next({A: 3, B: 3}, limit=4) == {A: 5, B: 5}


def test_what_is_available_now(site: Site) -> None:
    """Nothing behind the target is read, and the stream comes to its end."""
    run = site.run(startingOffsets="earliest")
    run.set_target()
    site.model.hold(start=3, end=20)
    site.model.grow("t", 3)
    offsets: list[Offsets] = [{}]
    while len(offsets) < 2 or offsets[-1] != offsets[-2]:
        offsets.append(run.next(offsets[-1], limit=5))
    assert offsets[1] == {A: 3, B: 3}
    assert offsets[-1] == {A: 9, B: 9}


def test_what_is_available_now_from_the_end(site: Site) -> None:
    run = site.run()
    run.set_target()
    site.model.hold(start=3, end=20)
    first = run.next({}, limit=0)
    assert first == {A: 9, B: 9}
    assert run.next(first, limit=0) == first


def test_a_partition_is_added(site: Site) -> None:
    site.model.grow("t", 3)
    site.model.logs["t", 2].end = 4
    first = site.run().next({A: 9, B: 9}, limit=0)
    assert first == {A: 9, B: 9, ("t", 2): 0}
    assert site.run().next(first, limit=0)["t", 2] == 4


def test_retention_passes_the_checkpoint(site: Site) -> None:
    site.model.logs[A].start = 6
    with pytest.raises(DataLost, match=r"t/0: offsets 3 to 5 are gone.*failOnDataLoss=false"):
        site.run().ranges({A: 3, B: 3}, {A: 9, B: 9})
    lenient = site.run(failOnDataLoss="false")
    assert lenient.ranges({A: 3, B: 3}, {A: 9, B: 9}) == [
        OffsetRange("t", 0, 6, 9),
        OffsetRange("t", 1, 3, 9),
    ]
    assert lenient.ranges({A: 3}, {A: 5}) == []


def test_a_log_ends_before_the_checkpoint(site: Site) -> None:
    at = {A: 11, B: 9}
    with pytest.raises(DataLost, match="t/0 ends at offset 9, before 11"):
        site.run().next(at, limit=0)
    assert site.run(failOnDataLoss="false").next(at, limit=0) == {A: 9, B: 9}


def test_a_partition_is_gone(site: Site) -> None:
    site.model.create("t", 1)
    site.model.hold(start=3, end=9)
    at = {A: 9, B: 7}
    with pytest.raises(DataLost, match="t/1, read up to offset 7, is gone"):
        site.run().next(at, limit=0)
    assert site.run(failOnDataLoss="false").next(at, limit=0) == {A: 9}


def test_a_topic_that_does_not_exist(site: Site) -> None:
    with pytest.raises(ConfigurationError, match="do not exist: u"):
        site.run(subscribe="t,u").next({}, limit=0)


def test_tasks_share_large_ranges(site: Site) -> None:
    ranges = site.run(maxRecordsPerPartition="4").ranges({A: 3}, {A: 9})
    assert ranges == [OffsetRange("t", 0, 3, 6), OffsetRange("t", 0, 6, 9)]
