"""Equal offsets of logs that begin far up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COPIED_S, COUNT, SAME, Takeover
from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.topics import offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.far_logs import begin_logs

BEGIN, FILLED = 5_000_000_000, 250_000
"""More than fits into 32 bits. So many of them are left to fill."""


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Source and target of their own, since both are restarted."""
    with KafkaCluster(name="far-source") as source, KafkaCluster(name="far-target") as target:
        yield source, target


def test_offsets_that_do_not_fit_into_32_bits(
    clusters: tuple[KafkaCluster, KafkaCluster], topic: str, fleet: str, tmp_path: Path
) -> None:
    source, target = clusters
    lane = RealLane(source, target, topic, fleet, tmp_path)
    owners = Takeover(lane)
    owners.make(2)
    begin_logs(source, topic, {0: BEGIN, 1: 0})
    begin_logs(target, topic, {0: BEGIN - FILLED, 1: 0})
    owners.fill(COUNT)
    driver = owners.own(settings=SAME)
    driver.wait_caught_up(COPIED_S)
    driver.stop()
    lane.close()
    wanted = {0: (BEGIN, BEGIN + COUNT), 1: (0, COUNT)}
    assert offsets(source.bootstrap, topic) == wanted
    assert offsets(target.bootstrap, topic) == wanted
    copied = lane.copied(READ_UNCOMMITTED)
    for number, rows in read_all(source.bootstrap, topic).items():
        assert [(row.offset, row.value) for row in copied[number]] == [
            (row.offset, row.value) for row in rows
        ]
