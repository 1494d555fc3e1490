"""Where copying of a partition begins, and what is committed for it."""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_worker.lifeline.messages import Grant


@dataclass(frozen=True, slots=True)
class Beginning:
    """What starting a partition found out: where to begin, and what it belongs to."""

    position: int
    leader_epoch: int
    committed: int
    source_cluster: str
    source_topic_id: str
    target_topic_id: str
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Commitment:
    """What is to be committed for one partition, and its grant and beginning for the metadata."""

    position: int
    leader_epoch: int
    grant: Grant
    beginning: Beginning
