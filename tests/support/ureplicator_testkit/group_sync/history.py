"""One history from a seed: owners copy and die, consumers read at both ends, leaders sync and die."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups import sync
from ureplicator_controller.engines.groups.copied import KafkaCopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_testkit.group_sync.checks import (
    CheckedTarget,
    Violation,
    check_map,
    check_synced,
    first_unread,
)
from ureplicator_testkit.group_sync.world import KEY, ROUTE, CopiedState, World, WorldLogs
from ureplicator_testkit.kafka.clients import MemoryLogReader
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups, MemoryGroup

STEPS = 120
GROUPS = ("quick", "slow", "both")
"""`both` has members at the target from time to time, who read on there."""
TOPICS = {KEY[0]: RouteTopic(*KEY[:1], KEY[0])}


class History:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)  # noqa: S311 - repeatable on purpose
        self.world = World()
        self.source = MemoryConsumerGroups()
        self.target = CheckedTarget(self.world, self.source)
        self.state = CopiedState(self.world)
        self._new_leader()
        for id in GROUPS:
            self.source.add(id, {KEY: 0}, state="Stable")

    def _new_leader(self) -> None:
        self.logs = WorldLogs(self.world)
        copied = KafkaCopiedReader(
            route=ROUTE,
            group="positions",
            positions=self.state,
            logs=self.logs,
            source_logs=MemoryLogReader(),
            maps=self.state,
        )
        clusters = RouteClusters(source=self.source, target=self.target, copied=copied)
        self.survey = Survey(clusters, selected=GroupFilter.of([".*"], []))

    def run(self) -> None:
        """Raises Violation."""
        checked = None
        for _ in range(STEPS):
            self._step()
            if self.world.written() != checked:
                check_map(self.world)
                checked = self.world.written()
        self._end()

    def _step(self) -> None:
        do = self.dice.choices(
            (self._copies, self._reads, self._round, self._member), (10, 4, 3, 1)
        )
        do[0]()

    def _copies(self) -> None:
        """Something that an owner, or a producer at the source, does."""
        dice, owner = self.dice, self.world.owner
        match dice.randrange(6):
            case 0:
                self.world.source.produce(dice.randint(1, 6), hole=dice.choice((0, 0, 1, 3)))
            case 1 | 2:
                owner.copy(dice.randint(1, 5))
            case 3:
                self.world.target.end += dice.randrange(2)
            case 4:
                owner.commit(dies=dice.choice(("", "", "", "before", "after")))
            case 5 if not dice.randrange(3):
                self.world.change_owner()

    def _reads(self) -> None:
        """A group goes on at the source."""
        id = self.dice.choice(GROUPS)
        at = self.source.offset(id, KEY) or 0
        far = self.world.source.end if id == "quick" else at + self.dice.randint(0, 4)
        self.source.add(id, {KEY: min(far, self.world.source.end)}, state="Stable")

    def _member(self) -> None:
        """One joins at the target, or reads on and leaves."""
        group = self.target.groups.get("both")
        if group is None or group.state == "Empty":
            self.target.groups.setdefault("both", MemoryGroup()).state = "Stable"
            return
        at = self.target.offset("both", KEY) or 0
        self.target.add("both", {KEY: min(self.world.target.end, at + self.dice.randint(0, 9))})

    def _round(self) -> None:
        """Copiers go on while the leader reads, and before it writes; sometimes it leads no more by then."""
        self.target.begin_round()
        self.state.between = lambda: self._some(self._copies)
        self.logs.hidden = self.dice.choice((0, 0, 1, 3))
        leads = self.dice.random() < 0.8
        decisions = list(self.survey.decisions(TOPICS))
        self._some(self._copies)
        for decision in sync.written(self.target, decisions, may_write=lambda: leads):
            self.survey.remember(decision)
            check_synced(self.world, decision)
        if not leads:
            self._new_leader()

    def _some(self, do: Callable[[], None]) -> None:
        for _ in range(self.dice.randrange(4)):
            do()

    def _end(self) -> None:
        """All is copied: a group without members at the target is exactly behind what it has read."""
        world = self.world
        world.owner.copy(len(world.source.live))
        world.owner.commit()
        self.state.between = lambda: None
        self.target.begin_round()
        self._new_leader()
        sync.write(self.target, self.survey.read(TOPICS), may_write=lambda: True)
        for id in ("quick", "slow"):
            read, at = self.source.offset(id, KEY) or 0, self.target.offset(id, KEY)
            if at is None or not is_exact(world, read, at):
                raise Violation("E", f"{id} has read {read}, and is at {at}")


def is_exact(world: World, read: int, at: int) -> bool:
    """Nothing is read again, nothing is missed."""
    before = [world.target.last(offset) for offset in world.source.live if offset < read]
    return all(offset is None or offset < at for offset in before) and at <= first_unread(
        world, read
    )
