"""Operators: runs there and back, by REST's rules, and what they do to rights and topics meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from ureplicator_common.coordination import Create, Operation, Set
from ureplicator_common.cutovers import (
    AclChange,
    CutoverPlan,
    CutoverRequest,
    CutoverState,
    FenceKind,
    Wanted,
)
from ureplicator_common.kafka.acls import ALLOW, LITERAL, READ, WRITE, TopicAcl
from ureplicator_common.model import Partition, TopicState
from ureplicator_common.znodes.cutovers import encode_cutover_request
from ureplicator_controller.core.cutover.acl_fence import Unfenceable
from ureplicator_controller.core.cutover.states import AT_REST, BEFORE_OPEN
from ureplicator_controller.engines.cutover.acl_fence import AclFence
from ureplicator_testkit.cutover_histories.clusters import DAVE, FLEET
from ureplicator_testkit.cutover_histories.copying import BACK, THERE, TOPICS
from ureplicator_testkit.cutover_histories.judge import NAME

if TYPE_CHECKING:
    from ureplicator_testkit.cutover_histories.history import History

LONG_S = 1_000.0


@dataclass(frozen=True)
class Run:
    """One run of the script. `abort_after_s`: of its start; None: never."""

    fence: FenceKind
    rehearses: bool = False
    way_back: bool = True
    waits_for_groups: bool = False
    aborts_transactions: bool = False
    abort_after_s: float | None = None
    limit_s: float = 60.0
    impatient: bool = False
    """The same plan is requested again while it is carried out, as by two operators at once."""
    early: bool = False
    """The next run begins as soon as this one is OPEN."""


def drawn_script(dice: Random, kind: FenceKind) -> Sequence[Run]:
    """Runs there and back, some of which are aborted."""
    count = dice.choice((1, 2, 2, 3, 4))
    return [
        Run(
            kind if dice.random() < 0.9 or kind is FenceKind.COMMAND else FenceKind.NONE,
            rehearses=dice.random() < 0.1,
            way_back=number + 1 < count or dice.random() < 0.8,
            waits_for_groups=dice.random() < 0.3,
            aborts_transactions=dice.random() < 0.3,
            abort_after_s=dice.choice((0.1, 0.5, 2.0, 8.0)) if dice.random() < 0.35 else None,
            limit_s=dice.choice((5.0, 20.0, 60.0)),
            impatient=dice.random() < 0.1,
            early=dice.random() < 0.4,
        )
        for number in range(count)
    ]


class Operator:
    def __init__(self, world: History, script: Sequence[Run]) -> None:
        self._world = world
        self._script = list(script)
        self._number = 0
        self._at_s = 0.0
        self.phase = "idle"
        self.request: CutoverRequest | None = None

    @property
    def is_finished(self) -> bool:
        return not self._script

    @property
    def run(self) -> Run:
        return self._script[0]

    def turn(self) -> None:
        if not self._script:
            return
        phases = {"idle": self._prepare, "stops": self._start, "runs": self._follow}
        phases[self.phase]()

    def _prepare(self) -> None:
        """Plan, and tell producers to stand still if nothing fences them."""
        world = self._world
        if not set(TOPICS) - world.troubled:
            self._script = []
            return
        if world.dice.random() > 0.2 or not world.fleet.is_copied(
            world.route, set(TOPICS) - world.troubled
        ):
            return
        if self.run.fence is FenceKind.NONE:
            world.told.stop_writers()
        self.phase = "stops"

    def _start(self) -> None:
        world = self._world
        if self.run.fence is FenceKind.NONE and not world.told.writers_stand:
            return
        self._number += 1
        try:
            plan = self._plan()
        except Unfenceable:  # by rights that somebody has added
            self._next()
            return
        wanted = Wanted.START
        if self.run.rehearses:
            self._script[0] = replace(self.run, rehearses=False)
            wanted = Wanted.REHEARSE
        self.request = CutoverRequest(plan, wanted, f"run-{self._number}", "")
        self._write(self.request)
        self.phase, self._at_s = "runs", world.fleet.now_s

    def _plan(self) -> CutoverPlan:
        world, run = self._world, self.run
        route = world.route
        topics = {
            key.topic: stored.value.partitions
            for key, stored in world.fleet.contents().topics.items()
            if key.route == route and stored.value.state is TopicState.ACTIVE
        }
        source = world.clusters[route.source].acls
        fence = AclFence(source, principal=FLEET, way_back=run.way_back)
        acls = fence.change(topics) if run.fence is FenceKind.ACL else AclChange()
        return CutoverPlan(
            id=f"plan-{self._number}",
            route=route,
            topic_patterns=(".*",),
            topics=topics,
            groups=tuple(sorted(reader.id for reader in world.readers)),
            fence=run.fence,
            principal=FLEET,
            acls=acls,
            way_back=run.way_back,
            limit_s=run.limit_s,
            waits_for_groups=run.waits_for_groups,
            aborts_transactions=run.aborts_transactions,
        )

    def _follow(self) -> None:
        world, run, request = self._world, self.run, self.request
        assert request is not None
        node = world.judge.node
        since_s = world.fleet.now_s - self._at_s
        if run.abort_after_s is not None and since_s > run.abort_after_s:
            self._script[0] = replace(run, abort_after_s=None)
            if request.wanted is Wanted.START:
                self._write(replace(request, wanted=Wanted.ABORT))
        elif run.impatient and world.dice.random() < 0.02:
            self._number += 1
            self.request = request = replace(request, run=f"run-{self._number}")
            self._write(request)
        if node is None or node.run != request.run:
            if self._is_withdrawn():
                self._next()
            return
        if request.wanted is Wanted.REHEARSE:
            if node.wanted is Wanted.PLAN:
                self.phase = "idle"
        elif node.state in AT_REST or (
            run.early
            and node.opened_ms
            and world.told.are_groups_over
            and node.state not in BEFORE_OPEN
        ):
            self._next()

    def _is_withdrawn(self) -> bool:
        """True if an abort came before the leader has seen the request."""
        node = self._world.fleet.contents().cutover_requests[NAME].value
        return node.wanted is Wanted.ABORT and self._world.fleet.now_s - self._at_s > LONG_S / 20

    def _next(self) -> None:
        self.phase = "idle"
        self._script.pop(0)

    def _write(self, request: CutoverRequest) -> None:
        fleet = self._world.fleet
        path, data = fleet.paths.cutovers.request(NAME), encode_cutover_request(request)
        is_there = fleet.store.node(path) is not None
        operation: Operation = Set(path, data, -1) if is_there else Create(path, data)
        fleet.store.apply(fleet.hand, [operation])

    # What nobody told the cutover of.

    def tamper(self) -> None:
        """Change rights."""
        world = self._world
        cluster = world.clusters[world.dice.choice(sorted(world.clusters))]
        topic = world.dice.choice(sorted({topic for topic, _ in cluster.logs}))
        kind = world.dice.randrange(3)
        right = TopicAcl(topic, LITERAL, DAVE, "*", READ if kind else WRITE, ALLOW)
        node = world.judge.node
        fence = node.fences.get(cluster.name) if node is not None else None
        if kind < 2:
            cluster.acls.acls.add(right)
            world.judge.rights[cluster.name].add(right)
        elif fence is not None and fence.added & cluster.acls.acls:
            cluster.acls.acls.remove(min(fence.added & cluster.acls.acls))
            world.judge.tampered.add(cluster.name)

    def trouble(self) -> None:
        """Delete a topic, or add a partition to it."""
        world = self._world
        node, route = world.judge.node, world.route
        if node is not None and node.state not in (*AT_REST, CutoverState.PLANNED):
            return
        topic = world.dice.choice(sorted(TOPICS))
        if topic in world.troubled:
            return
        if world.dice.random() < 0.5:
            world.troubled.add(topic)
            world.fleet.edit(route, topic, state=TopicState.DELETING)
            return
        count = world.clusters[route.source].partitions(topic) + 1
        world.add_partition(topic, count)
        for way in (THERE, BACK):
            if Partition(way, topic, 0).key in world.fleet.contents().topics:
                world.fleet.edit(way, topic, partitions=count)
