"""Settings of brokers that exactly once without transactions rests on: how long they know a producer.

A leader refuses a fenced producer, and recognises a batch that is sent again, for `producer.id.expiration.ms`
(KIP-854; brokers before 3.4 take `transactional.id.expiration.ms` for it). A process that was stopped for
longer must find its connections closed: after `connections.max.idle.ms` without a request. A coordinator
forgets a transactional id after `transactional.id.expiration.ms`, and then no successor can fence its
producer. Pure; `broker_settings` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRODUCER, TRANSACTIONAL_ID, IDLE = (
    "producer.id.expiration.ms",
    "transactional.id.expiration.ms",
    "connections.max.idle.ms",
)
DEFAULTS_S: Mapping[str, float] = {
    PRODUCER: 24 * 3600.0,
    TRANSACTIONAL_ID: 7 * 24 * 3600.0,
    IDLE: 600.0,
}
IDLE_TIMES = 2
"""Brokers must know a producer for so many times of the idle time: clocks differ, and closing takes time."""
OPEN_S = 24 * 3600.0
"""Time for which a position may name a producer that nobody has renewed (`data_producers.RENEW_S`, twice)."""
CLOCKS_S = 3600.0
"""Most by which the clocks of a broker and of a copier may differ."""


def surely_kept_s(producer_s: float) -> float:
    """Time for which brokers surely know a producer, by the clock of another machine."""
    return producer_s - min(CLOCKS_S, producer_s / 2)


PRODUCER_KEPT_S = surely_kept_s(DEFAULTS_S[PRODUCER])
"""After the time of a producer's last batch, with the default."""


@dataclass(frozen=True, slots=True)
class ProducerMemory:
    """The settings in seconds, by name: the shortest of all brokers, and the longest idle time, infinite
    where brokers never close. `unread`: why others are not known; "" if all are."""

    settings_s: Mapping[str, float]
    unread: str = ""

    def of(self, name: str) -> float:
        """The setting, or its default where it is not known."""
        return self.settings_s.get(name, DEFAULTS_S[name])

    @property
    def kept_s(self) -> float:
        return min(PRODUCER_KEPT_S, surely_kept_s(self.of(PRODUCER)))

    def fault(self) -> str:
        """Reason why records cannot be delivered exactly once without transactions; "" if they can."""
        producer_s, idle_s = self.of(PRODUCER), self.of(IDLE)
        if producer_s < IDLE_TIMES * idle_s:
            never = f"{IDLE} < 0, by which connections are never closed"
            idle = never if idle_s == math.inf else in_ms(IDLE, idle_s)
            return f"{in_ms(PRODUCER, producer_s)}, too short beside {idle}"
        if self.of(TRANSACTIONAL_ID) < OPEN_S:
            return f"{in_ms(TRANSACTIONAL_ID, self.of(TRANSACTIONAL_ID))}, less than a day"
        return ""


def in_ms(name: str, value_s: float) -> str:
    return f"{name} = {value_s * 1_000:.0f}"


def memory_of(brokers: Sequence[Mapping[str, str]], unread: str = "") -> ProducerMemory:
    """Memory of producers that the settings of brokers, by name, make together."""
    found = [found_s for settings in brokers if (found_s := _of_broker(settings))]
    least = {
        name: min(values)
        for name in (PRODUCER, TRANSACTIONAL_ID)
        if (values := [settings_s[name] for settings_s in found if name in settings_s])
    }
    idle = [settings_s[IDLE] for settings_s in found if IDLE in settings_s]
    missing = sorted(DEFAULTS_S.keys() - least.keys() - ({IDLE} if idle else set()))
    reason = unread or (f"no broker shows {', '.join(missing)}" if missing else "")
    return ProducerMemory({**least, **({IDLE: max(idle)} if idle else {})}, reason)


def _of_broker(settings: Mapping[str, str]) -> dict[str, float]:
    """Settings of one broker, in seconds."""
    found = {name: int(settings[name]) / 1_000 for name in DEFAULTS_S if name in settings}
    if found.get(IDLE, 0) < 0:
        found[IDLE] = math.inf
    if PRODUCER not in found and TRANSACTIONAL_ID in found:
        found[PRODUCER] = found[TRANSACTIONAL_ID]
    return found
