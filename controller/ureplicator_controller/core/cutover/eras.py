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
from ureplicator_common.kafka import PartitionUnavailable
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
    were copied here.

    What lies between two turns here lies between them there. A map does not know where its eras begin: in a
    hole behind a turn it names the end of the records that it has, which may be of an era before.
    """

    def translated(offset: int) -> int | None:
        following: int | None = None
        for here, there, is_produced in reversed(places):
            if offset == here:
                return there
            if offset > here:
                found = (produced if is_produced else copied)(offset)
                return _bounded(there if found is None else max(there, found), following)
            following = there
        oldest_is_produced = not places or not places[0][2]
        found = (produced if oldest_is_produced else copied)(offset)
        return None if found is None else _bounded(found, following)

    return translated


def _bounded(offset: int, following: int | None) -> int:
    return offset if following is None else min(offset, following)


def across(
    forward: CopiedPartition, back: CopiedPartition | None, places: Places
) -> CopiedPartition:
    """A partition of the route with the translation of all its eras. `back`: the same partition as the route
    in the other direction has copied it; where that is not known, offsets of its eras are not either."""
    if not places:
        return forward

    def unknown(_: int) -> int | None:
        reason = back.reason if back is not None else ""
        raise PartitionUnavailable(reason or "what the other direction has copied is not known")

    is_known = back is not None and back.position is not None
    copied = back.translate_back if back is not None and is_known else unknown
    translated = translate(places, produced=forward.translate, copied=copied)
    _, _, is_produced = places[-1]
    return replace(forward if is_produced else _left(forward), translate=translated)


def _left(forward: CopiedPartition) -> CopiedPartition:
    """A partition whose clients have left: what follows here comes from there. The position and the end of
    the former copy bound nothing then: late writes may have moved both beyond what was written since."""
    end = 0 if forward.source_log is None else forward.source_log.end
    position = None if forward.position is None else max(forward.position, end)
    return replace(forward, position=position, end=None, constant_from=None)
