"""Offsets across changes of the copy's direction: the two maps together give what a direct model says."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.cutovers import Turn
from ureplicator_common.kafka import ClusterUnavailable, Extent
from ureplicator_common.model import Route
from ureplicator_controller.core.cutover.eras import across, places, translate
from ureplicator_controller.core.groups.decisions import CopiedPartition

THERE, BACK = Route("a", "b"), Route("b", "a")
KEY = ("t", 0)
GAPS = st.lists(st.integers(0, 2), max_size=4)


@dataclass
class Map:
    """Offsets of copied records at both ends, as an offset map has them."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)

    def forward(self, offset: int) -> int | None:
        return _translated(self.sources, self.targets, offset)

    def backward(self, offset: int) -> int | None:
        return _translated(self.targets, self.sources, offset)


def _translated(here: Sequence[int], there: Sequence[int], offset: int) -> int | None:
    """The place of that record, or behind the one before."""
    at = bisect_right(here, offset) - 1
    return None if at < 0 else there[at] + (here[at] < offset)


class World:
    """Logs of both clusters (True: a record, False: a hole), and the two maps."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bool]] = {"a": [], "b": []}
        self.maps = {THERE: Map(), BACK: Map()}
        self.turns: list[Turn] = []

    def era(self, route: Route, here: Sequence[int], there: Sequence[int]) -> None:
        """Records of the source with holes before them, copied with holes before the copies."""
        source, target = self.logs[route.source], self.logs[route.target]
        for number, holes in enumerate(here):
            source += [False] * holes
            if number < len(there):
                target += [False] * there[number]
            self.maps[route].sources.append(len(source))
            self.maps[route].targets.append(len(target))
            source.append(True)
            target.append(True)

    def end(self, cluster: str, holes: int) -> None:
        self.logs[cluster] += [False] * holes

    def turn(self, route: Route) -> None:
        here, there = ({"t": (len(self.logs[end]),)} for end in (route.source, route.target))
        self.turns.append(Turn(route, here, there))

    def translated(self, route: Route, offset: int) -> int | None:
        back = Route(route.target, route.source)
        of_eras = translate(
            places(self.turns, route, KEY),
            produced=self.maps[route].forward,
            copied=self.maps[back].backward,
        )
        return of_eras(offset)

    def passed(self, cluster: str, offset: int) -> int:
        """Records before an offset."""
        return sum(self.logs[cluster][:offset])


ERAS = st.lists(st.tuples(GAPS, GAPS, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


@given(eras=ERAS)
def test_a_group_goes_on_behind_exactly_what_it_has_read(
    eras: list[tuple[list[int], list[int], int, int]],
) -> None:
    world = World()
    for number, (here, there, holes_here, holes_there) in enumerate(eras):
        route = BACK if number % 2 else THERE
        world.era(route, here, there)
        world.end(route.source, holes_here)
        world.end(route.target, holes_there)
        if number + 1 < len(eras):
            world.turn(route)
    last = BACK if (len(eras) - 1) % 2 else THERE
    for route in (last, Route(last.target, last.source)) if world.turns else ():
        oldest = places(world.turns, route, KEY)[0][0]
        for offset in range(oldest, len(world.logs[route.source]) + 1):
            found = world.translated(route, offset)
            assert found is not None
            passed = world.passed(route.source, offset)
            assert world.passed(route.target, found) == passed, (route, offset, found)


def test_without_a_turn_the_map_of_the_route_counts() -> None:
    world = World()
    world.era(THERE, [0, 1], [2])
    assert [world.translated(THERE, at) for at in range(4)] == [2, 3, 3, 4]


def test_a_partition_that_a_turn_does_not_know_has_none() -> None:
    turn = Turn(THERE, {"t": (5,)}, {"t": (7,)})
    assert places([turn], THERE, ("t", 0)) == [(5, 7, False)]
    assert places([turn], BACK, ("t", 0)) == [(7, 5, True)]
    assert places([turn], THERE, ("t", 1)) == places([turn], THERE, ("u", 0)) == []


def copied(position: int | None, *, reason: str = "") -> CopiedPartition:
    return CopiedPartition(
        target=KEY,
        position=position,
        translate=lambda offset: offset + 100,
        translate_back=lambda offset: offset + 1_000,
        log=Extent(0, 2_000),
        reason=reason,
    )


def test_what_the_other_direction_has_copied_is_translated_backward() -> None:
    at = [(10, 90, True), (50, 1_040, False)]
    found = across(copied(60), copied(70), at)
    assert [found.translate(offset) for offset in (9, 10, 11, 50, 55)] == [
        90,
        90,
        111,
        1_040,
        1_055,
    ]
    assert across(copied(60), None, []).translate(55) == 155


@pytest.mark.parametrize("back", [None, copied(None, reason="its coordinator does not respond")])
def test_an_unknown_other_direction_translates_nothing(back: CopiedPartition | None) -> None:
    """An offset by the wrong map would be one of another record."""
    found = across(copied(60), back, [(50, 1_040, False)])
    assert found.translate(40) == 140
    with pytest.raises(ClusterUnavailable):
        found.translate(55)


def test_late_writes_do_not_bound_groups_whose_clients_have_left() -> None:
    """The former copy has taken them along, behind what clients had written there by then."""
    forward = replace(copied(60), end=162, source_log=Extent(0, 70, 5), constant_from=3)
    found = across(forward, copied(70), [(50, 150, False)])
    assert (found.position, found.end, found.constant_from) == (70, None, None)
    assert found.translate(60) == 1_060
    assert across(replace(forward, source_log=None), copied(70), [(50, 150, False)]).position == 60
    again = across(forward, copied(70), [(50, 150, False), (55, 1_200, True)])
    assert (again.position, again.end, again.constant_from) == (60, 162, 3)
