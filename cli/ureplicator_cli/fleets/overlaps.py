"""Topics of several fleets that two of them write, or that are copied in a circle. Pure.

Within a fleet claims and the search for loops refuse both; a fleet knows nothing of the others. Topics are
compared by the ids that Kafka gives them: they are the same whatever a fleet calls the cluster, and another
topic of the same name has another id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

MAX_LOOPS = 100


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """A topic that a fleet copies. Ids are empty while the fleet does not know them."""

    fleet: str
    route: str
    topic: str
    target_topic: str
    source_id: str
    target_id: str

    def __str__(self) -> str:
        return f"{self.fleet} {self.route}/{self.topic}"


def copies(export: Mapping[str, Any]) -> list[Copy]:
    """The topics of an exported fleet that are not being deleted."""
    return [
        Copy(
            str(export["fleet"]),
            route,
            topic,
            intent["targetTopic"] or topic,
            intent["sourceTopicId"],
            intent["targetTopicId"],
        )
        for route, topics in export["topics"].items()
        for topic, intent in topics.items()
        if intent["state"] != "deleting"
    ]


def shared_targets(found: Iterable[Copy]) -> list[tuple[Copy, ...]]:
    """Copies of several fleets to one target topic, together."""
    by_target: dict[str, list[Copy]] = {}
    for copy in sorted(found):
        if copy.target_id:
            by_target.setdefault(copy.target_id, []).append(copy)
    return [tuple(group) for group in by_target.values() if len({copy.fleet for copy in group}) > 1]


def loops(found: Iterable[Copy]) -> list[tuple[Copy, ...]]:
    """Copies that bring records back to the topic that they came from, in their order."""
    edges = {
        (copy.source_id, copy.target_id): copy
        for copy in sorted(found, reverse=True)
        if copy.source_id and copy.target_id
    }
    circles: list[tuple[Copy, ...]] = []
    while len(circles) < MAX_LOOPS:
        graph: dict[str, set[str]] = {}
        for source, target in edges:
            graph.setdefault(target, set()).add(source)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            topics: list[str] = error.args[1]
            circle = list(pairwise(topics))
            circles.append(_from_first(tuple(edges[edge] for edge in circle)))
            del edges[circle[0]]
        else:
            break
    return circles


def _from_first(circle: tuple[Copy, ...]) -> tuple[Copy, ...]:
    """The same circle, from its first copy by name."""
    begin = circle.index(min(circle))
    return circle[begin:] + circle[:begin]
