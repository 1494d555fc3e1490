"""Failed logins: an address with too many of them is refused for a while, without a look at its tokens.

A token that was accepted from the address before is still accepted, so that one program with an old token
does not lock out the others behind the same address.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock

FAILURES = 10
WINDOW_S = 60.0
_REMEMBERED = 10_000
"""Addresses, and pairs of address and token."""


class Attempts:
    """Failures by address, within a window of time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def refused_for_s(self, address: str, digest: bytes, *, now_s: float) -> float:
        """Seconds until this address may try again; 0: it may now."""
        with self._lock:
            failures = self._failures.get(address)
            if (address, digest) in self._accepted or failures is None or len(failures) < FAILURES:
                return 0.0
            return max(0.0, failures[0] + WINDOW_S - now_s)

    def failed(self, address: str, digest: bytes, *, now_s: float) -> None:
        with self._lock:
            self._accepted.pop((address, digest), None)
            self._failures.setdefault(address, deque(maxlen=FAILURES)).append(now_s)
            self._failures.move_to_end(address)
            if len(self._failures) > _REMEMBERED:
                self._failures.popitem(last=False)

    def accepted(self, address: str, digest: bytes) -> None:
        with self._lock:
            self._accepted[address, digest] = None
            self._accepted.move_to_end((address, digest))
            if len(self._accepted) > _REMEMBERED:
                self._accepted.popitem(last=False)
