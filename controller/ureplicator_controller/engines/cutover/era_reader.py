"""Reader of what was copied, for groups of topics whose copy has changed its direction before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.cutovers import Turn
from ureplicator_common.kafka.groups import TopicPartition
from ureplicator_common.model import Route
from ureplicator_controller.core.cutover.eras import across, places
from ureplicator_controller.core.groups.decisions import CopiedPartition
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.core.groups.way_back import reversed_topics
from ureplicator_controller.engines.groups.copied import NOT_COPIED, CopiedReader


class EraReader:
    """`CopiedReader` of a route. `back`: of the route in the other direction."""

    def __init__(
        self, forward: CopiedReader, back: CopiedReader, *, route: Route, turns: Sequence[Turn]
    ) -> None:
        self._forward, self._back = forward, back
        self._route, self._turns = route, turns

    def read(
        self, topics: Mapping[str, RouteTopic], wanted: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        found = self._forward.read(topics, wanted)
        at = {key: places(self._turns, self._route, key) for key in found}
        turned = {key: found[key].target for key in found if at[key]}
        back = self._copied_back(topics, turned)
        return {
            key: across(copied, back.get(turned[key]) if key in turned else None, at[key])
            for key, copied in found.items()
        }

    def _copied_back(
        self, topics: Mapping[str, RouteTopic], turned: Mapping[TopicPartition, TopicPartition]
    ) -> Mapping[TopicPartition, CopiedPartition]:
        found = self._back.read(_back_again(topics), turned.values()) if turned else {}
        return {
            key: replace(copied, position=0) if copied.reason == NOT_COPIED else copied
            for key, copied in found.items()
        }

    def close(self) -> None:
        self._forward.close()
        self._back.close()


def _back_again(topics: Mapping[str, RouteTopic]) -> Mapping[str, RouteTopic]:
    """The topics as the other direction has them. Which topic its positions are of, its intent says."""
    return {name: replace(topic, target_id="") for name, topic in reversed_topics(topics).items()}
