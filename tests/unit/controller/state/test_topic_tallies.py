"""Tallies: kept ones are those that would be made anew, and only what changed is made anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import PartitionState, Route, TopicKey
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches, topic_mismatches
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import TopicTallies, topic_tallies
from ureplicator_controller.core.state.validation_counts import counts_by_route, validation_counts
from ureplicator_testkit.control.fleet import ROUTE, SHAKEN_TOPICS, ControlFleet, shaken


@pytest.mark.parametrize("seed", range(20))
def test_kept_tallies_are_those_of_the_present_state(seed: int) -> None:
    kept, before = TopicTallies(), None
    for seen in shaken(seed):
        view = external_view(seen, before)
        before = seen, view
        assert kept.of(seen, view) == topic_tallies(seen, external_view(seen))
        _agree(seen)


def _agree(seen: Snapshot) -> None:
    """Counts and mismatches say the same as each partition by itself."""
    view = external_view(seen)
    each = [found for key in sorted(seen.topics) for found in topic_mismatches(seen, view, key)]
    found = [m for m in mismatches(seen, view) if m.partition.key in seen.topics]
    assert sorted(found, key=lambda m: m.partition) == each
    counts = validation_counts(seen, topic_tallies(seen, view))
    assert counts.topic_partitions == sum(t.value.partitions for t in seen.topics.values())
    online = [
        partition
        for partition, reported in view.partitions()
        for worker, entry in reported.items()
        if entry.state is PartitionState.ONLINE
        and (stored := seen.ideal.get(partition.key)) is not None
        and (ideal := stored.value.entries.get(partition.number)) is not None
        and ideal.worker == worker
        and partition.key in seen.topics
        and partition.number < seen.topics[partition.key].value.partitions
    ]
    assert counts.online == len(online)
    assert sum(counts.external_view.values()) == sum(len(held) for held in view.values())


def test_only_topics_that_changed_are_tallied_again() -> None:
    fleet = ControlFleet()
    fleet.worker("a")
    for topic in SHAKEN_TOPICS:
        fleet.topic(topic, 2)
    fleet.settle()
    kept, seen = TopicTallies(), fleet.snapshot()
    view = external_view(seen)
    first = kept.of(seen, view).by_topic
    key = TopicKey(ROUTE, "u")
    ideal = {**seen.ideal, key: replace(seen.ideal[key], version=9)}
    later = replace(seen, ideal=ideal)
    again = kept.of(later, external_view(later, (seen, view))).by_topic
    assert [tallied for tallied in first if again[tallied] is not first[tallied]] == [key]
    paused = replace(later, switches=Switches(paused_routes=frozenset({ROUTE})))
    anew = kept.of(paused, view).by_topic
    assert all(anew[tallied] is not first[tallied] for tallied in first)


def test_totals_of_a_route_end_with_its_last_topic() -> None:
    fleet, other = ControlFleet(), Route("source", "other")
    fleet.worker("a")
    fleet.topic("t", 2)
    fleet.topic("u", 3, route=other)
    fleet.settle()
    kept, seen = TopicTallies(), fleet.snapshot()
    first = kept.of(seen, external_view(seen))
    assert counts_by_route(seen, first, [])[other].online == 3
    topics = {key: intent for key, intent in seen.topics.items() if key.route == ROUTE}
    later = replace(seen, topics=topics, current={})
    totals = kept.of(later, external_view(later)).totals
    assert set(totals) == {ROUTE}
    assert totals[ROUTE].states == {PartitionState.OFFLINE: 2}
    assert first.totals[other].states == {PartitionState.ONLINE: 3}, "left as it was"
