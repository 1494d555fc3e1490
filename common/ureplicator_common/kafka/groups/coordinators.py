"""Coordinators of consumer groups: brokers that list them, and for other groups those that are found.

Many are found by one request (KIP-699), where a broker knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import GROUP_COORDINATOR, Broker, ClusterClient
from ureplicator_common.kafka.features import accepted_versions
from ureplicator_common.kafka.groups import wire
from ureplicator_common.kafka.groups.rights import TO_READ, error_reason
from ureplicator_common.portions import portions

FOUND = 200
"""Groups whose coordinators are asked for at once."""


class Coordinators:
    """Coordinators of the groups of one cluster. Belongs to one thread."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._at: dict[str, Broker] = {}
        self._newest: dict[Broker, Mapping[int, int]] = {}

    def take_listed(self, at: Mapping[str, Broker]) -> None:
        """Take the brokers that listed the groups as their coordinators, and forget all others."""
        self._at = dict(at)

    def forget_versions(self) -> None:
        """Ask for them again: brokers may have been upgraded."""
        self._newest = {}

    def versions(self, broker: Broker) -> Mapping[int, int]:
        """Highest version of each request that the broker accepts, by API key. Raises ClusterUnavailable."""
        if broker not in self._newest:
            self._newest[broker] = accepted_versions(self._client, broker)
        return self._newest[broker]

    def forget(self, groups: Sequence[str]) -> None:
        """Have the coordinator of these groups found again for the next request."""
        for group in groups:
            self._at.pop(group, None)
            self._client.forget_coordinator(group, GROUP_COORDINATOR)

    def led(
        self, groups: Sequence[str]
    ) -> tuple[dict[Broker, list[str]], dict[str, ClusterUnavailable]]:
        """Groups by their coordinators, and those without one."""
        missing: dict[str, ClusterUnavailable] = {}
        unlisted = [group for group in groups if group not in self._at]
        for portion in portions(unlisted, FOUND):
            missing |= self._find(portion)
        led: dict[Broker, list[str]] = {}
        for group in groups:
            if group in self._at:
                led.setdefault(self._at[group], []).append(group)
        return led, missing

    def _find(self, groups: Sequence[str]) -> dict[str, ClusterUnavailable]:
        """Find their coordinators; the groups without one. Raises ClusterUnavailable."""
        found = self._find_many(groups)
        if found is None:
            led, reason = self._client.coordinators(groups, GROUP_COORDINATOR)
            self._at |= {group: broker for broker, some in led.items() for group in some}
            lost = set(groups).difference(*led.values())
            return {group: ClusterUnavailable(f"group {group}: {reason}") for group in lost}
        self._at |= {group: broker for group, (code, broker) in found.items() if not code}
        return {
            group: ClusterUnavailable(
                f"group {group}: no coordinator: {error_reason(code, TO_READ)}"
            )
            for group, (code, _) in found.items()
            if code
        }

    def _find_many(self, groups: Sequence[str]) -> Mapping[str, tuple[int, Broker]] | None:
        """None: no broker is known to find many at once, or none responds."""
        for broker, newest in self._newest.items():
            if newest.get(wire.FIND_COORDINATOR, 0) < wire.MANY_KEYS:
                continue
            try:
                reply = self._client.call(
                    broker, wire.find_coordinators(groups), wire.CoordinatorsDecoder()
                )
            except ClusterUnavailable:
                continue  # the client tries all others
            found: Mapping[str, tuple[int, Broker]] = reply
            return found
        return None
