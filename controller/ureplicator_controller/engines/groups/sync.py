"""Sync of consumer groups: writes the translated offsets of a source's groups to the target (KIP-545).

An offset is written by a plain commit: a coordinator refuses it for a group with members, which it does not
do in a transaction. A plain commit is not fenced, so before each portion it is checked whether this process
may still write (`syncs.thread`). A commit that was already on its way may still arrive late and lower an
offset to one that was right when it was read; the next round of the leader raises it. A large fleet of groups
is read and written within some seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import EMPTY_STATES, ConsumerGroups
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import SyncKind
from ureplicator_controller.core.groups.decisions import (
    GroupDecision,
    SyncState,
    settled,
    withheld,
)
from ureplicator_controller.core.groups.topics import RouteTopic, route_topics
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.groups.gone import GoneGroupDeletion, GoneOutcome, Round
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.syncs.thread import Passed, Term

PORTION = 2_000
"""Groups that are written after one check of the epoch."""
NOT_EMPTY = "NON_EMPTY_GROUP"


class GroupSync:
    """`Sync` of the groups of one route."""

    kind = SyncKind.GROUPS

    def __init__(
        self,
        *,
        route: Route,
        survey: Survey,
        clusters: RouteClusters,
        metrics: ControlMetrics,
        gone: GoneGroupDeletion | None = None,
    ) -> None:
        """`gone`: where the route deletes offsets of groups that are gone at the source."""
        self._route = route
        self._survey = survey
        self._clusters = clusters
        self._metrics = metrics
        self._gone = gone

    def perform(self, snapshot: Snapshot, term: Term) -> Passed:
        may_write = term.reading()
        topics = route_topics(snapshot, self._route)
        found = self._survey.decisions(topics)
        tally = _Tally()
        target = self._clusters.target
        for decision in written(target, found, may_write=may_write, count=self._count):
            self._survey.remember(decision)
            tally.add(decision)
            if self._gone is not None:
                self._gone.add(decision, term.epoch)
        if self._gone is not None:
            ended = self._round(term.epoch, snapshot, topics, may_write)
            tally.end(self._gone.end(ended))
        self._report(tally.states)
        return Passed({state.value: count for state, count in tally.states.items()}, tally.left)

    def failed(self) -> None:
        self._metrics.group_sync_failures.labels(str(self._route)).inc()

    def rest(self) -> None:
        self._report({})

    def close(self) -> None:
        self._clusters.close()

    def _round(
        self,
        epoch: int,
        snapshot: Snapshot,
        topics: Mapping[str, RouteTopic],
        may_write: Callable[[], bool],
    ) -> Round:
        source_list = self._survey.source_list
        return Round(
            epoch=epoch,
            listed=None if source_list.failed else source_list.groups.keys(),
            cluster_id=source_list.cluster_id,
            selected=self._survey.selected,
            targets={topic.target for topic in topics.values()},
            is_frozen=snapshot.switches.frozen,
            may_write=may_write,
        )

    def _count(self, offsets: int) -> None:
        self._metrics.group_offsets_written.labels(str(self._route)).inc(offsets)

    def _report(self, states: Mapping[SyncState, int]) -> None:
        for state in SyncState:
            self._metrics.groups.labels(str(self._route), state.value).set(states.get(state, 0))


class _Tally:
    """Outcome of a round. `left`: reason of the first group whose offsets could not be read or written."""

    def __init__(self) -> None:
        self.states: Counter[SyncState] = Counter()
        self.left = ""

    def add(self, decision: GroupDecision) -> None:
        self.states[decision.state] += 1
        if decision.state in (SyncState.UNKNOWN, SyncState.REFUSED):
            self.left = self.left or f"{decision.group}: {decision.reason}"

    def end(self, gone: GoneOutcome) -> None:
        if gone.groups:
            self.states[SyncState.GONE] = gone.groups
        self.left = self.left or gone.left


def write(
    target: ConsumerGroups, decisions: Iterable[GroupDecision], *, may_write: Callable[[], bool]
) -> list[GroupDecision]:
    """The outcomes of `written`, all at once."""
    return list(written(target, decisions, may_write=may_write))


def written(
    target: ConsumerGroups,
    decisions: Iterable[GroupDecision],
    *,
    may_write: Callable[[], bool],
    count: Callable[[int], None] = lambda _: None,
) -> Iterator[GroupDecision]:
    """Write what is pending, portion by portion; the decisions with their outcomes, in their order.

    The next portion is decided while one is written: deciding takes the processor, writing waits for the
    target. So `target` and both functions are used in another thread, one call at a time, while `decisions`
    go on in this one. `count` takes the number of offsets written. What is left when writing may not go on
    stays pending. Raises ClusterUnavailable.
    """
    writer = _Writer(target, may_write=may_write, count=count)
    with ThreadPoolExecutor(1, thread_name_prefix="group offsets") as thread:
        writing: Future[Iterable[GroupDecision]] | None = None
        for portion in _portions(decisions):
            before, writing = writing, thread.submit(writer.write, portion)
            if before is not None:
                yield from before.result()
        assert writing is not None
        yield from writing.result()


class _Writer:
    """Writes portions, until writing may not go on."""

    def __init__(
        self,
        target: ConsumerGroups,
        *,
        may_write: Callable[[], bool],
        count: Callable[[int], None],
    ) -> None:
        self._target = target
        self._may_write = may_write
        self._count = count
        self._goes_on = True

    def write(self, portion: Sequence[GroupDecision]) -> Iterable[GroupDecision]:
        """The decisions with their outcomes."""
        outcome = {decision.group: decision for decision in portion}
        pending = [decision for decision in portion if decision.is_pending] if self._goes_on else []
        outcome |= _without_members(self._target, pending)
        due = {
            decision.group: writes
            for decision in pending
            if (writes := outcome[decision.group].writes)
        }
        self._goes_on = self._goes_on and (not due or self._may_write())
        share = {decision.group for decision in pending if decision.share}
        refusals = self._target.commit(due, share=share) if due and self._goes_on else {}
        for group, refused in refusals.items():
            outcome[group] = _settled(outcome[group], refused)
            if not isinstance(refused, ClusterUnavailable):
                self._count(len(due[group]) - len(refused))
        return outcome.values()


def _portions(decisions: Iterable[GroupDecision]) -> Iterator[Sequence[GroupDecision]]:
    """Portions with PORTION pending ones each."""
    portion: list[GroupDecision] = []
    pending = 0
    for decision in decisions:
        portion.append(decision)
        pending += decision.is_pending
        if pending == PORTION:
            yield portion
            portion, pending = [], 0
    yield portion


def _without_members(
    target: ConsumerGroups, decisions: Sequence[GroupDecision]
) -> Iterator[tuple[str, GroupDecision]]:
    """The decisions, without the writes of groups that have members by now. The coordinator refuses a share
    group that has some as a whole."""
    ids = [decision.group for decision in decisions if not decision.share]
    states = target.states(ids) if ids else {}
    for decision in decisions:
        if decision.share:
            yield decision.group, decision
            continue
        state = states[decision.group]
        if isinstance(state, ClusterUnavailable):
            yield decision.group, withheld(decision, SyncState.UNKNOWN, str(state))
        elif state not in EMPTY_STATES:
            yield (
                decision.group,
                withheld(decision, SyncState.ACTIVE, f"the group is {state} there"),
            )
        else:
            yield decision.group, decision


def _settled(
    decision: GroupDecision, refused: Mapping[tuple[str, int], str] | ClusterUnavailable
) -> GroupDecision:
    if isinstance(refused, ClusterUnavailable):
        return withheld(decision, SyncState.UNKNOWN, str(refused))
    if decision.share and NOT_EMPTY in refused.values():
        return withheld(decision, SyncState.ACTIVE, "consumers are members of it there")
    return settled(decision, refused)
