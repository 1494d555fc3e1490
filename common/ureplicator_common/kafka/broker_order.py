"""Order in which the brokers of a cluster are tried, by their addresses. Pure, and shared by threads.

    1  the address that responded last
    2  the others of the last Metadata response, then the seeds (bootstrap servers)
    3  those that failed within `FAILED_S`, the oldest failure first

So one silent broker, or first seed, costs one time-out and not one each time. The seeds are always in the
order, and their names are resolved at each connection: a cluster all of whose addresses changed is found
again (KIP-899). `stale`: something failed since the list of brokers was read; it is due to be read again.

All clients of one cluster in a process may share one order, so that each learns from the failures of all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

FAILED_S = 30.0

Address = tuple[str, int]


class BrokerOrder:
    def __init__(self, seeds: Iterable[Address]) -> None:
        self._seeds = tuple(seeds)
        self._known: tuple[Address, ...] = ()
        self._last: Address | None = None
        self._failed_at_s: dict[Address, float] = {}
        self._lock = threading.Lock()
        self.stale = False

    def in_turn(self, now_s: float) -> list[Address]:
        """Every address once, the most promising first."""
        with self._lock:
            every = dict.fromkeys((*self._known, *self._seeds))
            failed = {at: s for at, s in self._failed_at_s.items() if now_s - s < FAILED_S}
            return sorted(every, key=lambda at: (failed.get(at, 0.0), at != self._last))

    def has_failed(self, address: Address, now_s: float) -> bool:
        """True if the broker has failed lately, and has not responded since."""
        with self._lock:
            failed_at_s = self._failed_at_s.get(address)
        return failed_at_s is not None and now_s - failed_at_s < FAILED_S

    def responded(self, address: Address) -> None:
        with self._lock:
            self._last = address
            self._failed_at_s.pop(address, None)

    def failed(self, address: Address, now_s: float) -> None:
        with self._lock:
            self._failed_at_s[address] = now_s
            self.stale = True
            if self._last == address:
                self._last = None

    def discovered(self, addresses: Iterable[Address]) -> None:
        """The brokers of a Metadata response."""
        with self._lock:
            self._known = tuple(addresses)
            every = {*self._known, *self._seeds}
            self._failed_at_s = {at: s for at, s in self._failed_at_s.items() if at in every}
            self.stale = False


def broker_order(bootstrap: str) -> BrokerOrder:
    """The order of a list of seeds, `host:port,host:port`. Raises ValueError."""
    return BrokerOrder(map(_address, bootstrap.split(",")))


def _address(text: str) -> Address:
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"bootstrap server {text.strip()!r} is not host:port")
    return host.strip("[]"), int(port)
