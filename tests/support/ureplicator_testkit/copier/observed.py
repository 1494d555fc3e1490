"""A load and a reader around a real lane that delivers exactly once, and their history."""

from __future__ import annotations

import time

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.model import Delivery, position_group
from ureplicator_testkit.copier.driver import ROUTE, StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.histories.checker import Promise
from ureplicator_testkit.histories.events import Commits, Fault
from ureplicator_testkit.histories.reader import Reader, judge_copy
from ureplicator_testkit.histories.recorder import History
from ureplicator_testkit.records.commits import commits
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import read_all
from ureplicator_testkit.servers.processes import eventually

VISIBLE_S = 30


class Observed:
    """`close` it, however the test ended. `transactional`: the lane sends in transactions."""

    def __init__(self, lane: RealLane, *, partitions: int, transactional: bool = False) -> None:
        self._promise = Promise(Delivery.EXACTLY_ONCE, transactional)
        self._lane = lane
        self._partitions = partitions
        self.history = History(lane.folder / "history")
        self.load = Load(
            lane.source.bootstrap, lane.topic, partitions=partitions, add=self.history.add
        )
        self.reader = Reader(
            lane.target.bootstrap,
            lane.topic,
            lane.topic,
            partitions=partitions,
            add=self.history.add,
            isolation=self._promise.isolations[-1],
            positions=self._positions if transactional else None,
        )

    def _positions(self) -> dict[int, int] | None:
        try:
            found = self._lane.stored(self._partitions)
        except ClusterUnavailable:
            return None
        return {number: position.offset for number, position in found.items()}

    def start(self) -> None:
        """Make the topic on both clusters, and send records."""
        self._lane.make(self._partitions)
        self.load.start()
        self.reader.start()

    def fault(self, name: str) -> None:
        self.history.add(Fault(name))

    def follow(self, count: int, driver: StubDriver) -> None:
        """Wait until so many records more are sent."""
        before = self.load.count
        while self.load.count < before + count:
            driver.process.assert_running()
            time.sleep(0.01)

    def wait_visible(self, count: int = 1) -> None:
        """Wait until so many more records are visible at the target."""
        before = self.reader.count
        eventually(lambda: self.reader.count >= before + count, VISIBLE_S, "records are visible")

    def judge(self) -> None:
        """Judge once all is copied."""
        lane = self._lane
        self.reader.stop()
        group = position_group(fleet=lane.fleet, route=ROUTE)
        self.history.add(Commits(commits(lane.target.bootstrap, group, lane.topic)))
        judge_copy(
            self.history,
            self._promise,
            topic=lane.topic,
            source=read_all(lane.source.bootstrap, lane.topic),
            target=lane.copied,
        )

    def close(self) -> None:
        self.reader.close()
        try:
            self.load.stop()
        finally:
            self.history.close()
