"""Writers of the source for the plan of a cutover: open transactions, and producers of the last minutes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing

from ureplicator_common.clock import Clock
from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.transactions.writers import Producers, Writers
from ureplicator_controller.core.cutover.facts import WriterFacts
from ureplicator_controller.core.state.snapshot import Snapshot

Found = Producers | PartitionUnavailable

RECENT_S = 300.0
"""A producer that has written nothing for so long is taken for gone."""
MAX_OTHERS = 5_000
"""Partitions of other topics of the route that are looked at for the same producers."""


class WriterReader:
    """Every call may raise ClusterUnavailable. `writers` connects to a cluster by its name."""

    def __init__(self, writers: Callable[[str], Writers], *, clock: Clock) -> None:
        self._writers = writers
        self._clock = clock

    def read(self, plan: CutoverPlan, snapshot: Snapshot) -> WriterFacts:
        """Writers of the topics of a plan, but for the fleet itself."""
        if not plan.topics:
            return WriterFacts()
        partitions = [(topic, n) for topic, count in plan.topics.items() for n in range(count)]
        since_ms = self._clock.wall_ms() - round(RECENT_S * 1_000)
        with closing(self._writers(plan.route.source)) as writers:
            transactions = writers.transactions_on(sorted(plan.topics))
            producers = writers.recent_producers(
                [*partitions, *_others(plan, snapshot)], since_ms=since_ms
            )
            ids = {id for found in producers.values() if isinstance(found, Mapping) for id in found}
            names = writers.transactional_ids(ids) if ids else {}
        own = {id for id, name in names.items() if _is_of_fleet(name, snapshot)}
        return WriterFacts(
            transactions=transactions,
            producers={key: _without(found, own) for key, found in producers.items()},
            names=names,
        )


def _others(plan: CutoverPlan, snapshot: Snapshot) -> list[TopicPartition]:
    """Partitions of the route's other topics."""
    found = [
        (key.topic, number)
        for key, stored in sorted(snapshot.topics.items())
        if key.route == plan.route and key.topic not in plan.topics
        for number in range(stored.value.partitions)
    ]
    return found[:MAX_OTHERS]


def _without(found: Found, own: Collection[int]) -> Found:
    if isinstance(found, PartitionUnavailable):
        return found
    return {id: last_ms for id, last_ms in found.items() if id not in own}


def _is_of_fleet(name: str, snapshot: Snapshot) -> bool:
    return any(name.startswith(f"{snapshot.fleet}.{route}.") for route in snapshot.routes)
