"""Connections of a cutover to both ends of its route, and what it needs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.cutovers import AclChange, CutoverPlan
from ureplicator_common.kafka import LogReader, PositionReader
from ureplicator_common.model import Route
from ureplicator_controller.engines.groups.copied import CopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters


class AccessRights(Protocol):
    """Rights to write at one cluster, as a fence of a cutover changes them. Raises OperatingError."""

    def change(self, plan: CutoverPlan) -> AclChange:
        """The change that keeps everybody but the fleet from writing, by the rights as they are now."""
        ...

    def apply(self, change: AclChange) -> None:
        """Make a change; what is done already is left as it is."""
        ...

    def lagging(self, change: AclChange) -> str:
        """Brokers that do not hold a change yet, in words; "" if all do."""
        ...

    def close(self) -> None: ...


class FenceProgram(Protocol):
    """The program of a fence of the kind `command`."""

    def call(self, verb: str, name: str, plan: CutoverPlan) -> None:
        """Call it with `fence`, `open` or `abort`; a successor may call it again. Raises OperatingError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverClusters:
    """Both ends of a route. `back`: what the route in the other direction has copied. They belong to one
    thread."""

    source_logs: LogReader
    target_logs: LogReader
    positions: PositionReader
    groups: RouteClusters
    back: CopiedReader
    source_rights: AccessRights
    target_rights: AccessRights

    def close(self) -> None:
        for client in (
            self.source_logs,
            self.target_logs,
            self.positions,
            self.groups,
            self.back,
            self.source_rights,
            self.target_rights,
        ):
            client.close()


OpenClusters = Callable[[Route], CutoverClusters]
"""Nothing is connected before the first request."""
