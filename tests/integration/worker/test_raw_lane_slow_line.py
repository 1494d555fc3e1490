"""A copier with a backlog behind a slow or a long line: it uses the line, and drops no connection.

The proxy carries so many bytes a second, with a delay, for all connections together.
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ureplicator_testkit.copier.driver import StubDriver, partitions_of
from ureplicator_testkit.records.topics import NewRecord, compare_logs, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually, starved_s
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread, Way
from ureplicator_worker.wire.produce_api import API_KEY as PRODUCE

PARTITIONS = 8
LISTENER = "SLOW"
ROUND_TRIP_S = 0.15
SHARE = 0.8
"""Of the line, at least."""
SHARE_OF_A_TRICKLE = 0.6
"""A fetch brings one batch, which takes two seconds; then the line waits for the next request."""
SMALL_BATCHES = 1_200
BATCHES_A_REQUEST = 8
"""At least, in the mean."""
BEGUN_BYTES = 200_000
"""More than the requests that come before the records."""


@dataclass
class SlowLine:
    """A cluster behind a proxy."""

    cluster: KafkaCluster
    proxy: Proxy


@pytest.fixture(scope="module")
def slow_line() -> Iterator[SlowLine]:
    with ProxyThread() as proxies:
        cluster = KafkaCluster(name="slow", listeners=[LISTENER])
        proxy = proxies.proxy(cluster.listener_port(LISTENER))
        cluster.advertise(LISTENER, proxy.port)
        with cluster:
            yield SlowLine(cluster, proxy)


def fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    """Records that no codec makes smaller, in batches of about 100 KB."""
    dice = random.Random(1)  # noqa: S311
    records = [
        NewRecord(dice.randbytes(10_000), key=b"%d" % n, partition=n % PARTITIONS)
        for n in range(size_bytes // 10_000)
    ]
    produce(bootstrap, topic, records, settings={"batch.size": 100_000, "linger.ms": 50})


def fill_small(bootstrap: str, topic: str) -> None:
    """Batches of about 16 KB in one partition, that no codec makes smaller."""
    dice = random.Random(1)  # noqa: S311
    records = [
        NewRecord(b"%s/0/%d " % (topic.encode(), n) + dice.randbytes(7_500))
        for n in range(2 * SMALL_BATCHES)
    ]
    settings = {"batch.size": 16_384, "linger.ms": 50}
    produce(bootstrap, topic, records, codec="lz4", settings=settings)


@pytest.mark.parametrize(
    ("end", "rate", "size_bytes", "share"),
    [
        ("source", 1_000_000, 12_000_000, SHARE),
        ("source", 50_000, 800_000, SHARE_OF_A_TRICKLE),
        ("target", 1_000_000, 12_000_000, SHARE),
        ("target", 50_000, 1_200_000, SHARE_OF_A_TRICKLE),
    ],
)
def test_a_backlog_takes_the_time_of_the_line(
    slow_line: SlowLine,
    source_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    tmp_path: Path,
    end: str,
    rate: int,
    size_bytes: int,
    share: float,
) -> None:
    other, proxy = source_cluster, slow_line.proxy
    source = slow_line.cluster if end == "source" else other
    target = other if end == "source" else slow_line.cluster
    for cluster in (source, target):
        create_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
    fill(source.bootstrap, topic, size_bytes)
    way = Way.DOWN if end == "source" else Way.UP
    proxy.slow(rate_bytes_per_s=rate, delay_s=ROUND_TRIP_S / 2)
    before = proxy.carried_bytes(way)
    driver = StubDriver(
        partitions_of(topic, PARTITIONS),
        source=proxy.address if end == "source" else other.bootstrap,
        target=other.bootstrap if end == "source" else proxy.address,
        fleet=fleet,
        folder=tmp_path,
    )
    try:
        begun = before + min(BEGUN_BYTES, size_bytes // 10)
        eventually(lambda: proxy.carried_bytes(way) > begun, 40, "records are on the way")
        chain = driver.process.pid, os.getpid()  # the copier, and the proxy
        began_s = time.monotonic() - starved_s(*chain)
        ends = dict.fromkeys(partitions_of(topic, PARTITIONS), size_bytes // 10_000 // PARTITIONS)
        limit_s = size_bytes / rate / share
        eventually(lambda: driver.caught_up(ends), 2 * limit_s, "all is copied and committed")
        took_s = time.monotonic() - starved_s(*chain) - began_s
        proxy.heal()
        driver.stop()
        assert "dropped" not in driver.process.log_text()
        assert took_s < limit_s
    finally:
        proxy.heal()
        driver.close()
    compare_logs(source.bootstrap, target.bootstrap, topic).assert_clean()


def test_small_batches_take_few_round_trips_to_a_far_target(
    slow_line: SlowLine, source_cluster: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> None:
    """Sent as they are stored, there would be one in a request, and five a round trip."""
    source, target, proxy = source_cluster, slow_line.cluster, slow_line.proxy
    for cluster in (source, target):
        create_topic(cluster.bootstrap, topic, partitions=1)
    fill_small(source.bootstrap, topic)
    proxy.slow(delay_s=ROUND_TRIP_S / 2)
    before = proxy.requests(PRODUCE)
    driver = StubDriver(
        partitions_of(topic, 1),
        source=source.bootstrap,
        target=proxy.address,
        fleet=fleet,
        folder=tmp_path,
    )
    try:
        driver.wait_online()
        ends = dict.fromkeys(partitions_of(topic, 1), 2 * SMALL_BATCHES)
        eventually(lambda: driver.caught_up(ends), 60, "all is copied and committed")
        requests = proxy.requests(PRODUCE) - before
        proxy.heal()
        driver.stop()
        assert "dropped" not in driver.process.log_text()
        assert SMALL_BATCHES / 100 < requests < SMALL_BATCHES / BATCHES_A_REQUEST
    finally:
        proxy.heal()
        driver.close()
    compare_logs(source.bootstrap, target.bootstrap, topic).assert_clean()
