"""The provider's keys as they were last read, read again by the requests that need them.

    a key that is known      used at once; the first request after FRESH_S reads the keys again
    a key that is not known  the keys are read again, RETRY_S after the last try at the soonest; requests wait
    provider away            the last keys stay in force; a key that is not known cannot be judged

So a key that the provider has taken back is refused FRESH_S later, and a new one counts at once. Requests
that wait are few, so that a provider that hangs, or a stranger who invents ids of keys, takes no more
threads. The client of PyJWT does neither: it has no keys while the provider is away and they are old, and
every request waits while it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import BoundedSemaphore, Lock

from jwt import PyJWK

from ureplicator_common.clock import Clock
from ureplicator_controller.api.access.oidc.errors import ProviderUnavailable, TokenRefused

log = logging.getLogger(__name__)

FRESH_S = 300.0
RETRY_S = 10.0
WAIT_S = 7.0
"""Longest wait for another request that reads the keys: two calls with their time limits."""
WAITING = 4
"""Requests that read the keys or wait for that. There are more threads than these and all calls together
(`http.load`, `rest_process.THREADS`)."""


class ProviderKeys:
    """Keys of the provider, for all threads. `read` raises ProviderUnavailable."""

    def __init__(self, read: Callable[[], Mapping[str, PyJWK]], *, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._read_s = self._tried_s = float("-inf")
        self._fault = "its keys were not read yet"
        self._reading = Lock()
        self._places = BoundedSemaphore(WAITING)

    def key(self, id: str) -> PyJWK:
        """The key of this id. Raises TokenRefused, ProviderUnavailable."""
        if id not in self._keys:
            self._wait_for_keys()
        elif self._older_than(FRESH_S, self._read_s) and self._may_try():
            self._read_unless_read_now()
        found = self._keys.get(id)
        if found is not None:
            return found
        if self._fault:
            raise ProviderUnavailable("the keys of the identity provider cannot be read")
        raise TokenRefused("the token is signed with a key that its issuer does not publish")

    def _wait_for_keys(self) -> None:
        if not self._may_try():
            return
        if not self._places.acquire(blocking=False):
            raise ProviderUnavailable("too many requests wait for the identity provider's keys")
        try:
            if self._reading.acquire(timeout=WAIT_S):
                self._read_and_release()
        finally:
            self._places.release()

    def _read_unless_read_now(self) -> None:
        if self._reading.acquire(blocking=False):
            self._read_and_release()

    def _read_and_release(self) -> None:
        """Read the keys, unless another request did while this one waited."""
        try:
            if self._may_try():
                self._read_now()
        finally:
            self._reading.release()

    def _read_now(self) -> None:
        try:
            self._keys = self._read()
            self._read_s = self._clock.monotonic_s()
            self._fault = ""
        except ProviderUnavailable as error:
            if str(error) != self._fault:
                log.warning("keys of the identity provider: %s; the last ones stay in force", error)
            self._fault = str(error)
        self._tried_s = self._clock.monotonic_s()

    def _may_try(self) -> bool:
        return self._older_than(RETRY_S, self._tried_s)

    def _older_than(self, age_s: float, since_s: float) -> bool:
        return self._clock.monotonic_s() - since_s >= age_s
