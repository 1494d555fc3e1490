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
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from ureplicator_common.coordination import Coordination
from ureplicator_common.kafka import PartitionUnavailable, Position, topic_id_text
from ureplicator_common.kafka.client import ClusterClient, ClusterView
from ureplicator_common.kafka.positions import CommitRefused, TargetPartition
from ureplicator_common.kafka.provenance import UNCOUNTED, Provenance
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

Identify = Callable[[DueChanges], Provenance]
"""Clusters and topics that the positions of a topic belong to. Raises ClusterUnavailable."""


class Changed(NamedTuple):
    """`epoch`: leader epoch of the proof."""

    outcomes: Mapping[int, ChangeOutcome]
    epoch: int


def change_positions(
    renewal: Renewal, proven: Callable[[], DueChanges | None], identify: Identify
) -> Changed | None:
    """Carry out the changes of a topic; None if the proof fails.

    What the target refuses has an outcome too, and does not hold up the others. Raises ClusterUnavailable,
    Fenced, and Unavailable from the proof.
    """
    refused: dict[int, str] = {}
    while True:
        renewal.store.initialise()
        due = proven()
        if due is None:
            return None
        provenance = identify(due)
        renewal.store.fence(due.fence)
        found = renewal.store.read({due.target_topic: sorted(due.changes)})
        stored = readable(found)
        for (_, number), error in unreadable(found).items():
            refused[number] = f"refused by the target: {error}"
        wanted = {
            target: position
            for target, position in _positions(due, provenance, stored).items()
            if target[1] not in refused
            and not position.offset == stored[target].offset == NO_OFFSET
        }
        try:
            if wanted:
                renewal.store.commit(wanted)
        except CommitRefused as error:
            for (_, number), why in error.refused.items():
                refused[number] = f"refused by the target: {why}"
            continue
        return Changed(_outcomes(due, stored, refused), due.epoch)


def _outcomes(
    due: DueChanges, stored: Mapping[TargetPartition, Position], refused: Mapping[int, str]
) -> dict[int, ChangeOutcome]:
    keys = {number: (due.target_topic, number) for number in due.changes}
    return {
        number: ChangeOutcome(
            change, stored.get(keys[number], NO_POSITION).offset, refused.get(number, "")
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

    def _write(self, key: TopicKey, renewal: Renewal) -> None:
        def identify(due: DueChanges) -> Provenance:
            source = self._sources[key.route].view([key.topic])
            target = renewal.client.view([due.target_topic])
            return provenance_of(key.topic, due, source=source, target=target)

        changed = change_positions(renewal, lambda: self._proven(due_changes, key), identify)
        if changed is not None:
            outcomes = changed.outcomes
            self._edit_intent(
                key, lambda intent: with_outcomes(intent, outcomes), epoch=changed.epoch
            )
            refused = sum(bool(outcome.refused) for outcome in outcomes.values())
            log.info("%s: %d positions changed, %d refused", key, len(outcomes) - refused, refused)
