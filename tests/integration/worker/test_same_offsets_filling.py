"""The target's broker is killed at each step of filling, and the log begins where the source's does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import SAME, Takeover
from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.topics import delete_records, offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.batches.fillers import filler
from ureplicator_worker.copier.raw.gap_filling import DELETE_TIMEOUT_MS, FILLER_RECORDS, RESERVE

FAR = 6_000_000
COUNT = 300
COPIED_S = 100.0
WHILE_FILLED = (1, FAR // 2)
"""Ends of the target's log, where its broker is killed."""
ONCE_FILLED = (FAR - RESERVE, FAR - RESERVE + 1, FAR, FAR + 1)
"""The same behind the fillers: in control records, and in what is copied."""
STARTS_MS = 1_000
"""Interval at which the broker stores where its logs begin, for the first time after `FIRST_S`."""
FIRST_S = 30.0
STORED_S = FIRST_S + 3.0


@pytest.fixture
def target() -> Iterator[KafkaCluster]:
    properties = {"log.flush.start.offset.checkpoint.interval.ms": str(STARTS_MS)}
    with KafkaCluster(name="filled", heap_mb=256, properties=properties) as cluster:
        yield cluster


@pytest.fixture
def owners(
    source_cluster: KafkaCluster, target: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[Takeover]:
    lane = RealLane(source_cluster, target, topic, fleet, tmp_path)
    yield Takeover(lane)
    lane.close()


@pytest.mark.parametrize(
    ("steps", "stored_s"),
    [
        (WHILE_FILLED, 0.0),
        pytest.param(
            WHILE_FILLED + ONCE_FILLED,
            STORED_S,
            marks=pytest.mark.skipif(
                not os.environ.get("UREPLICATOR_KILLS"), reason="for two minutes"
            ),
        ),
    ],
)
def test_a_log_is_filled_by_brokers_that_are_killed(
    owners: Takeover, target: KafkaCluster, steps: Sequence[int], stored_s: float
) -> None:
    owners.make(1)
    begin_at(owners.lane.source.bootstrap, owners.topic, FAR)
    driver = owners.own(settings=SAME, stored_s=stored_s)
    for step in steps:
        if step > FAR:
            owners.fill(COUNT)
        wait(owners, driver, step)
        target.kill()
        target.restart()
    owners.fill(COUNT)
    wait(owners, driver, owners.source_ends()[0])
    eventually(driver.all_online, COPIED_S, "it is ONLINE")
    driver.stop()
    source = read_all(owners.lane.source.bootstrap, owners.topic)[0]
    found = owners.lane.copied(READ_UNCOMMITTED)[0]
    assert [(row.offset, row.value) for row in found] == [(row.offset, row.value) for row in source]
    begins, ends = offsets(target.bootstrap, owners.topic)[0]
    assert FAR - RESERVE <= begins <= FAR
    assert ends == owners.source_ends()[0]


def wait(owners: Takeover, driver: StubDriver, end: int) -> None:
    """The target's log has come so far. What failed for a time is added again, as by a worker; an ONLINE
    partition has no filler."""

    def reached() -> bool:
        if owners.lane.at(0) in driver.failed:
            owners.retry(driver, 0)
        is_online = driver.all_online()
        begins, ends = offsets(owners.lane.target.bootstrap, owners.topic)[0]
        assert begins >= FAR - RESERVE or not is_online, (begins, ends)
        return ends >= end

    eventually(reached, COPIED_S, f"the target's log ends at {end}", poll_s=0.01)


def begin_at(bootstrap: str, topic: str, offset: int, *, partition: int = 0) -> None:
    """Have the log of an empty partition begin there; two million offsets take a second."""
    client = ClusterClient(bootstrap)
    try:
        for done in range(0, offset, FILLER_RECORDS):
            _append(client, topic, partition, min(FILLER_RECORDS, offset - done))
    finally:
        client.close()
    delete_records(bootstrap, topic, {partition: offset})


def _append(client: ClusterClient, topic: str, partition: int, records: int) -> None:
    leader = client.view([topic]).leader_of(topic, partition)
    assert leader is not None
    topics = ProduceRequest.TopicProduceData
    batch = bytes(filler(records, timestamp_ms=0).data)
    rows = [topics.PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        version=9,
        transactional_id=None,
        acks=-1,
        timeout_ms=DELETE_TIMEOUT_MS,
        topic_data=[topics(name=topic, partition_data=rows)],
    )
    reply = client.call(leader, request, ProduceResponse)
    assert reply.responses[0].partition_responses[0].error_code == 0, reply
