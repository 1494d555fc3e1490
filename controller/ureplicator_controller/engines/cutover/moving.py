"""Steps of a cutover up to OPEN, and the way back from each.

Each step reads both clusters, and returns the next content of the node; what it changes at the clusters may
be done twice. The thread writes the content before the next step begins, so a leader that dies leaves a node
that says what may have been done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.clock import Clock
from ureplicator_common.cutovers import Cutover, CutoverState
from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import ClusterUnavailable, Extent
from ureplicator_common.kafka.list_offsets import by_topic
from ureplicator_common.model import Route, TopicKey, TopicState, position_group
from ureplicator_controller.core.cutover.progress import (
    Ends,
    Extents,
    ends_of,
    given_up,
    held_back,
    is_overdue,
    moved_ends,
    opened,
    reached,
    undrained,
    waiting,
)
from ureplicator_controller.core.cutover.states import ABORTED, FENCED
from ureplicator_controller.core.cutover.verification import Verification, verification
from ureplicator_controller.core.groups.decisions import GroupDecision
from ureplicator_controller.core.groups.topics import RouteTopic, route_topics
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.cutover.clusters import CutoverClusters
from ureplicator_controller.engines.cutover.fencing import Fencing, with_fence, without_fence
from ureplicator_controller.engines.cutover.groups import (
    GONE_OVER,
    GroupMove,
    outcomes,
    put_back,
    unfinished,
)
from ureplicator_controller.engines.cutover.held_transactions import release


class Moving:
    """Steps of one cutover. Belongs to one thread. Every step may raise OperatingError."""

    def __init__(
        self,
        *,
        fleet: str,
        clusters: CutoverClusters,
        fencing: Fencing,
        clock: Clock,
        may_write: Callable[[], bool],
    ) -> None:
        self._fleet = fleet
        self._clusters = clusters
        self._fencing = fencing
        self._clock = clock
        self._may_write = may_write

    def step(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        """The content after one step; the same with its waits if there is no way on yet."""
        if is_overdue(cutover, self._clock.wall_ms()):
            limit = f"it was not OPEN within {cutover.plan.limit_s:g} s"
            return given_up(cutover, "; ".join((limit, *cutover.waits[:3])))
        unfit = unfit_topics(snapshot, cutover.plan.route, cutover.plan.topics)
        if unfit:
            return given_up(cutover, unfit)
        steps = {
            CutoverState.PLANNED: self._fence,
            CutoverState.FENCED: self._drain,
            CutoverState.DRAINED: self._verify,
            CutoverState.VERIFIED: self._move_groups,
            CutoverState.GROUPS: self._open,
        }
        try:
            return steps[cutover.state](cutover, snapshot)
        except PermanentError as error:
            return given_up(cutover, str(error))

    def take_back(self, cutover: Cutover) -> Cutover:
        """Undo what was done; ABORTED when nothing is left of it."""
        plan = cutover.plan
        if cutover.fencing:
            lacking = self._fencing.take_down(cutover)
            if lacking:
                return waiting(cutover, [lacking])
        refused: tuple[str, ...] = ()
        if cutover.groups_before:
            target = self._clusters.groups.target
            refused = put_back(target, cutover.groups_before, prove=self._fencing.require_lead)
        fences = cutover.fences
        if cutover.fencing:
            fences = without_fence(fences, plan.route.source, plan.acls)
        reason = "; ".join((cutover.reason, *(f"not put back: {text}" for text in refused)))
        return reached(
            cutover,
            ABORTED,
            self._clock.wall_ms(),
            fences=fences,
            fencing=False,
            reason=reason,
        )

    # What a rehearsal does, too.

    def look_at_fence(self, cutover: Cutover) -> str:
        """Reason why the fence could not be raised as it is planned; "" if it could."""
        return self._fencing.changed(cutover.plan)

    def ends(self, cutover: Cutover) -> Ends:
        return ends_of(cutover.plan.topics, self._extents(cutover))

    def behind(self, cutover: Cutover, snapshot: Snapshot) -> tuple[str, ...]:
        """Partitions whose positions have not reached the ends of the cutover, in words."""
        targets = {name: topic.target for name, topic in self._topics(cutover, snapshot).items()}
        group = position_group(fleet=self._fleet, route=cutover.plan.route)
        wanted = {targets[topic]: range(count) for topic, count in cutover.plan.topics.items()}
        return undrained(cutover, self._clusters.positions.read(group, wanted), targets)

    def verification(self, cutover: Cutover, snapshot: Snapshot) -> Verification:
        route = cutover.plan.route
        audits = {
            topic: stored.value
            for topic in cutover.plan.topics
            if (stored := snapshot.audits.states.get(TopicKey(route, topic))) is not None
            and stored.value.source_topic_id
            == snapshot.topics[TopicKey(route, topic)].value.source_topic_id
        }
        return verification(cutover.ends, audits)

    def group_decisions(self, cutover: Cutover, snapshot: Snapshot) -> Sequence[GroupDecision]:
        return GroupMove(self._clusters, cutover, self._topics(cutover, snapshot)).found()

    def target_ends(self, cutover: Cutover, snapshot: Snapshot) -> Ends:
        """By the names of the topics at the source."""
        topics = self._topics(cutover, snapshot)
        names = {topic.target: name for name, topic in topics.items()}
        keys = [
            (topics[topic].target, number)
            for topic, count in cutover.plan.topics.items()
            for number in range(count)
        ]
        found = self._clusters.target_logs.extents(by_topic(keys))
        return ends_of(
            cutover.plan.topics,
            {(names[target], number): extent for (target, number), extent in found.items()},
        )

    def follow_groups(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        """Take the offsets of groups along that have gone on at the source, until they go over."""
        if not cutover.plan.groups:
            return cutover
        move = GroupMove(self._clusters, cutover, self._topics(cutover, snapshot))
        written = move.write(move.found(), may_write=self._may_write)
        staying = [decision for decision in written if decision.state not in GONE_OVER]
        return replace(cutover, groups={**cutover.groups, **outcomes(staying)})

    # Steps.

    def _fence(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        plan = cutover.plan
        if not cutover.fencing:
            changed = self._fencing.changed(plan)
            if changed:
                return given_up(cutover, changed)
            self._warm_up(cutover, snapshot)
            fences = with_fence(cutover.fences, plan.route.source, plan.acls)
            now_ms = self._clock.wall_ms()
            return replace(cutover, fencing=True, fences=fences, fenced_ms=now_ms)
        lacking = self._fencing.raise_(plan)
        if lacking:
            return waiting(cutover, [lacking])
        ends = self.ends(cutover)
        if ends.unknown:
            return waiting(cutover, ends.unknown)
        now_ms = self._clock.wall_ms()
        return reached(cutover, FENCED, now_ms, ends=ends.offsets, held=ends.held)

    def _warm_up(self, cutover: Cutover, snapshot: Snapshot) -> None:
        """Connect to all that is read later, and read the offset map, while clients still write."""
        self.behind(replace(cutover, ends=self.ends(cutover).offsets), snapshot)
        self.group_decisions(cutover, snapshot)
        self.target_ends(cutover, snapshot)

    def _drain(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        extents = self._extents(cutover)
        ends = ends_of(cutover.plan.topics, extents)
        if ends.unknown:
            return waiting(cutover, ends.unknown)
        cutover = self.late(cutover, ends)
        held = held_back(extents)
        if held:
            held = (*held, *self._release(cutover, extents))
        waits = (*held, *self.behind(cutover, snapshot))
        if waits:
            return waiting(cutover, waits)
        return reached(cutover, CutoverState.DRAINED, self._clock.wall_ms())

    def _release(self, cutover: Cutover, extents: Extents) -> Sequence[str]:
        held = {key[0] for key, each in extents.items() if isinstance(each, Extent) and each.held}
        try:
            writers = self._clusters.source_writers
            return release(writers, cutover, held, self._clock.wall_ms())
        except ClusterUnavailable as error:
            return [f"who holds it is not known: {error}"]

    def late(self, cutover: Cutover, ends: Ends, *, is_alarm: bool = False) -> Cutover:
        """The cutover with what has passed its fence, and who wrote it."""
        now_ms = self._clock.wall_ms()
        after = moved_ends(cutover, ends, now_ms, is_alarm=is_alarm)
        if after.late == cutover.late:
            return after
        keys = [(each.topic, each.partition) for each in after.late[len(cutover.late) :]]
        try:
            writers = self._clusters.source_writers
            found = writers.recent_producers(keys, since_ms=cutover.fenced_ms)
        except ClusterUnavailable:
            return after
        producers = {
            key: tuple(sorted(each)) for key, each in found.items() if isinstance(each, Mapping)
        }
        return moved_ends(cutover, ends, now_ms, producers, is_alarm=is_alarm)

    def _verify(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        found = self.verification(cutover, snapshot)
        if found.differs:
            return given_up(cutover, f"the audit has found differences: {found.differs[0]}")
        if found.behind and cutover.plan.verifies:
            return waiting(cutover, found.behind)
        now_ms = self._clock.wall_ms()
        return reached(cutover, CutoverState.VERIFIED, now_ms, verified=found.text)

    def _move_groups(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        move = GroupMove(self._clusters, cutover, self._topics(cutover, snapshot))
        members = move.members() if cutover.plan.waits_for_groups else ()
        if members:
            return waiting(cutover, members)
        found = move.found()
        before = move.before(found, cutover.groups_before or {})
        if before != cutover.groups_before:
            return replace(cutover, groups_before=before)
        written = move.write(found, may_write=self._may_write)
        left = unfinished(written)
        if left:
            return waiting(cutover, left)
        now_ms = self._clock.wall_ms()
        return reached(cutover, CutoverState.GROUPS, now_ms, groups=outcomes(written))

    def _open(self, cutover: Cutover, snapshot: Snapshot) -> Cutover:
        """Look at the source once more: what has passed the fence is drained before anything opens."""
        now_ms = self._clock.wall_ms()
        lacking = self._fencing.lacking(cutover.plan)
        if lacking:
            self._fencing.raise_(cutover.plan)
            return waiting(cutover, [f"somebody has changed the fence: {lacking}"])
        ends = self.ends(cutover)
        if ends.unknown:
            return waiting(cutover, ends.unknown)
        late = self.late(cutover, ends)
        if late.ends != cutover.ends:
            return reached(late, FENCED, now_ms)
        there = self.target_ends(cutover, snapshot)
        if there.unknown:
            return waiting(cutover, there.unknown)
        return opened(cutover, there.offsets, self._clock.wall_ms())

    def _topics(self, cutover: Cutover, snapshot: Snapshot) -> Mapping[str, RouteTopic]:
        found = route_topics(snapshot, cutover.plan.route, reversed_too=True)
        return {topic: found[topic] for topic in cutover.plan.topics if topic in found}

    def _extents(self, cutover: Cutover) -> Extents:
        wanted = {topic: range(count) for topic, count in cutover.plan.topics.items()}
        return self._clusters.source_logs.extents(wanted)


def unfit_topics(snapshot: Snapshot, route: Route, topics: Mapping[str, int]) -> str:
    """Reason why a topic of a plan cannot be moved now; "" if all can."""
    for topic, partitions in topics.items():
        stored = snapshot.topics.get(TopicKey(route, topic))
        if stored is None or stored.value.state is not TopicState.ACTIVE or stored.value.stopped:
            return f"{topic} is not copied on {route} any more"
        if stored.value.partitions != partitions:
            return f"{topic} has {stored.value.partitions} partitions, not {partitions}"
    return ""
