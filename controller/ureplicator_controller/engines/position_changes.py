"""Changes of positions: the leader sets those that operators request, and deletes those they forget.

The leader acts as an owner for a moment, in the order of a copier (`ureplicator_common.kafka.positions`):
it initialises the id that every copier fences when it starts, proves that it leads and that no worker
holds the partition, fences every id that could still commit it, reads what is stored, and commits. So a
worker that was frozen meanwhile cannot overwrite the position, and a leader that was cannot overwrite the
position of the next owner. The outcome is then written into the intent, at the epoch of the proof;
until then the plan gives the partition to no worker, and another leader repeats the commit.

A position that is set belongs to the present topics, and names no end of the target's log and no
leader epoch of the source: what went before (an offset out of range, records that the target lost, a
truncated source, a topic that was recreated) does not count against it. The number of the partition's chunks
in the offset map stays: they are there whatever the position is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka import PartitionUnavailable, Position, topic_id_text
from ureplicator_common.kafka.client import ClusterClient, ClusterView
from ureplicator_common.kafka.positions import CommitRefused, TargetPartition
from ureplicator_common.kafka.provenance import UNCOUNTED, Provenance
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.position_rows import readable, unreadable
from ureplicator_common.model import RENEWER, Route, TopicKey
from ureplicator_common.znode_contents import NO_OFFSET, PositionChange
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.positions.changes import (
    ChangeOutcome,
    DueChanges,
    due_changes,
    with_outcomes,
)
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.position_deletion import (
    NO_POSITION,
    PositionThread,
    ProveLeadership,
    forgotten,
)
from ureplicator_controller.engines.position_renewal import Renewal

log = logging.getLogger(__name__)

TOPICS = 50
"""Topics whose positions are changed at once: a leader that dies in between repeats all of them."""
FENCED_TRIES = 3
"""A copier that starts meanwhile fences the leader's id; none does so for a partition that is changed."""

Identify = Callable[[TopicKey, DueChanges], Provenance]
"""Clusters and topics that the positions of a topic belong to. Raises ClusterUnavailable."""


Outcomes = Mapping[int, ChangeOutcome]


class Changed(NamedTuple):
    """Outcomes by topic. `epoch`: leader epoch of the proof; `left`: topics whose clusters could not be
    identified, and why."""

    outcomes: Mapping[TopicKey, Outcomes]
    epoch: int
    left: Mapping[TopicKey, PartitionUnavailable]


def change_positions(
    renewal: Renewal, proven: Callable[[], Mapping[TopicKey, DueChanges]], identify: Identify
) -> Changed | None:
    """Carry out the changes of some topics at once; None if the proof fails.

    What the target refuses has an outcome too, and does not hold up the others. Raises ClusterUnavailable,
    Fenced, and Unavailable from the proof.
    """
    refused: dict[TargetPartition, str] = {}
    while True:
        renewal.store.initialise()
        every = proven()
        if not every:
            return None
        due, left = _identified(every, identify)
        renewal.store.fence(sorted({id for changes, _ in due.values() for id in changes.fence}))
        wanted = {changes.target_topic: sorted(changes.changes) for changes, _ in due.values()}
        found = renewal.store.read(wanted) if wanted else {}
        stored = readable(found)
        for target, error in unreadable(found).items():
            refused[target] = f"refused by the target: {error}"
        positions = {
            target: position
            for changes, provenance in due.values()
            for target, position in _positions(changes, provenance, stored).items()
            if target not in refused and not position.offset == stored[target].offset == NO_OFFSET
        }
        try:
            if positions:
                renewal.store.commit(positions)
        except CommitRefused as error:
            refused |= {key: f"refused by the target: {why}" for key, why in error.refused.items()}
            continue
        outcomes = {key: _outcomes(changes, stored, refused) for key, (changes, _) in due.items()}
        return Changed(outcomes, next(iter(every.values())).epoch, left)


def _identified(
    every: Mapping[TopicKey, DueChanges], identify: Identify
) -> tuple[dict[TopicKey, tuple[DueChanges, Provenance]], dict[TopicKey, PartitionUnavailable]]:
    """The changes with what their positions belong to, and the topics of which that is not known."""
    found: dict[TopicKey, tuple[DueChanges, Provenance]] = {}
    left: dict[TopicKey, PartitionUnavailable] = {}
    for key, changes in every.items():
        try:
            found[key] = changes, identify(key, changes)
        except PartitionUnavailable as error:
            left[key] = error
    return found, left


def _outcomes(
    due: DueChanges,
    stored: Mapping[TargetPartition, Position],
    refused: Mapping[TargetPartition, str],
) -> dict[int, ChangeOutcome]:
    keys = {number: (due.target_topic, number) for number in due.changes}
    return {
        number: ChangeOutcome(
            change, stored.get(keys[number], NO_POSITION).offset, refused.get(keys[number], "")
        )
        for number, change in due.changes.items()
    }


def _positions(
    due: DueChanges, provenance: Provenance, stored: Mapping[TargetPartition, Position]
) -> dict[TargetPartition, Position]:
    return {
        (due.target_topic, number): _position(
            change,
            replace(provenance, owner_epoch=due.owner_epochs[number]),
            stored[due.target_topic, number],
        )
        for number, change in due.changes.items()
        if (due.target_topic, number) in stored
    }


def _position(change: PositionChange, provenance: Provenance, stored: Position) -> Position:
    if change.offset == NO_OFFSET:
        return forgotten(stored)
    former = Provenance.decode(stored.metadata)
    if former is not None:
        appends = former.appends and former.appends._replace(sequence=UNCOUNTED)
        provenance = replace(provenance, map_chunks=former.map_chunks, appends=appends)
    return Position(change.offset, metadata=provenance.encode())


def provenance_of(
    topic: str, due: DueChanges, *, source: ClusterView, target: ClusterView
) -> Provenance:
    """Clusters and topics that a position belongs to. Raises PartitionUnavailable while the source topic is
    not the known one: those of other topics are written."""
    id = source.topic_ids.get(topic)
    known = due.intent.source_topic_id
    if id is None or (known and known != topic_id_text(UUID(id))):
        raise PartitionUnavailable(f"source topic {topic} was deleted or recreated")
    return Provenance(
        source_cluster=source.cluster_id,
        source_topic=id,
        target_topic=target.topic_ids.get(due.target_topic, ""),
        worker=RENEWER,
        slot=0,
        owner_epoch=0,
    )


class PositionChanger(PositionThread):
    """Carries out the changes of positions that operators request."""

    name = "position changes"
    portion = TOPICS

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        renewals: Mapping[Route, Renewal],
        sources: Mapping[Route, ClusterClient],
        seen: Callable[[], Snapshot | None],
        proof: ProveLeadership,
    ) -> None:
        super().__init__(
            coordination=coordination, paths=paths, renewals=renewals, seen=seen, proof=proof
        )
        self._sources = sources

    def close(self) -> None:
        super().close()
        for source in self._sources.values():
            source.close()

    def _due(self, snapshot: Snapshot) -> Collection[TopicKey]:
        return due_changes(snapshot)

    def _write(self, keys: Sequence[TopicKey], renewal: Renewal) -> None:
        for tries in range(FENCED_TRIES):
            try:
                changed = self._changed(keys, renewal)
                break
            except Fenced:
                if tries + 1 == FENCED_TRIES:
                    raise
        if changed is None:
            return
        for key, outcomes in changed.outcomes.items():
            self._edit_intent(key, partial(with_outcomes, outcomes=outcomes), epoch=changed.epoch)
            refused = sum(bool(outcome.refused) for outcome in outcomes.values())
            log.info("%s: %d positions changed, %d refused", key, len(outcomes) - refused, refused)
        for error in changed.left.values():
            raise error

    def _changed(self, keys: Sequence[TopicKey], renewal: Renewal) -> Changed | None:
        """Carry the changes out. Raises ClusterUnavailable, Fenced, Unavailable."""
        source = self._sources[renewal.route].view([key.topic for key in keys])
        names = [self._target_of(key) for key in keys]
        target = renewal.client.view([name for name in names if name])

        def identify(key: TopicKey, due: DueChanges) -> Provenance:
            return provenance_of(key.topic, due, source=source, target=target)

        return change_positions(renewal, lambda: self._proven(due_changes, keys), identify)

    def _target_of(self, key: TopicKey) -> str:
        seen = self._seen()
        stored = None if seen is None else seen.topics.get(key)
        return "" if stored is None else stored.value.target_topic
