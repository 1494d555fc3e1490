"""`ureplicator topics move`: what it refuses, and how it begins, between two fleets in memory.

The whole move, which needs leaders, is tested between two real fleets (`tests/integration/fleet`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from click.testing import Result

from ureplicator_common.model import PartitionState, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import RestFixture

INTENT = TopicIntent(4, 4, target_topic="orders", source_topic_id="s1", target_topic_id="t1")
PAUSED = replace(INTENT, state=TopicState.PAUSED)
Two = tuple[RestFixture, RestFixture]


@pytest.fixture
def two() -> Iterator[Two]:
    """East, which is to give the topic `orders`, and west."""
    with ExitStack() as stack:
        east, west = (
            stack.enter_context(closing(RestFixture(fleet=name))) for name in ("east", "west")
        )
        yield east, west


def move(two: Two, *words: str) -> Result:
    with serving(two[0]) as giver, serving(two[1]) as taker:
        limit = "--timeout", "1"
        return run("topics", "move", "orders", "--url", giver, "--to-fleet", taker, *limit, *words)


def refusal(two: Two, *words: str) -> str:
    """Reason why nothing is moved."""
    found = move(two, *words)
    assert found.exit_code == 1, found.output
    return found.stderr.strip()


def test_topic_of_no_fleet(two: Two) -> None:
    assert refusal(two) == "orders is copied by neither east nor west"


def test_topic_that_both_copy(two: Two) -> None:
    for fleet in two:
        fleet.put_intent("orders", INTENT)
    assert refusal(two) == "east and west both copy orders: delete it at one of them"


@pytest.mark.parametrize(
    ("intent", "more"), [(INTENT, "active, and not with east"), (PAUSED, "; resume it there")]
)
def test_topic_that_was_moved_already(two: Two, intent: TopicIntent, more: str) -> None:
    two[1].put_intent("orders", intent)
    assert "orders is with west already" in refusal(two)
    assert more in refusal(two)


def test_stopped_topic(two: Two) -> None:
    two[0].put_intent("orders", replace(INTENT, stopped="source topic was recreated"))
    expected = "orders was stopped at east: source topic was recreated; decide first how it goes on"
    assert refusal(two) == expected
    assert two[1].intent("orders") is None


def test_one_fleet_is_no_two(two: Two) -> None:
    two[0].put_intent("orders", INTENT)
    assert refusal((two[0], two[0])) == "both addresses are of the same fleet, east"


def test_route_that_the_other_fleet_does_not_have(two: Two) -> None:
    two[0].put_intent("orders", INTENT)
    assert "far" in refusal(two, "--to-src", "far", "--to-dst", "away")
    assert two[0].intent("orders") == INTENT


@pytest.mark.parametrize(
    ("intent", "what"),
    [
        (replace(PAUSED, source_topic_id="other"), "source"),
        (replace(PAUSED, target_topic_id="other"), "target"),
    ],
)
def test_fleets_with_other_clusters(two: Two, intent: TopicIntent, what: str) -> None:
    two[0].put_intent("orders", INTENT)
    two[1].put_intent("orders", intent)
    expected = f"the fleets do not mean the same clusters: the {what} topic has the id"
    assert expected in refusal(two)
    assert two[0].intent("orders") == INTENT, "the giver copies on"
    there = two[1].intent("orders")
    assert there is not None
    assert there.state is TopicState.DELETING


def test_import_at_the_taker_is_paused_and_keeps_what_the_giver_had(two: Two) -> None:
    blacklisted = replace(INTENT, blacklisted=frozenset({3}), had_position=frozenset({0, 1}))
    two[0].put_intent("orders", blacklisted)
    assert "west does not know the ids of its topics" in refusal(two)
    there = two[1].intent("orders")
    assert there is not None
    assert (there.state, there.partitions) == (TopicState.PAUSED, 4)
    assert (there.blacklisted, there.had_position) == (frozenset({3}), frozenset({0, 1}))
    assert two[0].intent("orders") == blacklisted, "not paused before the taker is ready"


def test_giver_that_does_not_release_is_named(two: Two) -> None:
    two[0].put_intent("orders", INTENT)
    two[0].add_worker("w1")
    two[0].place("orders", {2: "w1"})
    two[0].put_states("w1", "orders", {2: PartitionState.ONLINE})
    two[1].put_intent("orders", PAUSED)
    assert "not within 1 s: workers still have partitions of it" in refusal(two)
    given = two[0].intent("orders")
    assert given is not None
    assert given.state is TopicState.PAUSED
