"""Copiers of a route that delivers exactly once with both lanes: a topic is copied as it is, another one goes
through a handler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from ureplicator_common.model import Delivery, RouteSettings
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE, seen
from ureplicator_testkit.copier.transaction_fleet import (
    KEEP,
    PARTITIONS,
    PROTOCOLS,
    TransactionFleet,
    committed,
)
from ureplicator_testkit.exactly_once.faults import NODES, WORKERS, Faults
from ureplicator_testkit.exactly_once.history import SKIPS_S, STEPS
from ureplicator_worker.lifeline.messages import PublishedSettings

RAW, HANDLED = TOPICS = ("t", "h")
BOTH = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(replace(KEEP, topics=HANDLED),))


class MixedFleet(TransactionFleet):
    """Checks after each turn what a reader of everything sees of the one topic, and one with read_committed
    of the other. `lanes_change`: a topic goes from one lane to the other."""

    topics = TOPICS
    lanes_change = False

    def check_positions(self) -> None:
        for key in self.target.logs:
            if key[0] not in self.topics:
                continue
            position = self.ledger.read(key).offset
            state = position, self.target.logs[key].end
            if state == self._checked.get(key):
                continue
            assert position >= self._checked.get(key, state)[0], (key, position)
            self._checked[key] = state
            rows = committed(self.source, key)
            found = seen(committed(self.target, key, stable=False))
            assert found == seen(rows[: len(found)]), (key, position, found, seen(rows))
            before = sum(row.offset < position for row in rows)
            if key[0] == RAW or self.lanes_change:
                assert before <= len(found), (key, position)
            else:
                assert before == len(found), (key, position)

    def change(self, settings: RouteSettings) -> None:
        """Publish other settings of the route, as the leader does."""
        self.settings, self.settings_version = settings, self.settings_version + 1
        for worker in self.workers.values():
            published = PublishedSettings(ROUTE, self.settings_version, settings)
            worker.copier.change_settings(published)

    def check_whole(self) -> None:
        for topic in self.topics:
            for number in range(PARTITIONS):
                key = (topic, number)
                found = seen(committed(self.target, key, stable=True))
                assert found == seen(committed(self.source, key)), key


class MixedFaults(Faults):
    """Faults of either topic. `lanes`: handlers are added and removed, too."""

    def __init__(self, fleet: MixedFleet, random: Random, *, lanes: bool) -> None:
        super().__init__(fleet, random)
        self._mixed = fleet
        self._kinds |= {"lose process": self._lose_process}
        if lanes:
            self._kinds |= {"lanes": self._change_lanes, "lanes back": self._change_lanes}

    def _key(self) -> tuple[str, int]:
        return self._random.choice(TOPICS), self._random.randrange(PARTITIONS)

    def fill(self) -> None:
        for topic in TOPICS:
            number, count = self._random.randrange(PARTITIONS), self._random.randint(0, 8)
            put(self._fleet, number, count, size=self._random.choice([1, 1, 500]), topic=topic)

    def _move(self) -> None:
        topic, number = self._key()
        self._fleet.give(number, self._worker(), topic=topic)

    def _usurp(self) -> None:
        topic, number = self._key()
        partition = self._fleet.give(number, self._worker(), topic=topic)
        owner = self._fleet.owners[partition].worker
        if owner:
            self._fleet.workers[owner].frozen = True
            others = [worker for worker in WORKERS if worker != owner]
            self._fleet.give(number, self._random.choice(others), topic=topic)

    def _change_lanes(self) -> None:
        topics = self._random.choice(["none", HANDLED, RAW, ".*"])
        self._mixed.change(replace(BOTH, handlers=(replace(KEEP, topics=topics),)))


@contextmanager
def mixed_fleet_of(random: Random) -> Iterator[MixedFleet]:
    """Workers with partitions of either topic, or none."""
    fleet = MixedFleet(random.choice(PROTOCOLS), *WORKERS, nodes=NODES, settings=BOTH)
    try:
        for topic in TOPICS:
            for number in range(PARTITIONS):
                fleet.give(number, random.choice(WORKERS[:2]), topic=topic)
        for worker in fleet.workers.values():
            worker.step_each = random.choice([1, 2, 5])
        yield fleet
    finally:
        fleet.close()


def play_mixed(random: Random, *, lanes: bool = False) -> list[str]:
    """The faults that were done. Raises AssertionError."""
    with mixed_fleet_of(random) as fleet:
        fleet.lanes_change = lanes
        faults = MixedFaults(fleet, random, lanes=lanes)
        for _ in range(random.randint(1, STEPS)):
            faults.fill()
            faults.harm()
            fleet.turns(random.randint(0, 25), skip_s=random.choice(SKIPS_S))
        faults.heal()
        fleet.run_until_copied()
        fleet.expire_transactions()
        fleet.run_until_copied()
        fleet.check_whole()
        return faults.done
