"""Copiers that deliver exactly once without transactions, in memory, and what a reader of everything sees.

After each turn: the target holds records of the source, each once and in their order. What is missing before
the position was removed at the source before it was copied, or lost by an election at the target
(`excused`). A batch is there only under a producer that a position has named before, and the sequence in a
position is the number of its records that lie before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ureplicator_common.kafka.provenance import UNCOUNTED, Provenance
from ureplicator_common.model import Delivery, GapPolicy, Partition, RouteSettings
from ureplicator_testkit.copier.ledger_fleet import Owner, WorkerLine
from ureplicator_testkit.copier.line import ROUTE, seen
from ureplicator_testkit.copier.transaction_fleet import (
    PARTITIONS,
    TransactionFleet,
    committed,
    decoded,
)
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_testkit.kafka.transactions import FIRST_DATA_ID
from ureplicator_testkit.records.batches import CONTROL, Record
from ureplicator_testkit.records.batches import field as header_field
from ureplicator_worker.copier.messages import LaneEvent, RecordSkipped
from ureplicator_worker.lifeline.messages import Failed, GapPassed, Message, PublishedSettings

FENCED = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
GOES_ON = replace(FENCED, on_gap=GapPolicy.EARLIEST)
DAY_S = 24 * 3600.0
LONG_S = 2 * DAY_S


class FencedFleet(TransactionFleet):
    """`worn`: partitions of which an end was removed or lost, where a partition may end with a permanent
    error. `stopped`: their last errors."""

    def __init__(self, *arguments: object, **named: object) -> None:
        self.excused: defaultdict[TopicPartition, set[bytes | None]] = defaultdict(set)
        self.worn: set[TopicPartition] = set()
        self.elected: set[TopicPartition] = set()
        """Partitions whose target has lost records."""
        self.stopped: dict[Partition, str] = {}
        self._wall_s = 0.0
        self._named: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self._read = 0
        super().__init__(*arguments, **named)  # type: ignore[arg-type]

    @property
    def young_ms(self) -> int:
        """Time of a record that is not old."""
        return round(self._wall_s * 1_000)

    def age(self, by_s: float = LONG_S) -> None:
        """Records of the time 0 are so old that brokers forget a producer between any two batches."""
        self._wall_s += by_s
        for line in self.workers.values():
            line.wall_s = self._wall_s
        for log in self.target.logs.values():
            log.expired_ms = round((self._wall_s - DAY_S) * 1_000)

    def pass_a_day(self) -> None:
        """Brokers have closed all connections, and know no producer any more, not even those fenced."""
        self.age(DAY_S if self._wall_s else LONG_S)
        for node in self.target.nodes:
            self.target.cut(node)
        self.target.lose_delayed()
        for log in self.target.logs.values():
            log.forget_producers()
        self.turn(skip_s=DAY_S)

    def delete(self, key: TopicPartition, start: int) -> None:
        """Records of the source are gone."""
        self._excuse(key, [row for row in committed(self.source, key) if row.offset < start])
        self.source.logs[key].delete(start)

    def compact(self, key: TopicPartition, end: int) -> None:
        before = committed(self.source, key)
        log = self.source.logs[key]
        log.compact(end)
        left = {row.offset for batch in log.taken for row in decoded_batch(batch)}
        self._excuse(key, [row for row in before if row.offset not in left])

    def elect(self, key: TopicPartition, end: int) -> None:
        """An unclean election at the target: its log ends at `end`, and brokers were restarted."""
        log = self.target.logs[key]
        self.worn.add(key)
        self.elected.add(key)
        rows = [row for row in committed(self.target, key, stable=False) if row.offset >= end]
        self.excused[key] |= {row.value for row in rows}
        log.truncate(end)
        self.recover(key)
        self.target.move(key, 1 + self.target.leaders[key] % len(self.target.nodes))
        for node in self.target.nodes:
            self.target.cut(node)
        self.target.lose_delayed()

    def recover(self, key: TopicPartition) -> None:
        """A broker reads the state of producers from what is left of a log. What the present owner has sent
        is not deleted before its outcome is known."""
        provenance = Provenance.decode(self.ledger.read(key).metadata)
        own = provenance.appends.id if provenance and provenance.appends else None
        self.target.logs[key].recover(kept=own)

    def _excuse(self, key: TopicPartition, removed: list[Record]) -> None:
        found = {row.value for row in committed(self.target, key, stable=False)}
        self.worn.add(key)
        self.excused[key] |= {row.value for row in removed} - found

    def publish(self, settings: RouteSettings) -> None:
        """The leader publishes other settings of the route."""
        self.settings = settings
        self.settings_version += 1
        for line in self.workers.values():
            line.copier.holder.change_settings(
                PublishedSettings(ROUTE, self.settings_version, settings)
            )

    def _process(self, name: str) -> WorkerLine:
        line = super()._process(name)
        line.wall_s = self._wall_s
        take = line.lane.take_events

        def watched() -> Iterator[LaneEvent]:
            for event in take():
                if isinstance(event, RecordSkipped):
                    self._excuse_range(event.partition, range(event.offset, event.offset + 1))
                yield event

        line.lane.take_events = watched  # type: ignore[method-assign]
        return line

    def _receive(self, worker: WorkerLine, message: Message) -> None:
        super()._receive(worker, message)
        if isinstance(message, Failed) and not message.temporary:
            self.stopped[message.partition] = message.reason
        elif isinstance(message, GapPassed):
            passed = range(message.gap.first_offset, message.gap.next_offset)
            self._excuse_range(message.partition, passed)

    def _excuse_range(self, partition: Partition, offsets: range) -> None:
        key = (partition.topic, partition.number)
        rows = [row for row in committed(self.source, key) if row.offset in offsets]
        self.excused[key] |= {row.value for row in rows}

    def _is_copied(self, partition: Partition, owner: Owner) -> bool:
        key = (partition.topic, partition.number)
        is_stopped = key in self.worn and partition in self.stopped
        return is_stopped or super()._is_copied(partition, owner)

    def check_positions(self) -> None:
        for _, key, stored in self.ledger.history[self._read :]:
            provenance = Provenance.decode(stored.metadata)
            if provenance is not None and provenance.appends is not None:
                self._named[key].add(provenance.appends.id)
        self._read = len(self.ledger.history)
        for number in range(PARTITIONS):
            key = ("t", number)
            position = self.ledger.read(key).offset
            state = position, self.target.logs[key].end
            if state != self._checked.get(key):
                assert position >= self._checked.get(key, state)[0], (key, position)
                self._checked[key] = state
                self._check(key, position)

    def _copied(self, key: TopicPartition) -> list[Record]:
        """Records of the target."""
        return committed(self.target, key, stable=False)

    def _check(self, key: TopicPartition, position: int) -> None:
        found = self._copied(key)
        expected = committed(self.source, key)
        rows, places = seen(expected), {row.value: at for at, row in enumerate(expected)}
        copied = [places.get(row.value, -1) for row in found]
        assert copied == sorted(set(copied)), (key, position, "out of order, or twice", copied)
        assert seen(found) == [rows[at] for at in copied], (key, position)
        there = set(copied)
        missing = [
            (row.offset, row.value)
            for at, row in enumerate(expected)
            if at not in there
            and (row.offset < position or at < max(copied, default=-1))
            and row.value not in self.excused[key]
        ]
        assert not missing, (key, position, "missing", missing)
        self._check_producers(key)

    def _check_producers(self, key: TopicPartition) -> None:
        batches = [
            (header_field(batch, "producer_id"), batch)
            for batch in self.target.logs[key].whole
            if not header_field(batch, "attributes") & CONTROL
        ]
        used = {producer for producer, _ in batches if producer >= FIRST_DATA_ID}
        assert used <= self._named[key], (key, used, "not named before")
        provenance = Provenance.decode(self.ledger.read(key).metadata)
        if provenance is None or provenance.appends is None or key in self.elected:
            return
        if provenance.appends.sequence == UNCOUNTED:
            return
        own, end = provenance.appends, provenance.target_end
        counts = [
            (header_field(batch, "base_offset") < end, header_field(batch, "records"))
            for producer, batch in batches
            if producer == own.id
        ]
        least = sum(count for is_before, count in counts if is_before)
        most = sum(count for _, count in counts)
        assert least <= own.sequence <= most, (key, own, counts)

    def check_whole(self) -> None:
        """Everything is copied, unless its partition has stopped, and nobody commits beside an owner."""
        for number in range(PARTITIONS):
            key = ("t", number)
            found = {row.value for row in committed(self.target, key)}
            left = [
                row.offset
                for row in committed(self.source, key)
                if row.value not in found | self.excused[key]
            ]
            partition = next(part for part in self.owners if part.number == number)
            assert not left or (key in self.worn and partition in self.stopped), (key, left)
        self.check_owners()


def decoded_batch(batch: bytes) -> tuple[Record, ...]:
    return decoded(batch) if header_field(batch, "records") > 0 else ()
