"""Memory of a copier with a backlog: bounded by its buffers, whatever is slow and whatever is rebuilt."""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from ureplicator_testkit.copier.driver import BUFFER_BYTES, StubDriver, partitions_of
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread, Way

PARTITIONS = 8
LISTENER = "SLOW"
LIMIT_BYTES = BUFFER_BYTES + 120_000_000
"""Of the whole process: Python, its libraries and the bookkeeping are the rest."""
SLOW_BYTES_PER_S = 4_000_000
WATCHED_S = 7.0
BACKLOG_BYTES = 160_000_000
LARGE = {"batch.size": 900_000, "linger.ms": 50, "compression.type": "none"}
ONE_RECORD = {"batch.num.messages": 1, "linger.ms": 0, "compression.type": "gzip"}


@pytest.fixture(scope="module")
def line() -> Iterator[tuple[KafkaCluster, Proxy]]:
    """A target behind a proxy."""
    with ProxyThread() as proxies:
        cluster = KafkaCluster(name="slow", listeners=[LISTENER])
        proxy = proxies.proxy(cluster.listener_port(LISTENER))
        cluster.advertise(LISTENER, proxy.port)
        with cluster:
            yield cluster, proxy


def fill(
    bootstrap: str, topic: str, *, size_bytes: int, record_bytes: int, **settings: object
) -> None:
    """Records that no codec makes smaller, each with its topic, partition and number in front."""
    dice = random.Random(1)  # noqa: S311
    noise = dice.randbytes(record_bytes)
    for begin in range(0, size_bytes // record_bytes, 2_000):
        numbers = range(begin, min(begin + 2_000, size_bytes // record_bytes))
        records = [
            NewRecord(
                b"%s/%d/%d " % (topic.encode(), n % PARTITIONS, n) + noise, partition=n % PARTITIONS
            )
            for n in numbers
        ]
        produce(bootstrap, topic, records, settings=settings)


def peak_bytes(pid: int) -> int:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmHWM:"):
            return int(row.split()[1]) * 1024
    raise AssertionError("no peak")


BACKLOGS: Mapping[str, tuple[int, int, Mapping[str, object]]] = {
    "large batches": (BACKLOG_BYTES, 100_000, LARGE),
    "one record a batch": (BACKLOG_BYTES // 4, 1_000, ONE_RECORD),
}


@pytest.fixture(scope="module")
def backlogs(
    line: tuple[KafkaCluster, Proxy], source_cluster: KafkaCluster
) -> Callable[[str], str]:
    """Topics at both ends, by their kind. The copier of each test reads one from its beginning."""
    target, _ = line

    @cache
    def made(kind: str) -> str:
        topic = f"backlog-{uuid.uuid4().hex[:8]}"
        for cluster in (source_cluster, target):
            create_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
        size_bytes, record_bytes, settings = BACKLOGS[kind]
        fill(
            source_cluster.bootstrap,
            topic,
            size_bytes=size_bytes,
            record_bytes=record_bytes,
            **settings,
        )
        return topic

    return made


@pytest.mark.parametrize(
    ("kind", "speed"),
    [
        ("large batches", "stalled"),
        ("large batches", "slow"),
        ("large batches", "free"),
        ("one record a batch", "stalled"),
        ("one record a batch", "slow"),
    ],
)
def test_memory_is_bounded_by_the_buffers(
    line: tuple[KafkaCluster, Proxy],
    source_cluster: KafkaCluster,
    backlogs: Callable[[str], str],
    fleet: str,
    tmp_path: Path,
    kind: str,
    speed: str,
) -> None:
    _, proxy = line
    backlog = backlogs(kind)
    if speed == "slow":
        proxy.slow(rate_bytes_per_s=SLOW_BYTES_PER_S)
    before = proxy.carried_bytes(Way.UP)
    driver = StubDriver(
        partitions_of(backlog, PARTITIONS),
        source=source_cluster.bootstrap,
        target=proxy.address,
        fleet=fleet,
        folder=tmp_path,
    )
    try:
        eventually(lambda: proxy.carried_bytes(Way.UP) > before + 1_000_000, 40, "records are sent")
        if speed == "stalled":
            proxy.stall()
        end_s = time.monotonic() + WATCHED_S
        peak = 0
        while time.monotonic() < end_s and peak < LIMIT_BYTES:
            driver.process.assert_running()
            peak = peak_bytes(driver.process.pid)
            time.sleep(0.1)
        print(f"peak: {peak / 1e6:.0f} MB of {LIMIT_BYTES / 1e6:.0f} MB")
        assert peak < LIMIT_BYTES
    finally:
        proxy.heal()
        driver.close()
