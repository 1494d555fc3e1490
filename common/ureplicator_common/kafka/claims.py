"""Claims on the topics of a cluster: which fleet copies what to each of them.

The claims are records of the compacted topic `ureplicator-claims` on the target cluster itself, so that
fleets which know nothing of each other see them. `requests` implements the interface.
"""

from __future__ import annotations

from typing import Protocol

from ureplicator_common.kafka.claim_records import Claim, Claims


class ClaimLog(Protocol):
    """The topic of one cluster. Belongs to one thread. Every call may raise ClusterUnavailable."""

    def cluster_id(self) -> str:
        """Id that the brokers give their cluster."""
        ...

    def read(self) -> Claims:
        """All claims, those that others wrote before the call included. Raises ClaimsUnreadable."""
        ...

    def write(self, claim: Claim) -> None:
        """Append a claim; returns when all replicas in sync have it. The topic is created if it is missing.
        Raises TopicRefused."""
        ...

    def withdraw(self, claim: Claim) -> None:
        """Append the end of a fleet's claim on a target topic. Raises TopicRefused."""
        ...

    def close(self) -> None: ...
