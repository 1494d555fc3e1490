"""Steps of a cutover from OPEN on: clients write at the target, and the copy changes its direction.

    OPEN      the target lets clients write; the former direction is reversed and released by its workers;
              then the other one is made active, from the target's ends at OPEN
    WATCHED   all partitions of the other direction are ONLINE; the source is watched for late writes
    DONE      WATCH_S have gone by

Intents are written in transactions of the leader, each at the versions that were read. A leader that dies in
between leaves some topics reversed and some not: its successor finds out which by the intents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Operation, Set, Unavailable, create_or_set
from ureplicator_common.cutovers import Cutover, CutoverState
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.model import Partition, PartitionState, TopicKey, TopicState, WorkerId
from ureplicator_common.portions import portions
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_controller.core.cutover.intents import former_direction, other_direction
from ureplicator_controller.core.cutover.progress import reached, waiting
from ureplicator_controller.core.planning.holders import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import PartitionViews
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.claims.within_fleet import claim, ensure_parents
from ureplicator_controller.engines.cutover.clusters import CopyFence
from ureplicator_controller.engines.cutover.fencing import NO_CHANGE, Fencing, without_fence
from ureplicator_controller.engines.cutover.moving import Moving
from ureplicator_controller.engines.fenced_writer import FencedWriter, WriteOutcome

log = logging.getLogger(__name__)

WATCH_S = 30.0
TOPICS = 16
"""Topics whose intents are written in one transaction: two nodes each, of some kilobytes."""


class Turning:
    """Steps of one cutover. Belongs to one thread. Every step may raise OperatingError."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        writer: FencedWriter,
        fencing: Fencing,
        moving: Moving,
        copies: CopyFence,
        proven: Callable[[], Snapshot | None],
        clock: Clock,
        epoch: int,
        follows: bool,
    ) -> None:
        """`proven`: the fleet as it is now, read while this process leads. `follows`: it is time to take the
        groups' offsets along."""
        self._coordination = coordination
        self._paths = paths
        self._writer = writer
        self._fencing = fencing
        self._moving = moving
        self._copies = copies
        self._proven = proven
        self._clock = clock
        self._epoch = epoch
        self._follows = follows

    def step(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        if not cutover.opened_ms:
            return self._let_write(cutover)
        if self._follows:
            cutover = self._followed(cutover, snapshot)
        if cutover.state is CutoverState.WATCHED:
            return self._watch(cutover)
        seen = self._proven()
        if seen is None:
            return waiting(cutover, ["leadership was lost"])
        if not _is_begun(seen, cutover):
            cutover = self._alarmed(cutover)
        left = self._reverse(cutover, seen)
        if left:
            return waiting(cutover, left)
        now_ms = self._clock.wall_ms()
        return reached(cutover, CutoverState.WATCHED, now_ms)

    def _followed(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        """The cutover after a look at its groups. A cluster that does not respond holds up no turn."""
        try:
            return self._moving.follow_groups(cutover, snapshot)
        except OperatingError as error:
            log.warning("groups of a cutover are not taken along now: %s", error)
            return cutover

    def _let_write(self, cutover: Cutover) -> Cutover:
        lacking = self._fencing.open(cutover)
        if lacking:
            return waiting(cutover, [lacking])
        target = cutover.plan.route.target
        lifted = cutover.fences.get(target, NO_CHANGE).of(cutover.plan.topics)
        fences = without_fence(cutover.fences, target, lifted)
        return replace(cutover, fences=fences, opened_ms=self._clock.wall_ms(), waits=())

    def _alarmed(self, cutover: Cutover) -> Cutover:
        """The cutover with what was written at the source since it was drained. Once the other direction is
        copied, it is written there, too."""
        ends = self._moving.ends(cutover)
        if ends.unknown:
            return cutover
        return self._moving.late(cutover, ends, is_alarm=True)

    def _reverse(self, cutover: Cutover, seen: Snapshot) -> Sequence[str]:
        """Bring the intents on; what is left to wait for, in words. Raises Unavailable."""
        route = cutover.plan.route
        former = {
            topic: stored
            for topic in cutover.plan.topics
            if (stored := seen.topics.get(TopicKey(route, topic))) is not None
        }
        active = {
            topic: stored
            for topic, stored in former.items()
            if former_direction(stored.value) != stored.value
        }
        if active:
            self._write(self._reversals(cutover, active))
            return [f"{topic}: its copy ends" for topic in active]
        if not cutover.plan.way_back:
            return ()
        held = list(_held(seen, cutover))
        lost = _lost(seen, cutover)
        unfenced = self._copies.fence(lost.partitions, lost.ids) if lost.partitions else ()
        if unfenced:
            return unfenced
        self._write(self._activations(cutover, former, seen, held))
        return [*(f"{topic}: its workers release it" for topic in held), *_starting(seen, cutover)]

    def _reversals(
        self, cutover: Cutover, active: dict[str, Stored[TopicIntent]]
    ) -> Iterator[Sequence[Operation]]:
        for topic, stored in active.items():
            path = self._paths.topic(TopicKey(cutover.plan.route, topic))
            yield [Set(path, encode_intent(former_direction(stored.value)), stored.version)]

    def _activations(
        self,
        cutover: Cutover,
        former: dict[str, Stored[TopicIntent]],
        seen: Snapshot,
        held: Sequence[str],
    ) -> Iterator[Sequence[Operation]]:
        turn = cutover.turns[-1]
        for topic, stored in former.items():
            name = stored.value.target_topic
            key = TopicKey(cutover.back, name)
            before = seen.topics.get(key)
            is_there = before is not None and before.value.state is not TopicState.REVERSED
            if topic in held or is_there:
                continue
            ensure_parents(self._coordination, self._paths, key)
            intent = other_direction(
                None if before is None else before.value,
                stored.value,
                topic=topic,
                ends=turn.there[topic],
                run=cutover.run,
            )
            version = None if before is None else before.version
            yield [
                create_or_set(self._paths.topic(key), encode_intent(intent), version),
                claim(self._coordination, self._paths, key, topic),
            ]

    def _write(self, changes: Iterator[Sequence[Operation]]) -> None:
        for portion in portions(list(changes), TOPICS):
            operations = [operation for change in portion for operation in change]
            outcome = self._writer.write(operations, epoch=self._epoch)
            if outcome is not WriteOutcome.DONE:
                raise Unavailable(f"intents of a cutover were not written: {outcome}")

    def _watch(self, cutover: Cutover) -> Cutover:
        since_ms = cutover.steps[-1].at_ms
        now_ms = self._clock.wall_ms()
        if now_ms - since_ms < WATCH_S * 1_000:
            return cutover
        return reached(cutover, CutoverState.DONE, now_ms)


def _is_begun(seen: Snapshot, cutover: Cutover) -> bool:
    """True if some topic of the other direction is active, or if there is none."""
    names = (
        stored.value.target_topic
        for topic in cutover.plan.topics
        if (stored := seen.topics.get(TopicKey(cutover.plan.route, topic))) is not None
    )
    return not cutover.plan.way_back or any(
        _has_begun(seen, TopicKey(cutover.back, name)) for name in names
    )


def _held(seen: Snapshot, cutover: Cutover) -> Iterator[str]:
    """Topics with a partition that a worker of the former direction may still copy."""
    rules, views = HolderRules(seen), PartitionViews(seen)
    keys = [TopicKey(cutover.plan.route, topic) for topic in cutover.plan.topics]
    views.open(keys)
    for topic, key in zip(cutover.plan.topics, keys, strict=True):
        of_topic = views.by_topic.get(key, {})
        if any(rules.is_held(view) for view in of_topic.values()):
            yield topic


class _Lost(NamedTuple):
    """Target partitions whose last workers have not confirmed the release, and transactional ids by which
    these could still commit them."""

    partitions: Sequence[TopicPartition]
    ids: Sequence[str]


def _lost(seen: Snapshot, cutover: Cutover) -> _Lost:
    """Those whose other direction has not begun yet."""
    rules, views = HolderRules(seen), PartitionViews(seen)
    route = cutover.plan.route
    keys = [TopicKey(route, topic) for topic in cutover.plan.topics]
    views.open(keys)
    partitions: list[TopicPartition] = []
    holders: set[WorkerId] = set()
    for key in keys:
        former = seen.topics.get(key)
        if former is None or _has_begun(seen, TopicKey(cutover.back, former.value.target_topic)):
            continue
        for number, view in views.by_topic.get(key, {}).items():
            if remaining := rules.remaining_holders(view):
                partitions.append((former.value.target_topic, number))
                holders |= remaining.keys()
    return _Lost(partitions, FenceIds(seen).of(route, sorted(holders)) or ())


def _has_begun(seen: Snapshot, key: TopicKey) -> bool:
    stored = seen.topics.get(key)
    return stored is not None and stored.value.state is not TopicState.REVERSED


def _starting(seen: Snapshot, cutover: Cutover) -> Iterator[str]:
    """Partitions of the other direction that are not ONLINE yet."""
    view = external_view(seen)
    for topic, count in cutover.plan.topics.items():
        former = seen.topics.get(TopicKey(cutover.plan.route, topic))
        name = topic if former is None else former.value.target_topic
        for number in range(count):
            states = view.of(Partition(cutover.back, name, number)).values()
            if not any(each.state is PartitionState.ONLINE for each in states):
                yield f"{topic}/{number}: the copy back is not ONLINE yet"
