"""Faults of a history of exactly once without transactions: long sleeps, and what is lost meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ureplicator_common.model import GapPolicy, Partition, RouteSettings
from ureplicator_testkit.copier.fenced_fleet import FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.exactly_once.faults import WORKERS, Faults
from ureplicator_testkit.records.batches import field

WORN_SHARE = 0.4
"""Of the histories: those in which ends of logs are removed, or lost."""
KEYED_SHARE = 0.5
YOUNG_SHARE = 0.3
KEYS = (b"a", b"b", b"c")
LOST_OWNERS = 3


def variant(random: Random, settings: RouteSettings) -> RouteSettings:
    """Settings of the policies that decide what is left out."""
    policy = random.choice([GapPolicy.STOP, GapPolicy.STOP, GapPolicy.EARLIEST])
    return replace(settings, on_gap=policy, abort_on_send_failure=random.random() < 0.7)


class FencedFaults(Faults):
    _fleet: FencedFleet

    def __init__(self, fleet: FencedFleet, random: Random) -> None:
        super().__init__(fleet, random)
        self._kinds |= {
            "a day": fleet.pass_a_day,
            "sleep": self._sleep,
            "lose owners": self._lose_owners,
            "frozen broker": lambda: fleet.target.frozen.add(self._node()),
            "restart": self._restart,
            "forget ids": self._forget_ids,
        }
        if random.random() < WORN_SHARE:
            self._kinds |= {
                "delete source": self._delete_source,
                "delete target": self._delete_target,
                "fresh replica": self._replace_replica,
                "unclean election": self._elect,
            }
            if random.random() < KEYED_SHARE:
                self._keyed = True
                self._kinds |= {
                    "compact source": self._compact_source,
                    "compact target": self._compact_target,
                }

    _keyed = False

    def heal(self) -> None:
        super().heal()
        self._fleet.target.frozen.clear()
        self._fleet.stopped.clear()

    def _put(self, number: int, count: int, *, size: int) -> None:
        def key() -> bytes | None:
            return self._random.choice(KEYS) if self._keyed else None

        put(self._fleet, number, count, size=size, time_ms=self._time_ms(), key=key)

    def _time_ms(self) -> int:
        return self._fleet.young_ms if self._random.random() < YOUNG_SHARE else 0

    def _forget_ids(self) -> None:
        """Nobody ran for a week: coordinators have forgotten the transactional ids of data. Nothing is late
        from then on: what an owner sends last under such an id is not fenced by its name."""
        self._kinds.pop("delay", None)
        self._kinds.pop("sleep", None)
        self._fleet.target.delaying.clear()
        self._fleet.ledger.forget_data_producers()
        self._fleet.pass_a_day()

    def _sleep(self) -> None:
        """An owner is frozen in the middle of what it sends, replaced, and thaws when brokers have forgotten
        that it was fenced."""
        _, number = self._key()
        partition = Partition(ROUTE, "t", number)
        owner = self._fleet.owners[partition].worker
        if not owner:
            return
        self._put(number, 6, size=500)
        self._fleet.turns(self._random.randint(0, 4), skip_s=0.001)
        self._fleet.workers[owner].frozen = True
        if self._random.random() < 0.3:
            self._fleet.target.delaying.add(self._node())
        self._fleet.give(number, self._random.choice([name for name in WORKERS if name != owner]))
        self._fleet.turns(self._random.randint(5, 40))
        if self._random.random() < 0.5:
            self._fleet.pass_a_day()
        self._fleet.workers[owner].frozen = False

    def _lose_owners(self) -> None:
        """Several in a row, each at any moment of its start."""
        _, number = self._key()
        for _ in range(self._random.randint(1, LOST_OWNERS)):
            owner = self._fleet.owners[Partition(ROUTE, "t", number)].worker or self._worker()
            self._put(number, self._random.randint(0, 4), size=self._random.choice([1, 500]))
            self._fleet.turns(self._random.randint(0, 9), skip_s=self._random.choice([0.001, 0.1]))
            if self._random.random() < 0.5:
                self._fleet.give(number, self._worker())
            self._fleet.kill(owner)

    def _restart(self) -> None:
        """A broker starts again, and reads the state of producers from what is left of its logs."""
        node = self._node()
        self._fleet.target.cut(node)
        self._fleet.target.lose_delayed()
        for key, leader in self._fleet.target.leaders.items():
            if leader == node:
                self._fleet.recover(key)

    def _delete_source(self) -> None:
        key = self._key()
        log = self._fleet.source.logs[key]
        self._fleet.delete(key, self._random.randint(log.start, log.stable_end))

    def _delete_target(self) -> None:
        key = self._key()
        log = self._fleet.target.logs[key]
        self._fleet.worn.add(key)
        log.delete(self._random.choice([log.end, self._random.randint(log.start, log.end)]))

    def _replace_replica(self) -> None:
        """The target's log is led by a replica that has fetched nothing but what was left of it. The former
        leader is shut down; nobody has sent to the new one what it never led."""
        key = self._key()
        target = self._fleet.target
        self._fleet.worn.add(key)
        target.logs[key].delete(target.logs[key].end)
        self._fleet.recover(key)
        former = target.leaders[key]
        fresh = 1 + former % len(target.nodes)
        for node in (former, fresh) if target.logs[key].epoch else (former,):
            target.cut(node)
        target.move(key, fresh)
        target.lose_delayed()

    def _elect(self) -> None:
        key = self._key()
        log = self._fleet.target.logs[key]
        ends = [field(batch, "base_offset") for batch in log.taken[-3:]]
        self._fleet.elect(key, max(log.start, self._random.choice([*ends, log.end])))

    def _compact_source(self) -> None:
        key = self._key()
        log = self._fleet.source.logs[key]
        self._fleet.compact(key, self._random.randint(log.start, log.stable_end))

    def _compact_target(self) -> None:
        key = self._key()
        log = self._fleet.target.logs[key]
        log.compact(self._random.randint(log.start, log.end))
