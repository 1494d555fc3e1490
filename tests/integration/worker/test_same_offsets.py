"""Equal offsets between two real brokers: a scan of both logs, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COUNT, SAME, Takeover
from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.topics import delete_records, offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster


@pytest.fixture
def owners(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    tmp_path: Path,
) -> Iterator[Takeover]:
    lane = RealLane(source_cluster, target_cluster, topic, fleet, tmp_path)
    yield Takeover(lane)
    lane.close()


def assert_same(owners: Takeover) -> None:
    """Each record of the source is at the target's same offset, also for readers of everything."""
    source = read_all(owners.lane.source.bootstrap, owners.topic)
    target = owners.lane.copied(READ_UNCOMMITTED)
    for number, rows in source.items():
        assert [row.offset for row in target[number]] == [row.offset for row in rows]
        assert [row.value for row in target[number]] == [row.value for row in rows]
    ends = [
        offsets(end.bootstrap, owners.topic) for end in (owners.lane.source, owners.lane.target)
    ]
    assert {n: end for n, (_, end) in ends[0].items()} == {
        n: end for n, (_, end) in ends[1].items()
    }


def test_a_plain_topic(owners: Takeover) -> None:
    owners.make(2)
    owners.fill(COUNT)
    owners.finish(settings=SAME)
    assert_same(owners)


def test_transactions_leave_control_records(owners: Takeover) -> None:
    owners.make(1)
    for turn in range(6):
        owners.lane.fill_in_turn(turn)
    owners.finish(settings=SAME)
    assert_same(owners)


def test_a_log_begins_where_that_of_the_source_does(owners: Takeover) -> None:
    owners.make(1)
    owners.fill(2_000)
    delete_records(owners.lane.source.bootstrap, owners.topic, {0: 1_500})
    owners.finish(settings=SAME)
    assert_same(owners)
    assert offsets(owners.lane.target.bootstrap, owners.topic)[0] == (1_500, 2_000)
