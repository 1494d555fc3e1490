"""The whole copy between clusters of each version of Kafka that is supported: its first, its last, and
some between.

The copier alone, from each version to the next one, and from the newest to the oldest. Every kind of batch
that their producers write is copied, positions are taken over by another copier, and both logs are compared.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.labels import assert_holds, labelled, numbers
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import NewRecord, compare_logs, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSION, KAFKA_VERSIONS
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.versions import kafka_of_version
from ureplicator_worker.lifeline.messages import Grant

PARTITIONS = 3
OLD_FORMATS = [("0.9.0", ("none", "gzip", "snappy")), ("0.10.2", ("none", "gzip", "snappy", "lz4"))]
"""Message formats 0 and 1: brokers before 3.0 still write them for topics that are set so. In format 0
LZ4 has checksums of its own (KAFKA-3160): such a batch stops its partition in ERROR."""

WAYS = tuple(zip(KAFKA_VERSIONS, (*KAFKA_VERSIONS[1:], KAFKA_VERSIONS[0]), strict=True))
"""Source and target: each version is one end of one copy, and the other end of another."""
OLDEST = WAYS[0]


@pytest.fixture(scope="module")
def brokers(source_cluster: KafkaCluster) -> Iterator[Mapping[str, KafkaCluster]]:
    """One of each version."""
    others = {
        version: kafka_of_version(version, name=f"kafka-{version}")
        for version in KAFKA_VERSIONS
        if version != KAFKA_VERSION
    }
    try:
        start_all(*others.values())
        yield {KAFKA_VERSION: source_cluster, **others}
    finally:
        for cluster in others.values():
            cluster.stop()


@pytest.fixture(params=WAYS, ids=" to ".join)
def lane(
    request: pytest.FixtureRequest,
    brokers: Mapping[str, KafkaCluster],
    topic: str,
    fleet: str,
    tmp_path: Path,
) -> Iterator[RealLane]:
    source, target = (brokers[version] for version in request.param)
    lane = RealLane(source, target, topic, fleet, tmp_path)
    yield lane
    lane.close()


def test_every_kind_of_batch_is_copied_once_and_in_order(lane: RealLane) -> None:
    lane.make(PARTITIONS)
    with Load(lane.source.bootstrap, lane.topic, partitions=PARTITIONS) as load:
        first = lane.start(PARTITIONS, worker="w1")
        first.wait_caught_up()
        first.stop()
        second = lane.start(
            PARTITIONS,
            epoch=2,
            worker="w2",
            grant=lambda part, epoch: Grant(
                epoch, part.topic, fence=lane.ids("w1"), had_position=True
            ),
        )
        second.wait_online()
    second.wait_caught_up()
    second.stop()
    lane.assert_equal()
    assert_holds(read_all(lane.source.bootstrap, lane.topic), lane.topic, load.acknowledged)
    numbers(lane.copied(), lane.topic)


@pytest.mark.parametrize("lane", [OLDEST], ids=" to ".join, indirect=True)
@pytest.mark.parametrize(("message_format", "codecs"), OLD_FORMATS)
def test_batches_in_old_formats_are_copied(
    lane: RealLane, message_format: str, codecs: tuple[str, ...]
) -> None:
    """They have neither headers nor producers; the oldest no timestamps."""
    lane.make_source(1, {"message.format.version": message_format})
    lane.make_target(1)
    for place, codec in enumerate(codecs):
        made = [labelled(lane.topic, 0, number) for number in range(100 * place, 100 * place + 100)]
        plain = [NewRecord(record.value, record.key, timestamp=record.timestamp) for record in made]
        lane.fill(plain, codec=codec, settings={"enable.idempotence": False})
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.stop()
    ends = lane.source.bootstrap, lane.target.bootstrap
    compare_logs(*ends, lane.topic, timestamps=message_format != "0.9.0").assert_clean()
    assert numbers(lane.copied(), lane.topic)[0].total() == 100 * len(codecs)
