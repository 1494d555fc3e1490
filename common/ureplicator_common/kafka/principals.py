"""Quotas and SCRAM users of one cluster, to be shown; `principal_requests` implements the interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class PrincipalReader(Protocol):
    """Belongs to one thread. Every call may raise ClusterUnavailable."""

    def quotas(self) -> Mapping[str, str]:
        """Limits by what they are for, as in `user alice, client-id *` -> `producer_byte_rate 1000`."""
        ...

    def scram_users(self) -> Mapping[str, str]:
        """Mechanisms by user, as in `alice` -> `SCRAM-SHA-256 with 4096 iterations`."""
        ...

    def close(self) -> None: ...
