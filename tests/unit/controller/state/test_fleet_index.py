"""Topics at rest: an index that is kept is the one that would be made anew, and nothing rests that a plan
has to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from ureplicator_common.model import Partition, PartitionState, SessionId, TopicKey, WorkerId
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    Switches,
    TopicIntent,
)
from ureplicator_controller.core.planning.partitions import PartitionViews
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.fleet_index import FleetIndex, FleetIndexer
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_testkit.control.fleet import (
    ROUTE,
    ControlFleet,
    settled_fleet,
    shaken,
)

KEY = TopicKey(ROUTE, "t")
FIRST = Partition(ROUTE, "t", 0)
A, B = WorkerId("a"), WorkerId("b")


SETTLED = settled_fleet().snapshot()


def index_of(seen: Snapshot) -> FleetIndex:
    return FleetIndexer().of(seen)


def with_intent(**changes: object) -> Snapshot:
    stored: Stored[TopicIntent] = SETTLED.topics[KEY]
    intent = replace(stored.value, **changes)  # type: ignore[arg-type]
    return replace(SETTLED, topics={**SETTLED.topics, KEY: replace(stored, value=intent)})


def with_entry(change: Callable[[IdealEntry], IdealEntry]) -> Snapshot:
    """The snapshot with another ideal state of the topic's first partition."""
    stored = SETTLED.ideal[KEY]
    entries = {**stored.value.entries, 0: change(stored.value.entries[0])}
    return replace(
        SETTLED, ideal={**SETTLED.ideal, KEY: replace(stored, value=IdealTopic(entries))}
    )


def with_assigned(worker: WorkerId, entry: AssignmentEntry) -> Snapshot:
    """The snapshot with another assignment of the topic's first partition."""
    stored = SETTLED.assignments[worker]
    value = Assignment({**stored.value.entries, FIRST: entry})
    assignments = {**SETTLED.assignments, worker: replace(stored, value=value)}
    return replace(SETTLED, assignments=assignments)


def with_report(worker: WorkerId, number: int, session: SessionId) -> Snapshot:
    """The snapshot with a report of a partition that is not whitelisted."""
    stored = SETTLED.current[worker]
    entry = CurrentEntry(PartitionState.ONLINE, SETTLED.ideal[KEY].value.entries[0].owner_epoch)
    entries = {**stored.value.entries, Partition(ROUTE, "t", number): entry}
    value = CurrentState(stored.value.seen_zxid, entries)
    current = {**SETTLED.current, worker: replace(stored, value=value, owner=session)}
    return replace(SETTLED, current=current)


OWNER = SETTLED.ideal[KEY].value.entries[0].worker or A
OTHER = B if OWNER == A else A
ENTRY = SETTLED.assignments[OWNER].value.entries[FIRST]


def test_all_topics_of_a_settled_fleet_are_at_rest() -> None:
    index = index_of(SETTLED)
    assert index.at_rest.keys() == SETTLED.topics.keys()
    assert index.busy == set()
    owners = Counter(worker for workers in index.at_rest.values() for worker in workers)
    assert {(ROUTE, worker): count for worker, count in owners.items()} == index.counts
    assert PartitionViews(SETTLED, index).by_topic == {}


@pytest.mark.parametrize(
    "seen",
    {
        "more partitions": with_intent(partitions=3),
        "blacklisted": with_intent(blacklisted=frozenset({0})),
        "stopped": with_intent(stopped="gone"),
        "position to be recorded": with_intent(had_position=frozenset({1})),
        "moved without progress": with_entry(lambda entry: replace(entry, no_progress_moves=1)),
        "suspect": with_entry(lambda entry: replace(entry, suspect_session=SessionId(7))),
        "second holder": with_entry(
            lambda entry: replace(entry, holders={**entry.holders, OTHER: SessionId(1)})
        ),
        "former epoch": with_assigned(OWNER, replace(ENTRY, owner_epoch=ENTRY.owner_epoch - 1)),  # type: ignore[arg-type]
        "fence": with_assigned(OWNER, replace(ENTRY, fence=("id",))),
        "assigned twice": with_assigned(OTHER, ENTRY),
        "reports another partition": with_report(OWNER, 5, SETTLED.sessions[OWNER]),
        "former session reports another partition": with_report(OWNER, 5, SessionId(999)),
        "no intent": replace(SETTLED, topics={k: v for k, v in SETTLED.topics.items() if k != KEY}),
        "not placed": replace(SETTLED, ideal={k: v for k, v in SETTLED.ideal.items() if k != KEY}),
        "on the blacklist": replace(SETTLED, blacklist=frozenset({KEY})),
    }.items(),
    ids=lambda each: each[0],
)
def test_a_topic_that_a_plan_has_to_look_at_is_busy(seen: tuple[str, Snapshot]) -> None:
    kept = FleetIndexer()
    kept.of(SETTLED)
    for index in (index_of(seen[1]), kept.of(seen[1])):
        assert index.busy == {KEY}
        assert set(PartitionViews(seen[1], index).by_topic) == {KEY}
    assert kept.of(SETTLED).busy == set()


def test_topics_without_an_eligible_worker_are_looked_at_again_when_there_is_one() -> None:
    fleet, kept = ControlFleet(), FleetIndexer()
    fleet.topic("t", 2)
    assert kept.of(fleet.snapshot()).busy == {KEY}, "the reason is to be written"
    fleet.cycle()
    for index in (kept.of(fleet.snapshot()), index_of(fleet.snapshot())):
        assert (index.busy, index.unowned) == (set(), {KEY})
        assert PartitionViews(fleet.snapshot(), index).by_topic == {}
    fleet.topic("t", 2, blacklisted=frozenset({1}))
    assert kept.of(fleet.snapshot()).busy == {KEY}
    fleet.topic("t", 2, blacklisted=frozenset())
    fleet.cycle()
    fleet.worker("a")
    fleet.settle()
    assert fleet.owners("t") == {0: "a", 1: "a"}
    assert kept.of(fleet.snapshot()).unowned == set()


def test_no_topic_of_a_paused_route_is_at_rest() -> None:
    kept = FleetIndexer()
    kept.of(SETTLED)
    paused = replace(SETTLED, switches=Switches(paused_routes=frozenset({ROUTE})))
    assert kept.of(paused).busy == SETTLED.topics.keys()
    assert kept.of(SETTLED).busy == set()


def test_opened_topics_are_no_longer_counted() -> None:
    views = PartitionViews(SETTLED, index_of(SETTLED))
    opened = views.open_owned(lambda pair: pair[1] == OWNER)
    keys = {view.key for view in opened}
    owners = {key: {e.worker for e in SETTLED.ideal[key].value.entries.values()} for key in keys}
    assert KEY in keys
    assert all(OWNER in workers for workers in owners.values())
    views.open_all()
    assert views.by_topic.keys() == SETTLED.topics.keys()
    assert views.counts.total() == 0


@pytest.mark.parametrize("seed", range(20))
def test_kept_indexes_are_those_of_the_present_state(seed: int) -> None:
    kept, rested = FleetIndexer(), 0
    for seen in shaken(seed):
        index, fresh = kept.of(seen), index_of(seen)
        assert (index.assigned, index.view, index.stale) == (
            fresh.assigned,
            fresh.view,
            fresh.stale,
        )
        assert (index.at_rest, index.unowned, index.busy, index.counts) == (
            fresh.at_rest,
            fresh.unowned,
            fresh.busy,
            fresh.counts,
        )
        rested += len(index.at_rest)
    assert rested
