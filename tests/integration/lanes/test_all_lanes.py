"""Both deliveries, with and without a handler, by the copier alone between two real brokers.

What was sent, and all commits, are recorded; the history is judged at the end (`histories`).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ureplicator_common.model import GapPolicy, RouteSettings, position_group
from ureplicator_testkit.copier.driver import ROUTE, StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.lanes import LANES, granting
from ureplicator_testkit.histories.anomalies import Anomaly, Kind, listed
from ureplicator_testkit.histories.checker import Promise, check
from ureplicator_testkit.histories.events import Acknowledged, Commits, Sent
from ureplicator_testkit.histories.reader import whole
from ureplicator_testkit.histories.recorder import History
from ureplicator_testkit.records.commits import commits
from ureplicator_testkit.records.comparison import Log
from ureplicator_testkit.records.labels import labelled_records
from ureplicator_testkit.records.topics import delete_records, read_all

PARTITIONS = 2


class RecordedLane:
    """Records of a lane are numbered on; `check` is at the end."""

    def __init__(self, lane: RealLane, settings: RouteSettings, folder: Path) -> None:
        self.lane, self.settings = lane, settings
        self.history = History(folder / "history")
        self._count = 0
        lane.make(PARTITIONS)

    def fill(self, count: int) -> None:
        topic, first = self.lane.topic, self._count
        self._count += count
        numbers = {number: range(first, self._count) for number in range(PARTITIONS)}
        self.history.add(Sent({n: list(some) for n, some in numbers.items()}))
        self.lane.fill(labelled_records(topic, partitions=PARTITIONS, count=count, first=first))
        self.history.add(Acknowledged({n: list(some) for n, some in numbers.items()}))

    def start(self, *, had_position: bool = False) -> StubDriver:
        grant = granting(self.settings, had_position=had_position)
        return self.lane.start(PARTITIONS, grant=grant)

    def copy(self, *, had_position: bool = False) -> StubDriver:
        """All that the source has now; then the copier ends."""
        driver = self.start(had_position=had_position)
        driver.wait_caught_up()
        driver.stop()
        return driver

    @property
    def group(self) -> str:
        return position_group(fleet=self.lane.fleet, route=ROUTE)

    def source(self) -> Log:
        return read_all(self.lane.source.bootstrap, self.lane.topic)

    def check(self, source: Log) -> list[Anomaly]:
        """`source`: its log as it was."""
        topic, target = self.lane.topic, self.lane.target.bootstrap
        promise = Promise(
            self.settings.delivery, transactional=self.settings.is_transactional(topic)
        )
        self.history.add(Commits(commits(target, self.group, topic)))
        self.history.add(whole("source", source, topic))
        for isolation in promise.isolations:
            copied = self.lane.copied(isolation)
            self.history.add(whole("target", copied, topic, isolation))
        return check(self.history.events(), promise)


@pytest.fixture(params=list(LANES.values()), ids=list(LANES))
def recorded(
    lane: RealLane, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[RecordedLane]:
    recorded = RecordedLane(lane, request.param, tmp_path)
    yield recorded
    recorded.history.close()


def test_retention_that_passes_the_position_loses_what_is_reported_and_nothing_else(
    recorded: RecordedLane,
) -> None:
    recorded.settings = replace(recorded.settings, on_gap=GapPolicy.EARLIEST)
    recorded.fill(200)
    recorded.copy()
    recorded.fill(300)
    source = recorded.source()
    position = recorded.lane.stored(PARTITIONS)[0].offset
    delete_records(recorded.lane.source.bootstrap, recorded.lane.topic, {0: position + 100})
    driver = recorded.copy(had_position=True)
    ((partition, gap),) = driver.gaps
    assert partition == recorded.lane.at(0)
    assert (gap.first_offset, gap.next_offset) == (position, position + 100)
    found = recorded.check(source)
    assert {(anomaly.kind, anomaly.text) for anomaly in found} == {
        (Kind.LOST, listed(range(200, 300)))
    }
    assert {anomaly.place for anomaly in found} <= {"target 0", "target read_uncommitted 0"}


def test_positions_that_are_gone_are_an_error_and_nothing_is_copied_again(
    recorded: RecordedLane,
) -> None:
    recorded.fill(200)
    recorded.copy()
    admin = recorded.lane.target.admin()
    admin.delete_consumer_groups([recorded.group])[recorded.group].result(timeout=20)
    source = recorded.source()
    later = labelled_records(recorded.lane.topic, partitions=PARTITIONS, count=50, first=200)
    recorded.lane.fill(later)
    driver = recorded.start(had_position=True)
    for number in range(PARTITIONS):
        assert "position lost" in recorded.lane.failure(driver, number)
    driver.stop()
    assert recorded.check(source) == []
