"""Quotas and SCRAM users of a cluster in memory that can fail."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.errors import OperatingError


class MemoryPrincipals:
    """`failure`: raised when SCRAM users are read."""

    def __init__(self) -> None:
        self.limits: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.failure: OperatingError | None = None

    def quotas(self) -> Mapping[str, str]:
        return dict(self.limits)

    def scram_users(self) -> Mapping[str, str]:
        if self.failure is not None:
            raise self.failure
        return dict(self.users)

    def close(self) -> None: ...
