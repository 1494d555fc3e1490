"""Batches of real brokers, compared by their checksums over the audit's own sockets."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import open_client
from ureplicator_common.model import Route
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_worker.audit.core.batches import Matched, Place
from ureplicator_worker.audit.stored import Scanner, StoredBatches, Wanted

pytestmark = pytest.mark.integration

BATCHES, SIZE = 60, 40
Log = list[list[bytes]]


def contents() -> Log:
    """Batches of 1 KB to 1 MB: of some the records are discarded unread."""
    dice = random.Random(1)  # noqa: S311
    sizes = [dice.choice([25, 400, 2_000, 20_000]) for _ in range(BATCHES)]
    return [[dice.randbytes(size) for _ in range(SIZE)] for size in sizes]


def send(
    cluster: KafkaCluster,
    topic: str,
    batches: Sequence[Sequence[bytes]],
    *,
    codec: str = "none",
    transactions: bool = False,
) -> None:
    """Each list in a batch of its own; in transactions with a marker behind each, the second one aborted."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "linger.ms": 1_000,
        "batch.size": 2_000_000,
        "message.max.bytes": 2_000_000,
        "compression.codec": codec,
        "enable.idempotence": True,
    }
    producer = Producer(settings | ({"transactional.id": f"of {topic}"} if transactions else {}))
    if transactions:
        producer.init_transactions()
    for number, batch in enumerate(batches):
        if transactions:
            producer.begin_transaction()
        for value in batch:
            stamp = 1_700_000_000_000 + zlib.crc32(value) % 1_000
            producer.produce(topic, value, b"k", 0, timestamp=stamp)
        producer.flush()
        if transactions and number == 1:
            producer.abort_transaction()
        elif transactions:
            producer.commit_transaction()


@pytest.fixture
def topics(source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str) -> str:
    for cluster in (source_cluster, target_cluster):
        create_topic(cluster.bootstrap, topic, partitions=1)
    return topic


def scanned(
    source: KafkaCluster,
    target: KafkaCluster,
    topic: str,
    *,
    place: Place = Place(0, 0),  # noqa: B008  # frozen
    end: int = BATCHES * SIZE,
) -> Matched:
    scan = Scanner(
        {
            "a": {"bootstrap.servers": source.bootstrap},
            "b": {"bootstrap.servers": target.bootstrap},
        }
    )
    wanted = Wanted(Route("a", "b"), topic, topic, {0: place}, {0: end})
    return scan(wanted, late=lambda: False)[0]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_altered_batch_ends_what_is_equal(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, topics: str, codec: str
) -> None:
    batches = contents()
    send(source_cluster, topics, batches, codec=codec)
    altered = [list(batch) for batch in batches]
    changed = bytearray(altered[40][7])
    changed[-1] ^= 1
    altered[40][7] = bytes(changed)
    send(target_cluster, topics, altered, codec=codec)
    found = scanned(source_cluster, target_cluster, topics)
    assert found == Matched(Place(40 * SIZE, 40 * SIZE), differs=True, records=SIZE)
    behind = Place(41 * SIZE + 3, 41 * SIZE + 3)
    found = scanned(source_cluster, target_cluster, topics, place=behind)
    assert found == Matched(Place(BATCHES * SIZE, BATCHES * SIZE))


def test_markers_and_aborted_records_are_passed_over(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, topics: str
) -> None:
    batches = contents()[:20]
    send(source_cluster, topics, batches)
    send(target_cluster, topics, batches[:2] + batches[1:], transactions=True)
    found = scanned(source_cluster, target_cluster, topics, end=20 * SIZE)
    assert (found.place.source, found.differs) == (20 * SIZE, False)


@pytest.mark.parametrize("verify_every", [1, 1_000_000])
def test_every_batch_is_read_once_in_order(
    source_cluster: KafkaCluster, topics: str, verify_every: int
) -> None:
    send(source_cluster, topics, contents())
    client = open_client("a", {"bootstrap.servers": source_cluster.bootstrap})
    log = StoredBatches(client, topics, verify_every=verify_every)
    found = [
        (batch.first, batch.next, batch.form is None) for batch in log.batches(0, 3 * SIZE + 5)
    ]
    assert found == [(n * SIZE, (n + 1) * SIZE, False) for n in range(3, BATCHES)]
    with pytest.raises(ClusterUnavailable, match="OFFSET_OUT_OF_RANGE"):
        list(log.batches(0, 1 << 40))
    assert next(log.batches(0, 0)).first == 0
    log.close()
    client.close()
