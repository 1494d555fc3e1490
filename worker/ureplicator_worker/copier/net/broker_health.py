"""Health of the brokers of a cluster, as far as requests to them show it. Pure.

A broker is in error from the moment its connection fails until it *responds* again: a frozen broker
still accepts connections. Delays outlive connections, so that a new one evades no quota.
"""

from __future__ import annotations

from ureplicator_common.backoff import Backoff

RECONNECT_DELAY_S = 0.25
RECENT_S = 10.0
MALFORMED_DELAYS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""A broker that sends garbage will probably do so again."""


class BrokerHealth:
    """Health of brokers by node id: the error, when to connect again, and until when nothing is sent."""

    def __init__(self) -> None:
        self._errors: dict[int, str] = {}
        self._connect_at_s: dict[int, float] = {}
        self._held_until_s: dict[int, float] = {}
        self._responded_s: dict[int, float] = {}
        self._malformed: dict[int, Backoff] = {}

    def error(self, node_id: int) -> str:
        """Reason of the last connection's end; "" since a response."""
        return self._errors.get(node_id, "")

    def failed(self, node_id: int, reason: str, now_s: float) -> None:
        self._errors[node_id] = reason
        self._connect_at_s[node_id] = now_s + RECONNECT_DELAY_S

    def malformed(self, node_id: int, now_s: float) -> None:
        """A response could not be parsed; call after `failed`."""
        backoff = self._malformed.get(node_id, Backoff(MALFORMED_DELAYS_S)).failed()
        self._malformed[node_id] = backoff
        self._connect_at_s[node_id] = now_s + backoff.delay_s

    def parsed(self, node_id: int) -> None:
        self._malformed.pop(node_id, None)

    def responded(self, node_id: int, now_s: float) -> None:
        self._errors.pop(node_id, None)
        self._responded_s[node_id] = now_s

    def is_well(self, node_id: int, now_s: float) -> bool:
        """True if a broker has responded lately, and not failed since."""
        lately = now_s - self._responded_s.get(node_id, -RECENT_S) < RECENT_S
        return lately and node_id not in self._errors

    def may_connect(self, node_id: int, now_s: float) -> bool:
        return now_s >= self._connect_at_s.get(node_id, 0.0)

    def hold(self, node_id: int, delay_s: float, now_s: float) -> None:
        """Send the broker nothing for a while: it wants that (a quota), or has failed."""
        if delay_s > 0:
            self._held_until_s[node_id] = max(self.held_until_s(node_id), now_s + delay_s)

    def held_until_s(self, node_id: int) -> float:
        return self._held_until_s.get(node_id, 0.0)
