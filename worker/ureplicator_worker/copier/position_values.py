"""Start position of a partition, and the positions committed for it."""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import Provenance
from ureplicator_worker.lifeline.messages import Grant


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Start position, and the cluster and topics that it belongs to.

    `committed`: what the store has; -1 if nothing that counts. `gap`: why the stored position does not
    count, where the operator's policy goes on.
    """

    position: int
    leader_epoch: int
    committed: int
    source_cluster: str
    source_topic_id: str
    target_topic_id: str
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Commitment:
    """Position to commit for one partition, with the grant and beginning for its metadata."""

    position: int
    leader_epoch: int
    grant: Grant
    beginning: StartPosition

    def record(self, *, worker: str, slot: int) -> Position:
        """As the position store keeps it."""
        provenance = Provenance(
            source_cluster=self.beginning.source_cluster,
            source_topic=self.beginning.source_topic_id,
            target_topic=self.beginning.target_topic_id,
            worker=worker,
            slot=slot,
            owner_epoch=self.grant.owner_epoch,
        )
        return Position(self.position, self.leader_epoch, provenance.encode())
