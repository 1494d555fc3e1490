"""One topic between two real brokers, and the copiers that a test starts for it, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import read_positions
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_common.model import Partition, WorkerId, position_group, transactional_ids
from ureplicator_testkit.copier.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.histories.events import READ_COMMITTED
from ureplicator_testkit.records.topics import (
    ConsumedRecord,
    NewRecord,
    compare_logs,
    create_topic,
    offsets,
    produce,
    produce_in_transaction,
    read_all,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Grant


@dataclass
class RealLane:
    source: KafkaCluster
    target: KafkaCluster
    topic: str
    fleet: str
    folder: Path
    _drivers: list[StubDriver] = field(default_factory=list)

    def make(self, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """The topic on both clusters, the target's with its defaults."""
        self.make_source(partitions, config)
        self.make_target(partitions)

    def make_source(self, partitions: int, config: Mapping[str, str] | None = None) -> None:
        create_topic(self.source.bootstrap, self.topic, partitions=partitions, config=config)

    def make_target(self, partitions: int, config: Mapping[str, str] | None = None) -> None:
        create_topic(self.target.bootstrap, self.topic, partitions=partitions, config=config)

    def fill(self, records: Iterable[NewRecord], **how: Any) -> None:
        """Produce to the source."""
        produce(self.source.bootstrap, self.topic, records, **how)

    def fill_in_turn(self, turn: int) -> None:
        """Plain records, and transactions of which every other one is aborted."""
        self.fill(
            [NewRecord(b"%d-%d" % (turn, number), key=b"%d" % number) for number in range(150)]
        )
        produce_in_transaction(
            self.source.bootstrap,
            self.topic,
            [NewRecord(b"%d/%d" % (turn, number), key=b"%d" % number) for number in range(20)],
            transactional_id=f"{self.topic}-producer",
            commit=bool(turn % 2),
        )

    def start(self, count: int, *, epoch: int = 1, target: str = "", **options: Any) -> StubDriver:
        """A copier with so many partitions; it is gone after the test. `target`: its address there."""
        driver = StubDriver(
            partitions_of(self.topic, count, epoch=epoch),
            source=self.source.bootstrap,
            target=target or self.target.bootstrap,
            fleet=self.fleet,
            folder=self.folder,
            **options,
        )
        self._drivers.append(driver)
        return driver

    def resume(self, count: int) -> StubDriver:
        """A copier that takes up what another has left."""
        return self.start(
            count, grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True)
        )

    def at(self, number: int) -> Partition:
        return Partition(ROUTE, self.topic, number)

    def ids(self, worker: str, *, slots: int = 1) -> tuple[str, ...]:
        """Transactional ids of a worker."""
        return transactional_ids(
            fleet=self.fleet, route=ROUTE, worker=WorkerId(worker), slots=slots
        )

    def stored(self, count: int) -> dict[int, Position]:
        """Positions in the store."""
        client = ClusterClient(self.target.bootstrap)
        try:
            group = position_group(fleet=self.fleet, route=ROUTE)
            found = all_readable(read_positions(client, group, {self.topic: range(count)}))
        finally:
            client.close()
        return {number: position for (_, number), position in found.items()}

    def failure(self, driver: StubDriver, number: int, *, deadline_s: float = 20) -> str:
        """Wait until one partition was given up; its reason."""
        partition = self.at(number)
        eventually(lambda: partition in driver.failed, deadline_s, f"{partition} fails")
        return driver.failed[partition].reason

    def copied(self, isolation: str = READ_COMMITTED) -> Mapping[int, Sequence[ConsumedRecord]]:
        return read_all(self.target.bootstrap, self.topic, isolation)

    def target_ends(self) -> dict[int, int]:
        found = offsets(self.target.bootstrap, self.topic)
        return {number: end for number, (_, end) in found.items()}

    def assert_equal(self) -> None:
        self._compared().assert_clean()

    def assert_faultless(self) -> None:
        """Assert as `assert_equal` does, but repeats are allowed."""
        self._compared().assert_faultless()

    def _compared(self) -> Any:
        return compare_logs(self.source.bootstrap, self.target.bootstrap, self.topic)

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()
