"""Offsets of topics whose copy has changed its direction, once or several times. Pure.

    here   | copied there       | copied here        | copied there      |
           0 ................ turn ............... turn ............. end of the log

A record that was produced here lies at the place that the map of the route there says; one that was copied
here came from the place that the map of the route back says, backward. At a turn itself both are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ureplicator_common.cutovers import Turn
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.model import Route
from ureplicator_controller.core.groups.decisions import CopiedPartition, Translate

Places = Sequence[tuple[int, int, bool]]
"""Turns of one partition, oldest first: offset here, offset there, and whether records from it on were
produced here."""


def places(turns: Sequence[Turn], route: Route, partition: TopicPartition) -> Places:
    """Turns of a partition as clients of the route's source see them."""
    topic, number = partition
    found: list[tuple[int, int, bool]] = []
    for turn in turns:
        here, there = turn.here.get(topic, ()), turn.there.get(topic, ())
        if number < len(here):
            is_left = turn.route == route
            at = (here[number], there[number]) if is_left else (there[number], here[number])
            found.append((*at, not is_left))
    return found


def translate(
    places: Places, *, produced: Translate, copied: Translate
) -> Callable[[int], int | None]:
    """Offset here -> offset there. `produced`: for records that were produced here, `copied`: for those that
    were copied here."""

    def translated(offset: int) -> int | None:
        for here, there, is_produced in reversed(places):
            if offset == here:
                return there
            if offset > here:
                return (produced if is_produced else copied)(offset)
        oldest_is_produced = not places or not places[0][2]
        return (produced if oldest_is_produced else copied)(offset)

    return translated


def across(
    forward: CopiedPartition, back: CopiedPartition | None, places: Places
) -> CopiedPartition:
    """A partition of the route with the translation of all its eras. `back`: the same partition as the route
    in the other direction has copied it."""
    if not places or back is None:
        return forward
    return replace(
        forward,
        translate=translate(places, produced=forward.translate, copied=back.translate_back),
    )
