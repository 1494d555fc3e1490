"""Owners of a topic's partitions between two real brokers, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Delivery, OwnerEpoch, Partition, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.histories.events import READ_COMMITTED, READ_UNCOMMITTED
from ureplicator_testkit.records.comparison import compare
from ureplicator_testkit.records.labels import labelled_records
from ureplicator_testkit.records.topics import NewRecord, offsets, read_all
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Add, Grant

EXACTLY_ONCE = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
SAME = replace(EXACTLY_ONCE, same_offsets=".*")
NEVER_S = 3_600.0
TRIES = 5
COPIED_S = 30.0
COUNT = 300


class Takeover:
    """A topic, and its owners one after the other; epochs and records are numbered on."""

    def __init__(self, lane: RealLane) -> None:
        self.lane = lane
        self._epoch = 0
        self._count = 0
        self._change: Callable[[NewRecord], NewRecord] | None = None

    def make(
        self,
        partitions: int,
        *,
        source: Mapping[str, str] | None = None,
        target: Mapping[str, str] | None = None,
    ) -> None:
        self.partitions = partitions
        self.lane.make_source(partitions, source)
        self.lane.make_target(partitions, target)

    def fill(self, count: int, change: Callable[[NewRecord], NewRecord] | None = None) -> None:
        """Produce so many records more in each partition."""
        first, self._count = self._count, self._count + count
        self._change = change
        records = labelled_records(
            self.lane.topic, partitions=self.partitions, count=count, first=first
        )
        self.lane.fill(map(change, records) if change else records)

    def own(
        self,
        *,
        commit_interval_s: float = 0.3,
        settings: RouteSettings = EXACTLY_ONCE,
        **options: Any,
    ) -> StubDriver:
        """The next owner, which fences all workers before it. `options`: see `StubDriver`."""
        former, self._epoch = self._epoch, self._epoch + 1
        fence = tuple(id for n in range(1, former + 1) for id in self.lane.ids(f"w{n}"))

        def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
            return Grant(
                epoch, partition.topic, fence=fence, had_position=former > 0, settings=settings
            )

        return self.lane.start(
            self.partitions,
            epoch=self._epoch,
            worker=f"w{self._epoch}",
            grant=grant,
            commit_interval_s=commit_interval_s,
            **options,
        )

    def copy_uncommitted(self) -> StubDriver:
        """Copy as an owner that has not committed the last COUNT records, at least, of any partition.

        A new connection has it commit once more: then so many are copied again.
        """
        driver = self.own(commit_interval_s=NEVER_S)
        for _ in range(TRIES):
            wanted = self.source_ends()
            ends = self.lane.target_ends
            eventually(lambda: ends() == wanted, COPIED_S, "all is copied")  # noqa: B023
            stored = self.lane.stored(self.partitions)
            assert all(_appends(position) for position in stored.values())
            if all(stored[number].offset <= end - COUNT for number, end in wanted.items()):
                return driver
            self.fill(COUNT, self._change)
        raise AssertionError(f"committed all the time: {stored}")

    def source_ends(self) -> dict[int, int]:
        found = offsets(self.lane.source.bootstrap, self.topic)
        return {number: end for number, (_, end) in found.items()}

    def lose(self) -> None:
        """An owner that copies all there is, commits nothing, and is killed."""
        driver = self.copy_uncommitted()
        driver.process.kill_tree()
        driver.close()

    def finish(self, *, settings: RouteSettings = EXACTLY_ONCE) -> StubDriver:
        """Have an owner copy the rest, and end."""
        driver = self.own(settings=settings)
        driver.wait_caught_up(COPIED_S)
        driver.stop()
        return driver

    def retry(self, driver: StubDriver, *numbers: int) -> None:
        """Add again what failed for a time, as a worker does."""
        partitions = [self.lane.at(number) for number in numbers]
        for partition in partitions:
            assert driver.failed.pop(partition).temporary
        driver.send(Add(dict.fromkeys(partitions, OwnerEpoch(self._epoch))))

    def wait(self, driver: StubDriver, done: Callable[[], bool]) -> None:
        """Wait until it is true and all partitions are copied. What failed for a time is added again."""

        def reached() -> bool:
            if driver.failed:
                self.retry(driver, *(partition.number for partition in tuple(driver.failed)))
            return len(driver.report) == self.partitions and done()

        eventually(reached, COPIED_S, "all is copied")

    @property
    def topic(self) -> str:
        return self.lane.topic

    def wait_copied(self) -> None:
        """Wait until readers of all records find so many as the source has."""

        def count(bootstrap: str) -> int:
            return sum(map(len, read_all(bootstrap, self.topic, READ_UNCOMMITTED).values()))

        lane = self.lane
        wanted = count(lane.source.bootstrap)
        eventually(lambda: count(lane.target.bootstrap) >= wanted, COPIED_S, "all is copied")

    def assert_once(
        self,
        *,
        stamped: bool = False,
        isolations: Sequence[str] = (READ_COMMITTED, READ_UNCOMMITTED),
    ) -> None:
        """Each record of the source is there once, in order, for readers at each of the levels."""
        source = read_all(self.lane.source.bootstrap, self.topic)
        for isolation in isolations:
            compare(source, self.lane.copied(isolation), timestamps=not stamped).assert_clean()

    def assert_values(self, number: int, wanted: list[bytes | None]) -> None:
        """Compare the values of a partition, whatever the source has left of it."""
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            assert [row.value for row in self.lane.copied(isolation)[number]] == wanted


def _appends(position: Position) -> bool:
    provenance = Provenance.decode(position.metadata)
    return provenance is not None and provenance.appends is not None
